"""The presentation of results for people and programs; the only room that writes sentences for people."""

"""What people and programs see of a result; the only room that writes sentences for people."""

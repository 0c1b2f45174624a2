"""Runs one service: serve it, and reload its keys."""

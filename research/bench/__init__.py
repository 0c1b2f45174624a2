"""Measurements: epochs of a training, how long certificates take and how tight they are."""

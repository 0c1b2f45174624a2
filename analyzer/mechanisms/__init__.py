"""The estimators: how the analyzer reads and counts reports, one module for each kind of mechanism."""

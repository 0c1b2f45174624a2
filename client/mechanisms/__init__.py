"""The local randomizers: how a client makes a report of a value, one module for each kind of mechanism."""

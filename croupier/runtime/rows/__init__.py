"""The rows of a service's tables, by subject; `runtime.transaction` puts the subjects together."""

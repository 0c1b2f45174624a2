"""What turns a role into a server: round driver, store, workers, transport, limits, metrics, health, logs, clock."""

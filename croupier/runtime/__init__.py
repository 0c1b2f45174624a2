"""What turns a role into a server: round engine, lane receiver, store, workers, metrics, health, logs and clock."""

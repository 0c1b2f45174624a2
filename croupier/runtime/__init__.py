"""The server parts of every role: round engine, lane receiver, store, workers, metrics, health, logs and clock."""

"""What turns a role into a server: round driver, store, transport, limits, metrics, health, logs, clock.

Clients and the operator use the calling half of it: channels, `retrying`, and the pool of workers.
"""

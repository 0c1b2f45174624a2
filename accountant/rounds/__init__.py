"""The rounds of a deployment: their certificates, refusals and forecasts, and their cost in the ledger."""

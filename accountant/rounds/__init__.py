"""What a round of a deployment comes to: its certificate, a refusal, a forecast, its cost in the ledger."""

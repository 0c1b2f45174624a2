"""The user's side: local randomizers, answers, tickets, outbox, limits, submission and verification."""

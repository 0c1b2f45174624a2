"""The user's side: local randomizers, sealing, submission, verification, and a fleet of simulated users."""

"""The user's side: local randomizers, sealing, submission and verification."""

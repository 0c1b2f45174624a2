"""What an operator does: keys and their rotation, rounds, tokens, canaries, the ledger's backup, audits."""

"""What an operator does: keys and their rotation, rounds, canaries, the ledger's backup, audits."""

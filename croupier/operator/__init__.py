"""The operator's work: keys and their rotation, rounds, canaries, the ledger's backup, audits."""

"""The local randomizers that the accountant knows: the blanket of each, and which bound applies."""

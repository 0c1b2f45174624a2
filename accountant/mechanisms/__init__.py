"""The local randomizers that the accountant knows: the blanket of each, which bound applies, and the attacks on it."""

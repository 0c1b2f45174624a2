"""Laws and sums with a stated numerical error; nothing here knows about privacy."""

"""Upper bounds on the hockey-stick divergence of a shuffled release, one file per argument."""

"""Upper bounds on the hockey-stick divergence of one user among the others, each with its proof in docs/."""

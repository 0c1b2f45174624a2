"""Attacks on a shuffled release: lower bounds on epsilon, one file per mechanism and the tests that they share."""

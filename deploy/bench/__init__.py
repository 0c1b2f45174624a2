"""Benchmarks: throughput, training, how long and how tight certificates are."""

"""A deployment on one machine: its processes, the population that is played, a demonstration, throughput."""

"""A deployment on one machine: its processes, the population that is played, single users, the demonstration."""

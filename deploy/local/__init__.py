"""A deployment on one machine: its processes, its people, the demonstration."""

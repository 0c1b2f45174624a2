"""Training: its configuration and runner, data sets, models, the simulation, the deployed run, its cost and outcome."""

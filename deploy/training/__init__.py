"""Training: data sets, models, the simulation, the deployed run, and what people look at afterwards."""

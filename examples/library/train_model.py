"""Trains a model on a table, on gradients that are randomized before they leave a person."""

from functools import partial

import torch

from croupier import training

people = training.load_table("people.csv", "outcome", ["age:0:100", "bmi:10:50"])  # or any torch Dataset
settings = training.TrainingSettings(simulate=True, budgets="2:1", epochs=10, clipping_norm=1.0, delta=1e-5)
module = torch.nn.Linear(2, people.classes)  # any module whose loss has a gradient for each example
outcome = training.train(
    module, people.train, people.validation, settings, optimizer=partial(torch.optim.Adam, lr=0.05)
)
module.load_state_dict(outcome.state_dict)
print(outcome.records[-1].accuracy)
if (spent := outcome.spending[-1]) is not None:  # None without noise
    print(spent.epsilon, spent.grade)

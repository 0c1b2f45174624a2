# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
# ---

# %% [markdown]
# # Training on shuffled gradients
#
# 2,000 people have one example each. In every epoch each of them computes the gradient of the model on their own
# example, randomizes it, and sends it through the shuffle. `croupier train` does that with a real deployment
# ([how](../docs/sgd.md)); here are its steps by themselves, in numpy, **simulated: this notebook protects no one**.
# `client` and `analyzer` are the packages that the two roles run.

# %%
import numpy as np

import croupier
from croupier.analyzer.vectors import hemisphere_mean
from croupier.client.vectors import hemisphere
from croupier.protocol.randomness import SystemRandom

USERS, DIMENSION, LOCAL_EPSILON, CLIPPING_NORM = 2000, 5, 2.0, 1.0
source = np.random.default_rng(1)  # for the data; what people randomize with is the operating system's
weights = source.normal(size=DIMENSION)
features = source.normal(size=(USERS, DIMENSION))
labels = (features @ weights + 0.3 * source.normal(size=USERS) > 0).astype(float)

# %% [markdown]
# ## First the price, before anyone answers
#
# One epoch is one round. All epochs together are certified at once; the number of epochs is chosen here, and not by
# looking at the data.

# %%
DELTA = 1e-5
EPOCHS = 4
print(croupier.certify({LOCAL_EPSILON: USERS}, "hemisphere", delta=DELTA))
price = croupier.certify({LOCAL_EPSILON: USERS}, "hemisphere", delta=DELTA, rounds=EPOCHS)
price

# %% [markdown]
# Without the shuffle each answer would cost the whole local ε again. If everyone else works together, that is what is
# left.

# %%
print(price.everyone_else_colludes.grade, price.everyone_else_colludes.epsilon)
assert price.epsilon < LOCAL_EPSILON < price.everyone_else_colludes.epsilon


# %% [markdown]
# ## What one person does
#
# The gradient of the logistic loss is clipped, and a random unit vector on its side is reported, with probability
# e^ε/(1 + e^ε), or on the other. One report is nearly all noise to the model; how much it says about the person is what
# the local ε limits.


# %%
def gradient(model: np.ndarray, person: int) -> np.ndarray:
    """Returns the gradient of one person's loss."""
    predicted = 1 / (1 + np.exp(-features[person] @ model))
    return (predicted - labels[person]) * features[person]


random = SystemRandom()
report = hemisphere(gradient(np.zeros(DIMENSION), 0), CLIPPING_NORM, LOCAL_EPSILON, random)
print(report)

# %% [markdown]
# ## What the analyzer does
#
# It sees the reports in a secret order, which a sum does not depend on; it scales their sum and takes a step.

# %%
model = np.zeros(DIMENSION)
for epoch in range(EPOCHS):
    total = np.zeros(DIMENSION)
    for person in range(USERS):
        total += hemisphere(gradient(model, person), CLIPPING_NORM, LOCAL_EPSILON, random)
    step = hemisphere_mean(total, [(LOCAL_EPSILON, USERS)], CLIPPING_NORM)
    model -= 8.0 * step.mean
    accuracy = np.mean((features @ model > 0) == labels)
    print(f"epoch {epoch + 1}: noise of a coordinate {step.standard_error:.4f}, accuracy {accuracy:.3f}")

# %%
assert accuracy > 0.7

# %% [markdown]
# ## In words

# %%
croupier.explain(price)

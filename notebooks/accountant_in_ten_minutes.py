# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
# ---

# %% [markdown]
# # The accountant in ten minutes
#
# People add noise to their own answers, servers shuffle the answers, and the accountant proves what the shuffled batch
# still reveals about any one person. This notebook needs no server: it is the mathematics alone.

# %%
import pandas as pd

import croupier

# %% [markdown]
# ## One question, 10,000 people
#
# 9,000 people chose a local ε of 0.5, and 1,000 chose 2. `"rr"` is randomized response: a bit that is flipped now and
# then. δ is what may come on top of ε: at worst a person's answer is shown with that probability.

# %%
people = {0.5: 9000, 2.0: 1000}
certificate = croupier.certify(people, "rr", delta=1e-6)
certificate

# %% [markdown]
# The table is what a notebook shows of a certificate. Each ε has a *grade*. `CERTIFIED` is proved, rounding errors
# included. `LOWER_BOUND` is an attack: no smaller ε can be true, so the gap between the two is all that is unknown.
# What is shown of a certified number is rounded up, what is shown of an attack down.

# %%
assert certificate.grade is croupier.Grade.CERTIFIED
assert certificate.lower_bound.epsilon <= certificate.epsilon < 2.0
print(certificate)

# %% [markdown]
# ## In words
#
# `explain` says what an observer can learn, what that rests on, and what would make it better.

# %%
explained = croupier.explain(certificate)
explained

# %%
print(explained.certified)  # of all guesses; a coin is right in 50 %

# %% [markdown]
# ## The whole curve
#
# One pair (ε, δ) is a point of a curve. Between certified points the curve is certified, too.

# %%
curve = croupier.privacy_profile(people, "rr")
curve

# %%
print(f"CERTIFIED: δ = {curve(0.1)} at ε = 0.1, ε = {curve.epsilon(1e-7)} at δ = 1e-7")

# %% [markdown]
# ## What if some lie?
#
# `dishonest` is how many of the others may send what they like, or tell what they sent. Certify against more than you
# expect.

# %%
worse = [croupier.certify(people, "rr", delta=1e-6, dishonest=f) for f in (0, 1000, 5000)]
for one in worse:
    print(one)
assert worse[0].epsilon < worse[1].epsilon < worse[2].epsilon

# %% [markdown]
# ## Turned around: how much may each person spend?

# %%
plan = croupier.plan("rr", delta=1e-6, epsilon=0.1, num_users=10_000)
print(plan.budgets.tiers[0], f"standard error of a share: {plan.standard_error:.4f}")
assert plan.certificate.epsilon <= 0.1

# %% [markdown]
# ## Data frames in and out
#
# Budgets may be a data frame of pandas or polars with the columns `epsilon` and `count`; `rows()` gives one back.

# %%
asked = pd.DataFrame({"epsilon": [0.5, 2.0], "count": [9000, 1000]})
same = croupier.certify(asked, "rr", delta=1e-6)
assert same.epsilon == certificate.epsilon
pd.DataFrame(same.rows())

# %% [markdown]
# ## OpenDP measurements in
#
# OpenDP states the local ε of a measurement. That the measurement *is* randomized response is what we say by `"rr"`:
# OpenDP does not tell, and the certificate is for what it is told.

# %%
from opendp.measurements import make_randomized_response_bool
from opendp.mod import enable_features

enable_features("contrib")
measurement = make_randomized_response_bool(prob=0.75)
budgets = croupier.Budgets.from_opendp([(measurement, 10_000)], d_in=1)
print(budgets.tiers[0].local_epsilon, croupier.certify(budgets, "rr", delta=1e-6))

# %% [markdown]
# ## A privacy loss distribution for dp-accounting
#
# It dominates the certified release, and can be composed with anything else that dp-accounting knows.

# %%
loss = croupier.privacy_loss_distribution(croupier.certify([1.0] * 10_000, "rr", delta=1e-6))
alone = loss.get_epsilon_for_delta(1e-5)
both = loss.self_compose(2).get_epsilon_for_delta(1e-5)
print(f"by dp-accounting, whose own rounding is not certified, at δ = 1e-5: once {alone}, twice {both}")
assert alone < both < 2 * alone

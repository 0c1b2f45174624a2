# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
# ---

# %% [markdown]
# # Reading a certificate critically
#
# Someone hands you a certificate and says "ε = 0.2". What should you ask? Every question below is answered by the
# document itself, or by computing it again.

# %%
import json

import croupier

people = {1.0: 4500, 4.0: 500}
document = json.dumps(croupier.certify(people, "krr(k=5)", delta=1e-6, dishonest=50).to_json())

# %% [markdown]
# ## 1. Is it proved?
#
# The grade says so. `ASYMPTOTIC` and `HEURISTIC` figures promise nothing; they only stand in comparisons.

# %%
certificate = croupier.Certificate.from_json(json.loads(document))
assert certificate.grade is croupier.Grade.CERTIFIED
certificate

# %% [markdown]
# ## 2. Does it come out again?
#
# A certificate is a function of public numbers. Compute it yourself.

# %%
again = croupier.certify(people, "krr(k=5)", delta=1e-6, dishonest=50)
assert again.epsilon == certificate.epsilon

# %% [markdown]
# ## 3. What does it assume?
#
# The first line says what is protected. Each of the others is a way in which the number may be worth nothing: they are
# about people and servers, and no computation can check them.

# %%
for assumption in certificate.assumptions:
    print("·", assumption)

# %% [markdown]
# ## 4. And if that is wrong?
#
# If everyone but the victim works together, the shuffle hides nothing: what is left is the local ε. It is the only
# promise that needs no server and no other person.

# %%
alone = certificate.everyone_else_colludes
print(alone.grade, alone.epsilon)
assert alone.epsilon == 4.0

# %% [markdown]
# ## 5. For whom?
#
# The ε at the top is for the people with the largest budget. The others stand in the tiers.

# %%
for row in certificate.rows():
    print(row["count"], "people, local ε", row["local_epsilon"], "→", row["grade"], row["epsilon"])

# %% [markdown]
# ## 6. How good is the proof?
#
# The attack beside it says how far the truth can be below. A large gap is a weak proof, not a strong attack.

# %%
attack = certificate.lower_bound
assert attack is not None
assert attack.epsilon <= certificate.epsilon
print(f"between {attack.epsilon} (LOWER_BOUND) and {certificate.epsilon} (CERTIFIED); {attack.attack}")

# %% [markdown]
# ## 7. Would another formula have said less?
#
# Published formulas often do. With `compare_all` they stand beside the certificate, each with its grade, and with what
# the attack makes of it: `refuted` means that the formula is wrong here.

# %%
compared = croupier.certify(people, "krr(k=5)", delta=1e-6, compare_all=True).comparison
for bound in compared:
    if bound.epsilon is not None:
        print(f"{bound.name}: ε = {bound.epsilon}, {bound.grade}, {bound.status}")
assert {bound.grade for bound in compared if bound.status is croupier.Status.REFUTED} <= {
    croupier.Grade.HEURISTIC,
    croupier.Grade.ASYMPTOTIC,
}
assert any(bound.status is croupier.Status.REFUTED for bound in compared)

# %% [markdown]
# ## 8. How much rests on a few people?
#
# If 500 instead of 50 of the others may be dishonest, ε must not explode. And the δ: at worst it shows a person's
# answer with that probability, so it has to be far below one in the number of people.

# %%
harder = croupier.certify(people, "krr(k=5)", delta=1e-6, dishonest=500)
print(harder)
assert certificate.epsilon < harder.epsilon < alone.epsilon
assert certificate.delta < 1 / certificate.num_users / 100

# %% [markdown]
# ## 9. Once, or every week?
#
# Losses add up. A certificate is for its `rounds`; ask for the sum. It holds even if you choose each week's question
# and people by earlier results; it is smaller if all weeks are planned before the first result (`fixed_terms=True`).

# %%
weekly = croupier.compose([certificate] * 52, delta=3e-4)
print(certificate.rounds, "round:", certificate.epsilon, "· 52 rounds:", weekly.epsilon, weekly.grade)
planned = croupier.compose([certificate] * 52, delta=3e-4, fixed_terms=True)
assert weekly.epsilon > planned.epsilon > certificate.epsilon

# %% [markdown]
# ## 10. In the end
#
# `explain` has all of that in sentences. If it reads worse than what you were told, believe the sentences.

# %%
croupier.explain(certificate)

# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
# ---

# %% [markdown]
# # A survey, end to end
#
# A real deployment on this machine: one shuffler, an accountant and an analyzer, each in its own process, over TLS. We
# play the operator, one person with an application, and sixty others.
#
# On a machine of their own the commands are typed into a shell; here `run` does that.

# %%
import csv
import json
import random
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import croupier

place = Path(tempfile.mkdtemp(prefix="survey-"))
deployment = place / "deployment"


def run(*words: str) -> dict:
    """Runs a command of croupier and returns what it says in JSON."""
    command = ["croupier", *words, "--dir", str(deployment), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


# %% [markdown]
# ## The operator starts the servers and opens a round

# %%
run("up", "--hops", "1")
opened = run("survey", "open", "smokes", "--grid", "0.5,1,2", "--epsilon-max", "2", "--min-batch-size", "50")
opened["survey_id"]

# %% [markdown]
# ## What people read before they answer
#
# The terms are signed by every server, and verified here.

# %%
client = croupier.connect(deployment, directory=place / "ada")
asked = client.round()
print(asked.question, asked.state, "budgets", asked.budgets)
assert asked.id == opened["survey_id"]

# %% [markdown]
# ## One person answers from an application
#
# The person is admitted by an invitation, a link that the operator hands out. The value is randomized here; what leaves
# is sealed three times. The receipt says what it cost.

# %%
links = ("--no-qr", "--out", str(place / "links"))
run("invite", asked.id, "--count", "61", "--gateway", "https://gateway.example", *links)
with (place / "links" / "links.csv").open() as file:
    link, *others = (row["link"] for row in csv.DictReader(file))
receipt = asked.submit(1, max_local_epsilon=1.0, invitation=link)
receipt

# %% [markdown]
# The same call again sends the same bytes: no one answers twice by mistake.

# %%
assert asked.submit(0, max_local_epsilon=2.0, invitation=link).sealed_before

# %% [markdown]
# ## Everybody else answers
#
# A program that answers for several people names each of them, in a directory of its own. From a file of many rows,
# `croupier submit --csv` does it.

# %%
answers = {f"person {number}": int(random.random() < 0.3) for number in range(len(others))}
with croupier.connect(deployment, directory=place / "others") as program, ThreadPoolExecutor(8) as crowd:
    theirs = program.round(asked.id)

    def answer_for(person: str, theirs_alone: str) -> croupier.Receipt:
        """Submits one person's answer, with a budget of their choice."""
        return theirs.submit(answers[person], random.choice((0.5, 1.0, 2.0)), person=person, invitation=theirs_alone)

    receipts = list(crowd.map(answer_for, answers, others))
len(receipts)

# %% [markdown]
# ## The operator closes the round
#
# The shuffler mixes, the accountant certifies and gives away the key, the analyzer estimates: in this order, or not at
# all.

# %%
run("survey", "close", opened["survey_id"])
result = asked.result(wait_s=60)
result

# %%
truth = (sum(answers.values()) + 1) / 61
(share,) = result.values
print(f"truth {truth:.3f}, estimate {share.estimate:.3f} ± {share.standard_error:.3f}")
assert result.num_reports == 61
assert result.guarantee.grade is croupier.Grade.CERTIFIED

# %% [markdown]
# With 61 people the noise is large, and ε is not small: both get better with thousands.
#
# ## Was my answer counted?
#
# The application looks for its own sealed messages in the lists that every hop has committed to.

# %%
asked.verify()

# %% [markdown]
# ## What it revealed, in words

# %%
croupier.explain(result.document["certificate"])

# %%
client.close()
run("down")

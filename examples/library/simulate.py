"""Computes what a deployment would estimate and certify, from a table."""

from pathlib import Path

import pandas

import croupier

frame = pandas.DataFrame({"smokes": [1, 0, 0, 1] * 500, "hours": [7.5, 8, 6, 9] * 500})
simulated = croupier.simulate(frame, ["smokes", "hours:0:24"])
print(pandas.DataFrame(simulated.rows()))  # truth, estimate, interval, ε with its grade
print(croupier.explain(simulated.questions[0].result))
Path("before-we-ask.html").write_text(simulated.report("Before we ask"), encoding="utf-8")

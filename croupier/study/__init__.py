"""Studies and discoveries as an operator runs them: many waves under one privacy limit.

file             study.toml, which an operator writes
versions         what a study keeps of its descriptions, and the surveys that its waves are
plans            error and ε before the first wave
journal          what the process of a study has done, so that it goes on after its end
runs             opens, closes and publishes every wave
results, metrics what people and Prometheus read
discovery        frequent texts: the tree of beginnings, and which are kept
discovery_waves  its waves, each opened once
"""

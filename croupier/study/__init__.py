"""Studies and discoveries as an operator runs them: many waves under one privacy limit.

file             study.toml, which an operator writes
versions         the stored versions of a study, and the surveys of its waves
plans            error and ε before the first wave
journal          the actions of a study's process, so that the study continues after the process ends
runs             opens, closes and publishes every wave
results, metrics the results for people and for Prometheus
discovery        the frequent texts that the waves of a discovery have found
"""

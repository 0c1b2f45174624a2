"""Measurements of the maintainers: the papers' figures, speed, tightness; and what writes tables of the documentation.

commands             the group `croupier research`
experiment_commands  the group `croupier experiment`
experiments          the papers' figures and tables, with a verdict on every claim
bench                measurements
pages                the parts of pages that a command writes and the repository keeps
protocol_reference   the tables of messages and calls, from the comments in proto/
reference            the parts of the documentation that are made from the program
"""

"""The evaluations of the papers that croupier implements, as commands that end in a table, a plot and a verdict.

One file for each paper describes its figures: points, lines, claims. `measures` computes what a point says, `runner`
runs points on all cores and keeps their numbers, `page` writes the findings. `croupier experiment` is the command.
"""

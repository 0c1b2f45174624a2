"""Certifies a release of people with two local budgets, some of whom are dishonest."""

import croupier

budgets = croupier.Budgets.from_tiers([(0.5, 9000), (2.0, 1000)])  # (ε, people)
certificate = croupier.certify(budgets, "rr", delta=1e-6, dishonest=100)
print(certificate.epsilon, certificate.grade)
print(*certificate.assumptions, sep="\n")

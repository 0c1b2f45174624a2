"""Certifies a batch of equal local budgets."""

import croupier

certificate = croupier.certify([1.0] * 10_000, "rr", delta=1e-6)
print(certificate.epsilon, certificate.grade)

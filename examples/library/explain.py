"""Explains a certificate in plain language."""

import croupier

certificate = croupier.certify([1.0] * 10_000, "rr", delta=1e-6)
explained = croupier.explain(certificate)
print(explained.certified)  # everybody: right at most … %, rounded up, as a promise has to be
print(explained)  # all of it

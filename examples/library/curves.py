"""Compares the privacy profiles of two mechanisms."""

import croupier

curve = croupier.privacy_profile([1.0] * 10_000, "krr(k=5)")
other = croupier.privacy_profile([1.0] * 10_000, "rr")
print(curve(0.03), curve.epsilon(1e-7))  # CERTIFIED, also between the points
for span in curve.compare(other):
    print(span.low, span.high, span.lower)  # where the first or the second is lower
curve.plot().figure.savefig("curve.png")  # needs the extra plots

"""Decides by the codes of a certificate, and keeps it as JSON."""

import croupier
from croupier import Assumption, Method

certificate = croupier.certify([1.0] * 10_000, "rr", delta=1e-6)
if Method.LOCAL_BUDGET in [method.code for method in certificate.method]:
    print("the shuffle adds nothing that could be proved")
for assumption in certificate.assumptions:
    if assumption.code is Assumption.DISHONEST_CLIENTS:
        print(assumption["dishonest"])
    print("·", assumption)  # its sentence
text = certificate.to_json()  # Certificate.from_json reads it back without loss

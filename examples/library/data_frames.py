"""Takes budgets from a data frame, and gives a certificate's tiers as one."""

import pandas

import croupier

people = pandas.DataFrame({"epsilon": [0.5, 2.0], "count": [9000, 1000]})
certificate = croupier.certify(people, "rr", delta=1e-6)
print(pandas.DataFrame(certificate.rows()))

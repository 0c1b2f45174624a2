"""Published bounds, implemented for comparison: each with its grade, its reference and its validity range.

None of them opens a gate. Outside its validity range a bound raises `OutOfRangeError`, which names the range; it never
returns a number there. `compare` puts all of them beside an attack. Certified answers are left to `certify`.
"""

from __future__ import annotations

from croupier.accountant.published.clones import (
    fmt22_closed_form,
    fmt22_numeric,
    leftover_clones,
    leftover_clones_delta,
)
from croupier.accountant.published.equal_budgets import bbgn_bennett, efmrtt, optimal_decomposition
from croupier.accountant.published.likelihood_tests import likelihood_test_clones
from croupier.accountant.published.personalised import echo, gspa_asymptotic, gspa_mu, gspa_numeric, gspa_positions
from croupier.accountant.published.table import compare
from croupier.accountant.published.validity import OutOfRangeError

__all__ = [
    "OutOfRangeError",
    "bbgn_bennett",
    "compare",
    "echo",
    "efmrtt",
    "fmt22_closed_form",
    "fmt22_numeric",
    "gspa_asymptotic",
    "gspa_mu",
    "gspa_numeric",
    "gspa_positions",
    "leftover_clones",
    "leftover_clones_delta",
    "likelihood_test_clones",
    "optimal_decomposition",
]

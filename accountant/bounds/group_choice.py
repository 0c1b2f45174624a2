"""The choice of the hosts for the core and for the tails, if others have larger budgets than the victim.

Hosts of the smallest budgets hide the tails; the other group, whose budgets may be above the victim's, hides the core
(docs/paper, section 6). `best_split` chooses how the victim's noise is split. Nothing certified rests on either choice.
"""

from __future__ import annotations

import numpy as np

from croupier.accountant.bounds.best_split import HostGroup, best_split
from croupier.accountant.bounds.exchange import TUNING_DELTA
from croupier.accountant.bounds.exchange_laplace import MAX_LOCAL_EPSILON, MAX_TIERS, ExchangeLaplaceProfile
from croupier.accountant.bounds.profile import Curve, Others, Victim
from croupier.accountant.bounds.split_laws import Distances
from croupier.accountant.bounds.two_groups import TwoGroupProfile
from croupier.accountant.numerics.binomial import Floats

COMPARED = (1.0, 0.9, 0.75, 0.6, 0.42, 0.29, 0.15)
"""Distances of the victim's values at which pairs of groups are compared: enough to find the worst to 2 %."""
PROMISING = 3
"""The number of pairs of groups that are compared by their bound, by increasing deviation. With one, epsilon is up to
20 % larger; with three, a choice takes a third of the time of comparing all."""


def two_group_profile(own: Curve, victim: Victim, others: Others, delta: float | None) -> TwoGroupProfile | None:
    """Returns the bound of section 6, or None if it cannot decide a certificate.

    It cannot if nobody has a larger budget than the victim, if `own`, the bound of section 5, gives the victim a
    smaller epsilon than the largest budget gets, or if there are more budgets than MAX_TIERS.
    """
    v, rates = victim.local_epsilon, others.local_epsilon
    if victim.span is not None or v > MAX_LOCAL_EPSILON or rates.size > MAX_TIERS:
        return None
    order = np.argsort(rates, kind="stable")
    rates, count = rates[order], np.maximum(others.count[order] - others.dishonest, 0).astype(np.float64)
    used = (count > 0) & (rates <= MAX_LOCAL_EPSILON)
    rates, count = rates[used], count[used]
    if rates.size == 0 or rates[-1] <= v:
        return None
    # The split is chosen for the epsilon of the victims of the largest budget, because a smaller one decides nothing.
    target = TUNING_DELTA if delta is None else delta
    alone = min(v, own.guess(target))
    largest = ExchangeLaplaceProfile.among(float(rates[-1]), rates, np.ones_like(rates), count, target).guess(target)
    if alone <= largest:
        return None
    curves = []
    for low in range(1, int(np.searchsorted(rates, v, "right")) + 1):
        for top in range(low + 1, rates.size + 1):
            core, tails = (HostGroup(rates[part], count[part]) for part in (slice(low, top), slice(low)))
            deviation, split = best_split(v, 1.0, largest, (core, tails))
            curves.append(TwoGroupProfile(v, core, tails, split, target, deviation))
    curves.sort(key=lambda curve: curve.deviation)
    return min(curves[:PROMISING], key=lambda curve: float(_compared(curve, largest).max()), default=None)


def _compared(curve: TwoGroupProfile, epsilon: float) -> Floats:
    """Returns rough bounds at the compared distances; 0 where the divergence is 0."""
    places, v = np.array(COMPARED), curve.local_epsilon
    at = Distances.at(v, places, np.zeros(places.size), epsilon)
    return np.where(places * v > epsilon, curve.bounds(at), 0.0)

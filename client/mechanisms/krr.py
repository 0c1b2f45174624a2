"""`krr`: one of k categories, or a uniform one by the local budget (Kairouz, Bonawitz, Ramage 2016)."""

from __future__ import annotations

import secrets

from croupier.client.mechanisms.base import ScalarRandomizer, randomize_category
from croupier.protocol.mechanisms.krr import KaryResponse
from croupier.protocol.randomness import RandomSource


class _Category(ScalarRandomizer[KaryResponse]):
    def report(self, mechanism: KaryResponse, value: float, epsilon: float, source: RandomSource) -> int:
        return randomize_category(int(value), mechanism.k, epsilon, source)

    def any_value(self, mechanism: KaryResponse) -> int:
        return secrets.randbelow(mechanism.k)


RANDOMIZER = _Category()

"""Everybody but the victim and one honest hop colludes: what they see of a running deployment, and what they can do.

Hop 1 passes on the victim's report alone, and fakes that it knows; the accountant gives up its release key and never
certifies; the analyzer hands over what it holds.
"""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from scipy.stats import beta

from croupier import certify
from croupier.accountant.service.service import AccountantService
from croupier.deploy.operator.rounds import RoundSettings
from croupier.protocol.envelope import HOP_RELEASE, open_many
from croupier.protocol.hop_noise import HopNoise
from croupier.protocol.manifest import RoundTerms
from croupier.protocol.onion import onion_of
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.runtime.kinds import KeyPurpose
from croupier.runtime.setup import ServiceSetup
from tests.attacks.cheaters import CheatingShuffler, Lanes, instead, own_report
from tests.attacks.reading import held_reports, keys_of
from tests.support import BIT, encode_report
from tests.support.arena import Arena, arena

CLIENTS = 2
LOCAL = 8.0
NOISE = (0.5, 1e-3)
ISOLATED = RoundSettings(BIT, (LOCAL,), min_batch_size=CLIENTS, delta=NOISE[1], epsilon_max=LOCAL, hop_noise=NOISE[0])


class IsolatesOne(CheatingShuffler):
    """A hop 1 that passes on one client's report; all other reports, and its fakes, are 0 and its own."""

    def __init__(self, setup: ServiceSetup) -> None:
        super().__init__(setup)
        self.own: list[bytes] = []
        instead(self.fakes, make=self.make)

    async def make(self, terms: RoundTerms) -> list[bytes]:
        assert terms.fake_law is not None
        self.own = [own_report(terms, self.position.hop(terms), 0) for _ in range(terms.fake_law.most)]
        return self.own

    def tamper(self, terms: RoundTerms, lanes: Lanes, drops: dict[pb.Lane.ValueType, dict[str, int]]) -> None:
        of_clients = [report for report in lanes[pb.LANE_REPORT] if report not in self.own]
        others = [own_report(terms, self.position.hop(terms), 0) for _ in of_clients[1:]]
        lanes[pb.LANE_REPORT][:] = [of_clients[0], *others, *self.own]


class NeverCertifies(AccountantService):
    """An accountant that keeps the round as it is, so that the operator can withdraw it."""

    async def _certify(self, terms: RoundTerms) -> bool:
        return False


COLLUDING = {"shuffler-1": IsolatesOne, "accountant": NeverCertifies}


async def ones_seen(at: Arena, value: int) -> int:
    """Returns how many ones are in a round in which the victim has this value; hop 1 has put in none."""
    terms = await at.operator.open_round(ISOLATED)
    await at.admit(terms, await at.seal(terms, CLIENTS, value=value, max_local_epsilon=LOCAL))
    await at.operator.close_round(terms.round_id)
    await at.reached("shuffler-2", terms, pb.ROUND_STATE_DELIVERED)
    await at.reached("analyzer", terms, pb.ROUND_STATE_MIXED)
    sealed = await held_reports(at.service("analyzer"), terms)
    release = (await keys_of(at.service("accountant"), terms))[KeyPurpose.RELEASE].private
    label = onion_of(terms).layer(pb.LANE_REPORT, HOP_RELEASE).label
    opened = open_many(terms.suite, release, label, sealed)
    assert terms.fake_law is not None
    assert len(opened) == CLIENTS + 2 * terms.fake_law.most
    await at.operator.withdraw(terms.round_id)
    return opened.count(encode_report(1))


async def attacked(directory: Path, rounds: int, level: float) -> float:
    """Returns the epsilon that an observer of this many rounds for each value has shown, by Clopper-Pearson bounds.

    The observer says "the answer is 1" where more than half of the honest hop's fakes would have to be ones otherwise.
    Each of the two bounds is wrong with a probability of at most `level`.
    """
    says_one = [0, 0]
    law = HopNoise(*NOISE).law(2)
    async with arena(directory, 2, COLLUDING) as deployment:
        for _ in range(rounds):
            for value in (0, 1):
                says_one[value] += await ones_seen(deployment, value) > law.radius
    least = float(beta.ppf(level, says_one[1], rounds - says_one[1] + 1)) if says_one[1] else 0.0
    most = float(beta.ppf(1 - level, says_one[0] + 1, rounds - says_one[0])) if says_one[0] < rounds else 1.0
    return math.log(max(least - NOISE[1], 1e-9) / most)


@pytest.mark.asyncio
@pytest.mark.virtual_time
@pytest.mark.parametrize(("rounds", "level"), [(16, 1e-3), (250, 1e-6)])
async def test_all_but_one_hop_see_no_more_than_the_certificate_says(tmp_path: Path, rounds: int, level: float) -> None:
    certificate = certify({LOCAL: 1}, "rr", delta=NOISE[1], hop_noise=NOISE, attack=False)
    assert await attacked(tmp_path, rounds, level) <= certificate.epsilon


@pytest.mark.asyncio
@pytest.mark.virtual_time
async def test_all_but_one_hop_read_an_answer_among_fakes_that_are_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same attack where the numbers of fakes are no secret: it refutes the certificate in as few rounds."""
    monkeypatch.setattr("croupier.shuffler.fake_reports.draw_fakes", lambda law: [law.radius, law.radius])
    certificate = certify({LOCAL: 1}, "rr", delta=NOISE[1], hop_noise=NOISE, attack=False)
    assert await attacked(tmp_path, 16, 1e-3) > certificate.epsilon

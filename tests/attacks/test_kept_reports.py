"""Attacks on permanent studies: comparing waves whose reports are the same, and asking more often than announced."""

from __future__ import annotations

import secrets
from collections import Counter
from pathlib import Path

import pytest
from scipy.stats import beta

from croupier import certify
from croupier.accountant.guessing import right_at_most
from croupier.accountant.rounds.found import BudgetsFound, ReportsFound
from croupier.accountant.rounds.round_certificate import certify_round
from croupier.client.limits import Limits
from croupier.client.outbox import Outbox, WantedReport
from croupier.client.submission import draw_report
from croupier.protocol.errors import LimitError
from croupier.protocol.manifest import RoundTerms
from croupier.protocol.mechanisms.rr import RandomizedResponse
from croupier.protocol.names import Digest, RoundId
from croupier.protocol.permanent import PermanentSeries
from croupier.protocol.v1 import messages_pb2 as pb
from tests.support.studies import kit_of_wave

PEOPLE, LOCAL_EPSILON, TRIALS = 1000, 1.0, 800


def certificate_of(terms: RoundTerms) -> pb.Certificate:
    message, _ = certify_round(
        terms,
        {pb.LANE_REPORT: [pb.Commitment(num_out=PEOPLE)]},
        BudgetsFound(Counter({LOCAL_EPSILON: PEOPLE}), 0, {}),
        ReportsFound(PEOPLE, Digest(bytes(32)), [], PEOPLE, {}),
        PEOPLE,
    )
    return message


def right_guesses(terms: RoundTerms) -> float:
    """How often someone is right, at least (99.9 %), who subtracts a wave without the victim from one with it.

    All others take part in both, with the reports that they keep. The attacker knows no answer.
    """
    others = [draw_report(terms, secrets.randbelow(2), LOCAL_EPSILON) for _ in range(PEOPLE - 1)]
    second = Counter(others)
    right = 0
    for _ in range(TRIALS):
        answer = secrets.randbelow(2)
        first = Counter([*others, draw_report(terms, answer, LOCAL_EPSILON)])
        (report,) = (first - second).elements()  # the order of both waves is secret, and does not help
        right += RandomizedResponse().decode_report(report) == answer
    return float(beta.ppf(0.001, right, TRIALS - right + 1))


def test_waves_of_kept_reports_are_certified_for_their_differences() -> None:
    kept, fresh = kit_of_wave(1).terms, kit_of_wave(1, permanent=False).terms
    reached = right_guesses(kept)
    certificate = certificate_of(kept)
    assert certificate.granted
    (tier,) = certificate.tiers
    assert reached <= right_at_most(tier.epsilon, tier.delta)
    undefended = certificate_of(fresh)  # what the shuffle of one wave is certified where each wave has its own reports
    assert undefended.granted
    assert reached > right_at_most(undefended.tiers[0].epsilon, undefended.delta)
    over_all_waves = certify({LOCAL_EPSILON: PEOPLE}, "rr", delta=1e-4, rounds=3, attack=False)
    assert reached > right_at_most(over_all_waves.epsilon, over_all_waves.delta)


def test_no_more_waves_get_the_report_than_were_announced(tmp_path: Path) -> None:
    outbox, series = Outbox(tmp_path / "outbox.db"), PermanentSeries(3, "5e" * 32)
    wanted = WantedReport("", "1.0", 1.0)

    def ask(number: int) -> tuple[bytes, float]:
        wave = RoundId(f"w{number}"), series
        return outbox.keep_reports(wave, {"me": wanted}, lambda *_: b"report", Limits())["me"]

    assert {ask(number) for number in (1, 2, 3, 2)} == {(b"report", 1.0)}
    with pytest.raises(LimitError, match=r"wave 4 .* for 3"):
        ask(4)
    outbox.close()

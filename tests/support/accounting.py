"""The accountant as tests of the bounds call it, and a curve whose composition is known."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import pytest

from croupier import certify
from croupier.accountant.numerics.gaussian import gaussian_delta, gaussian_epsilon
from croupier.accountant.privacy_curve import Bounded, Proof
from croupier.accountant.rounds.found import BudgetsFound, ReportsFound
from croupier.accountant.rounds.round_certificate import certify_round
from croupier.accountant.spending import Entry
from croupier.protocol.codes import Method, ProofStep
from croupier.protocol.manifest import RoundTerms
from croupier.protocol.names import Digest
from croupier.protocol.statements import Statement
from croupier.protocol.v1 import messages_pb2 as pb

certify_without_attack = partial(certify, attack=False)
"""`certify` for a test that does not look at the attack, which takes about as long as the bound."""


def draw_points_only(patch: pytest.MonkeyPatch) -> None:
    """Leaves out what lies between the points that a curve is printed with, most of the time that it takes."""
    patch.setattr("croupier.accountant.certified_profile.MOST_BETWEEN", 0)


def certified_round(
    terms: RoundTerms, budgets: BudgetsFound, reports: int, tickets: int
) -> tuple[pb.Certificate, list[Entry]]:
    """Returns the certificate of a round in which these reports and budgets arrived, and the ledger's entries."""
    chain = {pb.LANE_REPORT: [pb.Commitment(num_out=reports)]}
    return certify_round(terms, chain, budgets, ReportsFound(reports, Digest(bytes(32)), [], reports, {}), tickets)


@dataclass
class GaussianProfile:
    """The exact privacy profile of N(0, 1) against N(mu, 1): T rounds are sqrt(T) mu."""

    mu: float
    method: Proof = (Statement.of(Method.PUBLISHED),)

    def delta(self, epsilon: float) -> Bounded:
        return Bounded(min(1.0, gaussian_delta(self.mu, epsilon)), 0.0)

    def guess(self, delta: float) -> float:
        return gaussian_epsilon(self.mu, delta)

    def explain(self) -> tuple[Statement[ProofStep], ...]:
        return ()

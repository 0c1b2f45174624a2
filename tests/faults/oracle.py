"""What must hold after a schedule, whatever was killed when.

Every attempt of a client reports a letter of its own and tells the truth, so the published histogram says exactly which
attempts were counted, and how often.
"""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from croupier.client.submission import PreparedReport, SealedSubmission
from croupier.protocol.v1 import messages_pb2 as pb

LETTERS = 128
_REFUSALS_OF_TAMPERED = {pb.SUBMISSION_CODE_BAD_SIGNATURE}


class Violation(AssertionError):
    """The deployment broke a promise."""


@dataclass
class Attempt:
    """One submission as its client made it, and every definite answer that it ever got.

    Without tickets there is nothing to submit, and the answer is the accountant's.
    """

    client: int
    letter: int
    prepared: PreparedReport
    submission: pb.Submission | None = None
    inclusion_hashes: bytes = b""
    authentic: bool = True
    answers: list[pb.SubmissionCode.ValueType] = field(default_factory=list)

    def keep(self, sealed: SealedSubmission) -> None:
        """Takes the submission that is sent from now on."""
        self.submission, self.inclusion_hashes = pb.Submission.FromString(sealed.submission), sealed.inclusion_hashes

    @property
    def accepted(self) -> bool:
        return pb.SUBMISSION_CODE_ACCEPTED in self.answers

    def __str__(self) -> str:
        names = [pb.SubmissionCode.Name(code).removeprefix("SUBMISSION_CODE_") for code in self.answers]
        kind = "" if self.authentic else " (tampered)"
        return f"client {self.client}, letter {self.letter}{kind}: {', '.join(names) or 'never answered'}"


def check_answers(attempts: Iterable[Attempt], *, may_be_closed: bool) -> None:
    """Every answer is final, follows from what the client did, and one client has at most one report."""
    by_client: dict[int, list[Attempt]] = defaultdict(list)
    for attempt in attempts:
        by_client[attempt.client].append(attempt)
        if len(set(attempt.answers)) > 1:
            raise Violation(f"the answer changed: {attempt}")
        if not attempt.authentic and set(attempt.answers) - _REFUSALS_OF_TAMPERED:
            raise Violation(f"a tampered submission was not recognised: {attempt}")
        if pb.SUBMISSION_CODE_ROUND_CLOSED in attempt.answers and not may_be_closed:
            raise Violation(f"the round was not closed: {attempt}")
    another = {pb.SUBMISSION_CODE_ALREADY_EXISTS, pb.SUBMISSION_CODE_TICKETS_GIVEN}
    allowed = another | {pb.SUBMISSION_CODE_ACCEPTED, pb.SUBMISSION_CODE_ROUND_CLOSED}
    for mine in by_client.values():
        authentic = [attempt for attempt in mine if attempt.authentic]
        accepted = [attempt for attempt in authentic if attempt.accepted]
        if len(accepted) > 1:
            raise Violation(f"two reports of one client were accepted: {accepted[0]}; {accepted[1]}")
        for attempt in authentic:
            if set(attempt.answers) - allowed:
                raise Violation(f"no reason for this answer: {attempt}")
            exists = bool(another & set(attempt.answers))
            if exists and len(authentic) < 2:
                raise Violation(f"the client has sent nothing else: {attempt}")
            asked = attempt.answers and attempt.submission is not None  # hop 1
            if accepted and asked and attempt is not accepted[0] and not exists:
                raise Violation(f"{accepted[0]} was accepted already: {attempt}")


def check_counted(
    attempts: Sequence[Attempt], publication: pb.Publication, certificate: pb.Certificate, lists: Sequence[list[bytes]]
) -> None:
    """Exactly what was acknowledged was counted, each once, and is in the lists of what hop 1 has passed on.

    lists: of hashes in the report lane and in the parameter lane.

    The report lane's has the fakes of hop 1, too. A hop that was given more tickets than it has used has shown two
    draws of its fakes.
    """
    accepted = [attempt for attempt in attempts if attempt.accepted]
    num_clients = len({attempt.client for attempt in attempts})
    expected = Counter(attempt.letter for attempt in accepted)
    counted: Counter[int] = Counter()
    for letter, value in enumerate(publication.values):
        count = value.estimate * publication.num_reports
        if abs(count - round(count)) > 1e-3:
            raise Violation(f"letter {letter} was counted {count} times")
        counted[letter] = round(count)
    if +counted != expected:
        raise Violation(f"lost: {sorted(expected - counted)}; counted without or twice: {sorted(counted - expected)}")
    if not publication.num_reports == certificate.num_users == len(accepted):
        raise Violation(
            f"{len(accepted)} acknowledged, {publication.num_reports} reports, {certificate.num_users} users"
        )
    if publication.drops or certificate.invalid_budgets or certificate.budget_drops:
        raise Violation(f"something was dropped: {publication.drops}, {certificate.budget_drops}")
    lost = certificate.num_tickets - len(accepted)
    if not certificate.dishonest == certificate.unknown_budgets == lost >= 0:
        raise Violation(f"{certificate.dishonest} taken for dishonest, {lost} have tickets and sent nothing")
    if certificate.num_tickets > num_clients:
        raise Violation(f"{certificate.num_tickets} were given tickets, of {num_clients} clients")
    fakes = [commitment.num_fakes for commitment in read_chain(certificate) if commitment.lane == pb.LANE_REPORT]
    if certificate.fake_tickets and list(certificate.fake_tickets) != fakes:
        raise Violation(f"hops were given {list(certificate.fake_tickets)} tickets for fakes, and added {fakes}")
    for lane, included in enumerate(lists):
        expected_hashes = {attempt.inclusion_hashes[32 * lane : 32 * lane + 32] for attempt in accepted}
        num_fakes = 0 if lane else fakes[0]
        if sorted(set(included)) != included or not expected_hashes <= set(included):
            raise Violation("hop 1's list is not what was acknowledged")
        if len(included) != len(accepted) + num_fakes:
            raise Violation(f"hop 1's list has {len(included)} hashes; {len(accepted)} and {num_fakes} fakes")


def read_chain(certificate: pb.Certificate) -> list[pb.Commitment]:
    """Returns the commitments in a certificate."""
    return [pb.Commitment.FromString(signed.payload) for signed in certificate.commitments]


def check_order(testimony: Mapping[str, Iterable[str]]) -> None:
    """A chunk that may have been sent, or has arrived, never had another content."""
    for service, lines in testimony.items():
        first: dict[str, str] = {}
        for line in lines:
            kind, place, value = line.split(" ")
            if kind == "chunk" and first.setdefault(place, value) != value:
                raise Violation(f"{service}: chunk {place} (round/direction/lane/index/count) changed its content")


def check_forgotten(testimony: Mapping[str, Iterable[str]], files: Mapping[str, bytes]) -> None:
    """No database file holds any ciphertext or wrapped private key that any service has ever stored."""
    secrets = {
        bytes.fromhex(value): service
        for service, lines in testimony.items()
        for kind, _, value in (line.split(" ") for line in lines)
        if kind == "secret"
    }
    if not secrets:
        raise Violation("the witnesses have seen no secret: the check would prove nothing")
    beginning_with = defaultdict(list)  # a look at two bytes rules out nearly every secret at nearly every place
    for secret in secrets:
        beginning_with[int.from_bytes(secret[:2], sys.byteorder)].append(secret)
    beginnings = np.zeros(1 << 16, dtype=bool)
    beginnings[list(beginning_with)] = True
    for name, content in files.items():
        for odd in (0, 1):
            pairs = np.array(memoryview(content)[odd : len(content) - (len(content) - odd) % 2].cast("H"))
            for at in (2 * np.flatnonzero(beginnings[pairs]) + odd).tolist():
                for secret in beginning_with[int.from_bytes(content[at : at + 2], sys.byteorder)]:
                    if content.startswith(secret, at):
                        raise Violation(f"{name} still holds a ciphertext or key that {secrets[secret]} had stored")

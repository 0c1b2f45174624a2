"""Makes the golden vectors, tests/vectors/client.json, from fixed keys: `make vectors`.

Everything that a client, a service or the accountant draws at random comes from a hash of its name here. The code of
client and services makes all of it but the HPKE messages, whose ephemeral keys are fixed too. The client in `web/`
shares no code with it and is checked with the file (tests/participant/test_vectors.py).
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from croupier.client.submission import PreparedReport, seal_one
from croupier.client.thresholds import blanket_threshold, flip_threshold
from croupier.protocol import voprf
from croupier.protocol.envelope import PROTOCOL_VERSION
from croupier.protocol.identity import Identity, Kind, canonical, key_pair_of, sign_submission
from croupier.protocol.manifest import RoundTerms, parse_terms
from croupier.protocol.names import NO_KEY, Lane, PrivateKey, PublicKey
from croupier.protocol.onion import BudgetRecord, Layer, Onion, encode_budget
from croupier.protocol.surveys import Survey, read_survey
from croupier.protocol.tickets import TicketIssuer, TicketRequest, collect_tickets
from croupier.protocol.v1 import messages_pb2 as pb
from tests.vectors import hpke

FILE = Path(__file__).with_suffix(".json")
SUITE_1, SUITE_2 = "x25519-sha256-chacha20poly1305", "x25519-sha256-aes128gcm"
LANES: dict[str, Lane] = {"LANE_REPORT": pb.LANE_REPORT, "LANE_PARAMETER": pb.LANE_PARAMETER}
CASES = (
    (pb.Survey(survey_id="two-hops"), SUITE_1, 2, pb.Question(name="bit", rr=pb.RandomizedResponse()), 1),
    (
        pb.Survey(
            survey_id="one-hop",
            wordings=[pb.SurveyWording(language="en", title="How we are", consent="I answer for myself.")],
            schedule=pb.Schedule(
                version=2,
                previous_hash=bytes(range(32)),
                change="Two more weeks.",
                calendar=pb.Calendar(
                    first="2026-01-05T08:00", every=pb.PERIOD_WEEK, timezone="Europe/Berlin", open_for_s=432_000
                ),
                first_wave=3,
                last_wave=5,
                total_epsilon=20.0,
                total_delta=1e-3,
                permanent=True,
                results=pb.RESULTS_PUBLIC,
            ),
        ),
        SUITE_2,
        1,
        pb.Question(
            name="mood",
            krr=pb.KaryResponse(k=3, labels=["good", "so-so", "bad"]),
            wordings=[
                pb.Wording(language="en", title="Mood", question="How are you?", choices=["good", "so-so", "bad"]),
                pb.Wording(language="de", question="Wie geht es Ihnen?", choices=["gut", "geht so", "schlecht"]),
            ],
        ),
        2,
    ),
)
"""Survey, suite, hops, question and the randomized report."""
_ORDER = 2**252 + 27742317777372353535851937790883648493


class Drawn:
    """Bytes that stand for random ones; remembers what was drawn."""

    def __init__(self, case: str) -> None:
        self._case = case
        self.drawn: dict[str, str] = {}

    def __call__(self, what: str, length: int) -> bytes:
        raw = hashlib.shake_256(f"croupier vectors, {self._case}, {what}".encode()).digest(length)
        self.drawn[what] = raw.hex()
        return raw

    def scalar(self, what: str, least: int) -> bytes:
        """Returns a scalar of the group, at least 0 or 1."""
        number = int.from_bytes(self(what, 64), "little") % (_ORDER - least) + least
        return number.to_bytes(voprf.SCALAR_BYTES, "little")


class TracedOnion(Onion):
    """Seals with drawn ephemeral keys; `trace` has every layer, its plaintext and its ciphertext."""

    def __init__(self, terms: RoundTerms, draw: Drawn) -> None:
        super().__init__(terms)
        self._draw = draw
        self.trace: list[tuple[Layer, bytes, bytes]] = []

    def seal_layers(self, layers: list[Layer], content: bytes) -> list[bytes]:
        sealed: list[bytes] = []
        for layer in reversed(layers):
            ephemeral = self._draw(f"ephemeral key of lane {layer.label.lane}, hop {layer.label.hop}", 32)
            plaintext = content
            content = hpke.seal(
                self._terms.shared.hpke_suite, layer.public_key, layer.label.info(), plaintext, ephemeral
            )
            self.trace.append((layer, plaintext, content))
            sealed.insert(0, content)
        return sealed


def _survey(stated: pb.Survey, suite: str, hops: int, question: pb.Question) -> Survey:
    message = pb.Survey(
        protocol_version=PROTOCOL_VERSION,
        deployment="vectors",
        questions=[
            pb.SurveyQuestion(
                question=question, budget_grid=[pb.LocalBudget(epsilon=epsilon) for epsilon in (0.5, 1.0, 2.0)]
            )
        ],
        left_out=pb.LEFT_OUT_MISSING,
        min_batch_size=20,
        short_batch_policy=pb.SHORT_BATCH_POLICY_HOLD,
        delta=1e-6,
        epsilon_max=1.0,
        hpke_suite=suite,
        num_hops=hops,
    )
    message.MergeFrom(stated)
    return read_survey(canonical(message))


def _signed(kind: Kind, payload: bytes, by: list[Identity]) -> pb.Signed:
    return pb.Signed(payload=payload, signatures=[signer.sign(kind, payload) for signer in by])


def _evaluations(seed: bytes, lane: str, blinded: bytes, nonce: bytes) -> bytes:
    """Returns the accountant's answer with a proof that is always the same."""
    secret, public = voprf.derive_key_pair(seed, b"croupier/v1/ticket-key/" + lane.encode())
    evaluated, _ = voprf.blind_evaluate(secret, public, [blinded])
    return voprf.prove(secret, public, [blinded], evaluated, nonce) + b"".join(evaluated)


def _case(stated: pb.Survey, suite: str, hops: int, question: pb.Question, report: int) -> dict[str, Any]:
    name = stated.survey_id
    draw = Drawn(name)
    services = [*(f"shuffler-{hop}" for hop in range(1, hops + 1)), "accountant", "analyzer"]
    identities = {service: Identity(service, PrivateKey(draw(f"identity of {service}", 32))) for service in services}
    keys = {name: X25519PrivateKey.from_private_bytes(draw(f"key of {name}", 32)) for name in [*services, "release"]}
    public = {name: key.public_key().public_bytes_raw() for name, key in keys.items()}
    seeds = {lane: draw(f"ticket seed of {lane}", 32) for lane in LANES}
    ticket_keys = {lane: TicketIssuer(seeds[lane], LANES[lane]).public_key for lane in LANES}
    survey = _survey(stated, suite, hops, question)
    wave = next(survey.schedule.waves()) if survey.schedule else None
    round_id = survey.round_id(0, wave.number if wave else 0)
    round_keys = {
        service: pb.RoundKeys(round_id=round_id, service=service, public_key=public[service]) for service in services
    }
    round_keys["accountant"].release_public_key = public["release"]
    round_keys["accountant"].report_ticket_key = ticket_keys["LANE_REPORT"]
    round_keys["accountant"].parameter_ticket_key = ticket_keys["LANE_PARAMETER"]
    manifest = pb.Manifest(
        survey_hash=survey.hash,
        wave=wave.number if wave else 0,
        opens_unix_s=wave.opens_unix_s if wave else 0,
        closes_unix_s=wave.closes_unix_s if wave else 0,
        hops=[round_keys[service] for service in services[:hops]],
        accountant=round_keys["accountant"],
        analyzer=round_keys["analyzer"],
    )
    signed = _signed(Kind.MANIFEST, canonical(manifest), list(identities.values()))
    document = pb.SignedRound(manifest=signed, survey=survey.payload)
    terms = parse_terms(document)
    onion = TracedOnion(terms, draw)

    epsilon = terms.budget_grid[1]
    plaintext = terms.question.mechanism.encode_report(report)
    key = key_pair_of(PrivateKey(draw("client key", 32)))
    sealed = onion.seal_report(plaintext)
    record = BudgetRecord(encode_budget(epsilon, 0.0), draw("salt", 16))
    blinds = draw.scalar("blind 2", 1), draw.scalar("blind 3", 1)
    prepared = PreparedReport(sealed, record, key, NO_KEY, blinds)
    messages = prepared.messages(terms.hash)
    requests = dict(zip(LANES, map(TicketRequest, messages, blinds), strict=True))
    blinded = b"".join(request.blinded for request in requests.values())
    request = sign_submission(terms.hash, blinded, key, "tickets")
    nonces = {lane: draw.scalar(f"proof nonce of {lane}", 0) for lane in LANES}
    answers = {lane: _evaluations(seeds[lane], lane, requests[lane].blinded, nonces[lane]) for lane in LANES}
    tickets = {
        lane: collect_tickets([requests[lane]], answers[lane], PublicKey(ticket_keys[lane]))[0] for lane in LANES
    }
    submission = seal_one(terms, onion, prepared, (tickets["LANE_REPORT"], tickets["LANE_PARAMETER"]))
    hashes = submission.inclusion_hashes
    inclusion = [[hashes[at : at + 32], hashes[at + 32 : at + 64]] for at in range(0, len(hashes), 64)]
    certificate, lists = _trail(terms, inclusion, identities, draw)
    return {
        "name": name,
        "identities": {name: identity.public_key.hex() for name, identity in identities.items()},
        "public_keys": {name: raw.hex() for name, raw in public.items()},
        "round": document.SerializeToString().hex(),
        "round_id": terms.round_id,
        "survey_hash": survey.hash.hex(),
        "invited_to": survey.invitation_hash.hex(),
        "manifest_hash": terms.hash.hex(),
        "budget": {"epsilon": epsilon, "record": (record.budget + record.salt).hex()},
        "report": plaintext.hex(),
        "layers": [
            {
                "lane": pb.Lane.Name(layer.label.lane),
                "hop": layer.label.hop,
                "info": layer.label.info().hex(),
                "plaintext": inner.hex(),
                "sealed": outer.hex(),
            }
            for layer, inner, outer in onion.trace
        ],
        "tickets": [
            {
                "lane": lane,
                "key": ticket_keys[lane].hex(),
                "message": requests[lane].message.hex(),
                "blinded": requests[lane].blinded.hex(),
                "evaluated": answers[lane].hex(),
                "ticket": tickets[lane].hex(),
            }
            for lane in LANES
        ],
        "request": request.SerializeToString().hex(),
        "submission": submission.submission.hex(),
        "inclusion": [[digest.hex() for digest in pair] for pair in inclusion],
        "certificate": certificate.SerializeToString().hex(),
        "lists": {f"{hop} {lane}": shown.hex() for (hop, lane), shown in lists.items()},
        "random": draw.drawn,
    }


def _trail(
    terms: RoundTerms, inclusion: list[list[bytes]], identities: dict[str, Identity], draw: Drawn
) -> tuple[pb.Signed, dict[tuple[int, str], bytes]]:
    """Returns a certificate and the lists of hashes of a batch of three: the answer among two others."""
    commitments, lists, before = [], {}, dict.fromkeys(LANES, draw("digest of the joint envelopes", 32))
    for hop, pair in enumerate(inclusion, start=1):
        for lane, own in zip(LANES, pair, strict=True):
            hashes = sorted([own, *(draw(f"ciphertext hash {other}, hop {hop}, {lane}", 32) for other in (1, 2))])
            lists[hop, lane] = b"".join(hashes)
            digest = hashlib.sha256(lists[hop, lane]).digest()
            said = pb.Commitment(round_id=terms.round_id, manifest_hash=terms.hash, hop=hop, lane=LANES[lane])
            said.num_in, said.num_out, said.digest_in, said.digest_out = 3, 3, before[lane], digest
            before[lane] = digest
            signer = identities[terms.hops[hop - 1].service]
            commitments.append(signer.signed(Kind.COMMITMENT, canonical(said)))
    certificate = pb.Certificate(
        round_id=terms.round_id,
        manifest_hash=terms.hash,
        batch_digest=before["LANE_REPORT"],
        commitments=commitments,
    )
    return identities["accountant"].signed(Kind.CERTIFICATE, canonical(certificate)), lists


def make_vectors() -> dict[str, Any]:
    return {
        "about": "docs/another-language.md, section 10; made by python -m tests.vectors; bytes are hexadecimal",
        "thresholds": [
            {"epsilon": epsilon, "k": k, "blanket": str(blanket_threshold(epsilon, k)), "flip": str(flip)}
            for epsilon in (0.1, 0.5, 1.0, 2.0, 8.0)
            for k, flip in ((2, flip_threshold(epsilon)), (10, ""))
        ],
        "cases": [_case(*case) for case in CASES],
    }


def as_text(vectors: dict[str, Any]) -> str:
    return json.dumps(vectors, indent=1) + "\n"

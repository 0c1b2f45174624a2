"""Makes the golden vectors, tests/vectors/client.json, from fixed keys: `python -m tests.another_client`.

Everything that a real client, service or accountant draws at random comes from a hash of its name here.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from croupier.protocol.names import Lane
from croupier.protocol.v1 import messages_pb2 as pb
from tests.another_client import ristretto
from tests.another_client.rounds import Answer, Round, blanket_threshold, context, flip_threshold

FILE = Path(__file__).parents[1] / "vectors" / "client.json"
LANES: dict[str, Lane] = {"LANE_REPORT": pb.LANE_REPORT, "LANE_PARAMETER": pb.LANE_PARAMETER}
CASES = (
    ("two-hops", "x25519-sha256-chacha20poly1305", 2, pb.Question(name="bit", rr=pb.RandomizedResponse()), 1, False),
    (
        "one-hop-token",
        "x25519-sha256-aes128gcm",
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
        True,
    ),
)
"""Name, suite, hops, question, the randomized report, and whether a token admits the client."""


class Drawn:
    """Bytes that stand for random ones; remembers what was drawn."""

    def __init__(self, case: str) -> None:
        self._case = case
        self.drawn: dict[str, str] = {}

    def __call__(self, what: str, length: int) -> bytes:
        raw = hashlib.shake_256(f"croupier vectors, {self._case}, {what}".encode()).digest(length)
        self.drawn[what] = raw.hex()
        return raw


def _signed(kind: str, payload: bytes, by: dict[str, Ed25519PrivateKey]) -> pb.Signed:
    signatures = [pb.Signature(signer=name, signature=key.sign(context(kind) + payload)) for name, key in by.items()]
    return pb.Signed(payload=payload, signatures=signatures)


def _case(name: str, suite: str, hops: int, question: pb.Question, report: int, with_token: bool) -> dict[str, Any]:
    draw = Drawn(name)
    services = [*(f"shuffler-{hop}" for hop in range(1, hops + 1)), "accountant", "analyzer"]
    identities = {
        service: Ed25519PrivateKey.from_private_bytes(draw(f"identity of {service}", 32)) for service in services
    }
    keys = {name: X25519PrivateKey.from_private_bytes(draw(f"key of {name}", 32)) for name in [*services, "release"]}
    public = {name: key.public_key().public_bytes_raw() for name, key in keys.items()}
    issuers = {
        lane: ristretto.issuer_key(draw(f"ticket seed of {lane}", 32), b"croupier/v1/ticket-key/" + lane.encode())
        for lane in LANES
    }
    round_keys = {
        service: pb.RoundKeys(round_id=name, service=service, public_key=public[service]) for service in services
    }
    round_keys["accountant"].release_public_key = public["release"]
    round_keys["accountant"].report_ticket_key = issuers["LANE_REPORT"][1]
    round_keys["accountant"].parameter_ticket_key = issuers["LANE_PARAMETER"][1]
    manifest = pb.Manifest(
        protocol_version=1,
        deployment="vectors",
        round_id=name,
        question=question,
        budget_grid=[pb.LocalBudget(epsilon=epsilon) for epsilon in (0.5, 1.0, 2.0)],
        min_batch_size=20,
        short_batch_policy=pb.SHORT_BATCH_POLICY_HOLD,
        delta=1e-6,
        epsilon_max=1.0,
        hpke_suite=suite,
        hops=[round_keys[service] for service in services[:hops]],
        accountant=round_keys["accountant"],
        analyzer=round_keys["analyzer"],
    )
    document = _signed("manifest", manifest.SerializeToString(deterministic=True), identities)
    asked = Round(document.payload)

    token = draw("token", 32) if with_token else b""
    plaintext = report.to_bytes(8, "big", signed=True)
    answer = Answer(asked, plaintext, manifest.budget_grid[1], token, draw)
    nonces = {lane: int.from_bytes(draw(f"proof nonce of {lane}", 64), "little") % ristretto.ORDER for lane in LANES}
    answers = [
        ristretto.evaluate(issuers[lane][0], [blinded], nonces[lane])
        for lane, blinded in zip(LANES, answer.blinded, strict=True)
    ]
    submission = answer.submission(answers)
    certificate, lists = _trail(asked, answer, identities, draw)
    return {
        "name": name,
        "identities": {name: key.public_key().public_bytes_raw().hex() for name, key in identities.items()},
        "public_keys": {name: raw.hex() for name, raw in public.items()},
        "manifest": document.SerializeToString().hex(),
        "manifest_hash": asked.hash.hex(),
        "budget": {"epsilon": manifest.budget_grid[1].epsilon, "record": answer.record.hex()},
        "report": plaintext.hex(),
        "layers": [
            {
                "lane": pb.Lane.Name(layer.lane),
                "hop": layer.hop,
                "info": layer.info.hex(),
                "plaintext": inner.hex(),
                "sealed": sealed.hex(),
            }
            for layer, inner, sealed in asked.trace
        ],
        "tickets": [
            {
                "lane": lane,
                "key": issuers[lane][1].hex(),
                "message": answer.messages[at].hex(),
                "blinded": answer.blinded[at].hex(),
                "evaluated": answers[at].hex(),
                "ticket": answer.tickets[at].hex(),
            }
            for at, lane in enumerate(LANES)
        ],
        "request": answer.request.SerializeToString().hex(),
        "submission": submission.SerializeToString().hex(),
        "inclusion": [[digest.hex() for digest in pair] for pair in answer.inclusion()],
        "certificate": certificate.SerializeToString().hex(),
        "lists": {f"{hop} {lane}": shown.hex() for (hop, lane), shown in lists.items()},
        "random": draw.drawn,
    }


def _trail(
    asked: Round, answer: Answer, identities: dict[str, Ed25519PrivateKey], draw: Drawn
) -> tuple[pb.Signed, dict[tuple[int, str], bytes]]:
    """Returns a certificate and the lists of hashes of a batch of three: the answer among two others."""
    commitments, lists, before = [], {}, dict.fromkeys(LANES, draw("digest of the joint envelopes", 32))
    for hop, pair in enumerate(answer.inclusion(), start=1):
        for lane, own in zip(LANES, pair, strict=True):
            hashes = sorted([own, *(draw(f"ciphertext hash {other}, hop {hop}, {lane}", 32) for other in (1, 2))])
            lists[hop, lane] = b"".join(hashes)
            digest = hashlib.sha256(lists[hop, lane]).digest()
            said = pb.Commitment(round_id=asked.manifest.round_id, manifest_hash=asked.hash, hop=hop, lane=LANES[lane])
            said.num_in, said.num_out, said.digest_in, said.digest_out = 3, 3, before[lane], digest
            before[lane] = digest
            signer = asked.manifest.hops[hop - 1].service
            payload = said.SerializeToString(deterministic=True)
            commitments.append(_signed("commitment", payload, {signer: identities[signer]}))
    certificate = pb.Certificate(
        round_id=asked.manifest.round_id,
        manifest_hash=asked.hash,
        batch_digest=before["LANE_REPORT"],
        commitments=commitments,
    )
    payload = certificate.SerializeToString(deterministic=True)
    return _signed("certificate", payload, {"accountant": identities["accountant"]}), lists


def make_vectors() -> dict[str, Any]:
    return {
        "about": "docs/another-language.md, section 10; made by python -m tests.another_client; bytes are hexadecimal",
        "thresholds": [
            {"epsilon": epsilon, "k": k, "blanket": str(blanket_threshold(epsilon, k)), "flip": str(flip)}
            for epsilon in (0.1, 0.5, 1.0, 2.0, 8.0)
            for k, flip in ((2, flip_threshold(epsilon)), (10, ""))
        ],
        "cases": [_case(*case) for case in CASES],
    }


def as_text(vectors: dict[str, Any]) -> str:
    return json.dumps(vectors, indent=1) + "\n"

"""What the page specifies between the manifest and the submission: layers, tickets, signatures, inclusion.

Everything random is drawn from an injected source, so that the vectors can be made again; a real client has only
`os.urandom` there.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, Decimal, localcontext

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from croupier.protocol.names import Lane
from croupier.protocol.v1 import messages_pb2 as pb
from tests.another_client import hpke, ristretto

Draw = Callable[[str, int], bytes]
"""Returns this number of random bytes; the first argument says what for."""
ACCOUNTANT, RELEASE, ANALYZER = 253, 254, 255
TICKET, RECORD, REPORT = 64, 32, 8


def context(kind: str) -> bytes:
    return b"croupier/v1/" + kind.encode() + b"\0"


def signed_by_all(kind: str, document: pb.Signed, pinned: Mapping[str, Collection[bytes]]) -> bytes:
    """Returns the payload, if it is signed by everyone who is pinned, and by no one else; see the page, section 3."""
    signers = {signature.signer for signature in document.signatures}
    if signers != set(pinned):
        raise ValueError(f"signed by {signers}, not by {set(pinned)}")
    for signature in document.signatures:
        if not any(
            _verifies(key, signature.signature, context(kind) + document.payload) for key in pinned[signature.signer]
        ):
            raise ValueError(f"the signature of {signature.signer} is wrong")
    return document.payload


def _verifies(key: bytes, signature: bytes, message: bytes) -> bool:
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, message)
    except InvalidSignature:
        return False
    return True


def choose_budget(max_local_epsilon: float, manifest: pb.Manifest) -> pb.LocalBudget:
    return max(
        (budget for budget in manifest.budget_grid if budget.epsilon <= max_local_epsilon),
        key=lambda budget: budget.epsilon,
    )


def blanket_threshold(epsilon: float, k: int) -> int:
    """ceil(2^64 k / (e^epsilon + k - 1)): below it a 64-bit draw replaces the value by a uniform one of k."""
    with localcontext() as exact:
        exact.prec = 60
        return int((k / (Decimal(epsilon).exp() + (k - 1)) * 2**64).to_integral_value(ROUND_CEILING))


def flip_threshold(epsilon: float) -> int:
    """Below it a 64-bit draw flips a bit."""
    return -(-blanket_threshold(epsilon, 2) // 2)


def randomize_bit(bit: int, epsilon: float, draw: Draw) -> bytes:
    """Returns the report: 8 bytes, big-endian, signed."""
    flip = int.from_bytes(draw("flip", 8), "big") < flip_threshold(epsilon)
    return (bit ^ flip).to_bytes(REPORT, "big", signed=True)


@dataclass(frozen=True)
class Layer:
    """One layer of an envelope."""

    lane: Lane
    hop: int
    public_key: bytes
    info: bytes


class Round:
    """The layers and messages of one round, from the bytes of its manifest."""

    def __init__(self, payload: bytes) -> None:
        self.manifest = pb.Manifest.FromString(payload)
        self.hash = hashlib.sha256(context("manifest") + payload).digest()
        hops = [keys.public_key for keys in self.manifest.hops]
        accountant = self.manifest.accountant
        self.release = self._layer(pb.LANE_REPORT, RELEASE, accountant.release_public_key)
        later = list(enumerate(hops[1:], start=2))
        analyzer, sink = (ANALYZER, self.manifest.analyzer.public_key), (ACCOUNTANT, accountant.public_key)
        self.report = [self._layer(pb.LANE_REPORT, *key) for key in (*later, analyzer)]
        self.parameter = [self._layer(pb.LANE_PARAMETER, *key) for key in (*later, sink)]
        self.joint = self._layer(pb.LANE_JOINT, 1, hops[0])
        self.trace: list[tuple[Layer, bytes, bytes]] = []  # every layer that was sealed, its plaintext and ciphertext

    def _layer(self, lane: Lane, hop: int, key: bytes) -> Layer:
        name, key_id = self.manifest.round_id.encode(), hashlib.sha256(key).digest()[:16]
        info = b"croupier" + struct.pack(">HBB", 1, lane, hop)
        return Layer(lane, hop, key, info + b"".join(struct.pack(">H", len(f)) + f for f in (name, self.hash, key_id)))

    def seal(self, layers: Sequence[Layer], content: bytes, draw: Draw) -> list[bytes]:
        """Returns the ciphertext of each layer, outermost first."""
        sealed: list[bytes] = []
        for layer in reversed(layers):
            ephemeral = draw(f"ephemeral key of lane {layer.lane}, hop {layer.hop}", 32)
            plaintext = content
            content = hpke.seal(self.manifest.hpke_suite, layer.public_key, layer.info, plaintext, ephemeral)
            self.trace.append((layer, plaintext, content))
            sealed.insert(0, content)
        return sealed

    def ticket_message(self, lane: int, content: bytes) -> bytes:
        return hashlib.sha256(context("ticket") + self.hash + bytes([lane]) + content).digest()

    def sign(self, purpose: str, envelope: bytes, key: Ed25519PrivateKey, token: bytes = b"") -> pb.Submission:
        message = context(purpose) + self.hash + hashlib.sha256(envelope).digest()
        message += hashlib.sha256(token).digest() if token else b""
        public = key.public_key().public_bytes_raw()
        return pb.Submission(client_key=public, envelope=envelope, signature=key.sign(message), token=token)


class Answer:
    """One answer on its way: `request` goes to the accountant, then `submission` to hop 1."""

    def __init__(self, asked: Round, report: bytes, budget: pb.LocalBudget, token: bytes, draw: Draw) -> None:
        self._round, self._token, self._draw = asked, token, draw
        self._key = Ed25519PrivateKey.from_private_bytes(draw("client key", 32))
        (self.sealed,) = asked.seal([asked.release], report, draw)
        self.record = struct.pack(">dd", budget.epsilon, budget.delta) + draw("salt", 16)
        contents = {pb.LANE_REPORT: hashlib.sha256(self.sealed).digest(), pb.LANE_PARAMETER: self.record}
        self.messages = [asked.ticket_message(lane, content) for lane, content in contents.items()]
        self._scalars = [_scalar(draw(f"blind {lane}", 64)) for lane in contents]
        self.blinded = [ristretto.blind(*pair) for pair in zip(self.messages, self._scalars, strict=True)]
        self.request = asked.sign("tickets", b"".join(self.blinded), self._key, token)

    def submission(self, answers: Sequence[bytes]) -> pb.Submission:
        """Returns what hop 1 gets; `tickets` and `inclusion` are set then."""
        keys = self._round.manifest.accountant
        both = (keys.report_ticket_key, keys.parameter_ticket_key)
        for key, blinded, answer in zip(both, self.blinded, answers, strict=True):
            if not ristretto.proof_holds(key, [blinded], answer):
                raise ValueError("the accountant used another key")
        (report, parameter) = self.tickets = [
            ristretto.finalize(message, scalar, *ristretto.split_evaluations(answer))
            for message, scalar, answer in zip(self.messages, self._scalars, answers, strict=True)
        ]
        reports = self._round.seal(self._round.report, report + self.sealed, self._draw)
        parameters = self._round.seal(self._round.parameter, parameter + self.record, self._draw)
        self.passed_on = list(zip(reports, parameters, strict=True))
        (envelope,) = self._round.seal([self._round.joint], reports[0] + parameters[0], self._draw)
        return self._round.sign("submit", envelope, self._key, self._token)

    def inclusion(self) -> list[list[bytes]]:
        """Returns, hop by hop, the hashes of the report and the parameter ciphertext that the hop passes on."""
        return [[hashlib.sha256(sealed).digest() for sealed in pair] for pair in self.passed_on]


def check_included(
    asked: Round,
    certificate: pb.Certificate,
    list_of: Callable[[int, Lane], bytes],
    inclusion: Sequence[Sequence[bytes]],
    pinned: Mapping[str, Collection[bytes]],
) -> None:
    """Raises ValueError unless every hop has passed on both ciphertexts; see the page, section 8.

    Args:
        asked: the round.
        certificate: of the round, its signature checked.
        list_of: the list of a hop (1..k) and lane, as GetInclusion gives it.
        inclusion: see `Answer.inclusion`.
        pinned: the keys of all services.
    """
    lanes: tuple[Lane, ...] = (pb.LANE_REPORT, pb.LANE_PARAMETER)
    before: dict[int, bytes] = {}
    joint: set[tuple[object, ...]] = set()
    for number, document in enumerate(certificate.commitments):
        hop, lane = number // 2 + 1, lanes[number % 2]
        name = asked.manifest.hops[hop - 1].service
        said = pb.Commitment.FromString(signed_by_all("commitment", document, {name: pinned[name]}))
        if (said.round_id, said.manifest_hash) != (asked.manifest.round_id, asked.hash):
            raise ValueError("a commitment is about another round")
        if (said.hop, said.lane) != (hop, lane) or before.get(lane, said.digest_in) != said.digest_in:
            raise ValueError("the commitments form no chain")
        drops = [(drop.reason, drop.count) for drop in said.drops]
        if said.num_fakes and not (lane == pb.LANE_REPORT and asked.manifest.HasField("hop_noise")):
            raise ValueError("a hop has added reports where it must add none")
        if said.num_in + said.num_fakes != said.num_out + sum(count for _, count in drops):
            raise ValueError("a commitment leaves messages out without a reason")
        if hop == 1:
            joint.add((said.num_in, said.digest_in, said.num_out - said.num_fakes, *drops))
        before[lane] = said.digest_out
        shown = list_of(hop, lane)
        if hashlib.sha256(shown).digest() != said.digest_out:
            raise ValueError(f"hop {hop} shows another list than it has committed to")
        if inclusion[hop - 1][number % 2] not in [shown[at : at + 32] for at in range(0, len(shown), 32)]:
            raise ValueError(f"hop {hop} has not passed it on")
    if len(joint) != 1:
        raise ValueError("hop 1 says different things of its two lanes")
    if len(certificate.commitments) != 2 * len(asked.manifest.hops) or before[lanes[0]] != certificate.batch_digest:
        raise ValueError("the commitments do not lead to the batch that was certified")


def _scalar(uniform: bytes) -> int:
    return int.from_bytes(uniform, "little") % (ristretto.ORDER - 1) + 1

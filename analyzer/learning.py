"""Sequential rounds at the analyzer: the model learns from one answer of each key, and is signed after each of them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import numpy as np

from croupier.analyzer.estimates import Noised
from croupier.analyzer.estimators import decoder, estimate
from croupier.analyzer.held_reports import HeldReports
from croupier.net.tls import Context
from croupier.protocol.envelope import HOP_ANALYZER, HOP_RELEASE, KeyPair, open_many
from croupier.protocol.errors import Code, Refusal, SignatureError
from croupier.protocol.identity import Kind, canonical, read_answer
from croupier.protocol.manifest import RoundTerms
from croupier.protocol.names import PublicKey, RoundId
from croupier.protocol.onion import onion_of
from croupier.protocol.questions import ANSWER_KEY_BYTES
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.runtime.kinds import DocumentKind, KeyPurpose
from croupier.runtime.peers import Peers
from croupier.runtime.position import Position
from croupier.runtime.round_engine import RoundEngine
from croupier.runtime.setup import ServiceSetup
from croupier.runtime.steps import StoreStep
from croupier.runtime.transaction import Transaction


class Learning:
    """The model of each sequential round."""

    def __init__(
        self, setup: ServiceSetup, peers: Peers, engine: RoundEngine, position: Position, held: HeldReports
    ) -> None:
        self._store = setup.store
        self._peers = peers
        self._engine = engine
        self._position = position
        self._held = held
        self._answer_keys: dict[RoundId, frozenset[PublicKey]] = {}

    def stop_round(self, round_id: RoundId) -> None:
        """Deletes the keys of a round's answers from memory."""
        self._answer_keys.pop(round_id, None)

    async def begin(self, terms: RoundTerms, certificate: pb.Certificate) -> None:
        """Opens the keys that clients have submitted for their answers; from then on answers are learnt from."""
        await self._held.check(terms, certificate)
        opened = [key async for page, _ in self._held.released(terms) for key in page if key is not None]
        document = b"".join(sorted(opened))

        def begin(tx: Transaction) -> None:
            tx.put_document(terms.round_id, DocumentKind.ANSWER_KEYS, document)
            tx.update_round(terms.round_id, state=pb.ROUND_STATE_SEQUENTIAL)

        await self._store.run(StoreStep.BEGIN_SEQUENTIAL_PART, begin)

    async def _may_answer(self, terms: RoundTerms, key: PublicKey) -> bool:
        """Returns whether an answer may be signed with this key: it was submitted with a ticket."""
        if terms.round_id not in self._answer_keys:
            kept = await self._store.run(
                StoreStep.READ_ANSWER_KEYS, lambda tx: tx.document(terms.round_id, DocumentKind.ANSWER_KEYS) or b""
            )
            self._answer_keys[terms.round_id] = frozenset(
                PublicKey(kept[start : start + ANSWER_KEY_BYTES]) for start in range(0, len(kept), ANSWER_KEY_BYTES)
            )
        return key in self._answer_keys[terms.round_id]

    async def relay(self, request: pb.RelayRequest, context: Context) -> pb.RelayResponse:
        """Learns from one answer of each key, and returns the signed model; nothing else changes it.

        Raises:
            Refusal: NOT_YOUR_CALL (only the predecessor may), UNKNOWN_ROUND, WRONG_STATE (the round is not sequential,
                or its asking has ended), NOT_READY (the round is not granted yet).
        """
        terms = await self._engine.terms(RoundId(request.round_id))
        self._peers.require_caller(context, [self._position.predecessor(terms)])
        row, keys = await self._store.run(
            StoreStep.FIND_ROUND_OF_ANSWER, lambda tx: (tx.round(terms.round_id), tx.keys(terms.round_id))
        )
        if terms.question.sequential is None or not keys:
            raise Refusal(Code.WRONG_STATE, "the round is not sequential, or its asking has ended")
        if row.state != pb.ROUND_STATE_SEQUENTIAL:
            raise Refusal(Code.NOT_READY, "the round is not granted yet")
        key, report = _open_answer(terms, keys, request.ciphertext)
        may_answer = await self._may_answer(terms, PublicKey(key))
        part, content = f"answer-{key.hex()}", hashlib.sha256(report).digest()

        def learn(tx: Transaction) -> tuple[pb.Model, bool]:
            model = _model(tx, terms)
            known = tx.document(terms.round_id, DocumentKind.MODEL, part)
            if known is not None:  # a repeated answer: hop 1 has not received the reply
                return model, known == content
            certificate = pb.Signed.FromString(tx.document(terms.round_id, DocumentKind.CERTIFICATE) or b"").payload
            if not may_answer or not _learn(model, terms, pb.Certificate.FromString(certificate), report):
                return model, False
            tx.put_document(terms.round_id, DocumentKind.MODEL, content, part)
            tx.replace_document(terms.round_id, DocumentKind.MODEL, canonical(model))
            return model, True

        model, learnt = await self._store.run(StoreStep.LEARN_FROM_ANSWER, learn)
        return pb.RelayResponse(learnt=learnt, model=self._peers.identity.signed(Kind.MODEL, canonical(model)))

    async def publish(self, publication: pb.Publication, terms: RoundTerms, certificate: pb.Certificate) -> None:
        """Writes the parameters into the publication, if the certified answers are those of the model."""
        model = await self._store.run(StoreStep.READ_MODEL, lambda tx: _model(tx, terms))
        if model.num_answers != certificate.num_answers:
            raise Refusal(
                Code.BAD_BATCH,
                f"{model.num_answers:,} answers were learnt from, but {certificate.num_answers:,} are certified",
            )
        publication.num_reports = model.num_answers
        publication.vector = model.parameters


def _open_answer(terms: RoundTerms, keys: Mapping[KeyPurpose, KeyPair], sealed: bytes) -> tuple[bytes, bytes]:
    """Returns (answer key, report) of an answer that opens and that its key has signed; else two empty strings."""
    for purpose, hop in ((KeyPurpose.ENVELOPE, HOP_ANALYZER), (KeyPurpose.RELEASE, HOP_RELEASE)):
        layer = onion_of(terms).layer(pb.LANE_ANSWER, hop)
        if len(sealed) != layer.sealed_size:
            return b"", b""
        (opened,) = open_many(terms.shared.hpke_suite, keys[purpose].private, layer.label, [sealed])
        sealed = opened or b""
    try:
        return read_answer(terms.hash, sealed)
    except SignatureError:
        return b"", b""


def _model(tx: Transaction, terms: RoundTerms) -> pb.Model:
    """Returns the present model of a sequential round."""
    document = tx.document(terms.round_id, DocumentKind.MODEL)
    if document is not None:
        return pb.Model.FromString(document)
    task = terms.question.mechanism.task
    parameters = b"" if task is None else task.parameters
    return pb.Model(round_id=terms.round_id, manifest_hash=terms.hash, parameters=parameters)


def _learn(model: pb.Model, terms: RoundTerms, certificate: pb.Certificate, plaintext: bytes) -> bool:
    """Takes one step with one client's report, and returns whether it was one that a client can have sent.

    Which budget it was made with is not known here: it counts as one of an average client of the round.
    """
    question = terms.question
    if question.sequential is None:
        return False
    try:
        report = decoder(question, terms.budget_grid[0])(plaintext)
    except ValueError:
        return False
    tiers = [(tier.local_epsilon, tier.count) for tier in certificate.tiers]
    gradient = estimate(question, [report], tiers, noised=Noised.of(certificate)).mean
    parameters = np.frombuffer(model.parameters, dtype="<f4") - question.sequential.learning_rate * gradient
    model.parameters = parameters.astype("<f4").tobytes()
    model.num_answers += 1
    return True

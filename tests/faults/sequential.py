"""Plays a sequential round: its clients submit and attend in peace, and answer one after the other under faults.

What was answered is known here: the reports of all answers that were ever made. So the published model says which of
them were learnt from, and how often.
"""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import dataclass, field
from typing import Any, ClassVar
from unittest import mock

import grpc.aio
import numpy as np

from croupier.accountant.rounds.ledger import Ledger
from croupier.analyzer.vectors import hemisphere_mean
from croupier.client import submission
from croupier.client.outbox import Outbox
from croupier.client.sequential import SequentialAnswers, answer_sequentially
from croupier.client.submission import Participant
from croupier.deploy.local.users import Fleet
from croupier.operator.round_settings import RoundSettings
from croupier.protocol.errors import Refusal, SignatureError
from croupier.protocol.identity import sign_answer
from croupier.protocol.names import Digest, PrivateKey
from croupier.protocol.v1 import messages_pb2 as pb
from tests.faults.oracle import Violation
from tests.faults.play import Game
from tests.faults.schedules import Event
from tests.faults.worlds import InProcessWorld
from tests.support import Threads
from tests.support.sequential import DIMENSION, Person, task

_PEOPLE, _NEEDED = 6, 2
_LOCAL_EPSILON, _LEARNING_RATE = 4.0, 0.01
_STEP_S = 0.15  # a little longer than one client's time
_PATIENCE_S = 2.0  # then clients ask for the deployment file of now, and come again
_BOUND_S = 120.0


@dataclass
class SequentialGame(Game):
    """See the opening."""

    people: dict[str, Person] = field(default_factory=dict)
    made: dict[bytes, bytes] = field(default_factory=dict)  # reports by the key that signs them
    taking: asyncio.Task[SequentialAnswers] = field(init=False)
    closing: asyncio.Task[None] = field(init=False)
    # Too few may have been reached for a result.
    final: ClassVar = Game.final | {pb.ROUND_STATE_REFUSED}
    given_up: ClassVar = {pb.ROUND_STATE_DISPOSED}

    def settings(self) -> RoundSettings:
        question = task(period_ms=100, learning_rate=_LEARNING_RATE)
        grid = (_LOCAL_EPSILON,)
        return RoundSettings(question, grid, delta=1e-4, epsilon_max=_LOCAL_EPSILON, min_batch_size=_NEEDED)

    async def begin(self) -> None:
        self.people = {f"user {number}": Person(np.ones(DIMENSION), _LOCAL_EPSILON) for number in range(_PEOPLE)}
        outbox, pool = Outbox(self.world.root / "outbox.db"), Threads()
        self.connections.callback(outbox.close)
        self.connections.callback(pool.close)
        self.connections.enter_context(mock.patch.object(submission, "sign_answer", self.sign))
        users = {
            name: Participant(None, _LOCAL_EPSILON, PrivateKey(person.key)) for name, person in self.people.items()
        }
        fleet = Fleet(self.clients, self.accountant, outbox, pool, self.operator.enrol)
        report = await fleet.answer(self.terms, users)
        if report.accepted != _PEOPLE:
            raise Violation(f"{report.accepted} of {_PEOPLE} were accepted, without any fault")
        self.closing = asyncio.create_task(self.close_round(_BOUND_S))
        self.taking = asyncio.create_task(self.take(outbox))

    def sign(self, manifest_hash: Digest, report: bytes, answer_key: bytes) -> bytes:
        """Signs an answer as clients do, and keeps it."""
        if self.made.setdefault(answer_key, report) != report:
            raise Violation("a client has made a second report")
        return sign_answer(manifest_hash, report, PrivateKey(answer_key))

    async def take(self, outbox: Outbox) -> SequentialAnswers:
        """Attends for all people, and again wherever that ends without a report."""
        attendees = {name: person.attendee for name, person in self.people.items()}
        over = asyncio.get_running_loop().time() + _BOUND_S
        while True:
            try:
                return await answer_sequentially(
                    self.clients,
                    self.terms,
                    self.world.deployment,
                    attendees,
                    outbox=outbox,
                    patience_s=_PATIENCE_S,
                )
            except (grpc.aio.AioRpcError, Refusal, SignatureError):
                if asyncio.get_running_loop().time() > over:
                    raise
                await asyncio.sleep(_STEP_S)

    async def step(self, number: int, step: Event) -> None:
        await super().step(number, step)
        await asyncio.sleep(_STEP_S)
        await self.revive()

    async def finish(self) -> None:
        await self.closing
        await self.taking
        await self.until(self.is_published, "nothing is published")

    async def judge(self) -> None:
        report = (await self.taking).report
        publication, certificate = await self.result()
        counts = {report.num_answers, certificate.num_answers}
        if certificate.granted:
            counts.add(publication.num_reports)
            self.check_model(publication)
        elif publication.vector or report.num_answers >= _NEEDED:
            raise Violation(f"refused: {certificate.refusals}")
        if len(counts) != 1 or certificate.num_users != _PEOPLE:
            raise Violation(f"the counts differ: {report}, {publication.num_reports}, {certificate}")
        if certificate.dishonest != _PEOPLE - report.num_answers:
            raise Violation(f"{certificate.dishonest} are taken for dishonest; {report}")
        asked = [len(person.asked) for person in self.people.values()]
        if max(asked) > 1 or sum(asked) < report.num_answers:
            raise Violation(f"so often was each asked for an answer: {asked}; {report}")
        for line in self.world.testimony()[self.world.deployment.shufflers[0].name]:
            kind, _, value = line.split(" ")
            kept = pb.SequentialProgress.FromString(bytes.fromhex(value if kind == "kept" else ""))
            if kept.num_answers + bool(kept.pending) > report.num_answers:
                raise Violation(f"hop 1 had kept {kept.num_answers} answers and one to pass on; {report}")
        await self.check_ledger(certificate)
        await self.judge_files()

    def check_model(self, publication: pb.Publication) -> None:
        """The model has learnt once from each of this number of answers."""
        vector = np.frombuffer(publication.vector, dtype="<f4")
        step = _LEARNING_RATE * hemisphere_mean(np.ones(DIMENSION), [(_LOCAL_EPSILON, 1)], 1.0).mean[0]
        reports = [np.frombuffer(report, dtype="<f4") for report in self.made.values()]
        for subset in itertools.combinations(reports, publication.num_reports):
            if np.allclose(vector, -step * np.sum(subset, axis=0), rtol=1e-4, atol=1e-6):
                return
        raise Violation(f"the model is not the sum of {publication.num_reports} of {len(reports)} answers")

    async def check_ledger(self, certificate: pb.Certificate) -> None:
        """It was charged once: what the certificate says, or no less where somebody was skipped."""
        entered = await self.in_store("accountant", lambda tx: Ledger(tx.connection).entered())
        if [round_id for round_id, _, _ in entered] != [self.terms.round_id]:
            raise Violation(f"the ledger has {entered}")
        charged = [entry.epsilon for entry in entered[0][2]]
        wanted = [tier.epsilon for tier in certificate.tiers]
        too_little = max(charged) < max(wanted, default=0.0)
        if too_little or (certificate.num_answers == _PEOPLE and charged != wanted):
            raise Violation(f"charged {charged} for {wanted}")
        for name in self.world.deployment.chain:
            if await self.in_store(name, lambda tx: tx.keys(self.terms.round_id)):
                raise Violation(f"{name} still has keys of the round")

    async def in_store(self, name: str, look: Any) -> Any:
        world = self.world
        if not isinstance(world, InProcessWorld) or (running := world._lives[name].running) is None:
            raise TypeError("a sequential round is played inside this process")
        return await running.store.run("look", look)

"""The waves of a discovery that participants answer: each is opened once, however often the operator's process ends.

`operator/discoveries/NAME/` has the journal of the waves (`study.journal`), and of each wave the manifest that
all services have signed, kept before the round opens, and the signed result.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from croupier.client.round_checks import accept_manifest, fetch_signed_result, read_publication
from croupier.operator.keys import replace_secret
from croupier.operator.operator import Operator
from croupier.operator.round_settings import RoundSettings, check_settings, new_round_id
from croupier.protocol.deployment import OPERATOR
from croupier.protocol.manifest import RoundTerms, state_name
from croupier.protocol.names import JsonObject, RoundId
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.runtime.clock import Clock, SystemClock
from croupier.study.journal import StudyJournal, WaveStep

WaitUntil = Callable[[RoundTerms, float], Awaitable[None]]
"""Waits while people answer a round: called with its terms and the Unix seconds at which it will be closed."""
_PATIENCE_S = 600.0
"""Seconds of waiting for a result; the same command again continues to wait."""


class KeptWaves:
    """The waves of one discovery; see `of`."""

    def __init__(
        self, operator: Operator, folder: Path, journal: StudyJournal, terms: JsonObject, clock: Clock
    ) -> None:
        self._operator, self._folder, self._journal = operator, folder, journal
        self._terms, self._clock = terms, clock

    @classmethod
    @contextmanager
    def of(
        cls, operator: Operator, directory: Path, name: str, terms: JsonObject, clock: Clock | None = None
    ) -> Iterator[KeptWaves]:
        """Yields the waves to the only process that may run the discovery; it begins where an earlier process ended.

        Args:
            operator: opens and closes the rounds.
            directory: of the deployment.
            name: of the discovery.
            terms: the settings of every wave, by name; the first wave fixes them.
            clock: of the journal.

        Raises:
            RuntimeError: another process runs the discovery.
            ValueError: it was begun with other terms, or its files cannot be read.
        """
        folder = directory / OPERATOR / "discoveries" / name
        with StudyJournal.running(folder / "journal.jsonl") as journal:
            first = journal.records().get(1)
            begun = terms if first is None else first.entries[0].about["terms"]
            for key, value in terms.items():
                if begun[key] != value:
                    raise ValueError(
                        f"{key} is {value}; discovery {name!r} was begun with {begun[key]}: go on with that, or give "
                        "another --name"
                    )
            yield cls(operator, folder, journal, terms, clock or SystemClock())

    async def result(
        self, wave: int, settings: RoundSettings, answer_for_s: float, wait_until: WaitUntil
    ) -> tuple[pb.Publication, pb.Certificate]:
        """Takes a wave from its present state to its end; returns its verified result, also of a finished wave.

        Args:
            wave: its number, from 1.
            settings: of its round; the part that follows from the results of earlier waves is the same each time.
            answer_for_s: the number of seconds for which the round is open.
            wait_until: waits while people answer.

        Raises:
            RuntimeError: too few people answered; the round stays open, and the same call again continues.
            Refusal, grpc.aio.AioRpcError: a service refused, or is out of reach; the same call again continues.
        """
        record = self._journal.records().get(wave)
        if record is None:
            round_id = RoundId(new_round_id(settings))
            check_settings(settings, self._operator.deployment, round_id)
            self._write("open", wave, round_id=round_id, terms=self._terms)
        else:
            round_id = RoundId(record.entries[0].about["round_id"])
        step = "open" if record is None else record.step
        if step == "open":
            await self._open(wave, settings, round_id)
            self._write("opened", wave, closes_unix_s=self._clock.now() + answer_for_s)
            step = "opened"
        if step == "opened":
            manifest = accept_manifest(_round(self._file(wave, "round")), self._operator.deployment)
            await wait_until(manifest, self._closes(wave))
            self._write("close", wave)
            step = "close"
        if step == "close":
            closed = await self._operator.close_round(round_id)
            if closed.state == pb.ROUND_STATE_OPEN:
                raise RuntimeError(
                    f"{round_id} is {state_name(closed.state)} with {closed.num_clients} people; it must have at least "
                    f"{settings.min_batch_size}: the same command closes it when they have answered"
                )
            self._write("closed", wave, num_clients=closed.num_clients)
            step = "closed"
        publication, certificate = await self._published(wave, round_id)
        if step == "closed":
            self._write("published", wave, num_reports=publication.num_reports, granted=certificate.granted)
        return publication, certificate

    def _write(self, step: WaveStep, wave: int, **about: object) -> None:
        self._journal.write(self._clock.now(), step, wave, **about)

    def _file(self, wave: int, kind: str) -> Path:
        return self._folder / f"wave-{wave}.{kind}"

    def _closes(self, wave: int) -> float:
        """Returns when a wave that is open closes, in Unix seconds."""
        entries = self._journal.records()[wave].entries
        return next(float(entry.about["closes_unix_s"]) for entry in entries if entry.step == "opened")

    async def _open(self, wave: int, settings: RoundSettings, round_id: RoundId) -> None:
        """Opens a round, or completes its opening; the manifest is stored before, so that it is the same each time."""
        file = self._file(wave, "round")
        if not file.exists():
            survey = check_settings(settings, self._operator.deployment, round_id).survey
            document = await self._operator.sign_round(survey)
            replace_secret(file, document.SerializeToString().hex())
        await self._operator.open_signed(_round(file))

    async def _published(self, wave: int, round_id: RoundId) -> tuple[pb.Publication, pb.Certificate]:
        """Returns the verified result of a round, which is kept once it is there."""
        file, deployment = self._file(wave, "result"), self._operator.deployment
        if not file.exists():
            async with self._operator.client_channel(deployment.analyzer.name) as channel:
                document = await fetch_signed_result(channel, round_id, _PATIENCE_S)
            read_publication(document, deployment, round_id)
            replace_secret(file, document.SerializeToString().hex())
        document = pb.Signed.FromString(bytes.fromhex(file.read_text(encoding="utf-8")))
        return read_publication(document, deployment, round_id)


def _round(file: Path) -> pb.SignedRound:
    return pb.SignedRound.FromString(bytes.fromhex(file.read_text(encoding="utf-8")))

"""Attendance at hop 1 in a sequential round: the clients' streams, and the one question under way.

Streams come and go; a client is on the newest one on which it has proved its key. Nothing here is durable, and nothing
needs to be: clients reconnect, and a client whose stream breaks while it is asked is asked again on the next one.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from dataclasses import dataclass, field

from croupier.protocol.errors import Code, Refusal
from croupier.protocol.names import PublicKey, RoundId
from croupier.protocol.v1 import messages_pb2 as pb

MAX_ATTENDANCES = 500
_WAITING_RESPONSES = 64
_STREAMS_OF_A_CLIENT = 3
"""A client that has lost its connection comes on another before the old one is seen to be dead; it needs no more."""


@dataclass(eq=False)
class Stream:
    """One call of a client or gateway. `outgoing` ends with None, or with what the call fails with."""

    round_id: RoundId
    challenge: bytes = field(default_factory=lambda: os.urandom(32))
    outgoing: asyncio.Queue[pb.AttendResponse | Refusal | None] = field(
        default_factory=lambda: asyncio.Queue(_WAITING_RESPONSES)
    )
    clients: set[PublicKey] = field(default_factory=set)
    has_certificate: bool = False

    def push(self, *responses: pb.AttendResponse) -> None:
        """Sends at once, or ends a stream whose caller does not read."""
        for response in responses:
            try:
                self.outgoing.put_nowait(response)
            except asyncio.QueueFull:
                self.end(Refusal(Code.OVERLOADED, f"{_WAITING_RESPONSES} responses wait to be read"))

    def end(self, why: Refusal | None = None) -> None:
        """Ends the call; where the queue is full, responses that still wait are dropped to make room."""
        while self.outgoing.full():
            self.outgoing.get_nowait()
        self.outgoing.put_nowait(why)

    def end_if_empty(self) -> None:
        """Ends a call on which no client has proved its key."""
        if not self.clients:
            self.end(Refusal(Code.NOT_READY, "no client has been let in on this stream"))


@dataclass(frozen=True)
class _Question:
    client: PublicKey
    ask: pb.AttendResponse
    certificate: pb.AttendResponse
    answer: asyncio.Future[bytes]


class Attendance:
    """All streams of one service. Used from its event loop only."""

    def __init__(self) -> None:
        self.streams: set[Stream] = set()
        self._place: dict[tuple[RoundId, PublicKey], list[Stream]] = {}  # newest last
        self._questions: dict[RoundId, _Question] = {}
        self._ended: set[RoundId] = set()
        self._changed = asyncio.Condition()

    def open(self, round_id: RoundId) -> Stream:
        """Adds a stream on which no client is let in yet."""
        stream = Stream(round_id)
        self.streams.add(stream)
        return stream

    def close(self, stream: Stream) -> None:
        """Takes a stream's clients away with it."""
        self.streams.discard(stream)
        for client in stream.clients:
            streams = self._place[stream.round_id, client]
            streams.remove(stream)
            if not streams:
                del self._place[stream.round_id, client]

    async def enter(self, stream: Stream, clients: Sequence[PublicKey]) -> None:
        """Takes in clients that have proved their keys; one that is being asked hears so at once."""
        question = self._questions.get(stream.round_id)
        for client in clients:
            streams = self._place.setdefault((stream.round_id, client), [])
            if stream not in streams:
                streams.append(stream)
            stream.clients.add(client)
            if len(streams) > _STREAMS_OF_A_CLIENT:
                before = streams.pop(0)
                before.clients.discard(client)
                if not before.clients:
                    before.end(Refusal(Code.CONFLICT, "your clients attend on newer streams"))
            if question is not None and question.client == client:
                self._put(question, stream)
        async with self._changed:
            self._changed.notify_all()

    async def gathered(self, round_id: RoundId, clients: Sequence[PublicKey], count: int) -> None:
        """Returns once this many of these clients of a round attend, or its asking has ended."""

        def enough() -> bool:
            return self.has_ended(round_id) or sum((round_id, client) in self._place for client in clients) >= count

        async with self._changed:
            await self._changed.wait_for(enough)

    async def end(self, round_id: RoundId) -> None:
        """Ends the asking, from the next client on."""
        self._ended.add(round_id)
        async with self._changed:
            self._changed.notify_all()

    def has_ended(self, round_id: RoundId) -> bool:
        """Returns whether the operator has ended the round's asking."""
        return round_id in self._ended

    async def ask(
        self, round_id: RoundId, client: PublicKey, model: pb.Signed | None, certificate: pb.Signed, seconds: float
    ) -> bytes | None:
        """Returns the client's answer, or None if none comes in that many seconds. One client at a time in a round."""
        question = _Question(
            client,
            pb.AttendResponse(ask=pb.Ask(client_key=client, model=model)),
            pb.AttendResponse(certificate=certificate),
            asyncio.get_running_loop().create_future(),
        )
        self._questions[round_id] = question
        streams = self._place.get((round_id, client))
        if streams:
            self._put(question, streams[-1])
        try:
            return await asyncio.wait_for(question.answer, seconds)
        except TimeoutError:
            return None
        finally:
            del self._questions[round_id]

    def _put(self, question: _Question, stream: Stream) -> None:
        if not stream.has_certificate:
            stream.has_certificate = True
            stream.push(question.certificate)
        stream.push(question.ask)

    def answer(self, stream: Stream, answer: pb.Answer) -> None:
        """Takes an answer from the client that is being asked; any other has come too late and is left out."""
        question = self._questions.get(stream.round_id)
        if question is None or question.client != answer.client_key or answer.client_key not in stream.clients:
            return
        if not question.answer.done():
            question.answer.set_result(answer.envelope)

    def finish(self, round_id: RoundId, report: pb.SequentialReport) -> None:
        """Tells all clients that attend a round that the asking is over, and ends their streams."""
        self._ended.discard(round_id)
        for stream in self._of(round_id):
            stream.push(pb.AttendResponse(finished=report))
            stream.end()

    def close_round(self, round_id: RoundId, why: Refusal) -> None:
        """Ends the streams of a round of which nothing will come."""
        self._ended.discard(round_id)
        for stream in self._of(round_id):
            stream.end(why)

    def _of(self, round_id: RoundId) -> list[Stream]:
        return [stream for stream in self.streams if stream.round_id == round_id]

    def close_all(self) -> None:
        """Ends all streams; their clients reconnect."""
        for stream in self.streams:
            stream.end(Refusal(Code.STOPPING))

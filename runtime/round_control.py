"""Round control: what the operator asks of every service, from the keys of a round to its withdrawal."""

from __future__ import annotations

import logging
import os
from importlib.metadata import version

from croupier.protocol.deployment import CLOCKS_DIFFER_S, OPERATOR
from croupier.protocol.envelope import KeyPair, generate_key_pair
from croupier.protocol.errors import Code, Refusal
from croupier.protocol.identity import Kind
from croupier.protocol.manifest import RoundTerms, canonical, parse_terms, verify_manifest
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.protocol.v1 import services_pb2 as rpc
from croupier.protocol.v1 import services_pb2_grpc as stubs
from croupier.runtime.round_driver import ENVELOPE_KEY, RoundDriver
from croupier.runtime.tls import Context
from croupier.runtime.transaction import RoundRow, Transaction
from croupier.runtime.workers import peak_memory_bytes

__all__ = ["RELEASE_KEY", "RoundControl"]

_log = logging.getLogger(__name__)

RELEASE_KEY = "release"
_CREATED = "created"
"""The document that says when the keys of a round were made, in Unix seconds."""
_VERSION = version("croupier")  # read once: it is in a file of 200 lines, and a status is asked for often
_OPENED_WITHIN_S = 24 * 3600
"""A round is opened seconds after it is prepared; a day leaves time to bring back a service that is down."""
_BEFORE_CERTIFICATE = (
    pb.ROUND_STATE_PREPARED,
    pb.ROUND_STATE_OPEN,
    pb.ROUND_STATE_CLOSED,
    pb.ROUND_STATE_MIXED,
)


class RoundControl(RoundDriver, stubs.RoundControlServicer):
    """The operator's calls, the same for every role."""

    async def Prepare(self, request: rpc.PrepareRequest, context: Context) -> rpc.PrepareResponse:  # noqa: N802
        """Makes this service's key pairs for a round; the same call again answers with the same keys.

        Raises:
            Refusal: NOT_YOUR_CALL (only the operator may), BAD_REQUEST (round id or HPKE suite), CONFLICT (the round
                id has been used).
        """
        self.require_caller(context, [OPERATOR])
        round_id, suite, now = request.round_id, request.hpke_suite, str(int(self.clock.now())).encode()
        if not 1 <= len(round_id.encode()) <= 128:
            raise Refusal(Code.BAD_REQUEST, f"round_id is {round_id!r}; it must have 1..128 bytes")
        try:
            fresh = self.fresh_keys(suite)
        except ValueError as error:
            raise Refusal(Code.BAD_REQUEST, str(error)) from error

        def prepare(tx: Transaction) -> pb.RoundKeys:
            row = tx.find_round(round_id)
            if row is None:
                tx.add_round(round_id, suite, fresh)
                tx.put_document(round_id, _CREATED, now)
            own = self._own_keys(tx, round_id)
            if own is None or (row and (row.state != pb.ROUND_STATE_PREPARED or row.suite != suite)):
                raise Refusal(Code.CONFLICT, f"round {round_id!r} has already been used")
            return own

        payload = canonical(await self.store.run("prepare the round", prepare))
        return rpc.PrepareResponse(round_keys=self.identity.signed(Kind.ROUND_KEYS, payload))

    def fresh_keys(self, suite: str) -> dict[str, KeyPair]:
        """Returns new key pairs for a round, by purpose.

        Raises:
            ValueError: there is no such HPKE suite.
        """
        return {ENVELOPE_KEY: generate_key_pair(suite)}

    def round_keys(self, round_id: str, keys: dict[str, KeyPair]) -> pb.RoundKeys:
        """Returns the public halves as they stand in the manifest."""
        return pb.RoundKeys(round_id=round_id, service=self.name, public_key=keys[ENVELOPE_KEY].public)

    def _own_keys(self, tx: Transaction, round_id: str) -> pb.RoundKeys | None:
        """Returns what stands in the manifest, with the time when it was made; None for a round without keys here."""
        keys = tx.keys(round_id)
        if not keys:
            return None
        public = self.round_keys(round_id, keys)
        public.created_unix_s = int(tx.document(round_id, _CREATED) or 0)  # an older croupier has noted no time
        return public

    async def _check_terms(self, payload: bytes) -> RoundTerms:
        terms = parse_terms(payload)
        terms.check_place(self.deployment)
        own = await self.store.run("read the keys to check the terms", lambda tx: self._own_keys(tx, terms.round_id))
        if own is None:
            raise Refusal(
                Code.BAD_MANIFEST,
                f"{self.name!r} has no keys for round {terms.round_id!r}: it was withdrawn, or not opened within "
                f"{_OPENED_WITHIN_S // 3600} hours after it was prepared; open a new round",
            )
        if terms.keys_of(self.name) != own:
            raise Refusal(Code.BAD_MANIFEST, f"the keys of {self.name!r} are not those that it made for this round")
        return terms

    async def Sign(self, request: rpc.SignRequest, context: Context) -> rpc.SignResponse:  # noqa: N802
        """Signs one manifest per round: a second, different one could single out a client.

        Raises:
            Refusal: NOT_YOUR_CALL (only the operator may), BAD_MANIFEST, CONFLICT (another manifest has been signed).
        """
        self.require_caller(context, [OPERATOR])
        terms = await self._check_terms(request.manifest)
        ahead_s = (terms.created_unix_s or 0) - self.clock.now()
        if ahead_s > CLOCKS_DIFFER_S:  # nobody would believe a retired identity in this round
            raise Refusal(
                Code.BAD_MANIFEST,
                f"a service's keys are from {ahead_s:.0f} s after the time at {self.name!r}; clocks may differ by "
                f"{CLOCKS_DIFFER_S} s: 'croupier doctor' says which is wrong",
            )
        await self.store.run(
            "note the manifest that is signed",
            lambda tx: tx.put_document(terms.round_id, "signed-manifest", terms.hash),
        )
        return rpc.SignResponse(signature=self.identity.sign(Kind.MANIFEST, request.manifest))

    async def Open(self, request: rpc.OpenRequest, context: Context) -> rpc.OpenResponse:  # noqa: N802
        """Starts a round whose manifest every service has signed.

        Raises:
            Refusal: NOT_YOUR_CALL (only the operator may), BAD_MANIFEST, UNKNOWN_ROUND, CONFLICT (open under another
                manifest).
            SignatureError: a service's signature is missing or wrong.
        """
        self.require_caller(context, [OPERATOR])
        verify_manifest(request.manifest, self.deployment)
        payload = request.manifest.payload
        round_id = parse_terms(payload).round_id
        row = await self.store.run("find the round to open", lambda tx: tx.round(round_id))
        if row.manifest:
            if pb.Signed.FromString(row.manifest).payload != payload:
                raise Refusal(Code.CONFLICT, f"round {round_id!r} is open under another manifest")
            self.wake(round_id)  # the call that opened it may have broken off behind its commit
            return rpc.OpenResponse()
        await self._check_terms(payload)
        document = request.manifest.SerializeToString()
        await self.store.run(
            "open the round", lambda tx: tx.update_round(round_id, manifest=document, state=pb.ROUND_STATE_OPEN)
        )
        self.wake(round_id)
        return rpc.OpenResponse()

    async def Close(self, request: rpc.CloseRequest, context: Context) -> rpc.CloseResponse:  # noqa: N802
        """Ends admission; only hop 1 can.

        Raises:
            Refusal: NOT_YOUR_CALL (not the operator, or not hop 1).
        """
        self.require_caller(context, [OPERATOR])
        raise Refusal(Code.NOT_YOUR_CALL, "only the first shuffler closes rounds")

    def withdrawable(self, tx: Transaction, row: RoundRow) -> bool:
        """Returns whether a round may still be deleted here: until it is certified."""
        return row.state in _BEFORE_CERTIFICATE

    async def Withdraw(self, request: rpc.WithdrawRequest, context: Context) -> rpc.WithdrawResponse:  # noqa: N802
        """Deletes a round that has no certificate yet, keys first; the same call again changes nothing.

        Raises:
            Refusal: NOT_YOUR_CALL (only the operator may), UNKNOWN_ROUND, WRONG_STATE (the round has its
                certificate).
        """
        self.require_caller(context, [OPERATOR])
        return rpc.WithdrawResponse(state=await self._withdraw(request.round_id))

    async def _withdraw(self, round_id: str) -> pb.RoundState.ValueType:
        was_driven = await self.halt(round_id)

        def withdraw(tx: Transaction) -> pb.RoundState.ValueType:
            row = tx.round(round_id)
            if row.state == pb.ROUND_STATE_DISPOSED:
                return row.state
            if not self.withdrawable(tx, row):
                state = pb.RoundState.Name(row.state).removeprefix("ROUND_STATE_")
                raise Refusal(
                    Code.WRONG_STATE, f"round {round_id!r} is {state}; it can be withdrawn until it has its certificate"
                )
            tx.update_round(round_id, state=pb.ROUND_STATE_DISPOSED, problem="")
            self.forget(tx, round_id)
            return pb.ROUND_STATE_DISPOSED

        try:
            state = await self.store.run("withdraw the round", withdraw)
            self.dismiss(round_id)
        finally:
            if was_driven:
                self.wake(round_id)
        await self.erase(round_id)
        return state

    async def delete_expired(self) -> None:
        """Withdraws rounds that are not certified so long after their deadline, and rounds that were never opened.

        See `RoundDriver`.
        """
        await self._end_unopened()
        latest_s = self.clock.now() - self.keep_s

        def overdue(tx: Transaction) -> list[str]:
            return [
                row.round_id
                for row in tx.rounds()
                if row.manifest
                and row.state in _BEFORE_CERTIFICATE
                and not row.problem
                and self.withdrawable(tx, row)
                and 0 < _deadline_s(row) <= latest_s
            ]

        for round_id in await self.store.run("look for rounds that are overdue", overdue):
            _log.warning("the round is withdrawn: its deadline is long over", extra={"round_id": round_id})
            await self._withdraw(round_id)
        await super().delete_expired()

    async def _end_unopened(self) -> None:
        now_s = int(self.clock.now())

        def end(tx: Transaction) -> list[str]:
            never_opened = tx.never_opened(now_s, now_s - _OPENED_WITHIN_S)
            for round_id in never_opened:
                tx.update_round(round_id, state=pb.ROUND_STATE_DISPOSED)
                self.forget(tx, round_id)
            return never_opened

        for round_id in await self.store.run("end rounds that were never opened", end):
            _log.warning("the round is withdrawn: it was prepared and never opened", extra={"round_id": round_id})
            await self.erase(round_id)

    async def Status(self, request: rpc.StatusRequest, context: Context) -> rpc.StatusResponse:  # noqa: N802
        """Returns the state, the costs and the problem of one round, or of the 20 newest.

        Raises:
            Refusal: NOT_YOUR_CALL (only the operator may), UNKNOWN_ROUND.
        """
        self.require_caller(context, [OPERATOR])

        def problems(row: RoundRow, forgetting: set[str]) -> tuple[str, str]:
            waiting = self.why_waiting(row.round_id)
            if not waiting and row.round_id in forgetting and self.store.is_forgetting:
                waiting = "what was deleted is not erased yet: that is under way"
            return row.problem, waiting

        def read(tx: Transaction) -> tuple[list[pb.RoundStatus], dict[str, int], int]:
            rows = [tx.round(request.round_id)] if request.round_id else tx.rounds(20)
            ends, forgetting = tx.ends(), tx.forgetting()
            kept_until = {row.round_id: ends[row.round_id] + self.keep_s for row in rows if row.round_id in ends}
            return (
                [
                    pb.RoundStatus(
                        round_id=row.round_id,
                        state=row.state,
                        num_items=tx.num_submissions(row.round_id),
                        costs=tx.costs(row.round_id),
                        bytes_sent=row.bytes_sent,
                        problem="; ".join(filter(None, problems(row, forgetting))),
                    )
                    for row in rows
                ],
                kept_until,
                tx.num_revoked(),
            )

        rounds, kept_until, num_revoked = await self.store.run("read the status", read)
        return rpc.StatusResponse(
            service=self.name,
            pid=os.getpid(),
            peak_memory_bytes=peak_memory_bytes(),
            rounds=rounds,
            keep_days=self.keep_days,
            kept_until_unix_s=kept_until,
            num_revoked=num_revoked,
            version=_VERSION,
            now_unix_ms=int(self.clock.now() * 1000),
            free_bytes=self.store.free_bytes(),
        )


def _deadline_s(row: RoundRow) -> int:
    return pb.Manifest.FromString(pb.Signed.FromString(row.manifest).payload).close_deadline_unix_s

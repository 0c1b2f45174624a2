"""Round control: the operator's calls to every service, from the keys of a round to its withdrawal."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from importlib.metadata import version

from croupier.net.tls import Context
from croupier.protocol.approvals import proposal_to_ask
from croupier.protocol.deployment import CLOCKS_DIFFER_S, OPERATOR
from croupier.protocol.envelope import KeyPair, generate_key_pair
from croupier.protocol.errors import Code, Refusal
from croupier.protocol.identity import Kind, canonical
from croupier.protocol.manifest import RoundTerms, parse_terms, state_name, verify_manifest, with_survey
from croupier.protocol.names import RoundId
from croupier.protocol.publications import check_follows
from croupier.protocol.surveys import read_survey
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.protocol.v1 import services_pb2 as rpc
from croupier.runtime.kinds import DocumentKind, KeyPurpose
from croupier.runtime.peers import Peers
from croupier.runtime.round_engine import RoundEngine
from croupier.runtime.rows.rounds import RoundRow
from croupier.runtime.setup import ServiceSetup
from croupier.runtime.steps import StoreStep
from croupier.runtime.transaction import Transaction
from croupier.runtime.workers import peak_memory_bytes

_VERSION = version("croupier")  # read once: it is in a file of 200 lines, and a status is requested often
OPENED_WITHIN_S = 24 * 3600
"""A round is opened seconds after it is prepared; a day leaves time to bring back a service that is down."""
BEFORE_CERTIFICATE = (
    pb.ROUND_STATE_PREPARED,
    pb.ROUND_STATE_OPEN,
    pb.ROUND_STATE_CLOSED,
    pb.ROUND_STATE_MIXED,
)
MakeKeys = Callable[[str], dict[KeyPurpose, KeyPair]]
"""Returns new key pairs for a round, by purpose, from its HPKE suite; raises ValueError for an unknown suite."""
PutPublicKeys = Callable[[pb.RoundKeys, Mapping[KeyPurpose, KeyPair]], None]
"""Writes the public keys of a role beside that of the envelope, in the manifest's form."""
NoiseSpent = Callable[[Transaction], rpc.NoiseSpent | None]
"""Returns the total of a hop's own ledger; None at the other roles."""
LedgerMayBegin = Callable[[], Awaitable[None]]
"""Raises Refusal if the ledger of the role is empty and must not be."""
BeforeSigning = Callable[[Transaction, RoundTerms], None]
"""Raises Refusal for a round that the role does not sign."""
Withdrawable = Callable[[Transaction, RoundRow], bool]
"""Returns whether a round may still be deleted here."""


def envelope_keys(suite: str) -> dict[KeyPurpose, KeyPair]:
    """Returns the key pair that every role has for a round.

    Raises:
        ValueError: there is no such HPKE suite.
    """
    return {KeyPurpose.ENVELOPE: generate_key_pair(suite)}


def is_before_certificate(tx: Transaction, row: RoundRow) -> bool:
    """Returns whether a round has no certificate yet: until then it may be withdrawn."""
    return row.state in BEFORE_CERTIFICATE


class RoundControl:
    """The operator's calls.

    Args:
        setup: of the service.
        peers: the other services.
        engine: drives the rounds.
        make_keys: makes the role's keys for a round.
        put_public_keys: writes the public keys that only this role has.
        withdrawable: says whether a round may still be deleted at this role.
        ledger_may_begin: the role's question to other services before it signs.
        before_signing: the role's checks and writes in the transaction after which it signs a manifest.
        noise_spent: returns the total of a hop's own ledger.
    """

    def __init__(
        self,
        setup: ServiceSetup,
        peers: Peers,
        engine: RoundEngine,
        *,
        make_keys: MakeKeys = envelope_keys,
        put_public_keys: PutPublicKeys = lambda public, keys: None,
        withdrawable: Withdrawable = is_before_certificate,
        ledger_may_begin: LedgerMayBegin | None = None,
        before_signing: BeforeSigning = lambda tx, terms: None,
        noise_spent: NoiseSpent = lambda tx: None,
    ) -> None:
        self._store = setup.store
        self._clock = setup.clock
        self._keep_days, self._keep_s = setup.keep_days, setup.keep_s
        self._rules = setup.rules
        self._peers = peers
        self._engine = engine
        self._make_keys = make_keys
        self._put_public_keys = put_public_keys
        self.withdrawable = withdrawable
        self._ledger_may_begin = ledger_may_begin
        self._before_signing = before_signing
        self._noise_spent = noise_spent

    async def prepare(self, request: rpc.PrepareRequest, context: Context) -> rpc.PrepareResponse:
        """Makes this service's key pairs for a round; the same call again answers with the same keys.

        Raises:
            Refusal: NOT_YOUR_CALL (only the operator may), BAD_REQUEST (round id or HPKE suite), CONFLICT (the round
                id has been used).
        """
        self._peers.require_caller(context, [OPERATOR])
        round_id, suite, now = RoundId(request.round_id), request.hpke_suite, str(int(self._clock.now())).encode()
        if not 1 <= len(round_id.encode()) <= 128:
            raise Refusal(Code.BAD_REQUEST, f"round_id is {round_id!r}; it must have 1..128 bytes")
        try:
            fresh = self._make_keys(suite)
        except ValueError as error:
            raise Refusal(Code.BAD_REQUEST, str(error)) from error

        def add(tx: Transaction) -> pb.RoundKeys:
            row = tx.find_round(round_id)
            if row is None:
                tx.add_round(round_id, suite, fresh)
                tx.put_document(round_id, DocumentKind.CREATED, now)
            own = self._own_keys(tx, round_id)
            if own is None or (row and (row.state != pb.ROUND_STATE_PREPARED or row.suite != suite)):
                raise Refusal(Code.CONFLICT, f"round {round_id!r} has already been used")
            return own

        payload = canonical(await self._store.run(StoreStep.PREPARE_ROUND, add))
        return rpc.PrepareResponse(round_keys=self._peers.identity.signed(Kind.ROUND_KEYS, payload))

    def _own_keys(self, tx: Transaction, round_id: RoundId) -> pb.RoundKeys | None:
        """Returns the public keys for the manifest and when they were made; None for a round without keys here."""
        keys = tx.keys(round_id)
        if not keys:
            return None
        public = pb.RoundKeys(round_id=round_id, service=self._peers.name, public_key=keys[KeyPurpose.ENVELOPE].public)
        self._put_public_keys(public, keys)
        public.created_unix_s = int(
            tx.document(round_id, DocumentKind.CREATED) or 0
        )  # an older croupier has noted no time
        return public

    async def _check_terms(self, terms: RoundTerms) -> RoundTerms:
        terms.check_place(self._peers.deployment)
        own = await self._store.run(StoreStep.READ_KEYS_TO_CHECK_TERMS, lambda tx: self._own_keys(tx, terms.round_id))
        if own is None:
            raise Refusal(
                Code.BAD_MANIFEST,
                f"{self._peers.name!r} has no keys for round {terms.round_id!r}: it was withdrawn, or not opened "
                f"within {OPENED_WITHIN_S // 3600} hours after it was prepared; open a new round",
            )
        if terms.keys_of(self._peers.name) != own:
            raise Refusal(
                Code.BAD_MANIFEST, f"the keys of {self._peers.name!r} are not those that it made for this round"
            )
        return terms

    async def sign(self, request: rpc.SignRequest, context: Context) -> rpc.SignResponse:
        """Signs one manifest per round: a second, different one could single out a client.

        Raises:
            Refusal: NOT_YOUR_CALL (only the operator may), BAD_MANIFEST (also if it breaks the rules of this service or
                the promises of an earlier version of the survey, asks another question than its rule has led to, or
                the ledger was lost), BAD_BATCH (the latest result is of no earlier wave), WRONG_STATE (a wave in
                between has not been disposed of here), NOT_READY (the analyzer does not answer whether the ledger was
                lost), NOT_APPROVED (too few organisations have signed the proposal), CONFLICT (another manifest of the
                round, or another survey of this name in this wave, has been signed).
            SignatureError: the latest result is missing, or not signed as it must be.
        """
        self._peers.require_caller(context, [OPERATOR])
        terms = await self._check_terms(with_survey(request.manifest, read_survey(request.survey)))
        skipped = check_follows(terms, request.before, self._peers.deployment)

        def approvals(tx: Transaction) -> bytes | None:
            for round_id in skipped:
                row = tx.find_round(round_id)
                if row is None or row.state != pb.ROUND_STATE_DISPOSED:
                    raise Refusal(
                        Code.WRONG_STATE,
                        f"round {round_id!r} is not disposed of here; it may still have a result, which decides on the "
                        "next question",
                    )
            return tx.approvals_of(terms.survey.hash)

        known = await self._store.run(StoreStep.READ_APPROVALS, approvals)
        approved = pb.ProposalApproved.FromString(known or b"")
        if len(approved.organisations) < self._peers.deployment.approvals:
            approved = self._peers.require_approval(
                proposal_to_ask(terms.survey), request.approvals, request.approvals_expire_unix_s
            )
        ahead_s = (terms.created_unix_s or 0) - self._clock.now()
        if ahead_s > CLOCKS_DIFFER_S:  # nobody would believe a retired identity in this round
            raise Refusal(
                Code.BAD_MANIFEST,
                f"a service's keys are from {ahead_s:.0f} s after the time at {self._peers.name!r}; clocks may differ "
                f"by {CLOCKS_DIFFER_S} s: 'croupier doctor' says which is wrong",
            )
        if objection := self._rules.objection(terms, self._clock.now(), approved.organisations):
            raise Refusal(Code.BAD_MANIFEST, f"the rules of {self._peers.name!r} do not allow this round: {objection}")
        if self._ledger_may_begin is not None:
            await self._ledger_may_begin()

        def keep(tx: Transaction) -> None:
            tx.put_document(terms.round_id, DocumentKind.SIGNED_MANIFEST, terms.hash)
            if approved.organisations and tx.document(terms.round_id, DocumentKind.APPROVALS) is None:
                tx.put_document(terms.round_id, DocumentKind.APPROVALS, approved.SerializeToString())
            tx.sign_round(terms, approved.SerializeToString())
            self._before_signing(tx, terms)

        await self._store.run(StoreStep.KEEP_SIGNED_MANIFEST, keep)
        return rpc.SignResponse(signature=self._peers.identity.sign(Kind.MANIFEST, request.manifest))

    async def open(self, request: rpc.OpenRequest, context: Context) -> rpc.OpenResponse:
        """Starts a round whose manifest every service has signed.

        Raises:
            Refusal: NOT_YOUR_CALL (only the operator may), BAD_MANIFEST, UNKNOWN_ROUND, CONFLICT (open under another
                manifest), WRONG_STATE (withdrawn).
            SignatureError: a service's signature is missing or wrong.
        """
        self._peers.require_caller(context, [OPERATOR])
        verify_manifest(request.round, self._peers.deployment)
        terms = parse_terms(request.round)
        round_id = terms.round_id

        def is_open(tx: Transaction) -> bool:
            row = tx.round(round_id)
            if row.manifest and pb.SignedRound.FromString(row.manifest).manifest.payload != terms.payload:
                raise Refusal(Code.CONFLICT, f"round {round_id!r} is open under another manifest")
            return bool(row.manifest)

        def open_round(tx: Transaction) -> None:
            if is_open(tx):  # another call has opened it meanwhile, and it may be closed already
                return
            if tx.round(round_id).state != pb.ROUND_STATE_PREPARED:
                raise Refusal(Code.WRONG_STATE, f"round {round_id!r} has ended here")
            tx.update_round(round_id, manifest=request.round.SerializeToString(), state=pb.ROUND_STATE_OPEN)
            tx.note_open(round_id)

        if not await self._store.run(StoreStep.FIND_ROUND_TO_OPEN, is_open):
            await self._check_terms(terms)
            await self._store.run(StoreStep.OPEN_ROUND, open_round)
        self._engine.wake(round_id)  # also if the call that opened it has broken off after its commit
        return rpc.OpenResponse()

    async def withdraw(self, request: rpc.WithdrawRequest, context: Context) -> rpc.WithdrawResponse:
        """Deletes a round that has no certificate yet, keys first; the same call again changes nothing.

        Raises:
            Refusal: NOT_YOUR_CALL (only the operator may), UNKNOWN_ROUND, WRONG_STATE (the round has its
                certificate).
        """
        self._peers.require_caller(context, [OPERATOR])
        return rpc.WithdrawResponse(state=await self.withdraw_round(RoundId(request.round_id)))

    async def withdraw_round(self, round_id: RoundId) -> pb.RoundState.ValueType:
        """Deletes a round that has no certificate yet; see `withdraw`."""
        was_driven = await self._engine.stop_round(round_id)

        def delete(tx: Transaction) -> pb.RoundState.ValueType:
            row = tx.round(round_id)
            if row.state == pb.ROUND_STATE_DISPOSED:
                return row.state
            if not self.withdrawable(tx, row):
                state = state_name(row.state)
                raise Refusal(
                    Code.WRONG_STATE, f"round {round_id!r} is {state}; it can be withdrawn until it has its certificate"
                )
            tx.update_round(round_id, state=pb.ROUND_STATE_DISPOSED, problem="")
            self._engine.shred_round(tx, round_id)
            return pb.ROUND_STATE_DISPOSED

        try:
            state = await self._store.run(StoreStep.WITHDRAW_ROUND, delete)
            self._engine.end(round_id)
        finally:
            if was_driven:
                self._engine.wake(round_id)
        await self._engine.shred(round_id)
        return state

    async def status(self, request: rpc.StatusRequest, context: Context) -> rpc.StatusResponse:
        """Returns the state, the costs and the problem of one round, or of the 20 newest.

        The other services may ask, too: the person on call at an organisation has its service's key alone.

        Raises:
            Refusal: NOT_YOUR_CALL (only the operator and services may), UNKNOWN_ROUND.
        """
        self._peers.require_caller(context, [OPERATOR, *self._peers.deployment.chain])

        def problems(row: RoundRow, shredding: set[RoundId]) -> tuple[str, str]:
            waiting = self._peers.waiting.why(row.round_id)
            if not waiting and row.round_id in shredding and self._store.is_shredding:
                waiting = "what was deleted is not erased yet: that is under way"
            return row.problem, waiting

        def read(tx: Transaction) -> tuple[list[pb.RoundStatus], dict[str, int], int, rpc.NoiseSpent | None]:
            rows = [tx.round(RoundId(request.round_id))] if request.round_id else tx.rounds(20)
            ends, shredding = tx.ends(), tx.being_shredded()
            kept_until: dict[str, int] = {
                row.round_id: ends[row.round_id] + self._keep_s for row in rows if row.round_id in ends
            }
            return (
                [
                    pb.RoundStatus(
                        round_id=row.round_id,
                        state=row.state,
                        num_items=tx.num_submissions(row.round_id),
                        costs=tx.costs(row.round_id),
                        bytes_sent=row.bytes_sent,
                        problem="; ".join(filter(None, problems(row, shredding))),
                        approved_by=_approved_by(tx, row.round_id),
                    )
                    for row in rows
                ],
                kept_until,
                tx.num_revoked(),
                self._noise_spent(tx),
            )

        rounds, kept_until, num_revoked, noise_spent = await self._store.run(StoreStep.READ_STATUS, read)
        return rpc.StatusResponse(
            service=self._peers.name,
            pid=os.getpid(),
            peak_memory_bytes=peak_memory_bytes(),
            rounds=rounds,
            keep_days=self._keep_days,
            kept_until_unix_s=kept_until,
            num_revoked=num_revoked,
            version=_VERSION,
            now_unix_ms=int(self._clock.now() * 1000),
            free_bytes=self._store.free_bytes(),
            noise_spent=noise_spent,
            deployment=self._peers.version_in_force,
        )


def _approved_by(tx: Transaction, round_id: RoundId) -> Sequence[str]:
    """Returns the organisations that had approved of a round when this service signed its manifest."""
    return pb.ProposalApproved.FromString(tx.document(round_id, DocumentKind.APPROVALS) or b"").organisations

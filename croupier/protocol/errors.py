"""Everything that can go wrong between roles, in one catalogue.

    CroupierError
    ├── EnvelopeError            a ciphertext that this key, in this place, does not open
    ├── SignatureError           a signature that is missing or wrong
    │   └── RetiredIdentityError by an identity of that service that is not believed in this round any more
    ├── TicketError              a ticket that does not verify, or cannot be made
    ├── ProtocolError            a service's words that the protocol does not have
    ├── UnreachableError         a service that did not answer in time; the same call may succeed later
    ├── LimitError               an answer that the client's own limits do not allow (a ValueError, too)
    ├── OtherPersonError         an answer from where another person has answered (a ValueError, too)
    ├── NotCertifiedError        a round that the accountant has refused: it has no result
    ├── NotIncludedError         a submission that a hop has acknowledged, or received, and not passed on
    └── Refusal                  an answer "no" that travels: has a code from `Code`

A `Code` maps to one gRPC status and one public message; the codes of single submissions bear the same names. What a
peer may read is that message and the `hint`, which holds only the caller's own values; anything else is `log_only`.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import grpc

from croupier.protocol.names import RoundId
from croupier.protocol.shown import sanitize_for_display

TRANSIENT = (
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.ABORTED,
    grpc.StatusCode.CANCELLED,
)
"""What a failed call may be repeated for.

CANCELLED is what gRPC answers while more calls wait to be taken up than a server has room for (`SERVER_OPTIONS` in
`net.limits`); a call that its caller gives up fails with asyncio's CancelledError instead.
"""
_LONGEST_DETAILS = 500  # characters, of which one can cost 12 bytes of the 8 KiB


class CroupierError(Exception):
    """Root of all errors that croupier raises on purpose."""


class EnvelopeError(CroupierError):
    """The ciphertext does not open with this key under this label. No cause is given: HPKE has only one failure."""


class SignatureError(CroupierError):
    """A signature is missing, by another signer, or over other bytes: do not trust the server that sent it."""


class RetiredIdentityError(SignatureError):
    """A signature is by an identity of its signer that is retired and not believed in this round; the text says why."""


class TicketError(CroupierError):
    """A blinded message cannot be evaluated, or evaluations do not verify under the key of the manifest."""


class ProtocolError(CroupierError):
    """A service said something that the protocol does not have: an unknown code, or bytes that are not its message."""


class UnreachableError(CroupierError):
    """A service did not answer in time, or not with its pinned certificate: call again later."""


class LimitError(CroupierError, ValueError):
    """The client's own limits do not allow an answer; nothing was randomized or sent."""


class OtherPersonError(CroupierError, ValueError):
    """Someone has answered here under another key; it may be the same person, who answers once."""


class NotCertifiedError(CroupierError):
    """The accountant has refused the round; its reports can never be read.

    Attributes:
        reasons: the accountant's, in its words.
    """

    def __init__(self, round_id: RoundId, reasons: Sequence[str]) -> None:
        super().__init__(f"the accountant refused round {round_id!r}: {'; '.join(reasons)}")
        self.reasons = reasons


class NotIncludedError(CroupierError):
    """A hop has not passed on what was acknowledged: tell the operator, and the others who take part.

    Attributes:
        missing: the names of their makers, by the name of the hop; of every hop that lacks some.
    """

    def __init__(self, missing: Mapping[str, Sequence[str]]) -> None:
        counted = ", ".join(f"{hop} lacks {len(users)}" for hop, users in missing.items())
        super().__init__(f"not everything that was acknowledged was passed on: {counted}")
        self.missing = missing


class Code(enum.Enum):
    """Why a service refuses. The name travels as the first word of the gRPC details.

    Attributes:
        status: the gRPC status that the refusal travels with.
        message: the sentence that callers may read.
    """

    def __init__(self, status: grpc.StatusCode, message: str) -> None:
        self.status = status
        self.message = message

    UNKNOWN_ROUND = (grpc.StatusCode.NOT_FOUND, "no such round here")
    NO_OPEN_ROUND = (grpc.StatusCode.NOT_FOUND, "no round is open")
    NOT_READY = (grpc.StatusCode.UNAVAILABLE, "not there yet; ask again later")
    ROUND_CLOSED = (grpc.StatusCode.FAILED_PRECONDITION, "the round takes no more submissions")
    WRONG_STATE = (grpc.StatusCode.FAILED_PRECONDITION, "the round is not in a state that allows this")
    CONFLICT = (grpc.StatusCode.ALREADY_EXISTS, "the same thing exists with different content")
    BAD_MANIFEST = (grpc.StatusCode.INVALID_ARGUMENT, "the manifest is not acceptable")
    BAD_SIGNATURE = (grpc.StatusCode.UNAUTHENTICATED, "a required signature is missing or wrong")
    BAD_REQUEST = (grpc.StatusCode.INVALID_ARGUMENT, "the request is malformed")
    BAD_BATCH = (grpc.StatusCode.FAILED_PRECONDITION, "the batch and its commitments do not agree")
    SHORT_BATCH = (grpc.StatusCode.FAILED_PRECONDITION, "fewer distinct clients than the round requires")
    NOT_YOUR_CALL = (grpc.StatusCode.PERMISSION_DENIED, "this call is not open to you")
    NOT_APPROVED = (grpc.StatusCode.PERMISSION_DENIED, "too few organisations have approved of this")
    UNKNOWN_CLIENT = (grpc.StatusCode.PERMISSION_DENIED, "this client is not registered here")
    WRONG_SIZE = (grpc.StatusCode.INVALID_ARGUMENT, "the envelope does not have the size of this round")
    ALREADY_EXISTS = (grpc.StatusCode.ALREADY_EXISTS, "this client has submitted other bytes in this round")
    TICKETS_GIVEN = (
        grpc.StatusCode.ALREADY_EXISTS,
        "this client has asked for tickets for another answer, which is not in this outbox; only that one can count",
    )
    NOT_BLINDED = (grpc.StatusCode.INVALID_ARGUMENT, "the ticket request does not contain blinded messages")
    ROUND_FULL = (grpc.StatusCode.FAILED_PRECONDITION, "the round has as many clients as it admits")
    OVERLOADED = (grpc.StatusCode.RESOURCE_EXHAUSTED, "too much at once; slow down and try again")
    STORE_FAILED = (grpc.StatusCode.UNAVAILABLE, "the service cannot store anything now; try again")
    CLUSTER_FAILED = (grpc.StatusCode.UNAVAILABLE, "the service's cluster cannot do its work now; try again")
    STOPPING = (grpc.StatusCode.UNAVAILABLE, "the service is stopping; try again")
    INTERNAL = (grpc.StatusCode.INTERNAL, "internal error; the service's log has the details")

    @property
    def may_pass(self) -> bool:
        """Whether the same call may succeed later without anything new being said."""
        return self.status in TRANSIENT or self is Code.INTERNAL


class Refusal(CroupierError):
    """A service refuses a call; `code` says why.

    It is the same object on both sides of the wire.
    """

    def __init__(self, code: Code, hint: str = "", *, log_only: str = "", retry_after_s: float | None = None) -> None:
        super().__init__(f"{code.message}: {hint}" if hint else code.message)
        self.code = code
        self.hint = hint
        self.log_only = log_only
        self.retry_after_s = retry_after_s

    def __reduce__(self) -> tuple[Callable[..., Refusal], tuple[Code, str]]:
        """A worker's refusal arrives as it was, with code and all."""
        return partial(Refusal, log_only=self.log_only, retry_after_s=self.retry_after_s), (self.code, self.hint)

    def details(self) -> str:
        """Returns what travels in the gRPC status details, which are a header: what is too long would not arrive."""
        return f"{self.code.name}: {self}"[:_LONGEST_DETAILS]


def refusal_of(error: grpc.RpcError) -> Refusal | None:
    """Returns the Refusal that a service raised, or None for a failure of the transport itself.

    Its words are those of another, which need not be honest: see `protocol.shown`.
    """
    if not isinstance(error, grpc.aio.AioRpcError):
        return None
    name, _, text = (error.details() or "").partition(": ")
    if name not in Code.__members__:
        return None
    code, text = Code[name], sanitize_for_display(text)
    return Refusal(code, text.removeprefix(code.message).removeprefix(": "))

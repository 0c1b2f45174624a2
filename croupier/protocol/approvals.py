"""Approvals: what the operator may only do once services of several organisations have signed that it may.

A deployment file can demand it (`approvals`). What is signed is a `Proposal`, which each service makes again from the
call that carries the signatures: they allow exactly what was approved, until the proposal expires. It can be carried
out once only (a survey's name is used once; who is revoked stays revoked). Without an expiry an approval that was never
used would be good years later, when its organisation has long decided otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from croupier.protocol.deployment import Deployment, Quorum, ServiceEntry, is_by
from croupier.protocol.identity import Kind
from croupier.protocol.surveys import Survey
from croupier.protocol.v1 import messages_pb2 as pb

MOST_VALID_S = 30 * 24 * 3600
"""The longest time in seconds, from when it is carried out, for which a proposal may be valid."""


def proposal_to_ask(survey: Survey) -> bytes:
    """Returns the proposal to open the rounds of a survey, whose keys services make only afterwards."""
    return _serialized(pb.Proposal(deployment=survey.message.deployment, open_survey=survey.payload))


def proposal_to_admit(deployment: Deployment, request: pb.RegisterClientsRequest | pb.RevokeClientsRequest) -> bytes:
    """Returns the proposal to register or to revoke these clients, whatever approvals the request has."""
    action = "register" if isinstance(request, pb.RegisterClientsRequest) else "revoke"
    proposal = pb.Proposal(deployment=deployment.name, **{action: request})  # type: ignore[arg-type]
    bare = getattr(proposal, action)
    bare.ClearField("approvals")
    bare.ClearField("approvals_expire_unix_s")
    return _serialized(proposal)


def with_expiry(proposal: bytes, expires_unix_s: int) -> bytes:
    """Returns a proposal that is valid until then, Unix seconds; with 0 only what it would do, for comparisons."""
    changed = pb.Proposal.FromString(proposal)
    changed.expires_unix_s = expires_unix_s
    return _serialized(changed)


def expiry_objection(expires_unix_s: int, now_s: float) -> str | None:
    """Returns why a proposal is not valid now, Unix seconds; None if it is."""
    if expires_unix_s <= now_s:
        at = f"{datetime.fromtimestamp(expires_unix_s, UTC):%Y-%m-%d %H:%M} UTC" if expires_unix_s else "from the start"
        return f"its approvals expired {at}: propose it again, and have the organisations sign the new proposal"
    if expires_unix_s > now_s + MOST_VALID_S:
        return (
            f"its approvals expire in {(expires_unix_s - now_s) / 86400:.0f} days; they must within "
            f"{MOST_VALID_S // 86400}: propose it again"
        )
    return None


def organisation_of(entry: ServiceEntry) -> str:
    """Returns by whom a service is run; a service that names no organisation counts as one of its own name."""
    return entry.organisation or entry.name


def approval_quorum(deployment: Deployment) -> Quorum:
    """Returns the signatures that a proposal needs: of organisations, each with an active or pending identity."""
    demands: dict[str, list[set[tuple[str, str]]]] = {}
    for entry in sorted(deployment.services, key=organisation_of):
        (keys,) = demands.setdefault(organisation_of(entry), [set()])
        keys |= {(entry.name, identity) for identity in entry.live_identities}
    return Quorum(demands, deployment.approvals)


def approving_organisations(deployment: Deployment, proposal: bytes, signatures: Iterable[pb.Signature]) -> list[str]:
    """Returns the organisations whose signatures on a proposal are valid, in the order of their names."""
    identities = {entry.name: entry.live_identities for entry in deployment.services}
    signers = {
        (signature.signer, identity)
        for signature in signatures
        for identity in identities.get(signature.signer, ())
        if is_by(identity, Kind.PROPOSAL, proposal, signature)
    }
    return approval_quorum(deployment).signed_by(signers)


def _serialized(proposal: pb.Proposal) -> bytes:
    return proposal.SerializeToString(deterministic=True)

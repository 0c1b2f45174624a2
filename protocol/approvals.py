"""Approvals: what the operator may only do once services of several organisations have signed that it may.

A deployment file can demand it (`approvals`). What is signed is a `Proposal`, which each service makes again from the
call that carries the signatures: they allow exactly what was approved. A proposal can be carried
out once only (a round's name is used once; who is revoked stays revoked), so signatures need no date.
"""

from __future__ import annotations

from collections.abc import Iterable

from croupier.protocol.deployment import Deployment, ServiceEntry
from croupier.protocol.errors import SignatureError
from croupier.protocol.identity import Kind, verify_signature
from croupier.protocol.v1 import messages_pb2 as pb

__all__ = [
    "approving_organisations",
    "organisation_of",
    "proposal_to_open",
    "proposal_to_register",
    "proposal_to_revoke",
]


def proposal_to_open(manifest: pb.Manifest) -> bytes:
    """Returns the proposal to open a round: its manifest without the keys, which services make only afterwards."""
    terms = pb.Manifest()
    terms.CopyFrom(manifest)
    for field in ("hops", "accountant", "analyzer"):
        terms.ClearField(field)
    round_terms = terms.SerializeToString(deterministic=True)
    return _serialized(pb.Proposal(deployment=manifest.deployment, open_round=round_terms))


def proposal_to_register(deployment: Deployment, request: pb.RegisterClientsRequest) -> bytes:
    """Returns the proposal to register these clients, whatever approvals the request has."""
    proposal = pb.Proposal(deployment=deployment.name, register=request)
    proposal.register.ClearField("approvals")
    return _serialized(proposal)


def proposal_to_revoke(deployment: Deployment, request: pb.RevokeClientsRequest) -> bytes:
    """Returns the proposal to revoke these clients, whatever approvals the request has."""
    proposal = pb.Proposal(deployment=deployment.name, revoke=request)
    proposal.revoke.ClearField("approvals")
    return _serialized(proposal)


def organisation_of(entry: ServiceEntry) -> str:
    """Returns by whom a service is run; a service that names no organisation counts as one of its own name."""
    return entry.organisation or entry.name


def approving_organisations(
    deployment: Deployment, proposal: bytes, signatures: Iterable[pb.Signature]
) -> dict[str, str]:
    """Returns the organisations whose signatures on a proposal are valid, each with the service that has signed.

    Signatures by other keys than the active and the pending identity of a service approve of nothing.
    """
    pinned = {
        entry.name: {bytes.fromhex(identity): None for identity in entry.live_identities}
        for entry in deployment.services
    }
    approving: dict[str, str] = {}
    for signature in signatures:
        try:
            verify_signature(Kind.PROPOSAL, proposal, signature, pinned)
        except SignatureError:
            continue
        organisation = organisation_of(deployment.service(signature.signer))
        approving.setdefault(organisation, signature.signer)
    return approving


def _serialized(proposal: pb.Proposal) -> bytes:
    return proposal.SerializeToString(deterministic=True)

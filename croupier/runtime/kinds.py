"""The closed sets of a service's store: kinds of documents, purposes of keys, directions of lanes.

The values are in the databases of deployments: a new member is fine, a changed value needs a new store number.
"""

from __future__ import annotations

from enum import StrEnum


class Direction(StrEnum):
    """Whether a lane comes to this service or is sent by it."""

    IN = "in"
    OUT = "out"


class KeyPurpose(StrEnum):
    """The purpose of a key pair of a round.

    Attributes:
        ENVELOPE: opens the envelopes that arrive.
        RELEASE: opens the reports once the accountant has granted the round.
        REPORT_TICKETS: signs tickets of the report lane.
        PARAMETER_TICKETS: signs tickets of the parameter lane.
        ORDER: orders the clients of a sequential round; it has no public half.
    """

    ENVELOPE = "envelope"
    RELEASE = "release"
    REPORT_TICKETS = "report-tickets"
    PARAMETER_TICKETS = "parameter-tickets"
    ORDER = "order"


class DocumentKind(StrEnum):
    """The kind of a round's document.

    Attributes:
        CREATED: the time at which the round's keys were made, in Unix seconds.
        SIGNED_MANIFEST: the hash of the one manifest that this service has signed.
        APPROVALS: the approvals of a round, checked by this service before it signed the manifest.
        COMMITMENTS_IN: the commitments that were handed over to this service.
        COMMITMENTS_OUT: the commitments that this service hands over.
        PASSED_ON: an inclusion list; its parts are lanes and pages.
        SEQUENTIAL_PROGRESS: hop 1's position among the clients of a sequential round.
        SEQUENTIAL_ENDED: the operator has ended the asking.
        SEQUENTIAL_REPORT: hop 1's signed report of the number of answers.
        CERTIFICATE: the signed certificate.
        LAST_CERTIFICATE: the signed certificate of a sequential round's answers.
        REJECTED: the hashes of the reports that have no ticket.
        MODEL: the model of a sequential round; a part for each answer that it has learned from.
        ANSWER_KEYS: the keys of the answers that the model may learn from.
        PUBLICATION: the signed result.
        FAKES: the fake reports that this hop has drawn, sealed, with their blinds, encrypted.
        TIER_COUNTS: the noised number of clients of each budget of the grid.
        CLOSING: the numbers of reports and tickets with which hop 1 may close the round; empty: it may not.
        FAKE_TICKETS: the number of fake reports of a hop with tickets from one call; its parts are hops and calls.
    """

    CREATED = "created"
    SIGNED_MANIFEST = "signed-manifest"
    APPROVALS = "approvals"
    COMMITMENTS_IN = "commitments-in"
    COMMITMENTS_OUT = "commitments-out"
    PASSED_ON = "passed-on"
    SEQUENTIAL_PROGRESS = "sequential-progress"
    SEQUENTIAL_ENDED = "sequential-ended"
    SEQUENTIAL_REPORT = "sequential-report"
    CERTIFICATE = "certificate"
    LAST_CERTIFICATE = "last-certificate"
    REJECTED = "rejected"
    MODEL = "model"
    ANSWER_KEYS = "model-keys"
    PUBLICATION = "publication"
    FAKES = "fakes"
    TIER_COUNTS = "tier-counts"
    CLOSING = "closing"
    FAKE_TICKETS = "fake-tickets"

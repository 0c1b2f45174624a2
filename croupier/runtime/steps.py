"""The steps of a service: one name for each kind of transaction.

A name is for the log, and for tests that have the transaction fail (`tests.faults`). Code refers to members of the enum
and never to their text, so a step that is renamed or removed cannot be missed in silence.
"""

from __future__ import annotations

from enum import StrEnum


class StoreStep(StrEnum):
    """The purpose of a transaction, in the words of the log; grouped by the part that runs it."""

    # every role: the operator's calls
    PREPARE_ROUND = "prepare the round"
    READ_KEYS_TO_CHECK_TERMS = "read the keys to check the terms"
    READ_APPROVALS = "read the approvals of a survey"
    KEEP_SIGNED_MANIFEST = "keep the signed manifest"
    FIND_ROUND_TO_OPEN = "find the round to open"
    OPEN_ROUND = "open the round"
    WITHDRAW_ROUND = "withdraw the round"
    READ_STATUS = "read the status"
    READ_LEDGER_START = "read whether the ledger has begun"
    BEGIN_LEDGER = "begin the ledger"

    # every role: driving a round
    LIST_ROUNDS = "list the rounds"
    READ_TERMS = "read the terms"
    READ_STATE = "read the state of the round"
    STOP_ROUND = "stop the round"

    # every role: retention
    END_UNOPENED_ROUNDS = "end rounds that were never opened"
    FIND_OVERDUE_ROUNDS = "find overdue rounds"
    FIND_OLD_ROUNDS = "find old rounds"
    DELETE_PAGE = "delete a page of an old round"
    DELETE_OLD_ROUND = "delete an old round"
    SHRED_PAGE = "shred a page"
    SHRED_LOG = "shred the log"

    # every role: health
    PROBE = "probe"
    COUNT_ROUNDS = "count the rounds"

    # lanes
    TAKE_CHUNK = "take a chunk"
    FIND_ROUND_HANDED_OVER = "find the round that is handed over"
    MEASURE_RECEIVED_LANE = "measure a received lane"
    READ_RECEIVED_CHUNK = "read a received chunk"
    TAKE_OVER_BATCH = "take over the batch"
    KEEP_SEQUENTIAL_REPORT = "keep the sequential report"
    FIND_UNOPENED_CHUNKS = "find unopened chunks"
    READ_KEYS_TO_OPEN = "read the keys to open chunks"
    KEEP_RECORDS = "keep the records of opened chunks"
    READ_KEYS_OF_RECORDS = "read the keys of the records"
    READ_RECORDS = "read the records"
    MEASURE_LANE_TO_SEND = "measure a lane to send"
    READ_CHUNK_TO_SEND = "read a chunk to send"

    # admission
    READ_ROSTER = "read the roster"
    REGISTER_CLIENTS = "register clients"
    REVOKE_CLIENTS = "revoke clients"
    COUNT_ANSWERED = "count the clients who have answered"
    READ_ADMITTED_CLIENTS = "read the admitted clients"
    ADMIT_SUBMISSIONS = "admit submissions"

    # shuffler
    FIND_ROUND_FOR_CLIENT = "find a round for a client"
    READ_KEYS_TO_ADMIT = "read the keys to open submissions"
    WATCH_DEADLINE = "watch the deadline"
    CLOSE_ADMISSION = "close admission"
    BEGIN_TO_MIX = "begin to mix"
    READ_FAKES = "read the fake reports"
    KEEP_FAKES = "keep the fake reports"
    KEEP_MIXED_PART = "keep a part of the mixed batch"
    READ_EARLIER_COMMITMENTS = "read earlier commitments"
    KEEP_MIXED_BATCH = "keep the mixed batch"
    READ_COMMITMENTS_TO_DELIVER = "read the commitments to deliver"
    FINISH_DELIVERY = "finish the delivery"
    READ_INCLUSION_LIST = "read an inclusion list"

    # shuffler, sequential rounds
    FIND_WHO_MAY_ATTEND = "find who may attend"
    READ_STATE_FOR_STREAM = "read the state of the round for a stream"
    READ_ORDER_AND_PROGRESS = "read order and progress"
    KEEP_PROGRESS = "keep the progress"
    KEEP_LAST_PROGRESS = "keep the last progress"
    SIGN_SEQUENTIAL_REPORT = "sign the sequential report"
    READ_SEQUENTIAL_REPORT = "read the sequential report"
    END_SEQUENTIAL_PART = "end the sequential part"
    FINISH_SEQUENTIAL_PART = "finish the sequential part"
    READ_KEYS_TO_RELAY = "read the keys to relay"

    # accountant
    READ_TICKET_KEYS = "read the ticket keys"
    COUNT_FAKE_TICKETS = "count the tickets of fake reports"
    READ_FAKE_TICKETS = "read the tickets of fake reports"
    MEASURE_REPORT_TICKETS = "measure the tickets of the reports"
    COUNT_TICKETS = "count the tickets"
    DRAW_TIER_COUNTS = "draw the tier counts"
    READ_COMMITMENTS = "read the commitments"
    COUNT_ROUNDS_SHOWN = "count the rounds shown"
    ASK_LEDGER = "ask the ledger"
    READ_ACCOUNT = "read the account"
    KEEP_CLOSING = "keep what hop 1 was told of a round that it closes"
    ENTER_CERTIFICATE = "enter the certificate"
    READ_CERTIFICATE_TO_GRANT = "read the certificate to grant"
    READ_RELEASE_KEY = "read the release key"
    FINISH_GRANT = "finish the grant"
    SHOW_CERTIFICATE = "show the certificate"

    # accountant, sequential rounds
    READ_SEQUENTIAL_OUTCOME = "read the outcome of the sequential part"
    ASK_LEDGER_AGAIN = "ask the ledger again"
    AMEND_LEDGER = "amend the ledger"
    FINISH_LAST_CERTIFICATE = "finish the last certificate"

    # analyzer
    KEEP_OPENED_BATCH = "keep the opened batch"
    KEEP_GRANT = "keep the grant"
    READ_CERTIFICATE = "read the certificate"
    READ_REPORTS_WITHOUT_TICKET = "read the reports without a ticket"
    READ_KEYS_TO_OPEN_REPORTS = "read the keys to open reports"
    PUBLISH = "publish"
    SHOW_RESULT = "show the result"

    # analyzer, sequential rounds
    BEGIN_SEQUENTIAL_PART = "begin the sequential part"
    FIND_ROUND_OF_ANSWER = "find the round of an answer"
    READ_ANSWER_KEYS = "read the answer keys"
    LEARN_FROM_ANSWER = "learn from an answer"
    READ_MODEL = "read the model"

    def __repr__(self) -> str:
        """Returns the expression that names the step."""
        return f"StoreStep.{self.name}"

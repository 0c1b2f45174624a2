"""The tables of a service's database. How older ones become these is `runtime.schema`'s."""

from __future__ import annotations

from functools import partial

import sqlalchemy as sa

from croupier.runtime.database import has_parts
from croupier.runtime.tables import LARGE, table

METADATA = sa.MetaData()
_table = partial(table, METADATA)
ROUNDS = _table(
    "rounds",
    {"serial": int},
    sa.UniqueConstraint("round_id"),
    round_id=str,
    suite=str,
    state=int,
    manifest=bytes,
    problem=str,
    bytes_sent=LARGE,
)
KEYS = _table("round_keys", {"round_id": str, "purpose": str}, public=bytes, wrapped_private=bytes)
CLIENTS = _table("clients", {"client_key": bytes})
INVITED = _table("invited", {"client_key": bytes}, survey_hash=bytes, valid_until_unix_s=LARGE)
REVOKED = _table("revoked", {"client_key": bytes})
SUBMISSIONS = _table("submissions", {"round_id": str, "client_key": bytes}, envelope_hash=bytes)
CHUNKS = _table(
    "chunks",
    {"round_id": str, "direction": str, "lane": int, "chunk_index": int},
    sa.Column("ciphertexts", sa.LargeBinary),
    chunk_count=int,
    digest=bytes,
)
OPENED = _table("opened", {"round_id": str, "lane": int, "chunk_index": int}, content=bytes)
FORGETTING = _table("forgetting", {"round_id": str})
DOCUMENTS = _table("documents", {"round_id": str, "kind": str}, content=bytes)
ENDS = _table("round_ends", {"round_id": str}, unix_s=LARGE)
SURVEYS = _table(
    "surveys",  # of which a round was signed here
    {"survey_hash": bytes},
    survey_id=str,
    payload=bytes,
    approvals=bytes,  # empty where the deployment demands none
)
SURVEY_ROUNDS = _table(
    "survey_rounds",  # that were signed here: one for each wave and question; wave 0 where a survey is asked once
    {"survey_id": str, "wave": int, "question": int},
    round_id=str,
    survey_hash=bytes,
    was_open=bool,
)
LEDGER_START = _table("ledger_start", {"serial": int})  # one row once the ledger has begun
PROBE = _table("probe", {"serial": int}, content=bytes)
COSTS = _table("costs", {"round_id": str, "stage": str}, wall_s=float, cpu_s=float)

for _of_rounds in (SUBMISSIONS, CHUNKS, OPENED, DOCUMENTS):
    has_parts(_of_rounds)

"""The tables of a service's database. How older ones become these is `runtime.schema`'s."""

from __future__ import annotations

import sqlalchemy as sa

from croupier.runtime.database import has_parts

METADATA = sa.MetaData()
ROUNDS = sa.Table(
    "rounds",
    METADATA,
    sa.Column("serial", sa.Integer, primary_key=True),
    sa.Column("round_id", sa.String, unique=True, nullable=False),
    sa.Column("suite", sa.String, nullable=False),
    sa.Column("state", sa.Integer, nullable=False),
    sa.Column("manifest", sa.LargeBinary, nullable=False),
    sa.Column("problem", sa.String, nullable=False),
    sa.Column("bytes_sent", sa.BigInteger, nullable=False),
)
KEYS = sa.Table(
    "round_keys",
    METADATA,
    sa.Column("round_id", sa.String, primary_key=True),
    sa.Column("purpose", sa.String, primary_key=True),
    sa.Column("public", sa.LargeBinary, nullable=False),
    sa.Column("wrapped_private", sa.LargeBinary, nullable=False),
)
CLIENTS = sa.Table("clients", METADATA, sa.Column("client_key", sa.LargeBinary, primary_key=True))
INVITED = sa.Table(
    "invited",
    METADATA,
    sa.Column("client_key", sa.LargeBinary, primary_key=True),
    sa.Column("survey_hash", sa.LargeBinary, nullable=False),
    sa.Column("valid_until_unix_s", sa.BigInteger, nullable=False),
)
REVOKED = sa.Table("revoked", METADATA, sa.Column("client_key", sa.LargeBinary, primary_key=True))
SUBMISSIONS = sa.Table(
    "submissions",
    METADATA,
    sa.Column("round_id", sa.String, primary_key=True),
    sa.Column("client_key", sa.LargeBinary, primary_key=True),
    sa.Column("envelope_hash", sa.LargeBinary, nullable=False),
)
CHUNKS = sa.Table(
    "chunks",
    METADATA,
    sa.Column("round_id", sa.String, primary_key=True),
    sa.Column("direction", sa.String, primary_key=True),
    sa.Column("lane", sa.Integer, primary_key=True),
    sa.Column("chunk_index", sa.Integer, primary_key=True),
    sa.Column("chunk_count", sa.Integer, nullable=False),
    sa.Column("digest", sa.LargeBinary, nullable=False),
    sa.Column("ciphertexts", sa.LargeBinary),
)
OPENED = sa.Table(
    "opened",
    METADATA,
    sa.Column("round_id", sa.String, primary_key=True),
    sa.Column("lane", sa.Integer, primary_key=True),
    sa.Column("chunk_index", sa.Integer, primary_key=True),
    sa.Column("content", sa.LargeBinary, nullable=False),
)
FORGETTING = sa.Table("forgetting", METADATA, sa.Column("round_id", sa.String, primary_key=True))
DOCUMENTS = sa.Table(
    "documents",
    METADATA,
    sa.Column("round_id", sa.String, primary_key=True),
    sa.Column("kind", sa.String, primary_key=True),
    sa.Column("content", sa.LargeBinary, nullable=False),
)
ENDS = sa.Table(
    "round_ends",
    METADATA,
    sa.Column("round_id", sa.String, primary_key=True),
    sa.Column("unix_s", sa.BigInteger, nullable=False),
)
PREPARED = sa.Table(
    "rounds_prepared",
    METADATA,
    sa.Column("round_id", sa.String, primary_key=True),
    sa.Column("unix_s", sa.BigInteger, nullable=False),
)
SURVEYS = sa.Table(
    "surveys",  # of which a round was signed here
    METADATA,
    sa.Column("survey_hash", sa.LargeBinary, primary_key=True),
    sa.Column("survey_id", sa.String, nullable=False),
    sa.Column("payload", sa.LargeBinary, nullable=False),
    sa.Column("approvals", sa.LargeBinary, nullable=False),  # empty where the deployment demands none
)
SURVEY_ROUNDS = sa.Table(
    "survey_rounds",  # that were signed here: one for each wave and question; wave 0 where a survey is asked once
    METADATA,
    sa.Column("survey_id", sa.String, primary_key=True),
    sa.Column("wave", sa.Integer, primary_key=True),
    sa.Column("question", sa.Integer, primary_key=True),
    sa.Column("round_id", sa.String, nullable=False),
    sa.Column("survey_hash", sa.LargeBinary, nullable=False),
    sa.Column("was_open", sa.Boolean, nullable=False),
)
LEDGER_START = sa.Table(
    "ledger_start",  # one row once the ledger has begun
    METADATA,
    sa.Column("serial", sa.Integer, primary_key=True),
)
PROBE = sa.Table(
    "probe",
    METADATA,
    sa.Column("serial", sa.Integer, primary_key=True),
    sa.Column("content", sa.LargeBinary, nullable=False),
)
COSTS = sa.Table(
    "costs",
    METADATA,
    sa.Column("round_id", sa.String, primary_key=True),
    sa.Column("stage", sa.String, primary_key=True),
    sa.Column("wall_s", sa.Float, nullable=False),
    sa.Column("cpu_s", sa.Float, nullable=False),
)

for _of_rounds in (SUBMISSIONS, CHUNKS, OPENED, DOCUMENTS):
    has_parts(_of_rounds)

"""The names of things that are all `str` or `bytes`, as types, so that mypy tells a digest from a key.

At run time each is the text or the bytes themselves. A value gets its type where it enters: from a message, a file or
the command line. A plain text passes for a name only where someone writes `RoundId(text)`.
"""

from __future__ import annotations

from typing import Any, NewType, TypeAlias

from croupier.protocol.v1 import messages_pb2 as pb

Lane: TypeAlias = pb.Lane.ValueType
"""LANE_JOINT, LANE_REPORT, LANE_PARAMETER or LANE_ANSWER."""
RoundId = NewType("RoundId", str)
"""The name of a round, 1..128 bytes of UTF-8."""
NO_ROUND = RoundId("")
"""No round is named: a call that asks for a round with this gets the newest open one."""
HostName = NewType("HostName", str)
"""A host's name or IP address, without a port."""
Digest = NewType("Digest", bytes)
"""A SHA-256 hash, 32 bytes: of a manifest, an envelope, or a batch of ciphertexts."""
PublicKey = NewType("PublicKey", bytes)
"""The public half of a key pair: Ed25519, of an HPKE suite, or of the tickets of a lane."""
PrivateKey = NewType("PrivateKey", bytes)
"""The secret half of a key pair, or the seed that it is derived from."""
NO_KEY = PrivateKey(b"")
"""No key is given: what takes one makes a fresh key, or uses its own."""
StorageKey = NewType("StorageKey", bytes)
"""A symmetric key, 32 bytes: what a service encrypts its stored keys with."""
NOT_ENCRYPTED = StorageKey(b"")
"""No storage key is given: the stored keys are not encrypted."""
JsonObject: TypeAlias = dict[str, Any]
"""A JSON object; the function that makes it says which keys it has."""

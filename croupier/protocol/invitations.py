"""Invitations: a link for each person, from which the key follows that signs the answers.

Services get the public half of the key. The link has a secret, and its key belongs to one survey: with another
description another key follows, which no service knows. The secret is behind the # of the link, which browsers do not
send to servers; anyone who has the link can answer with it.
"""

from __future__ import annotations

import base64
import secrets
from dataclasses import dataclass
from typing import Self
from urllib.parse import parse_qsl, urlencode

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from croupier.protocol.names import Digest, PrivateKey, RoundId

_SECRET_BYTES = 16
"""128 bits: enough that nobody guesses one, and short enough for a QR code that a telephone reads from paper."""


def new_secret() -> bytes:
    """Returns a fresh secret."""
    return secrets.token_bytes(_SECRET_BYTES)


def _written(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def _read(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


@dataclass(frozen=True)
class Invitation:
    """What the link of an invitation says behind its #.

    Attributes:
        secret: 16 bytes.
        deployment: the deployment's fingerprint.
        round_id: the first round of the survey.
        until: Unix seconds after which it is no longer good, for the page to say so; 0: it does not expire. The
            accountant keeps to what was registered, whatever a link says.
    """

    secret: bytes
    deployment: Digest
    round_id: RoundId
    until: int = 0

    def __post_init__(self) -> None:
        if len(self.secret) != _SECRET_BYTES or len(self.deployment) != 32:
            raise ValueError("the link of the invitation is incomplete; copy all of it")

    @property
    def fragment(self) -> str:
        """The part of the link behind the #."""
        said = {"invitation": _written(self.secret), "deployment": _written(self.deployment), "round": self.round_id}
        return urlencode(said | ({"until": str(self.until)} if self.until else {}))

    @classmethod
    def read(cls, link: str) -> Self:
        """Returns what a link says.

        Raises:
            ValueError: it is not the link of an invitation to a survey; the link is not repeated, as it is a secret.
        """
        said = dict(parse_qsl(link.strip().partition("#")[2]))
        try:
            until = int(said.get("until", "0"))
            return cls(_read(said["invitation"]), Digest(_read(said["deployment"])), RoundId(said["round"]), until)
        except (KeyError, ValueError) as error:
            raise ValueError("the link is not an invitation to a survey, or is incomplete; copy all of it") from error

    def key(self, survey_hash: Digest) -> PrivateKey:
        """Returns the Ed25519 private key that signs the answers to a survey."""
        return invitation_key(self.secret, survey_hash)


def invitation_key(secret: bytes, survey_hash: Digest) -> PrivateKey:
    """Returns HKDF-SHA256 of a secret, 32 bytes, with the survey in its info."""
    info = b"croupier/v1/invitation\0" + survey_hash
    return PrivateKey(HKDF(SHA256(), length=32, salt=None, info=info).derive(secret))

"""What a gateway serves to participants: the page, one file that needs nothing else, and the deployment's versions.

The page is built from `web/` and committed, so that operators need no build step. Its SHA-256 is what people compare
who do not want to trust the server that delivers it. The deployment's document is JSON with what the services sign, as
they sign it, and their signatures: the page verifies it, and needs neither TOML nor the canonical form.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from croupier.protocol.deployment import Deployment

PAGE_PATH = "/participate/"
_FORMAT = 2
"""The version of the form of these documents, which the participants' page checks."""
MOST_BYTES = 2 * 2**20
"""The most for all versions together: the page reads at most 4 MiB."""
_FILE = Path(__file__).parent / "participate.html"
_HEADERS = {
    "Cache-Control": "no-cache",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "cross-origin",  # a page that is opened from a file asks for the document
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class ServedFile(NamedTuple):
    """An answer to GET.

    Attributes:
        body: its bytes.
        media_type: of the body.
        headers: further ones.
    """

    body: bytes
    media_type: str
    headers: dict[str, str]


@cache
def participant_page() -> bytes:
    """Returns the page, as it is served and as people may keep it as a file."""
    return _FILE.read_bytes()


def page_hash() -> str:
    """Returns the SHA-256 of the page, in hexadecimal, by which people recognise it."""
    return hashlib.sha256(participant_page()).hexdigest()


def _policy() -> str:
    """Returns the Content-Security-Policy: the one script and the one style of the page, and calls to this server."""
    page = participant_page()

    def allowed(tag: bytes) -> str:
        (text,) = re.findall(rb"<%b(?: [^>]*)?>(.*?)</%b>" % (tag, tag), page, re.DOTALL)
        return f"'sha256-{base64.b64encode(hashlib.sha256(text).digest()).decode()}'"

    return "; ".join(
        [
            "default-src 'none'",
            f"script-src {allowed(b'script')}",
            f"style-src {allowed(b'style')}",
            "connect-src 'self'",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
        ]
    )


def _signed(version: Deployment) -> dict[str, object]:
    signatures = [signature.model_dump() for signature in version.signatures]
    return {"statement": version.statement.decode(), "signatures": signatures}


def _as_json(document: dict[str, object]) -> bytes:
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()


def deployment_document(deployment: Deployment) -> bytes:
    """Returns what a page has to know of a deployment: what its services have signed, and their signatures."""
    return _as_json({"format": _FORMAT, **_signed(deployment)})


def versions_document(versions: Sequence[Deployment]) -> bytes:
    """Returns the versions, oldest first, by which a page follows from an older one; the oldest may be left out."""
    signed = [_signed(version) for version in versions]
    while len(signed) > 1 and len(_as_json({"versions": signed})) > MOST_BYTES:
        del signed[: len(signed) // 8 + 1]
    return _as_json({"format": _FORMAT, "versions": signed})


def served_pages(versions: Sequence[Deployment]) -> dict[str, ServedFile]:
    """Returns what is served, by path; versions of the deployment file, oldest first."""
    page = ServedFile(participant_page(), "text/html", _HEADERS | {"Content-Security-Policy": _policy()})
    kept = page._replace(headers=page.headers | {"Content-Disposition": 'attachment; filename="participate.html"'})
    newest, every = deployment_document(versions[-1]), versions_document(versions)
    return {
        PAGE_PATH: page,
        f"{PAGE_PATH}participate.html": kept,
        f"{PAGE_PATH}deployment.json": ServedFile(newest, "application/json", _HEADERS),
        f"{PAGE_PATH}versions.json": ServedFile(every, "application/json", _HEADERS),
    }

"""What a gateway serves to participants: the page, one file that needs nothing else, and the deployment's keys.

The page is built from `web/` and committed, so that operators need no build step. Its SHA-256 is what people compare
who do not want to trust the server that delivers it. The deployment's document is JSON with the keys and terms that a
client pins; its SHA-256 is the deployment's fingerprint.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

from croupier.protocol.deployment import Deployment, ServiceEntry

__all__ = ["PAGE_PATH", "Served", "deployment_document", "fingerprint", "page_hash", "participant_page", "served_pages"]

PAGE_PATH = "/participate/"
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


class Served(NamedTuple):
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


def _service(entry: ServiceEntry) -> dict[str, object]:
    pending = [entry.pending_identity] if entry.pending_identity else []
    return {
        "name": entry.name,
        "role": entry.role,
        "identities": [entry.identity, *pending],
        "retired": [
            {
                "identity": retired.identity,
                "valid_until": None if retired.valid_until is None else retired.valid_until.timestamp(),
                "compromised": retired.compromised,
            }
            for retired in entry.retired_identities
        ],
    }


def deployment_document(deployment: Deployment) -> bytes:
    """Returns what a page has to know of a deployment: whose signatures it believes, in which order, and the limit."""
    limit = deployment.privacy_limit
    document = {
        "format": 1,
        "name": deployment.name,
        "services": [_service(deployment.service(name)) for name in deployment.chain],
        "privacy_limit": None if limit is None else limit.model_dump(),
    }
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()


def fingerprint(deployment: Deployment) -> bytes:
    """Returns the SHA-256 of the deployment's document; an invitation names it, and the page shows it."""
    return hashlib.sha256(deployment_document(deployment)).digest()


def served_pages(deployment: Deployment) -> dict[str, Served]:
    """Returns what is served, by path."""
    page = Served(participant_page(), "text/html", _HEADERS | {"Content-Security-Policy": _policy()})
    kept = page._replace(headers=page.headers | {"Content-Disposition": 'attachment; filename="participate.html"'})
    document = Served(deployment_document(deployment), "application/json", _HEADERS)
    return {
        PAGE_PATH: page,
        f"{PAGE_PATH}participate.html": kept,
        f"{PAGE_PATH}deployment.json": document,
    }

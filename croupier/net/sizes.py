"""How large a message may be, wherever it is sent or received."""

from __future__ import annotations

MESSAGE_BYTES = 4 * 1024 * 1024
"""The largest message over gRPC and HTTPS, in both directions; `net.limits` has what only servers limit."""

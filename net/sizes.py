"""How large a message may be, wherever it is sent or received."""

from __future__ import annotations

__all__ = ["MESSAGE_BYTES"]

MESSAGE_BYTES = 4 * 1024 * 1024
"""Of gRPC as well as of HTTPS, in both directions; `runtime.limits` has what only servers limit."""

"""How many random settings a test draws: a small dose in 'make test', many times as many in 'make hunt'."""

from __future__ import annotations

import os

from hypothesis import settings

_FACTOR = float(os.environ.get("CROUPIER_HUNT", "0.15"))


def drawn(examples: int) -> settings:
    """Returns the settings of a test that draws `examples` examples, times CROUPIER_HUNT; a failure can be repeated."""
    return settings(max_examples=max(1, round(examples * _FACTOR)), deadline=None, print_blob=True)

"""The accountant as tests of the bounds call it."""

from __future__ import annotations

from functools import partial

from croupier import certify

certify_without_attack = partial(certify, attack=False)
"""Of a test that does not look at the attack, which takes about as long as the bound."""

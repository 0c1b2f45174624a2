"""Rare budgets: the tiers of a certificate as they are shown, where the manifest has small ones merged upwards.

What is certified, and what the ledger keeps, is about the exact tiers. Before a certificate leaves the accountant its
tiers are merged here, and what else in it would tell the exact ones is left out (docs/threat-model.md, Rare tiers).
"""

from __future__ import annotations

from collections.abc import Iterable

from protocol.v1 import messages_pb2 as pb

__all__ = ["merge_small_tiers", "show_merged"]

_METHOD = "the least of all bounds that are proved; which one is not said, because it depends on rare budgets"
_NOTABLE_SLACK = 1e-3


def merge_small_tiers(tiers: Iterable[pb.Tier], min_tier_size: int) -> list[pb.Tier]:
    """Returns tiers of at least `min_tier_size` clients; the last may be smaller: above it is none to be merged with.

    tiers: by ascending local epsilon. From the smallest on, one that is too small is added to the next larger one. Its
    clients are among those of a larger local epsilon then, and the central epsilon is the largest of all that are
    merged: it holds for each of them. Fewer than `min_tier_size` clients of a tier, in all, come from smaller ones.
    """
    shown: list[pb.Tier] = []
    for tier in tiers:
        merged = pb.Tier()
        merged.CopyFrom(tier)
        if shown and shown[-1].count < min_tier_size:
            smaller = shown.pop()
            merged.count += smaller.count
            merged.epsilon = max(merged.epsilon, smaller.epsilon)
            merged.local_delta = max(merged.local_delta, smaller.local_delta)
        shown.append(merged)
    return shown


def show_merged(message: pb.Certificate, min_tier_size: int) -> None:
    """Merges the small tiers of a certificate, and leaves out what else would tell them.

    All but the counts is the same whether or not there was something to merge.
    """
    shown = merge_small_tiers(message.tiers, min_tier_size)
    del message.tiers[:]
    message.tiers.extend(shown)
    message.merged_below = min_tier_size
    message.method = _METHOD
    message.numerical_slack = max(message.numerical_slack, _NOTABLE_SLACK * message.delta)  # hardly ever the former
    for field in ("comparison", "lower_bound_epsilon", "lower_bound_attack"):
        message.ClearField(field)

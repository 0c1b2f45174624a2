"""Rare budgets: the tiers that a round is certified for, where the manifest has small ones merged upwards."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["merge_small_tiers"]


def merge_small_tiers(tiers: Iterable[tuple[float, int]], min_tier_size: int) -> list[tuple[float, int]]:
    """Returns tiers of at least `min_tier_size` clients; the last may be smaller, as no larger tier can take it.

    tiers: (local epsilon, clients), by ascending local epsilon. From the smallest on, one that is too small is added to
    the next larger one. Fewer than `min_tier_size` clients of a tier, in all, come from smaller ones.

    A certificate of the merged tiers holds for the exact ones where a report with a smaller budget is one with a larger
    budget or else random, and for no other randomizer (docs/accounting.md, 7.1).
    """
    merged: list[tuple[float, int]] = []
    for local_epsilon, count in tiers:
        smaller = merged.pop()[1] if merged and merged[-1][1] < min_tier_size else 0
        merged.append((local_epsilon, smaller + count))
    return merged

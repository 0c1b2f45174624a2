"""What the figures about central privacy share: the points of `measure_epsilon`, their lines and their columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from research.experiments.figure import Column, Point, Settings, Size


def bound_point(
    settings: Settings, mechanisms: Sequence[str], certify: Sequence[str], published: Sequence[str], **where: Any
) -> Point:
    """Returns a point at which mechanisms are attacked, some of them certified, and published bounds evaluated.

    Args:
        settings: of the run; the full size searches longer for attacks.
        mechanisms: names of randomizers.
        certify: those of them to certify.
        published: names of `accountant.compare`.
        where: the budgets, as "tiers" or "distribution" and "n", and "delta" or "epsilon".
    """
    return {
        **where,
        "mechanisms": list(mechanisms),
        "certify": list(certify),
        "published": list(published),
        "attack_s": 5.0 if settings.size is Size.FULL else 0.0,
        "seed": settings.seed,
    }


def settings_elsewhere(
    settings: Settings, published: str, cases: Sequence[tuple[str, Sequence[tuple[float, int]], float]]
) -> list[Point]:
    """Returns points for (mechanism, tiers, delta) that a paper does not show; quick ones are only attacked."""
    return [
        bound_point(
            settings,
            [name],
            [] if settings.size is Size.QUICK else [name],
            [published],
            distribution=", ".join(f"{count:,} × {epsilon:g}" for epsilon, count in tiers),
            tiers=[list(tier) for tier in tiers],
            delta=delta,
        )
        for name, tiers, delta in cases
    ]


def bound_columns(*mechanisms: str, digits: int = 4) -> tuple[Column, ...]:
    """Returns the certificate and the attack of each mechanism."""
    return tuple(
        column
        for name in mechanisms
        for column in (
            Column(f"{name}: CERTIFIED", f"certified:{name}", digits, "up"),
            Column(f"{name}: LOWER_BOUND", f"attack:{name}", digits, "down"),
        )
    )


def published_columns(bounds: Mapping[str, str]) -> tuple[Column, ...]:
    """Returns the columns of published bounds, which are named by their headers; a header ends in the grade."""
    return tuple(Column(header, f"published:{name}", rounding="up") for header, name in bounds.items())

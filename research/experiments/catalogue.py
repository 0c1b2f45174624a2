"""All figures that can be run, in the order of the page."""

from __future__ import annotations

from collections.abc import Sequence

from research.experiments import beyond, gspa, hop_noise, krr, psp
from research.experiments.figure import Figure

FIGURES: tuple[Figure, ...] = (*gspa.FIGURES, *krr.FIGURES, *psp.FIGURES, *beyond.FIGURES, *hop_noise.FIGURES)


def chosen(names: Sequence[str]) -> list[Figure]:
    """Returns the figures of these names; "all" is every one.

    Raises:
        ValueError: an unknown name, or none.
    """
    known = {figure.name: figure for figure in FIGURES}
    for name in names:
        if name != "all" and name not in known:
            raise ValueError(f"there is no experiment {name!r}; it must be all, or some of {', '.join(known)}")
    if not names:
        raise ValueError("no experiment is named; 'croupier experiment list' shows them")
    return list(FIGURES) if "all" in names else [known[name] for name in dict.fromkeys(names)]

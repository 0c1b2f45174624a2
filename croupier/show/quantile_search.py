"""A quantile that was searched for in a large range: as a JSON document, in the terminal, and in words."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from rich.table import Table

from croupier.accountant.results import Guarantee
from croupier.analyzer.quantile_search import QuantileEstimate
from croupier.protocol.rounding import round_up
from croupier.protocol.shown import sanitize_for_display
from croupier.show.distribution import quantile_name
from croupier.show.views.quantiles import SearchedQuantileView
from croupier.show.views.results import NumberView

__all__ = ["quantile_json", "quantile_sentence", "read_search", "step_numbers", "steps_table"]


def quantile_json(
    name: str, searched: QuantileEstimate, guarantee: Guarantee, rounds: Sequence[str]
) -> SearchedQuantileView:
    """Returns what a search has found, with what all of its rounds together guarantee each person.

    name: of the numbers.
    """
    return {
        "name": name,
        "q": searched.q,
        "estimate": searched.estimate,
        "interval": list(searched.interval),
        "confidence_level": searched.confidence,
        "steps": [
            {
                "round_id": round_id,
                "threshold": step.threshold,
                "share": step.share,
                "standard_error": step.standard_error,
                "interval": list(step.interval),
                "people": step.people,
            }
            for round_id, step in zip(rounds, searched.steps, strict=True)
        ],
        "guarantee": guarantee.to_json(),
    }


def read_search(document: Any) -> SearchedQuantileView:
    """Returns a search that `croupier quantile --json` has printed.

    Raises:
        ValueError: the document is not that of a search, or has a number that is not finite.
    """
    try:
        clean: SearchedQuantileView = sanitize_for_display(document)
        numbers = [clean["q"], clean["estimate"], *clean["interval"], clean["confidence_level"]]
        for number in step_numbers(clean):
            numbers += [number.estimate, number.standard_error, *number.interval]
        if not all(map(math.isfinite, numbers)):
            raise ValueError(f"its numbers are {numbers}; every one must be finite")
        quantile_sentence(clean)
        [line["text"] for line in clean["guarantee"]["assumptions"]]
    except (KeyError, TypeError, AttributeError, IndexError, ValueError) as error:
        raise ValueError(
            "the document is not a quantile search; it must be what 'croupier quantile --json' printed "
            f"({type(error).__name__}: {error})"
        ) from error
    return clean


def step_numbers(searched: SearchedQuantileView) -> list[NumberView]:
    """Returns the shares of people at or below each threshold, in the order of the thresholds."""
    return [
        NumberView(
            f"at most {step['threshold']:.6g}",
            step["share"],
            min(1.0, max(0.0, step["share"])),
            step["standard_error"],
            step["interval"],
            None,
        )
        for step in sorted(searched["steps"], key=lambda step: step["threshold"])
    ]


def steps_table(searched: SearchedQuantileView) -> Table:
    """Returns what each group was asked and has answered."""
    table = Table("asked: at most", "people", "share of yes", "± standard error", "interval, all people")
    for step in searched["steps"]:
        low, high = step["interval"]
        table.add_row(
            f"{step['threshold']:.6g}",
            f"{step['people']:,}",
            f"{step['share']:.4f}",
            f"{step['standard_error']:.2g}",
            f"[{low:.4f}, {high:.4f}]",
        )
    table.caption = "intervals are so wide that all of them together keep the level of the quantile's"
    return table


def quantile_sentence(searched: SearchedQuantileView) -> str:
    """Returns the quantile and what it has cost each person in two sentences."""
    low, high = searched["interval"]
    guarantee = searched["guarantee"]
    return (
        f"The estimated {quantile_name(searched['q'])} of {searched['name']} is {searched['estimate']:.6g}, between "
        f"{low:.6g} and {high:.6g} ({100 * searched['confidence_level']:g} % interval, these people and a "
        f"population that they are a random sample of). All {len(searched['steps'])} rounds together are "
        f"{guarantee['grade']} for each person with ε = {round_up(guarantee['epsilon'])} at "
        f"δ = {round_up(guarantee['delta'])}: everybody was asked once, in the group that their own device drew."
    )

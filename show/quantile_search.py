"""A quantile that was searched for in a large range: as a JSON document, in the terminal, and in words."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from croupier.accountant.results import Guarantee
from croupier.analyzer.quantile_search import QuantileEstimate
from croupier.protocol.rounding import round_up
from croupier.protocol.statements import written_json
from croupier.show.distribution import quantile_name
from croupier.show.views.quantiles import SearchedQuantileView

__all__ = ["quantile_json", "quantile_sentence", "steps_table"]


def quantile_json(searched: QuantileEstimate, guarantee: Guarantee, rounds: Sequence[str]) -> SearchedQuantileView:
    """Returns what a search has found, with what all of its rounds together guarantee each person."""
    return {
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
        "guarantee": {
            "epsilon": guarantee.epsilon,
            "delta": guarantee.delta,
            "grade": str(guarantee.grade),
            "method": written_json(guarantee.method),
            "assumptions": written_json(guarantee.assumptions),
        },
    }


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


def quantile_sentence(searched: SearchedQuantileView, name: str) -> str:
    """Returns the quantile and what it has cost each person in two sentences."""
    low, high = searched["interval"]
    guarantee = searched["guarantee"]
    return (
        f"The estimated {quantile_name(searched['q'])} of {name} is {searched['estimate']:.6g}, between {low:.6g} and "
        f"{high:.6g} ({100 * searched['confidence_level']:g} % interval, these people and a population that they are a "
        f"random sample of). All {len(searched['steps'])} rounds together are {guarantee['grade']} for each person "
        f"with ε = {round_up(guarantee['epsilon'] or 0.0)} at δ = {round_up(guarantee['delta'])}: everybody was asked "
        "once, in the group that their own device drew."
    )

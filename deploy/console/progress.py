"""How far a round is, stage by stage: counts, rates since an earlier look, and the time that is left at that rate."""

from __future__ import annotations

import time
from typing import Any

from deploy.show.rounds import deadline, duration
from deploy.show.tables import counted

__all__ = ["Counts", "counts_of", "with_progress"]

Counts = dict[tuple[str, str], int]
"""By service and round: clients at hop 1, ciphertexts received elsewhere."""

_SAYS = {
    "PREPARED": "has made its keys",
    "OPEN": "is ready",
    "CLOSED": "has received all, and works on it",
    "MIXED": "has mixed, and passes on",
    "DELIVERED": "has passed everything on",
    "CERTIFIED": "has certified it",
    "RELEASED": "has certified it, and let it be opened",
    "SEQUENTIAL": "asks people one after the other",
    "PUBLISHED": "has published the result",
    "REFUSED": "has refused it",
    "DISPOSED": "has deleted it",
}


def counts_of(seen: dict[str, Any]) -> Counts:
    """Returns the counts of an overview."""
    return {
        (service["service"], one["round_id"]): one["num_items"]
        for service in seen["services"]
        for one in service["rounds"]
    }


def with_progress(one: dict[str, Any], seen: dict[str, Any], before: Counts, seconds: float) -> dict[str, Any]:
    """Returns a round of an overview with "steps", a dictionary for each service in the order of the chain, and "left".

    Args:
        one: `round_json`.
        seen: the overview.
        before: the counts of an earlier one.
        seconds: how long ago that was.
    """
    round_id, total = one["round_id"], one["num_reports"]
    steps = []
    for place, service in enumerate(seen["services"]):
        mine = next((kept for kept in service["rounds"] if kept["round_id"] == round_id), None)
        if mine is None:
            continue
        name, count = service["service"], mine["num_items"]
        rate = (count - before.get((name, round_id), count)) / seconds if seconds > 0 else 0.0
        steps.append(
            {
                "service": name,
                "state": mine["state"],
                "says": "takes answers" if mine["state"] == "OPEN" and not place else _SAYS.get(mine["state"], ""),
                "count": count,
                "of": total if place else None,
                "rate": rate,
                "costs": ", ".join(f"{stage} {cost['wall_s']:.2f} s" for stage, cost in mine["stages"].items()),
                "left_s": (total - count) / rate if place and rate > 0 and count < total else None,
            }
        )
    return one | {"steps": steps, "left": _left(one, steps)}


def _left(one: dict[str, Any], steps: list[dict[str, Any]]) -> list[str]:
    """How much longer it takes, in words: until it closes, and until enough have answered or a stage is through."""
    terms, lines = one["terms"], []
    if terms is None or not steps:
        return []
    if one["stage"] == "OPEN":
        missing, rate = terms["min_batch_size"] - one["num_reports"], steps[0]["rate"]
        if missing > 0:
            lines.append(f"{counted(missing, 'more answer')} needed before anything is read")
            if rate > 0:
                lines.append(f"at {rate:.3g}/s, in about {duration(missing / rate)}")
        else:
            lines.append("enough have answered")
        lines.append(deadline(terms["close_deadline_unix_s"], time.time()))
    lines += [f"{step['service']}: about {duration(step['left_s'])} left" for step in steps if step["left_s"]]
    return lines

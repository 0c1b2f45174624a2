"""How far a round is: answers and their rate since an earlier look, every stage with its rate, and the time left."""

from __future__ import annotations

import time

from croupier.protocol.names import JsonObject
from croupier.show.round_text import deadline, duration
from croupier.show.text import counted

Counts = dict[str, int]
"""The number of answers, by round, where it is known."""

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
_OF_REPORTS = ("mix", "deliver", "analyze")


def counts_of(seen: JsonObject) -> Counts:
    """Returns the counts of an overview."""
    return {view["round_id"]: view["num_reports"] for view in seen["rounds"] if view["num_reports"] is not None}


def with_progress(view: JsonObject, seen: JsonObject, before: Counts, seconds: float) -> JsonObject:
    """Returns a round of an overview with "steps", one for each service in the order of the chain, and "left".

    Args:
        view: `round_json`.
        seen: the overview.
        before: the counts of an earlier overview.
        seconds: how long ago that was.
    """
    round_id, count = view["round_id"], view["num_reports"] or 0
    steps: list[JsonObject] = []
    for place, service in enumerate(seen["services"]):
        mine = next((kept for kept in service["rounds"] if kept["round_id"] == round_id), None)
        if mine is None:
            continue
        taking = mine["state"] == "OPEN" and not place
        steps.append(
            {
                "service": service["service"],
                "state": mine["state"],
                "says": "takes answers" if taking else _SAYS.get(mine["state"], ""),
                "costs": [_cost(cost["stage"], cost["wall_s"], count) for cost in mine["costs"]],
            }
        )
    rate = (count - before.get(round_id, count)) / seconds if seconds > 0 else 0.0
    return view | {"steps": steps, "left": _left(view, rate)}


def _cost(stage: str, seconds: float, count: int) -> str:
    """Returns the time that a stage has taken, and its speed where the stage works on one report after the other."""
    rate = f", {count / seconds:,.0f} reports/s" if stage in _OF_REPORTS and seconds > 0 and count else ""
    return f"{'open envelopes' if stage == 'open' else stage}: {seconds:.2f} s{rate}"


def _left(view: JsonObject, rate: float) -> list[str]:
    """Returns how many answers are missing, their rate and the deadline, in words."""
    terms, count = view["terms"], view["num_reports"]
    if terms is None or count is None or view["stage"] != "OPEN":
        return []
    missing = terms["min_batch_size"] - count
    speed = f"{rate:.3g} answers/s" if rate > 0 else ""
    lines = ["enough have answered"]
    if missing > 0:
        lines = [f"{counted(missing, 'more answer')} needed before anything is read"]
        speed += f": enough in about {duration(missing / rate)}" if speed else ""
    return [*lines, *([speed] if speed else []), deadline(terms["close_deadline_unix_s"], time.time())]

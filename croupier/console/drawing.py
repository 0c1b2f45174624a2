"""Where the lines of the page's drawings lie; colours and thickness are the style sheet's, which knows light and dark.

An interval or a bar is drawn on a strip that is 100 wide, whatever its width on the screen; numbers stand beside it as
text. A curve has its own coordinates.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NotRequired, TypedDict

from croupier.accountant.certificate import Certificate
from croupier.accountant.certified_profile import CertifiedProfile, certified_line
from croupier.protocol.certificate_views import CertificateFields
from croupier.protocol.mechanisms import form_of
from croupier.protocol.mechanisms.base import Form
from croupier.protocol.rounding import round_down, round_up
from croupier.protocol.statements import written_json
from croupier.show.distribution import shares_of, statistics_of
from croupier.show.estimates import precision_line
from croupier.show.text import note_lines, tier_budget
from croupier.show.views.published_results import NumberView, ResultView, numbers_of
from croupier.show.views.questions import TermsView

_WIDTH, _HEIGHT, _LEFT, _BELOW = 600, 400, 84, 64
"""The size of a drawing and the room for labels at its left and below it, in pixels."""
_TICKS = 5
"""The most intervals between the ticks of an axis."""
_LOOKS = 6
"""Colours and dashes of the style sheet, which has them once more with other dashes."""


StripView = TypedDict(
    "StripView",
    {  # "from" is a keyword: a class cannot have such a field
        "label": str,
        "estimate": str,
        "possible": str,
        "error": str,
        "interval": str,
        "population": str,
        "from": float,
        "to": float,
        "at": float,
        "scale": tuple[str, str],
        "noisy": bool,
    },
)
"""A number of a result as text, and its interval on a strip."""


class BarView(TypedDict):
    """A tier of a certificate: the people, local and central epsilon, and both as bars."""

    people: str
    local: str
    central: str
    delta: str
    local_to: float
    central_to: float


class PublishedView(TypedDict):
    """A published bound as a line: its points (epsilon, delta), and the same in the drawing's coordinates."""

    name: str
    grade: str
    at: list[tuple[float, float]]
    look: str
    points: NotRequired[str]


class CurveView(TypedDict):
    """A privacy profile as a drawing, and as the rows of a table."""

    width: int
    height: int
    left: int
    foot: int
    certified: str
    attacks: list[tuple[float, float]]
    published: list[PublishedView]
    x_ticks: list[tuple[float, str]]
    y_ticks: list[tuple[float, str]]
    notes: list[str]
    rows: list[tuple[str, str, str]]


def strips(result: ResultView, terms: TermsView | None) -> list[StripView]:
    """Returns a row for each number of a result that is not sealed: its text, and its interval on a strip.

    Args:
        result: `publication_json`.
        terms: `terms_json`; None where they cannot be had any more.
    """
    means = numbers_of(result)
    numbers = [*means, *statistics_of(result)]
    form = None if terms is None else form_of(terms["randomizer"])
    is_share = form is not None and form.is_share
    say: Callable[[float], str] = (lambda value: f"{100 * value:.1f} %") if is_share else (lambda v: f"{v:.4g}")
    ends = [end for number in means for end in (number.projected, *number.interval)]
    if is_share:
        ends += [0.0, 1.0]
    elif terms is not None and "low" in terms["parameters"]:
        ends += [terms["parameters"]["low"], terms["parameters"]["high"]]
    low, high = min(ends, default=0.0), max(ends, default=1.0)  # none for a vector

    def place(value: float) -> float:
        return round(100 * min(max((value - low) / (high - low), 0.0), 1.0), 2) if high > low else 50.0

    def written(interval: Sequence[float] | None) -> str:
        return "" if interval is None else f"{say(interval[0])} to {say(interval[1])}"

    unnamed = "said yes" if form is Form.YES_OR_NO else "mean" if terms is not None else "estimate"
    return [
        {
            "label": number.label or unnamed,
            "estimate": say(number.estimate),
            "possible": "" if number.is_possible else say(number.shown),
            "error": "" if math.isnan(number.standard_error) else say(number.standard_error),
            "interval": written(number.interval),
            "population": written(number.population),
            "from": place(number.interval[0]),
            "to": place(number.interval[1]),
            "at": place(number.shown),
            "scale": (say(low), say(high)),
            "noisy": bool(precision_line(result)),
        }
        for number in numbers
    ]


def histogram(result: ResultView) -> list[StripView]:
    """Returns a row for each level of a distribution: the share of people on it, and its interval on a strip."""
    shares = shares_of(result)
    most = max((number.interval[1] for number in shares), default=1.0) or 1.0
    return share_strips(shares, most)


def share_strips(shares: Sequence[NumberView], most: float = 1.0) -> list[StripView]:
    """Returns a row for each of several shares; the strip ends at `most`."""

    def written(interval: Sequence[float] | None) -> str:
        return "" if interval is None else f"{100 * interval[0]:.1f} % to {100 * interval[1]:.1f} %"

    return [
        {
            "label": number.label,
            "estimate": f"{100 * number.projected:.1f} %",
            "possible": "",
            "error": f"{100 * number.standard_error:.1f} %",
            "interval": written(number.interval),
            "population": written(number.population),
            "from": round(100 * number.interval[0] / most, 2),
            "to": round(100 * number.interval[1] / most, 2),
            "at": round(100 * number.projected / most, 2),
            "scale": ("0 %", f"{100 * most:.1f} %"),
            "noisy": False,
        }
        for number in shares
    ]


def bars(certificate: CertificateFields) -> list[BarView]:
    """Returns a row for each tier of a certificate: the people, local and central epsilon, and both as bars."""
    most = max((max(tier["local_epsilon"], tier["epsilon"]) for tier in certificate["tiers"]), default=1.0)
    return [
        {
            "people": f"{tier['count']:,}",
            "local": tier_budget(tier["local_epsilon"], tier["local_delta"], up_to=tier["up_to"]),
            "central": round_up(tier["epsilon"], 4),
            "delta": round_up(tier["delta"], 3),
            "local_to": round(100 * tier["local_epsilon"] / most, 2),
            "central_to": round(100 * tier["epsilon"] / most, 2),
        }
        for tier in certificate["tiers"]
    ]


def curve(profile: CertifiedProfile) -> CurveView:
    """Returns the lines of a privacy profile, delta (logarithmic) against epsilon, with ticks, and a table of it."""
    points = [point.certificate for point in profile.points]
    deltas = [point.delta for point in points]
    certified = [point.epsilon for point in points]
    attacks = [None if point.lower_bound is None else point.lower_bound.epsilon for point in points]
    published = _published(points, 3 * max(certified))
    widest: float = max([*certified, *(epsilon for bound in published for epsilon, _ in bound["at"])])
    top, bottom = math.log10(deltas[0]), math.log10(deltas[-1])  # they decrease
    if bottom == top:  # a local delta that is not amplified
        bottom = top - 1

    def x(epsilon: float) -> float:
        return round(_LEFT + (_WIDTH - _LEFT - 12) * epsilon / widest, 2)

    def y(delta: float) -> float:
        share: float = (top - math.log10(delta)) / (top - bottom)
        return round(12 + (_HEIGHT - _BELOW - 12) * share, 2)

    def line(places: Sequence[tuple[float, float]]) -> str:
        return " ".join(f"{x(epsilon)},{y(delta)}" for epsilon, delta in places)

    # The last of them is certified; rounding may put it a little below what the axis shows.
    drawn = [(epsilon, max(delta, deltas[-1])) for epsilon, delta in certified_line(profile)]
    step = _step(widest)
    return {
        "width": _WIDTH,
        "height": _HEIGHT,
        "left": _LEFT,
        "foot": _HEIGHT - _BELOW,
        "certified": line(drawn),
        # An attack with an epsilon of 0 refutes nothing.
        "attacks": [(x(at), y(delta)) for at, delta in zip(attacks, deltas, strict=True) if at],
        "published": [bound | {"points": line(bound["at"])} for bound in published],
        "x_ticks": [(x(step * tick), f"{step * tick:.10g}") for tick in range(int(widest / step + 1e-9) + 1)],
        "y_ticks": [
            (y(10.0**power), f"1e{power}")
            for power in range(math.ceil(bottom - 1e-9), math.floor(top + 1e-9) + 1)
            if (power - math.floor(top + 1e-9)) % 2 == 0
        ],
        "notes": note_lines(written_json(profile.notes)),
        "rows": [
            (round_up(delta, 3), round_up(epsilon), "–" if attack is None else round_down(attack))
            for delta, epsilon, attack in zip(deltas, certified, attacks, strict=True)
        ],
    }


def _published(points: Sequence[Certificate], widest: float) -> list[PublishedView]:
    """Returns the published bounds that have a figure within the drawing, with their grades."""
    lines: list[PublishedView] = []
    for index, name in enumerate(bound.name for bound in points[0].comparison):
        bounds = [point.comparison[index] for point in points]
        figures = [(bound.epsilon, point.delta) for bound, point in zip(bounds, points, strict=True)]
        at = [(epsilon, delta) for epsilon, delta in figures if epsilon is not None and epsilon <= widest]
        if len(at) > 1:  # one point is no line
            refuted = any(bound.status == "refuted" for bound in bounds)
            grade = f"{bounds[0].grade}{', refuted by the attack' if refuted else ''}"
            again = " again" if len(lines) >= _LOOKS else ""
            lines.append({"name": name, "grade": grade, "at": at, "look": f"look-{len(lines) % _LOOKS + 1}{again}"})
    return lines


def _step(widest: float) -> float:
    """A round number of which at most five fit."""
    power = 10.0 ** math.floor(math.log10(widest / _TICKS))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor * _TICKS >= widest * (1 - 1e-9))

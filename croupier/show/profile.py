"""Privacy profiles as blocks: for a terminal, the console and notebooks."""

from __future__ import annotations

from collections.abc import Sequence

from croupier.accountant.certificate import Certificate
from croupier.accountant.certified_profile import CertifiedProfile, certified_line
from croupier.accountant.guarantees import Grade
from croupier.protocol.documents import document_of
from croupier.protocol.rounding import round_down, round_up
from croupier.show.blocks import Block, Curve, Folded, Line, Points, Sentence, Table
from croupier.show.text import note_lines


def profile_blocks(profile: CertifiedProfile) -> list[Block]:
    """Returns a privacy profile: the certified curve, attacks, published bounds, notes and assumptions."""
    told = (
        "For every δ, the ε that is certified for these people, and an attack from below. The curve between two points "
        "is what these certify; published figures are joined by straight lines, in dashes."
    )
    return [
        Sentence(told),
        curve_of(profile),
        *map(Sentence, note_lines(document_of(profile.notes))),
        Folded("This holds if", [Points([*map(str, profile.assumptions)])]),
    ]


def curve_of(profile: CertifiedProfile) -> Curve:
    """Returns the certified curve with attacks, published bounds, and the numbers."""
    # Where the local budget is certified at its own delta, the smaller ones that were asked for add nothing.
    points = [*{point.certificate.delta: point.certificate for point in profile.points}.values()]
    numbers = Table("δ", "CERTIFIED ε", "LOWER_BOUND: attack ε ≥", "ratio")
    attacks = []
    for point in points:
        lower = point.lower_bound
        ratio = f"{point.epsilon / lower.epsilon:.4f}" if lower and lower.epsilon else ""
        numbers.row(
            round_up(point.delta), round_up(point.epsilon), round_down(lower.epsilon) if lower else "none", ratio
        )
        if lower and lower.epsilon:  # an attack with an epsilon of 0 refutes nothing
            attacks.append((lower.epsilon, lower.delta))
    # The last of them is certified; rounding may put it a little below what the axis shows.
    least = points[-1].delta
    drawn = [(epsilon, max(delta, least)) for epsilon, delta in certified_line(profile)]
    return Curve(
        Line(profile.randomizer, Grade.CERTIFIED, drawn),
        Line("attack", Grade.LOWER_BOUND, attacks),
        _published(points, 3 * max(point.epsilon for point in points)),
        numbers,
    )


def _published(points: Sequence[Certificate], widest: float) -> list[Line]:
    """Returns the published bounds that have a figure within the drawing, with their grades."""
    lines = []
    for place, name in enumerate(bound.name for bound in points[0].comparison):
        bounds = [point.comparison[place] for point in points]
        figures = [(bound.epsilon, point.delta) for bound, point in zip(bounds, points, strict=True)]
        at = [(epsilon, delta) for epsilon, delta in figures if epsilon is not None and epsilon <= widest]
        if len(at) > 1:  # one point is no line
            refuted = any(bound.status == "refuted" for bound in bounds)
            lines.append(Line(name, bounds[0].grade, at, refuted))
    return lines

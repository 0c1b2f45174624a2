"""A certified curve in notebooks and plots: what its methods `plot` and `_repr_html_` call when they are used."""

from __future__ import annotations

from io import StringIO
from typing import Any

from croupier.accountant.certified_profile import CertifiedProfile, certified_line
from croupier.accountant.results import Grade
from croupier.protocol.rounding import round_down, round_up
from croupier.protocol.statements import written_json
from croupier.show.drawing import draw_curve
from croupier.show.notebook import folded_list, html_table, paragraph
from croupier.show.text import note_lines


def plot_profile(profile: CertifiedProfile, axes: Any = None) -> Any:
    """Draws a curve; see `CertifiedProfile.plot`."""
    certified = [(point.epsilon, point.certificate.delta) for point in profile.points]
    lower = [point.lower_bound for point in profile.points if point.lower_bound is not None]
    attacks = [(bound.epsilon, bound.delta) for bound in lower if bound.epsilon > 0]  # an epsilon of 0 refutes nothing
    line = certified_line(profile) if profile.between else []
    return draw_curve(profile.randomizer, certified, line, attacks, axes)


def profile_html(profile: CertifiedProfile) -> str:
    """Returns a curve as HTML: the plot, where matplotlib is installed, the points as a table, and what they assume."""
    rows = [
        {
            "δ": round_up(point.certificate.delta),
            f"ε, {point.certificate.grade}": round_up(point.epsilon),
            f"attack, {Grade.LOWER_BOUND}": round_down(point.lower_bound.epsilon) if point.lower_bound else "none",
        }
        for point in profile.points
    ]
    table = html_table(f"{profile.randomizer}: what the shuffled batch reveals", rows)
    table += "".join(paragraph(line) for line in note_lines(written_json(profile.notes)))
    table += folded_list("This holds if", map(str, profile.assumptions))
    try:
        figure = plot_profile(profile).figure
    except ImportError:
        return table
    drawn = StringIO()
    figure.savefig(drawn, format="svg")
    return drawn.getvalue()[drawn.getvalue().index("<svg") :] + table

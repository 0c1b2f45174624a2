"""Certificates and certified curves in notebooks and plots: what their `plot` and `_repr_html_` show.

Numbers are rounded to the sound side. Colours and axes are in `drawing`, pieces of HTML in `notebook`.
"""

from __future__ import annotations

from io import StringIO
from typing import Any

from croupier.accountant.certificate import Certificate
from croupier.accountant.certified_profile import CertifiedProfile, certified_line
from croupier.accountant.guarantees import Grade
from croupier.accountant.guessing import right_at_most
from croupier.protocol.rounding import percent, round_down, round_up
from croupier.protocol.statements import written_json
from croupier.show.drawing import draw_curve, draw_tiers
from croupier.show.notebook import folded_list, html_table, paragraph
from croupier.show.text import note_lines


def plot(value: Certificate | CertifiedProfile, axes: Any) -> Any:
    """Draws a certificate or a curve; see `Drawable.plot`."""
    if isinstance(value, Certificate):
        central = [tier.epsilon for tier in value.tiers]
        return draw_tiers(
            f"{value.randomizer} at δ = {round_up(value.delta)}",
            [f"{tier.count:,} users" for tier in value.tiers],
            [tier.local_epsilon for tier in value.tiers],
            central,
            [round_up(epsilon, 4) for epsilon in central],
            value.grade,
            axes,
        )
    certified = [(point.epsilon, point.certificate.delta) for point in value.points]
    lower = [point.lower_bound for point in value.points if point.lower_bound is not None]
    attacks = [(bound.epsilon, bound.delta) for bound in lower if bound.epsilon > 0]  # an epsilon of 0 refutes nothing
    return draw_curve(value.randomizer, certified, certified_line(value) if value.between else [], attacks, axes)


def html(value: Certificate | CertifiedProfile) -> str:
    """Returns a certificate or a curve as HTML: a table, notes and assumptions, and the plot of a curve.

    Without matplotlib a curve is its table.
    """
    page = _certificate_table(value) if isinstance(value, Certificate) else _profile_table(value)
    page += "".join(paragraph(line) for line in note_lines(written_json(value.notes)))
    page += folded_list("This holds if", map(str, value.assumptions))
    if isinstance(value, Certificate):
        return page
    try:
        figure = plot(value, None).figure
    except ImportError:
        return page
    drawn = StringIO()
    figure.savefig(drawn, format="svg")
    return drawn.getvalue()[drawn.getvalue().index("<svg") :] + page


def _certificate_table(certificate: Certificate) -> str:
    rows = [
        {
            "local ε": f"{'up to ' if tier.grouped else ''}{round_up(tier.local_epsilon)}",
            "users": f"{tier.count:,}",
            f"central ε, {certificate.grade}": round_up(tier.epsilon),
            "right at most": percent(right_at_most(tier.epsilon, tier.delta)),
        }
        for tier in certificate.tiers
    ]
    lower = certificate.lower_bound
    attack = f"{Grade.LOWER_BOUND}: {lower.says(certificate.delta)}, {lower.attack}" if lower else "No attack was run."
    return html_table(str(certificate), rows) + paragraph(attack)


def _profile_table(profile: CertifiedProfile) -> str:
    rows = [
        {
            "δ": round_up(point.certificate.delta),
            f"ε, {point.certificate.grade}": round_up(point.epsilon),
            f"attack, {Grade.LOWER_BOUND}": round_down(point.lower_bound.epsilon) if point.lower_bound else "none",
        }
        for point in profile.points
    ]
    return html_table(f"{profile.randomizer}: what the shuffled batch reveals", rows)

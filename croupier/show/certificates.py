"""A certificate in notebooks and plots: what its methods `plot` and `_repr_html_` call when they are used.

Numbers are rounded to the sound side. Colours and axes are in `drawing`, pieces of HTML in `notebook`.
"""

from __future__ import annotations

from typing import Any

from croupier.accountant.certificate import Certificate
from croupier.accountant.guessing import right_at_most
from croupier.accountant.results import Grade
from croupier.protocol.rounding import percent, round_up
from croupier.protocol.statements import written_json
from croupier.show.drawing import draw_tiers
from croupier.show.notebook import folded_list, html_table, paragraph
from croupier.show.text import note_lines


def plot_certificate(certificate: Certificate, axes: Any = None) -> Any:
    """Draws a certificate; see `Certificate.plot`."""
    central = [tier.epsilon for tier in certificate.tiers]
    return draw_tiers(
        f"{certificate.randomizer} at δ = {round_up(certificate.delta)}",
        [f"{tier.count:,} users" for tier in certificate.tiers],
        [tier.local_epsilon for tier in certificate.tiers],
        central,
        [round_up(epsilon, 4) for epsilon in central],
        certificate.grade,
        axes,
    )


def certificate_html(certificate: Certificate) -> str:
    """Returns a certificate as HTML: the tiers as a table, and what the numbers rest on."""
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
    assumptions = folded_list("This holds if", map(str, certificate.assumptions))
    notes = [paragraph(line) for line in note_lines(written_json(certificate.notes))]
    return html_table(str(certificate), rows) + paragraph(attack) + "".join(notes) + assumptions

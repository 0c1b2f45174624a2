"""Certificates and certified curves in notebooks and plots: what their `plot` and `_repr_html_` show."""

from __future__ import annotations

from typing import Any

from croupier.accountant.certificate import Certificate
from croupier.accountant.certified_profile import CertifiedProfile, certified_line
from croupier.protocol.rounding import round_up
from croupier.show.certificate_tables import certificate_blocks
from croupier.show.drawing import draw_curve, draw_tiers
from croupier.show.html import html as blocks_as_html
from croupier.show.profile import profile_blocks


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
    """Returns a certificate or a curve as HTML."""
    return blocks_as_html(
        certificate_blocks(value.to_json()) if isinstance(value, Certificate) else profile_blocks(value)
    )

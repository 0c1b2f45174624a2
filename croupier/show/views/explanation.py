"""A certificate in words."""

from __future__ import annotations

from typing import TypedDict

from croupier.show.views.text import SectionView


class PromiseView(TypedDict):
    """A guarantee of an explanation, and the largest probability of a right guess of a person's answer."""

    about: str
    epsilon: float
    delta: float
    grade: str
    right_at_most: float


class ExplanationView(TypedDict):
    """A certificate in words, and the guarantees that the words are about."""

    certified: PromiseView
    tiers: list[PromiseView]
    everyone_else_colludes: PromiseView
    improvements: list[PromiseView]
    sections: list[SectionView]

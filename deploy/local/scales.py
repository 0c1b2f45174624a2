"""The order of categories: scales that questionnaires use, which are recognised, or an order that is given."""

from __future__ import annotations

from collections.abc import Sequence

_SCALES = tuple(
    tuple(scale.split(";"))
    for scale in (
        "strongly disagree;disagree;somewhat disagree;slightly disagree;neither agree nor disagree;neutral;undecided;"
        "slightly agree;somewhat agree;agree;strongly agree",
        "never;almost never;very rarely;rarely;seldom;occasionally;sometimes;often;frequently;usually;very often;"
        "almost always;always",
        "very dissatisfied;dissatisfied;somewhat dissatisfied;neither satisfied nor dissatisfied;neutral;"
        "somewhat satisfied;satisfied;very satisfied",
        "not satisfied at all;not satisfied;slightly satisfied;moderately satisfied;satisfied;very satisfied;"
        "extremely satisfied",
        "terrible;very poor;very bad;poor;bad;fair;average;ok;good;very good;excellent",
        "very unlikely;unlikely;neutral;likely;very likely",
        "not at all;a little;slightly;somewhat;moderately;quite;quite a bit;a lot;very;very much;extremely;completely",
        "very low;low;medium;high;very high",
        "none;mild;moderate;severe;very severe",
        "not important;not at all important;slightly important;moderately important;important;very important;"
        "extremely important",
        "stimme überhaupt nicht zu;stimme gar nicht zu;stimme nicht zu;stimme eher nicht zu;teils teils;teils/teils;"
        "weder noch;neutral;stimme eher zu;stimme zu;stimme voll zu;stimme voll und ganz zu",
        "nie;fast nie;selten;gelegentlich;manchmal;oft;häufig;meistens;sehr oft;fast immer;immer",
        "sehr unzufrieden;unzufrieden;eher unzufrieden;weder noch;neutral;teils teils;eher zufrieden;zufrieden;"
        "sehr zufrieden",
        "sehr schlecht;schlecht;mittel;mittelmäßig;gut;sehr gut",
        "gar nicht;kaum;wenig;etwas;mittelmäßig;ziemlich;stark;sehr",
    )
)
"""Each in ascending order. A column is on a scale if all its values are, whatever their capitals."""


def parse_orders(texts: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    """Returns the orders that options give, each a text such as "never;sometimes;often".

    Raises:
        ValueError: an order has fewer than two categories, an empty one, or the same one twice.
    """
    orders = tuple(tuple(part.strip() for part in text.split(";")) for text in texts)
    for text, order in zip(texts, orders, strict=True):
        if len(order) < 2 or "" in order or len(set(order)) < len(order):
            raise ValueError(f"ordered is {text!r}; it must be different categories, such as 'never;sometimes;often'")
    return orders


def in_order(values: Sequence[str], orders: Sequence[Sequence[str]] = ()) -> tuple[tuple[str, ...], str]:
    """Returns the categories of a column in order, and how that was found, "" for the alphabet.

    Args:
        values: those that the column has, each once.
        orders: given ones; the first that has all the values is used, with categories that nobody has chosen.
    """
    for order in orders:
        if set(values) <= set(order):
            return tuple(order), "the order that was given"
    try:
        return tuple(sorted(values, key=float)), ""
    except ValueError:
        pass
    folded = {value.casefold(): value for value in values}
    for scale in _SCALES:
        if len(folded) == len(values) and set(folded) <= set(scale):
            return tuple(folded[step] for step in scale if step in folded), "its order as a known scale"
    return tuple(sorted(values)), ""

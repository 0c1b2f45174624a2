"""Ways to halve the error of a result, or to make a noisy one usable, computed from its certificate's budgets."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from croupier.accountant.accuracy import halving, people_for_margin
from croupier.accountant.budgets import Budgets
from croupier.accountant.certificate import Certificate
from croupier.accountant.hop_fakes import NO_FAKES, Fakes
from croupier.accountant.mechanisms.base import Randomizer
from croupier.accountant.mechanisms.registry import stated_randomizer
from croupier.accountant.recertification import fakes_of
from croupier.protocol.rounding import round_down, round_up
from croupier.show.language import number, say
from croupier.show.numbers import labels_of
from croupier.show.results import is_noisy

_USABLE = 0.25
"""The largest margin of a usable mean: its interval is at most half of its range."""


def halving_lines(result: Mapping[str, Any]) -> list[str]:
    """Returns ways to halve the error of a result, by its certificate's budgets; nothing without an estimate.

    For a result that is too noisy to use, half of the error may be as useless: the line then gives the number of people
    that would make it usable, if it can be computed.

    The variance of every estimate decreases with the number of people, in the same mix of budgets, except for the hops'
    part. So a number of people can always be given. Budgets are given if the certificate has everybody's, which it has
    not if very many are certified in groups.
    """
    document = result["certificate"]
    if not document.get("granted", True) or result["sealed"]:
        return []
    if document.get("num_answers") is not None:  # a model that learns from one answer after the other
        return []
    try:
        certificate = Certificate.from_json(document)
        budgets = certificate.likely_budgets
        randomizer = stated_randomizer(certificate.assumptions)
        fakes: Fakes = NO_FAKES
        if randomizer is not None and result.get("hop_influence"):
            fakes = fakes_of(certificate, randomizer)
    except ValueError:  # a document of another version
        return []
    if is_noisy(result):
        known = randomizer is not None and (not result.get("hop_influence") or bool(fakes))
        return _usable_lines(result, budgets, randomizer, fakes) if randomizer is not None and known else []
    if result.get("hop_influence") and not fakes:
        told = "To halve the error: ask at most four times as many people, {people}, with the same mix of budgets."
        return [say(told, people=4 * budgets.num_users)]
    if randomizer is None or any(tier.grouped for tier in certificate.tiers):
        num_users = (
            halving(budgets, randomizer, fakes).num_users if fakes and randomizer is not None else 4 * budgets.num_users
        )
        return [f"{_ask_for(num_users, budgets)}."]
    return [line] if (line := halving_line(budgets, randomizer, fakes)) else []


def _usable_lines(result: Mapping[str, Any], budgets: Budgets, randomizer: Randomizer, fakes: Fakes) -> list[str]:
    """Returns how many people make a result usable, whatever the truth is (`analyzer.estimates.precision_of`).

    Among k categories one has a share of 1/k or more: its interval must begin above 0, and two standard errors, which
    are less than this margin, must not exceed it.
    """
    labels = labels_of(dict(result))
    margin = min(_USABLE, 0.95 / len(labels)) if labels else _USABLE
    try:
        people = people_for_margin(budgets, randomizer, margin, fakes.variance)
    except ValueError:  # vectors, or a table
        return []
    return [say("To make it usable: ask about {people} people, with the same mix of budgets.", people=people)]


def _ask_for(people: int, budgets: Budgets) -> str:
    times = people / budgets.num_users
    told = "To halve the error: ask {times} times as many people, {people}, with the same mix of budgets"
    return say(
        told, times=say("four") if math.isclose(times, 4, rel_tol=1e-6) else number(round_up(times, 2)), people=people
    )


def halving_line(budgets: Budgets, randomizer: Randomizer, fakes: Fakes = NO_FAKES) -> str:
    """Returns a sentence on what would halve the error of answers with these budgets; "" for a table, which has none.

    fakes: the noise of hops, which is unchanged.
    """
    try:
        halved = halving(budgets, randomizer, fakes)
    except ValueError:
        return ""
    line = _ask_for(halved.num_users, budgets)
    if halved.budgets is None and fakes:
        told = "{line}. No local budgets that a client accepts would do it for the same people beside this hop noise."
        return say(told, line=line)
    if halved.budgets is None:
        return say("{line}. No local budgets that a client accepts would do it for the same people.", line=line)
    before, after = (_spread(mix) for mix in (budgets, halved.budgets))
    return say(
        "{line}; or, for the same people, have each device add less noise (local ε {after} instead of {before}), which "
        "protects them less.",
        line=line,
        after=after,
        before=before,
    )


def _spread(budgets: Budgets) -> str:
    low, high = (number(round_down(float(budgets.local_epsilon[end]), 3)) for end in (0, -1))
    return low if low == high else say("{low} to {high}", low=low, high=high)

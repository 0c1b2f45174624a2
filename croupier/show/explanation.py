"""A certificate in plain language: the information on one person, the assumptions, and possible improvements.

`explain` gives sentences with the numbers behind them as data; the layout is left to others. An (epsilon, delta)
becomes the largest probability of an observer's right guess (`right_at_most`), which needs no other term of
differential privacy. `certify` computes the improvements. Nothing here is a bound of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Unpack

from croupier.accountant.budgets import Budgets
from croupier.accountant.certificate import Certificate
from croupier.accountant.certified_profile import DELTAS, CertifiedProfile, profile_at
from croupier.accountant.guarantees import Grade, TierCertificate
from croupier.accountant.guessing import right_at_most
from croupier.accountant.mechanism_choice import standard_error
from croupier.accountant.mechanisms.base import Randomizer
from croupier.accountant.mechanisms.registry import stated_randomizer
from croupier.accountant.recertification import certify_again, fakes_of, why_not_again
from croupier.accountant.release import RoundConditions, conditions_of
from croupier.protocol.certificates import READABLE
from croupier.protocol.codes import Assumption, RefusalReason
from croupier.protocol.documents import document_of, fields_of
from croupier.protocol.names import JsonObject
from croupier.protocol.rounding import percent, round_down, round_up
from croupier.protocol.statements import joined, read_statements, secret, to_prose
from croupier.show.blocks import Section
from croupier.show.halving import halving_lines
from croupier.show.html import html
from croupier.show.results import precision_line, remarks
from croupier.show.statistics import statistic
from croupier.show.text import counted, note_lines, tier_budget

SECONDS = 5.0
"""For each change that is computed: after this many seconds no slower bound is begun."""
_MOST_LINES = 20


@dataclass(frozen=True)
class Promise:
    """A guarantee with its subject."""

    about: str
    epsilon: float
    delta: float
    grade: Grade = Grade.CERTIFIED
    right_at_most: float = field(init=False)

    def __post_init__(self) -> None:
        """Computes the largest probability of a right guess; see `right_at_most`."""
        object.__setattr__(self, "right_at_most", right_at_most(self.epsilon, self.delta))

    def __str__(self) -> str:
        """Returns the subject, the percentage, and the epsilon with its grade."""
        return f"{self.about}: right at most {percent(self.right_at_most)} (ε = {round_up(self.epsilon)} {self.grade})"


@dataclass(frozen=True)
class Explanation:
    """A certificate in words, and the guarantees that the words are about.

    Attributes:
        certified: for everybody, under the certificate's assumptions.
        tiers: for the people of each local budget.
        everyone_else_colludes: for a person with the largest local budget in that case.
        improvements: the certificates of changed rounds, computed now; empty if that is impossible.
        sections: all of it in sentences.
    """

    certified: Promise
    tiers: tuple[Promise, ...]
    everyone_else_colludes: Promise
    improvements: tuple[Promise, ...]
    sections: tuple[Section, ...]

    def __str__(self) -> str:
        """Returns all of it as text, with guarantees rounded up; a line for each title, paragraph and point."""
        return "\n\n".join(
            "\n".join((section.title, *section.paragraphs, *(f"  · {point}" for point in section.points)))
            for section in self.sections
        )

    def to_json(self) -> JsonObject:
        """Returns plain JSON values."""
        return fields_of(self)

    def _repr_html_(self) -> str:
        """For notebooks: the sections."""
        return html(self.sections, top=4)


def explain(certificate: Certificate | Mapping[str, Any]) -> Explanation:
    """Returns a certificate in plain language.

    Args:
        certificate: a certificate; or the output of its `to_json` or of `croupier survey results --json`, whose result
            is then explained, too.

    Three improvements are certified on the spot, which may take seconds for noise.

    Raises:
        ValueError: the document is not a certificate, is the certificate of a refused round, or is refuted by its own
            attack.
    """
    stated, document = _read(certificate)
    randomizer = stated_randomizer(stated.assumptions)
    tiers = [Promise(_people(stated, tier), tier.epsilon, tier.delta) for tier in stated.tiers]
    unknown = document.get("unknown_budget_epsilon")
    if unknown is not None:
        who = f"{counted(document['unknown_budgets'], 'person', 'people')} whose budget did not arrive"
        tiers.append(Promise(who, unknown, stated.delta))
    alone = stated.everyone_else_colludes
    left = Promise("with the largest local budget", alone.epsilon, alone.delta)
    certified = Promise("everybody", stated.epsilon, stated.delta)
    why_not = _why_nothing_is_computed(stated, document)
    better = () if why_not or randomizer is None else _improvements(stated, randomizer)
    return Explanation(
        certified,
        tuple(tiers),
        left,
        tuple(promise for promise in better if promise.epsilon < stated.epsilon),
        (
            *_learned(certificate),
            _about_one_person(stated, document, tiers),
            *_if_one_hop_is_honest(stated),
            _if_everyone_else_colludes(stated, document, left, randomizer),
            _attack(stated),
            Section("What this rests on", ("All of it has to be true:",), tuple(map(to_prose, stated.assumptions))),
            _grade(stated, document),
            _what_would_help(stated, better, why_not),
        ),
    )


def profile_around(certificate: Certificate | Mapping[str, Any]) -> CertifiedProfile:
    """Returns the privacy profile of a certificate's releases, also at the certificate's own delta.

    It is certified on the spot. certificate: as for `explain`.

    Raises:
        ValueError: the certificate does not hold all inputs, or people were asked one after the other.
    """
    stated, document = _read(certificate)
    randomizer = stated_randomizer(stated.assumptions)
    why_not = _why_nothing_is_computed(stated, document)
    if not why_not and (
        _states(stated, Assumption.HONEST_FIRST_SHUFFLER) or _states(stated, Assumption.ADAPTIVE_ORDER)
    ):
        why_not = "people were asked one after the other"
    if why_not or randomizer is None:
        raise ValueError(f"the privacy profile is not computed: {why_not}")
    deltas = sorted({*DELTAS, stated.delta})
    return profile_at(deltas, stated.budgets, randomizer, stated.rounds_certified, refine=True, **conditions_of(stated))


def _read(given: Certificate | Mapping[str, Any]) -> tuple[Certificate, Mapping[str, Any]]:
    """Returns a certificate and its document, which may be inside the document of a result."""
    if isinstance(given, Certificate):
        given.check_not_refuted()
        return given, given.to_json()
    document = given.get("certificate", given) if isinstance(given, Mapping) else given
    if not isinstance(document, Mapping) or "everyone_else_colludes_epsilon" not in document:
        raise ValueError(f"the document is not a certificate; {READABLE}")
    if document.get("granted") is False:
        reasons = joined(read_statements(RefusalReason, document.get("refusals")))
        raise ValueError(f"the round was refused, so that nothing is certified: {reasons}")
    return Certificate.from_json(document), document


def _states(certificate: Certificate, code: Assumption) -> bool:
    return any(assumption.code is code for assumption in certificate.assumptions)


def _people(certificate: Certificate, tier: TierCertificate) -> str:
    budget = tier_budget(tier.local_epsilon, tier.local_delta, up_to=tier.grouped)
    noised = "at least " if certificate.counted_by.most_uncounted else ""
    each = " in each round" if certificate.rounds > 1 else ""
    return f"{noised}{counted(tier.count, 'person', 'people')} with local ε {budget}{each}"


def _listed(statements: list[Promise]) -> tuple[str, ...]:
    lines = [*map(str, statements[:_MOST_LINES])]
    if len(statements) > _MOST_LINES:
        lines.append(f"{len(statements) - _MOST_LINES:,} more local budgets are in the certificate")
    return tuple(lines)


def _secret(certificate: Certificate) -> str:
    """Returns the observer's question about a person."""
    known = (wanted for assumption in certificate.assumptions if (wanted := secret(assumption)) is not None)
    return next(known, "which of two answers a person gave")


def _learned(given: Certificate | Mapping[str, Any]) -> tuple[Section, ...]:
    """Returns the round's estimates, if the document is a whole result; nothing for a certificate alone."""
    if isinstance(given, Certificate) or "certificate" not in given or "values" not in given:
        return ()
    learned = statistic(given)
    question = f"“{learned.question}” " if learned.question else ""
    paragraphs = [f"{question}The round estimated {learned.about}, from {counted(learned.people, 'answer')}."]
    said = [] if given["sealed"] else [precision_line(learned)]
    paragraphs += filter(None, [*said, *remarks([learned])])
    points = [learned.sentence(number) for number in (*learned.numbers, *learned.details)] + halving_lines(given)
    return (Section("What was learned", tuple(paragraphs), tuple(points)),)


def _about_one_person(certificate: Certificate, document: Mapping[str, Any], tiers: list[Promise]) -> Section:
    rounds = f" of {certificate.rounds:,} rounds" if certificate.rounds > 1 else ""
    best = percent(right_at_most(certificate.epsilon, certificate.delta))
    paragraphs = [
        f"{counted(certificate.num_users, 'person', 'people')} took part. Suppose someone sees the published result"
        f"{rounds}, and even every shuffled report behind it, knows the answers of everybody else, and wants to tell "
        f"{_secret(certificate)}. If both are equally likely beforehand, they are right at most {best} of the time. "
        "Guessing is right 50 % of the time.",
        f"This is what ε = {round_up(certificate.epsilon)} at δ = {round_up(certificate.delta)} means "
        f"({certificate.grade}). The smaller ε is, the closer to guessing. δ is what may come on top: at worst it is "
        "as if the person's answer were shown with that probability, which the percentage includes.",
    ]
    paragraphs += note_lines(document_of(certificate.notes))
    if most := certificate.counted_by.most_uncounted:
        paragraphs.append(
            f"Up to {most:,} more people with each budget took part than are counted. That hides which "
            "budget one person has. What is said holds for a person with any of these budgets."
        )
    if len(tiers) > 1:
        paragraphs.append("By the budget of the person's own noise (local ε; smaller is more noise):")
    return Section(
        "What someone can learn about one person", tuple(paragraphs), _listed(tiers) if len(tiers) > 1 else ()
    )


def _if_one_hop_is_honest(certificate: Certificate) -> tuple[Section, ...]:
    """Returns what the fakes of one honest hop promise; nothing without hop noise."""
    hop = certificate.one_honest_hop
    if hop is None:
        return ()
    hops = conditions_of(certificate)["hops"]
    each = "in every round " if certificate.rounds > 1 else ""
    paragraphs = (
        f"Each of the {hops:,} servers that shuffle adds made-up reports {each}before it shuffles. If at least one of "
        "these servers is honest, all other servers and all other people may work together against one person: they "
        f"would be right at most {percent(right_at_most(hop.epsilon, hop.delta))} of the time (ε = "
        f"{round_up(hop.epsilon)} at δ = {round_up(hop.delta)} {hop.grade}). That does not depend on how many people "
        "take part.",
    )
    return (Section("If one server is honest", paragraphs),)


def _if_everyone_else_colludes(
    certificate: Certificate, document: Mapping[str, Any], left: Promise, randomizer: Randomizer | None
) -> Section:
    allowed = less = ""
    if "round_id" in document:
        allowed, less = " that was allowed", "; a person who used a smaller one loses less"
    added_up = f", added up over {certificate.rounds:,} rounds" if certificate.rounds > 1 else ""
    delta = f" at δ = {round_up(left.delta)}" if left.delta else ""
    paragraphs = [
        "If all servers and all other people worked together against one person, the noise that the person's own "
        f"device added would still be there. They would be right at most {percent(left.right_at_most)} of the time "
        f"(ε = {round_up(left.epsilon)}{delta} {left.grade}: the largest local budget{allowed}{added_up}{less})."
    ]
    if certificate.epsilon >= left.epsilon:
        paragraphs.append("That is no more than above: the shuffle adds nothing that could be proved.")
    points: tuple[str, ...] = ()
    several = len(certificate.tiers) > 1 or certificate.tiers[0].local_epsilon < left.epsilon
    if randomizer is not None and several and certificate.rounds == 1:
        paragraphs.append("By the budget of the person's own noise:")
        points = _listed(
            [
                Promise(
                    _people(certificate, tier),
                    randomizer.effective_epsilon(tier.local_epsilon),
                    tier.local_delta if randomizer.spends_local_delta else 0.0,
                )
                for tier in certificate.tiers
            ]
        )
    return Section("If everyone else colludes", tuple(paragraphs), points)


def _attack(certificate: Certificate) -> Section:
    title, lower = "How close an attack comes", certificate.lower_bound
    if lower is None:
        return Section(
            title, ("No attack was computed beside this certificate, which says nothing for it or against it.",)
        )
    says = f"no ε below {round_down(lower.epsilon)} can be true at δ = {round_down(lower.delta)}"
    name, reached, proved = "ε", lower.epsilon, certificate.epsilon
    if lower.delta != certificate.delta or not lower.delta:
        says = f"no δ below {round_down(lower.delta)} can be true at ε = {round_down(lower.epsilon)}"
        name, reached, proved = "δ", lower.delta, certificate.delta
    paragraphs = [
        f"An attack was worked out on one case: {lower.attack}. It shows that {says} ({Grade.LOWER_BOUND}: a limit to "
        "what can be promised, and no promise)."
    ]
    comparable = lower.delta == certificate.delta or lower.epsilon == certificate.epsilon
    if comparable and 0 < reached <= proved:
        room = 100 * (1 - reached / proved)
        by = f"by more than {round_up(max(room, 0.01), 2)} %" if room <= 99 else f"than {round_down(reached)}"
        paragraphs.append(f"So no better proof could make the certified {name} smaller {by}.")
    return Section(title, tuple(paragraphs))


_NO_GUARANTEE = {
    Grade.ASYMPTOTIC: "true only in the limit of ever more people",
    Grade.HEURISTIC: "its proof has a gap, or needs what is not so here",
    Grade.LOWER_BOUND: "an attack",
}


def _grade(certificate: Certificate, document: Mapping[str, Any]) -> Section:
    paragraphs = [
        f"{certificate.grade}: proved for exactly this number of people, with the errors of computing counted in. It "
        "is true if what it rests on is; whether that is so, no proof can say.",
        f"The proof: {joined(certificate.method)}.",
    ]
    if "round_id" in document:
        paragraphs.append(
            "'croupier survey results ROUND --document FILE' checks who signed it. This file alone does not show that."
        )
    others = [
        f"{bound.name}: ε = {round_up(bound.epsilon, 4)} {bound.grade} ({_NO_GUARANTEE[bound.grade]}; no guarantee"
        f"{'; refuted by the attack' if bound.status == 'refuted' else ''})"
        for bound in certificate.comparison
        if bound.epsilon is not None and bound.grade in _NO_GUARANTEE
    ]
    if others:
        paragraphs.append("Published formulas stand beside it for comparison, and promise nothing here:")
    return Section("What it is worth", tuple(paragraphs), tuple(others))


def _why_nothing_is_computed(certificate: Certificate, document: Mapping[str, Any]) -> str:
    return "some people's budgets did not arrive" if document.get("unknown_budgets") else why_not_again(certificate)


def _improvements(certificate: Certificate, randomizer: Randomizer) -> list[Promise]:
    """Returns the certificates of rounds like this one, each with one change; impossible ones are omitted."""
    now = [(tier.local_epsilon, tier.count, tier.local_delta) for tier in certificate.budgets.tiers]
    halved = [(epsilon / 2, count, delta) for epsilon, count, delta in now]
    fewer = certificate.dishonest // 2
    changes: list[tuple[str, Callable[[], Certificate]]] = [
        (
            f"twice as many people, {2 * certificate.num_users:,}, with budgets in the same proportions",
            lambda: _again(certificate, randomizer, [(epsilon, 2 * count, delta) for epsilon, count, delta in now]),
        ),
        (
            f"half of every local budget{_what_it_costs(certificate, now, halved, randomizer)}",
            lambda: _again(certificate, randomizer, halved),
        ),
    ]
    if certificate.dishonest:
        changes.append(
            (
                f"at most {fewer:,} dishonest people instead of {certificate.dishonest:,}, if that is true",
                lambda: _again(certificate, randomizer, now, dishonest=fewer),
            )
        )
    fakes = fakes_of(certificate, randomizer)
    if fakes and (stronger := fakes.halved):
        changes.append(
            (
                f"hop noise of ε = {stronger.epsilon:g}, which makes its part of the error twice as large",
                lambda: _again(certificate, randomizer, now, hop_noise=stronger),
            )
        )
    promises = []
    for about, run in changes:
        try:
            changed = run()
        except ValueError:  # more people or smaller budgets than the accountant takes
            continue
        promises.append(Promise(about, changed.epsilon, changed.delta, changed.grade))
    return promises


def _again(
    certificate: Certificate,
    randomizer: Randomizer,
    tiers: list[tuple[float, int, float]],
    **changed: Unpack[RoundConditions],
) -> Certificate:
    return certify_again(certificate, randomizer, budgets=Budgets.from_tiers(tiers), seconds=SECONDS, **changed)


def _what_it_costs(
    certificate: Certificate,
    now: list[tuple[float, int, float]],
    then: list[tuple[float, int, float]],
    randomizer: Randomizer,
) -> str:
    """How much less exact the estimate becomes; to look at, no guarantee."""
    variance = fakes_of(certificate, randomizer).variance
    before, after = (standard_error(Budgets.from_tiers(tiers), randomizer, variance) for tiers in (now, then))
    return f", which makes the noise in the estimate {after / before:.2g} times as large"


def _what_would_help(certificate: Certificate, better: Iterable[Promise], why_not: str) -> Section:
    title = "What would make it better"
    if why_not:
        general = "More people, smaller local budgets and fewer dishonest people help."
        return Section(title, (f"{general} How much is not computed: {why_not}.",))
    points = [
        str(promise)
        if promise.epsilon < certificate.epsilon
        else f"{promise.about}: nothing is gained that could be proved"
        for promise in better
    ]
    now = percent(right_at_most(certificate.epsilon, certificate.delta))
    intro = (
        f"Computed now, here, for a round like this one (right at most {now}, ε = "
        f"{round_up(certificate.epsilon)}) with one thing changed, at the same δ:"
    )
    return Section(title, (intro,), tuple(points))

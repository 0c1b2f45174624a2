"""The result of a discovery: the frequent texts that a survey's waves have found, and their cost in privacy."""

from __future__ import annotations

from dataclasses import dataclass

from croupier.accountant.guarantees import Guarantee
from croupier.analyzer.prefix_tree import Discovery, Level
from croupier.protocol.names import JsonObject
from croupier.protocol.rounding import round_up
from croupier.protocol.rules import Prefixes
from croupier.protocol.statements import written_json
from croupier.show.blocks import Block, Sentence, Table
from croupier.study.wave_results import StudyState


@dataclass(frozen=True)
class DiscoveryResult:
    """The texts found, and their cost in privacy.

    Attributes:
        rule: the texts that are looked for.
        texts: with the estimated number of their holders, the most frequent first; "abc…" is any longer text.
        levels: the waves.
        found: a text in the alphabet that this many people hold, or more, was found with probability 1 - `missed`, if
            they answered; None: no number is enough.
        guarantee: of one person over all waves, CERTIFIED if every wave is, with its assumptions; docs/discover.md.
    """

    rule: Prefixes
    texts: tuple[tuple[str, float], ...]
    levels: tuple[Level, ...]
    found: int | None
    guarantee: Guarantee

    @classmethod
    def of(cls, discovery: Discovery, guarantee: Guarantee) -> DiscoveryResult:
        """Returns the result of the waves so far."""
        return cls(discovery.rule, tuple(discovery.texts), tuple(discovery.levels), discovery.found, guarantee)

    @property
    def others(self) -> float:
        """The estimated number of people whose text does not begin with a letter of the alphabet."""
        return self.levels[0].others if self.levels else 0.0

    def document(self) -> JsonObject:
        """Returns everything as JSON: the most frequent text first, and the waves that found them.

        A text that "found_from" of its people hold passed with the promised probability.
        """
        return {
            "texts": [{"text": text, "holders": holders} for text, holders in self.texts],
            "found_from": self.found,
            "others": self.others,
            "epsilon": self.guarantee.epsilon,
            "delta": self.guarantee.delta,
            "grade": str(self.guarantee.grade),
            "assumptions": written_json(self.guarantee.assumptions),
            "waves": [
                {
                    "categories": level.categories,
                    "reports": level.reports,
                    "threshold": level.threshold,
                    "found_from": level.found,
                    "kept": list(level.kept),
                }
                for level in self.levels
            ],
        }

    def blocks(self) -> list[Block]:
        """Returns the texts, and the statements about them, for people."""
        table = Table("text", "people, estimated", title=f"{len(self.texts)} texts in {len(self.levels)} waves")
        for text, holders in self.texts:
            table.row(text, f"{holders:,.0f}")
        rule, guarantee, listed = self.rule, self.guarantee, f"{1 - self.rule.missed:g}"
        lines = [
            f"No number of people is enough for a text to be listed with probability {listed}."
            if self.found is None
            else f"A text in the alphabet of at least {self.found:,} people is listed with probability {listed} or "
            "more.",
            f"The texts of about {self.others:,.0f} people (estimated) begin with a letter that is not in the "
            "alphabet: nothing is said about them.",
            f"A text of fewer than {rule.fewest:,} people is listed with probability {rule.false_listed:g} at most.",
            f"One person, all waves: ε = {round_up(guarantee.epsilon, 4)} {guarantee.grade} at "
            f"δ = {round_up(guarantee.delta)}.",
            f"Assumed beside what each wave assumes: {guarantee.assumptions[-1]}.",
        ]
        return [table, *map(Sentence, lines)]


def discovered(state: StudyState) -> DiscoveryResult | None:
    """Returns the texts that the waves of a survey have found so far; None without a result, or of another survey.

    The guarantee is the limit over all waves that the survey has stated. The number of waves and their categories
    follow from answers, and so their sum would be no guarantee.
    """
    terms = state.versions[0].questions[0]
    if not isinstance(terms.rule, Prefixes) or state.together is None:
        return None
    discovery = Discovery(terms.rule, terms.budget_grid[0])
    for played in state.waves:
        result = played.results[terms.question.name]
        if result is None or not result.certificate.granted:
            break
        discovery.learn_published(result.publication, result.terms, result.certificate)
    return DiscoveryResult.of(discovery, state.together)

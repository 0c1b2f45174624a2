"""The two sentences for a participant: the guarantee if one server is honest, and the guarantee if none is.

Every place that promises a person something beforehand takes the numbers from here: a round's terms, the receipt of an
answer, the consent to a study. The guarantee of hop noise is proved in docs/hop-noise.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from croupier.accountant.basic_composition import WorstCases, all_together
from croupier.accountant.guessing import right_at_most
from croupier.protocol.rounding import percent
from croupier.protocol.surveys import QuestionTerms, budgets_within


@dataclass(frozen=True)
class Promises:
    """The largest probability of guessing which of two equally likely answers a person gave; without data: 1/2.

    Attributes:
        hops: the number of servers that shuffle.
        one_honest_hop: if at least one of these is honest, whatever all other servers and people do; None without hop
            noise.
        no_honest_hop: if none is: the person's own noise.
    """

    hops: int
    one_honest_hop: float | None
    no_honest_hop: float

    @property
    def lines(self) -> tuple[str, ...]:
        """The sentences: one for each of the two cases, or a single one for both without hop noise."""
        alone = percent(self.no_honest_hop)
        if self.one_honest_hop is None:
            return (
                "Whatever all servers and all other people do: about which of two answers you gave someone is right "
                f"at most {alone} of the time; guessing is right 50 % of the time. This is your own noise.",
            )
        which = "the server that shuffles is" if self.hops == 1 else f"one of the {self.hops} servers that shuffle is"
        none = "it is not" if self.hops == 1 else "none of them is"
        return (
            f"If {which} honest: about which of two answers you gave someone is right at most "
            f"{percent(self.one_honest_hop)} of the time, whatever all other servers and people do; guessing is right "
            "50 % of the time.",
            f"If {none}: your own noise still protects you, and someone is right at most {alone} of the time.",
        )


def promises_of(terms: QuestionTerms, local_epsilon: float) -> Promises:
    """Returns a round's promises to a person who uses a budget of its grid."""
    return _promises(terms, WorstCases.of(terms, local_epsilon))


def _promises(terms: QuestionTerms, cases: WorstCases) -> Promises:
    hop, alone = cases.one_honest_hop, cases.no_honest_hop
    honest = None if hop is None else right_at_most(hop.epsilon, hop.delta)
    return Promises(terms.shared.num_hops, honest, right_at_most(alone.epsilon, alone.delta))


def study_lines(rounds: Sequence[QuestionTerms], wave_epsilon: float) -> tuple[str, ...]:
    """Returns the guarantee of all waves of a version of a study for a person, in sentences; nothing for other rounds.

    An earlier version had other budgets, which these terms do not hold; it comes on top. The person is taken to spend
    at most `wave_epsilon` on the answers to each wave together. The accountant adds up budgets and hop noise
    of all questions and waves; in a permanent study the budget of an answer that never changes counts once.

    Args:
        rounds: those of one wave.
        wave_epsilon: at least the sum of the smallest budgets.
    """
    schedule = rounds[0].survey.schedule if rounds else None
    if schedule is None:
        return ()
    waves, permanent = schedule.last_wave - schedule.first_wave + 1, schedule.permanent
    chosen = zip(rounds, budgets_within(rounds, wave_epsilon), strict=True)
    cases = all_together([WorstCases.of(terms, epsilon, waves) for terms, epsilon in chosen])
    lines = _promises(rounds[0], cases).lines
    about = f"All answers to all {waves} waves of this version together, taken as one of two: "
    told = [f"{about}{lines[0][0].lower()}{lines[0][1:]}", *lines[1:]]
    if schedule.version > 1:
        told.append("What you have answered in earlier versions comes on top.")
    if permanent:
        told.append("Your device draws its noise once: this is for answers that stay the same; a change can be seen.")
    return tuple(told)

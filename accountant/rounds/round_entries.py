"""The cost of a round for every budget in the ledger's form, and the limits of the ledger in its manifest."""

from __future__ import annotations

from croupier.accountant.budgets import Budgets
from croupier.accountant.certificate import Certificate
from croupier.accountant.mechanisms.base import Randomizer
from croupier.accountant.recorded_profile import PROFILE_POINTS, Profile, profile_of
from croupier.accountant.spending import Entry, Limit
from croupier.protocol.deployment import PrivacyLimit
from croupier.protocol.surveys import QuestionTerms


def limit_of(terms: QuestionTerms) -> Limit | None:
    """Returns the limit on the ledger's total with this round, if its manifest has one."""
    return None if terms.survey.privacy_limit is None else as_limit(terms.survey.privacy_limit)


def survey_limit_of(terms: QuestionTerms) -> Limit | None:
    """Returns the limit on all waves of the survey; None where it is asked once."""
    schedule = terms.survey.schedule
    if schedule is None:
        return None
    return Limit(schedule.total_epsilon, schedule.total_delta, survey_id=terms.survey.survey_id)


def keeps_profiles(terms: QuestionTerms) -> bool:
    """Says whether the round's cost is composed with other rounds, so that the ledger needs its curves."""
    return limit_of(terms) is not None or survey_limit_of(terms) is not None


def as_limit(limit: PrivacyLimit) -> Limit:
    """Returns the ledger's form of a privacy limit."""
    return Limit(limit.total_epsilon, limit.total_delta, limit.max_rounds, limit.fixed_terms)


def entries_of(
    budgets: Budgets,
    randomizer: Randomizer,
    certificate: Certificate,
    *,
    with_profiles: bool,
) -> list[Entry]:
    """Returns the cost of the round for every budget, in the ledger's form.

    The profiles are those behind the certificate. Nothing is computed from its tiers: very many budgets are certified
    in groups, and noise for a smaller budget hides less than that for the group's budget.
    """
    profiles: dict[float, Profile] = {}
    entries = []
    for budget in budgets.tiers:
        tier = certificate.tier_of(budget.local_epsilon)
        group = tier.local_epsilon
        if group not in profiles:
            profiles[group] = ()
            pure = with_profiles and not randomizer.spends_local_delta
            if pure and tier.privacy_profile is not None and 0 < tier.epsilon < tier.local_epsilon:
                profiles[group] = profile_of(tier.privacy_profile, tier.epsilon, tier.local_epsilon)
        profile = profiles[group]
        if with_profiles:
            local = randomizer.local_profile(budget.local_epsilon, budget.local_delta, PROFILE_POINTS)
            profile = local or profile
        count = budget.count - certificate.counted_by.victims  # without the victim that was added
        of_tier = budget.local_epsilon, budget.local_delta, count, tier.epsilon, tier.delta
        series = "" if certificate.series is None else certificate.series.name
        entries.append(Entry(*of_tier, profile, series))
    return entries

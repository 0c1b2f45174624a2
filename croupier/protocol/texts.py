"""The sentences of all codes, and no other: what `codes` names, in words for people.

What clients run is worded by each kind of mechanism (`Mechanism.runs`), and collected here.
`TEXTS` has the exact sentence of every code, `PLAIN` a sentence without terms of the field for every assumption.
Nothing reads a sentence back: rewording one changes that sentence and nothing else (tests/protocol/test_statements.py).
Whole numbers are written with separators; of other numbers `up` and `down` name the side to which they are rounded, and
how many digits are shown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from string import Formatter
from typing import Any

from croupier.protocol.codes import RUNS, Assumption, Code, Method, Note, ProofStep, RefusalReason
from croupier.protocol.mechanisms.base import ANSWERS
from croupier.protocol.rounding import round_down, round_up

Value = int | float | str

TEXTS: dict[Code, str] = {
    Assumption.REPLACE_ONE: "neighbouring data sets differ in the value of one user (replace-one)",
    Assumption.RECORD_LEVEL: (
        "RECORD level, not user level: neighbouring data sets differ in one record of one client (replace-one)"
    ),
    Assumption.PERSON_UNPROTECTED: (
        "a person with several records, in one client or in several, is not protected as a whole"
    ),
    Assumption.RECORDS_PUBLIC: "the number of records of every client is public and does not depend on the data",
    Assumption.TIERS_VISIBLE: (
        "the length of a report tells its tier: shuffling is not counted on, and this is the local guarantee, even if "
        "all others collude"
    ),
    **{Assumption(code): runs.sentence for code, (_, runs) in RUNS.items()},
    Assumption.RUNS_TABLE: (
        "every honest client draws its report from the declared table {label!r} of its own local epsilon"
    ),
    Assumption.UNIFORM_ORDER: (
        "at least one shuffler keeps its order secret: to the observer, the order of the honest clients' reports that "
        "pass through it is uniformly random"
    ),
    Assumption.ONE_HONEST_HOP: (
        "at least one of {hops} shufflers is honest: it adds fake reports of its own, drawn for epsilon {epsilon:g} "
        "and delta {delta:g}, and keeps their numbers and its order secret; every other shuffler, every other client, "
        "the analyzer and the accountant may be dishonest, and a client decides whether to answer and with which "
        "budget without looking at its value"
    ),
    Assumption.HONEST_FIRST_SHUFFLER: (
        "the first shuffler is honest: it drew the order of the clients at random and keeps it secret"
    ),
    Assumption.CLIENTS_ANSWERED: ("{answered} of {clients} clients answered, each once"),
    Assumption.CLIENTS_WILL_ANSWER: ("at least {least} of {clients} clients answer, each once"),
    Assumption.INDEPENDENT_ABSENCE: (
        "whether a client answers depends neither on the data, nor on earlier answers, nor on when it is asked"
    ),
    Assumption.UNWATCHED: (
        "no one who learns the answers watches the clients' connections: their traffic shows who is asked, and when"
    ),
    Assumption.ANSWER_PERIOD: "an answer is passed on {period_ms} ms after it was asked for: its time tells nothing",
    Assumption.DISHONEST_CLIENTS: (
        "at most {dishonest} of the other clients are dishonest, lie about their budget or collude"
    ),
    Assumption.BUDGETS_PUBLIC: "the multiset of local budgets is public and does not depend on the data",
    Assumption.BUDGETS_NOISED: (
        "no local budget depends on the data; of the clients with each budget of the grid up to {most} more than are "
        "counted are taken to be known, so that what is computed from the counts is ({epsilon}, {delta})-private in "
        "the budget of any one client"
    ),
    Assumption.INDEPENDENT_REPORTS: "no report depends on the report of another user",
    Assumption.ADAPTIVE_ORDER: (
        "clients answer in a secret uniform order; what they are asked may depend on earlier answers"
    ),
    Assumption.BUDGETS_UNLINKED: "nothing links a report to the budget it was made with",
    Assumption.BUDGETS_SHOWN: "a report shows its tier: only the victim's own tier hides it",
    Assumption.FRESH_SHUFFLES: (
        "every round is a fresh shuffle of fresh randomness, and one client takes part in at most {rounds}"
    ),
    Assumption.FRESH_NOISE: "every round has fresh randomness, and one client takes part in at most {rounds}",
    Assumption.SAME_REPORT: (
        "the client answers all {waves} waves of the question (series {series:.12}) with one value and one budget, and "
        "sends the same report each time: this is about all of them together, every further value adds the local "
        "epsilon, and that a value changed is not protected"
    ),
    Assumption.ANSWERS_UNCHANGED: (
        "in questions whose reports are kept for several waves, a client keeps its value and its budget: every further "
        "value adds the local epsilon, and that a value changed is not protected"
    ),
    Assumption.FIXED_TERMS: (
        "the terms of all releases were fixed before the first result: which releases there are, and who takes part "
        "in each with which budget, does not depend on earlier results"
    ),
    Assumption.DISJOINT_GROUPS: (
        "every person's own device draws one of {groups} groups before the first result, whatever the person's data "
        "are, and takes part in the release of that group only"
    ),
    Assumption.TOTAL_BEFOREHAND: (
        "this epsilon and delta, as a total that every release kept, were fixed before the first result: a total that "
        "is read from releases afterwards promises nothing where results decided which releases there are"
    ),
    Assumption.LOCAL_DELTAS_UNSPENT: "the declared local deltas are not spent: this randomizer is pure",
    Assumption.GENUINE_ROSTER: ("the roster is genuine: of the clients with tickets at most {dishonest} are dishonest"),
    Assumption.HONEST_ACCOUNTANT: (
        "the accountant follows the protocol: it gives tickets to enrolled clients alone, one for each lane, certifies "
        "the budgets that arrived with one, as published, and gives the release key away only with the certificate; "
        "otherwise dishonest shufflers can replace what all other clients sent, and only its local budget protects a "
        "report"
    ),
    Assumption.EVERYONE_ELSE_DISHONEST: "every party but the client itself may be dishonest",
    Assumption.STEP_DISHONEST_USERS: (
        "at most {dishonest} of the other users of a step are dishonest, lie about their budget or collude, or had a "
        "message lost"
    ),
    Assumption.DIFFERENT_USERS: "the roster is genuine: the clients with tickets are different users",
    Assumption.ONE_ANSWER_AN_EPOCH: "every user answers at most once an epoch, each time with fresh randomness",
    Assumption.CLIPPED_GRADIENTS: (
        "every client clips each record's gradient, and adds Gaussian noise of its own scale to their mean"
    ),
    Assumption.NO_ONE_ELSE_TRUSTED: "nothing is assumed of the shufflers or of the other clients",
    Assumption.FEATURES_WITHOUT_USERS: (
        "the features ({features}) look at no private data, and neither does the list of classes or a range of targets"
    ),
    Assumption.FEATURES_FROM_USERS: "NOT MET: the features look at no private data; they are fitted to it",
    Assumption.CHOSEN_WITHOUT_USERS: (
        "the step size and other settings were chosen without looking at the users' examples"
    ),
    Assumption.CHOSEN_ON_USERS: (
        "not covered: the step size and other settings were chosen on some of these users' examples"
    ),
    Assumption.MEASURED_ON_OTHERS: (
        "the examples on which the model is measured belong to no user: they are not protected"
    ),
    Assumption.MODEL_FILE_BLIND: ("the code of the model looks at no private data, and mixes no two examples"),
    Assumption.SIMULATED: (
        "simulated: this run protected no user; epsilon and grade are what a deployed run of the same numbers would "
        "have"
    ),
    Method.LOCAL_BUDGET: "local budget",
    Method.BLANKET_CLOSED_FORM: "personalised common blanket, closed form",
    Method.BLANKET_DENSITY: "personalised common blanket, optimised density",
    Method.EXCHANGE: "exchange bound, what the others' own randomness hides",
    Method.WORST_CASE: "exact worst case over the values of the others",
    Method.PUBLISHED: "a published formula",
    Method.WHOLE_RELEASE: "(epsilon, delta) of the whole release",
    Method.STORED_PROFILE: "stored certified profile",
    Method.BASIC_COMPOSITION: "basic composition over {rounds} rounds",
    Method.COMPOSED_LOSSES: "privacy loss distributions composed over {rounds} rounds",
    Method.PRIVACY_FILTER: "a privacy filter over {rounds} rounds",
    Method.HOP_NOISE: "hop noise, the fake reports of one honest hop",
    Method.NO_ROUND: "no round",
    Method.ONE_RECORD: "of one record, not of a user",
    Method.TRAINING_HEMISPHERE: (
        "hemisphere in {dimension} dimensions, privacy loss distributions composed over the epochs"
    ),
    Method.TRAINING_GAUSSIAN: (
        "local Gaussian mechanism, composed exactly; no amplification is proved in high dimension"
    ),
    ProofStep.NO_OTHERS: "no other honest client: the local budget is certified",
    ProofStep.LOCAL_IS_LEAST: "no amplification: no bound gives less than the local budget",
    ProofStep.REPORTS_KEPT: (
        "no amplification: reports are drawn once for {waves} waves, and who takes part in which can single one "
        "report out"
    ),
    ProofStep.LENGTH_SHOWS_SIGMA: (
        "no amplification: in {dimension} dimensions the length of a report shows its own sigma, and the ratio of the "
        "densities is exponentially small; the certificate is the local budget"
    ),
    ProofStep.LENGTH_SHOWS_RECORD_SIGMA: (
        "no amplification: the length of a report in {dimension} dimensions shows its own sigma; the certificate is "
        "the local budget of one record"
    ),
    ProofStep.NOISE_REACHES_FAR: (
        "no amplification: the noise reaches over {reach:.3g} times the interval, which is above {most:.3g}"
    ),
    ProofStep.NO_EXCHANGE_BOUND: "exchange bound: none is proved for {randomizer}",
    ProofStep.EXCHANGE_NEEDS_BLANKET: "exchange bound: of use only with at least {least:g} possible blanket users",
    ProofStep.EXCHANGE_BUDGET_LARGE: "exchange bound: local epsilon {local_epsilon:g} is above {most:g}",
    ProofStep.EXCHANGE_NO_SMALL_BUDGETS: "exchange bound: no other honest client has a budget as small as the victim's",
    ProofStep.NOT_ASKED_FOR: "{bound}: not asked for",
    ProofStep.TIME_OVER: "{bound}: the time is over",
    ProofStep.NOTHING_TO_GAIN: "{bound}: nothing to gain",
    ProofStep.NO_LESS: "{bound}: no less",
    ProofStep.FOUND_EPSILON: "{bound}: epsilon {epsilon:up6} in {seconds:.3f} s",
    ProofStep.FOUND_DELTA: "{bound}: delta {delta:up6} in {seconds:.3f} s",
    ProofStep.REACHED: (
        "epsilon {epsilon:up9} reaches delta {delta:up9}, of which {slack:up3} is slack, after {evaluations} "
        "evaluations"
    ),
    ProofStep.REACHED_OVER_ROUNDS: "epsilon {epsilon:up9} reaches delta {delta:up9} over {rounds} rounds",
    ProofStep.ROUNDS_ONLY_ADDED: "more than {most} rounds: basic composition only",
    ProofStep.DELTAS_ONLY_ADDED: "delta below {least:g}: basic composition only",
    ProofStep.ROUNDS_COMPOSED: (
        "{rounds} rounds composed: loss distribution of {points} points, mass at infinity {infinity:.3g}, added for "
        "rounding {rounding:.3g}"
    ),
    ProofStep.SPLITS_ENUMERATED: (
        "exact: the divergence of the number of ones, for all {splits} splits of the others' bits"
    ),
    ProofStep.UNIFORM_BLANKET: (
        "blanket of {randomizer}: uniform, each user's weight gamma at its own budget, {least:.6g} to {most:.6g}"
    ),
    ProofStep.NO_BLANKET: "blanket of {randomizer}: no other user",
    ProofStep.DENSITY_BLANKET: (
        "blanket of {randomizer}: the others' least density, cut at a multiple of |p0-p1|, reach {reach:.4g}"
    ),
    ProofStep.TABLE_BLANKET: "blanket of {label}: the others' least masses",
    ProofStep.BLANKET_WEIGHTS: "weights gamma {least:.6g} to {most:.6g}",
    ProofStep.BLANKET_MISSED: "victim's mass where omega is 0, added to delta: {mass:.3g}",
    ProofStep.BLANKET_MESSAGES: (
        "blanket messages: {mean:.6g} on average, {counts} counts kept from {first} to {last}; mass cut and added to "
        "delta {lost:.3g}; relative error {relative_error:.3g}"
    ),
    ProofStep.BLANKET_REPORTS: "reports of the others from the blanket: {mean:.6g} on average",
    ProofStep.RATES_COVERED: "all victims of rates {least:.6g} to {most:.6g} are covered",
    ProofStep.BUDGETS_COVERED: "all victims with budgets from {least:.6g} to {most:.6g} are covered",
    ProofStep.HOSTS: "hosts: {users} users in {tiers} tiers, each with all of its own randomness",
    ProofStep.HOST_VARIANCE: "variance of the hosts' reports {variance:.6g}",
    ProofStep.CLOCKS: "the hosts' clocks run until {horizon:.6g}; e^-{horizon:.6g} of the local delta is added",
    ProofStep.ON_LATTICE: (
        "on a lattice of {lattice} steps: {added:.3g} is added to epsilon; at most {shown} users show their value, but "
        "for a chance of {chance:.3g}, which is added to delta"
    ),
    ProofStep.FAKES_HIDE_LOSSES: (
        "the bounds of the shuffle count {fakes} more clients as dishonest: behind the fakes of {hops} hops as many "
        "lost reports can be hidden"
    ),
    ProofStep.FAKE_REPORTS: (
        "each hop adds {fakes} fake reports on average; counts that only one of two reports can give have probability "
        "{unhidden:up6}; reports of two values differ with probability {variation:up6}"
    ),
    ProofStep.TWO_GROUPS: (
        "up to {share:.6g} of the victim's noise within {distance:.6g} of its values is hidden among {core_users} "
        "users with budgets up to {core_epsilon:.6g}, the rest is hidden among {other_users} users with budgets up to "
        "{other_epsilon:.6g}"
    ),
    ProofStep.ANY_RELEASE: "any release of epsilon {epsilon:up6} and delta {delta:up6}",
    ProofStep.STORED_TIERS: "stored profile of {tiers} tiers",
    Note.TIERS_SCALED: (
        "{reports} reports arrived beside {budgets} budgets; the tier counts are scaled to the reports"
    ),
    Note.OUTSIDE_RANGE: (
        "the estimate is outside the possible range [{low:g}, {high:g}] because of the noise; the nearest possible "
        "value is given too"
    ),
    Note.SOME_OUTSIDE_RANGE: (
        "{outside} of {estimates} estimates are outside the possible range [{low:g}, {high:g}] because of the noise; "
        "the nearest possible value is given too"
    ),
    Note.DEPENDENT_BUDGETS: (
        "if budgets depend on values this estimate is biased: reports weigh more the larger their owner's budget, and "
        "the shuffle hides whose they are"
    ),
    Note.TOO_FEW_TO_ESTIMATE: "{reports} reports could be read; the round needs {least} for an estimate",
    Note.EQUAL_BUDGETS: "equal budgets only",
    Note.LARGEST_BUDGET: "every user taken at the largest budget",
    Note.LEFTOVER_REFUTED: "the leftover argument fails: refuted for k-RR",
    Note.FAIR_BIT_CLONES: "proved for randomizers whose clones are fair bits",
    Note.ERROR_UNBOUNDED: "the error at the actual n is not bounded by its theorem",
    Note.CLIP_LAPLACE: "proved for its own Clip-Laplace randomizer only",
    Note.TESTING_ERROR: "a testing error is not a mixture weight",
    Note.FORMULA_INVALID: "{why}",
    Note.IGNORES_SHOWN_BUDGETS: "it does not allow for this: a report shows its tier",
    Note.IGNORES_DISHONEST: "it does not allow for this: {dishonest} of the others may be dishonest",
    Note.LARGER_DELTA: (
        "at δ = {delta:up6} this ε may be far too large: it is from certificates for δ up to {certified:up6} that "
        "could not be certified again; certify the releases for the smaller δ"
    ),
    Note.CURVE_RANGE: (
        "this curve is certified from δ = {least:up6} to {most:up6}; outside of that it holds, and may be far too large"
    ),
    Note.LARGE_DELTA: (
        "δ = {delta:up6} is not below 1/{people}, for {people} people. Whatever ε is, such a δ permits "
        "publishing one person's answer in full; choose a far smaller δ"
    ),
    Note.TIERS_NOT_AMPLIFIED: (
        "nothing less than the local budget could be proved for the people of {tiers} of {of} local budgets"
    ),
    RefusalReason.TOO_FEW_REPORTS: "{reports} reports have a ticket; it must be at least {least} of them",
    RefusalReason.TOO_FEW_BUDGETS: "{budgets} budgets have a ticket; it must be at least {least} of them",
    RefusalReason.TOO_MANY_WITHOUT_TICKET: "{reports} reports have no ticket; it must be at most {most} of them",
    RefusalReason.NO_BUDGET_ON_GRID: "no budget of this batch is on the grid",
    RefusalReason.NOT_CERTIFIED: "the grade is {grade}; only CERTIFIED opens a round",
    RefusalReason.DELTA_ABOVE_LIMIT: (
        "certified delta is {delta:up3}; it must be at most {most:down3}: the shuffle adds nothing that could be "
        "proved, and the noise alone has a larger delta; use more clients, or a round with a smaller local delta"
    ),
    RefusalReason.EPSILON_ABOVE_LIMIT: (
        "certified epsilon is {epsilon:up6}; it must be at most {most:down6} ({excess:up3} too much)"
    ),
    RefusalReason.BUDGET_ABOVE_LIMIT: (
        "certified epsilon of clients with local epsilon {local_epsilon:g} is {epsilon:up6}; it must be at most "
        "{most:down6} ({excess:up3} too much)"
    ),
    RefusalReason.LIMITS_NOT_MET: (
        "the round does not meet all of its limits, which follow; which of them, and by how much, is not said, because "
        "it depends on people's budgets"
    ),
    RefusalReason.DELTA_LIMIT: "the certified delta must be at most {most:down3}",
    RefusalReason.EPSILON_LIMIT: "the certified epsilon must be at most {most:down6}",
    RefusalReason.EPSILON_LIMITS: (
        "the certified epsilon must be at most the limit of each budget, {least:down6} to {most:down6}"
    ),
    RefusalReason.LEDGER_LIMIT: (
        "the ledger must stay within epsilon {epsilon:down6} at delta {delta:down6} ('croupier ledger' shows what is "
        "spent)"
    ),
    RefusalReason.LEDGER_LIMIT_NOW: (
        "the ledger must stay within epsilon {epsilon:down6} at delta {delta:down6}, which is the deployment's limit "
        "now"
    ),
    RefusalReason.STUDY_LIMIT: (
        "the waves of the study together must stay within epsilon {epsilon:down6} at delta {delta:down6}"
    ),
    RefusalReason.SEQUENTIAL_LEDGER_LIMIT: (
        "the ledger must stay within epsilon {epsilon:down6} at delta {delta:down6} ('croupier ledger' shows what is "
        "spent), and a sequential round may be cut short, so its local budgets must fit until it has ended"
    ),
    RefusalReason.MESSAGES_LOST: (
        "of {tickets} clients that were given tickets, the reports of {reports} and the budgets of {budgets} have not "
        "arrived, which makes epsilon larger"
    ),
    RefusalReason.LEDGER_EXCEEDED: (
        "the ledger would reach epsilon {reached:up6} at delta {delta:up6} after {rounds} rounds; it must be at most "
        "{most:down6} ({excess:up3} too much): requested {requested:up6}, spent {spent:up6}, remaining "
        "{remaining:down6}"
    ),
    RefusalReason.LEDGER_UNBOUNDED: (
        "the ledger would reach no bound that is proved at delta {delta:up6} after {rounds} rounds; it must be at most "
        "{most:down6}: requested {requested:up6}, remaining {remaining:down6}"
    ),
    RefusalReason.STUDY_EXCEEDED: (
        "the study would reach epsilon {reached:up6} at delta {delta:up6} after {rounds} rounds; it must be at most "
        "{most:down6} ({excess:up3} too much): requested {requested:up6}, spent {spent:up6}, remaining "
        "{remaining:down6}"
    ),
    RefusalReason.STUDY_UNBOUNDED: (
        "the study would reach no bound that is proved at delta {delta:up6} after {rounds} rounds; it must be at most "
        "{most:down6}: requested {requested:up6}, remaining {remaining:down6}"
    ),
    RefusalReason.ROUNDS_SHOWN: (
        "{rounds} rounds have shown how many clients used each budget, or that a limit was not met, as many as the "
        "privacy limit allows; nothing about the budgets of this one is said"
    ),
}

SECRETS: dict[Assumption, str] = {
    **{Assumption(code): runs.secret for code, (_, runs) in RUNS.items()},
    Assumption.RUNS_TABLE: ANSWERS,
}
"""What an observer may want to find out about a person, by what people run."""

DEVICE_STEPS: dict[Assumption, str] = {
    **{Assumption(code): runs.device for code, (_, runs) in RUNS.items()},
    Assumption.RUNS_TABLE: "draws what it sends from the declared table {label}",
}
"""What a person's device does to an answer, after "The device"; {whose} is "your" or "the person's"."""

PLAIN: dict[Assumption, str] = {
    **dict.fromkeys(DEVICE_STEPS, "The device of every honest person {does}."),
    Assumption.REPLACE_ONE: (
        "A person takes part with one answer. The promise is about that answer, while the answers of all others stay "
        "as they are."
    ),
    Assumption.RECORD_LEVEL: (
        "The promise is about ONE RECORD of one person, while all other records stay as they are."
    ),
    Assumption.PERSON_UNPROTECTED: "A person who has several records is NOT protected as a whole.",
    Assumption.RECORDS_PUBLIC: "How many records a person has is public, and does not depend on what is in them.",
    Assumption.TIERS_VISIBLE: (
        "The shuffle is not counted on: this is what the person's own noise promises, even if all others collude."
    ),
    Assumption.UNIFORM_ORDER: (
        "At least one of the servers that shuffle keeps secret in which order it has passed the reports on. A person's "
        "report hides among those of the honest people that reach this server."
    ),
    Assumption.ONE_HONEST_HOP: (
        "At least one of the {hops} servers that shuffle is honest: it adds made-up reports before it shuffles, and "
        "tells nobody how many of each answer, nor its order. All other servers and all other people may be dishonest. "
        "Whether the person answers, and with which budget, does not depend on the answer."
    ),
    Assumption.HONEST_FIRST_SHUFFLER: (
        "The first of the servers that shuffle is honest: it draws the order of the people at random and keeps it "
        "secret."
    ),
    Assumption.CLIENTS_ANSWERED: ("Of {clients} people {answered} answered, each once."),
    Assumption.CLIENTS_WILL_ANSWER: ("Of {clients} people at least {least} answer, each once."),
    Assumption.INDEPENDENT_ABSENCE: (
        "Whether a person answers has nothing to do with anybody's answer, nor with the moment at which they are asked."
    ),
    Assumption.UNWATCHED: (
        "No one who learns the answers watches people's network connections, which show who is asked, and when."
    ),
    Assumption.ANSWER_PERIOD: (
        "An answer is passed on {period_ms} ms after it was asked for, so that its time tells nothing."
    ),
    Assumption.DISHONEST_CLIENTS: (
        "At most {dishonest} of the other people work together with the observer, or use less noise than their budget "
        "says."
    ),
    Assumption.BUDGETS_PUBLIC: "How many people have which budget is public, and does not depend on their answers.",
    Assumption.BUDGETS_NOISED: (
        "No person's budget depends on their answer. How many people have which budget is published with noise: up to "
        "{most} people of each budget are left out, so that nobody can tell which budget one person has."
    ),
    Assumption.INDEPENDENT_REPORTS: "What a person sends does not depend on what others sent.",
    Assumption.ADAPTIVE_ORDER: (
        "People are asked one after the other, in an order that is drawn at random and kept secret. What they are "
        "asked may depend on earlier answers."
    ),
    Assumption.BUDGETS_UNLINKED: "Nothing shows which budget a report was made with.",
    Assumption.BUDGETS_SHOWN: "Every report shows its budget: a person hides only among those with the same budget.",
    Assumption.FRESH_SHUFFLES: (
        "Every round draws new noise and a new order, and a person takes part in at most {rounds} of them."
    ),
    Assumption.FRESH_NOISE: "Every round draws new noise, and a person takes part in at most {rounds} of them.",
    Assumption.SAME_REPORT: (
        "The device draws its noise once and sends the same in all {waves} waves. The promise is about all of them "
        "together, for a person whose answer stays the same; a change of the answer can be seen."
    ),
    Assumption.ANSWERS_UNCHANGED: (
        "Where a device sends the same report again and again, the person's answer stays the same: each further answer "
        "costs as much again, and a change can be seen."
    ),
    Assumption.FIXED_TERMS: (
        "Which questions are asked, and who answers them with which budget, was fixed before the first result."
    ),
    Assumption.DISJOINT_GROUPS: (
        "Every person's own device draws one of {groups} groups before the first result, and answers the question of "
        "that group only."
    ),
    Assumption.TOTAL_BEFOREHAND: (
        "The total was fixed before the first result, and every question kept to it. A total that is only added up "
        "afterwards promises nothing where results decided what was asked next."
    ),
    Assumption.LOCAL_DELTAS_UNSPENT: "This kind of noise needs no local δ; the declared ones count for nothing.",
    Assumption.GENUINE_ROSTER: (
        "Those who were admitted are different, real people, of whom at most {dishonest} are dishonest."
    ),
    Assumption.HONEST_ACCOUNTANT: (
        "The server that certifies follows the rules: it admits only people on the list, counts the budgets that "
        "really arrived, and lets reports be opened only together with this certificate. Otherwise dishonest servers "
        "can replace what all other people sent, and only a person's own noise protects them."
    ),
    Assumption.EVERYONE_ELSE_DISHONEST: "Everybody else may be dishonest; only the person's own device is trusted.",
    Assumption.STEP_DISHONEST_USERS: (
        "At most {dishonest} of the other people of a step work together with the observer, use less noise than their "
        "budget says, or had a message lost."
    ),
    Assumption.DIFFERENT_USERS: "Those who were admitted are different, real people.",
    Assumption.ONE_ANSWER_AN_EPOCH: "In each pass over the data a person answers at most once, with new noise.",
    Assumption.CLIPPED_GRADIENTS: (
        "The device of every person cuts what it computes from each record to a fixed length, and adds random "
        "(Gaussian) noise to the mean."
    ),
    Assumption.NO_ONE_ELSE_TRUSTED: "The promise does not depend on the servers that shuffle, or on other people.",
    Assumption.FEATURES_WITHOUT_USERS: (
        "How data are prepared ({features}), and which classes there are, was decided without anybody's private data."
    ),
    Assumption.FEATURES_FROM_USERS: "NOT MET: how data are prepared was computed from people's private data.",
    Assumption.CHOSEN_WITHOUT_USERS: "The settings of the training were chosen without looking at people's examples.",
    Assumption.CHOSEN_ON_USERS: (
        "Not covered by the promise: the settings of the training were chosen on some of these people's examples."
    ),
    Assumption.MEASURED_ON_OTHERS: (
        "The examples on which the model is tested belong to none of these people, and are not protected."
    ),
    Assumption.MODEL_FILE_BLIND: "The model's own code looks at no private data, and mixes no two people's examples.",
    Assumption.SIMULATED: (
        "This was a simulation, which protected nobody; the numbers are those of a real run of the same size."
    ),
}
PLAIN_WITHOUT: dict[Assumption, str] = {
    Assumption.DISHONEST_CLIENTS: (
        "None of the other people works together with the observer, or uses less noise than their budget says."
    ),
    Assumption.GENUINE_ROSTER: "Those who were admitted are different, real people, none of whom is dishonest.",
}
"""The plain sentences of these assumptions where the number of dishonest people is 0."""


class _Whole(int):
    """A whole number that is written with separators, unless the text has a format of its own."""

    def __format__(self, spec: str) -> str:
        return super().__format__(spec or ",")


class _Rounded(float):
    """A number that a text can ask to be rounded: "up6", "down3", or any format of a float."""

    def __format__(self, spec: str) -> str:
        for side, rounded in (("up", round_up), ("down", round_down)):
            if spec[: len(side)] == side:
                return rounded(self, int(spec[len(side) :]))
        return super().__format__(spec)


def _shown(value: Value) -> Value:
    if isinstance(value, int):
        return _Whole(value)
    return _Rounded(value) if isinstance(value, float) else value


class _Filled(Formatter):
    """Puts parameters into a text; `number` writes them in the language of the text."""

    def __init__(self, number: Callable[[str], str]) -> None:
        self._number = number

    def format_field(self, value: Any, format_spec: str) -> str:
        """Returns a parameter as text."""
        shown: str = super().format_field(value, format_spec)
        return self._number(shown) if isinstance(value, int | float) else shown


Translate = Callable[[str], str]
"""Returns a text in another language, or a number as that language writes it."""


def _filled(text: str, parameters: Mapping[str, Value], number: Translate) -> str:
    return _Filled(number).format(text, **{name: _shown(value) for name, value in parameters.items()})


def sentence(code: Code, parameters: Mapping[str, Value], translated: Translate = str, number: Translate = str) -> str:
    """Returns what a code says in the words of the field."""
    return _filled(translated(TEXTS[code]), parameters, number)


def plain_sentence(
    code: Assumption, parameters: Mapping[str, Value], translated: Translate = str, number: Translate = str
) -> str:
    """Returns what an assumption says, for people who do not know the field."""
    without = PLAIN_WITHOUT.get(code) if parameters.get("dishonest") == 0 else None
    does = _filled(translated(DEVICE_STEPS.get(code, "")), {**parameters, "whose": "the person's"}, number)
    return _filled(translated(without or PLAIN[code]), {**parameters, "does": does}, number)


def describe_device_step(
    kind: str, whose: str, translated: Translate = str, number: Translate = str, **parameters: Value
) -> str | None:
    """Returns what a device does to an answer, in words that follow "The device"; None for an unknown kind.

    Args:
        kind: the field of `Question.mechanism`.
        whose: "your", or "the person's".
        translated: returns a text in the language of the page.
        number: returns a number as that language writes it.
        parameters: "records", for a person whose records are hidden one by one.
    """
    known = next((code for code, (name, _) in RUNS.items() if name == kind), None)
    if known is None:
        return None
    return _filled(translated(DEVICE_STEPS[Assumption(known)]), {**parameters, "whose": whose}, number)

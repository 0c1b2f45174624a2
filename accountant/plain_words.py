"""The assumptions of certificates in plain sentences, and what people run, as certificates state it.

Certificates say these things exactly, in the words of the field (`certification`, `service.round_certificate`). Here
every line has a sentence for people who do not know them; what has none stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["StatedRandomizer", "of_vectors", "plain", "stated_randomizer"]


@dataclass(frozen=True)
class StatedRandomizer:
    """What people run.

    Attributes:
        stated: matches what `Randomizer.statement` says of it; its groups are parameters.
        template: `Randomizer.name`, in which parameters of the statement are to be filled in.
        secret: what an observer may want to find out about a person.
        does: what the person's device does, after "The device"; {whose} is "your" or "the person's".
    """

    stated: str
    template: str
    secret: str
    does: str

    def parameters(self, assumptions: Iterable[str]) -> dict[str, str]:
        """Returns what the statement among the assumptions says of it."""
        for line in assumptions:
            if match := re.match(self.stated, line):
                return {name: value for name, value in match.groupdict().items() if value is not None}
        return {}

    def name(self, assumptions: Iterable[str]) -> str:
        """Returns the randomizer's name."""
        return self.template.format(**self.parameters(assumptions))


def stated_randomizer(assumptions: Iterable[str]) -> StatedRandomizer | None:
    """Returns what people run by the assumptions of a certificate; None where that is not known here."""
    lines = list(assumptions)
    return next((kind for kind in _STATED if any(re.match(kind.stated, line) for line in lines)), None)


def does(name: str, whose: str, **parameters: object) -> str | None:
    """Returns what a device does to an answer, in words that follow "The device"; None where that is not known here.

    Args:
        name: the field of `Question.mechanism`.
        whose: "your", or "the person's".
        parameters: "records", of a person whose records are hidden one by one.
    """
    known = (kind.does for kind in _STATED if kind.template.split("(")[0] == name)
    return next((words.format(whose=whose, **parameters) for words in known), None)


def plain(assumption: str) -> str:
    """Returns one assumption in a plain sentence; one that is not known here as it is."""
    for stated, sentence in _SENTENCES:
        if match := re.match(stated, assumption):
            found = {name: re.sub(r"\d+", _grouped, text) for name, text in match.groupdict().items() if text}
            return sentence.format(**found, whose="the person's")
    return assumption


def of_vectors(words: str) -> str:
    """Returns what is said of a person's number, said of a vector."""
    return words.replace("number", "vector")


def _grouped(number: re.Match[str]) -> str:
    return f"{int(number[0]):,}"


_NUMBERS = "which of two numbers a person gave, however far apart they are"
_ANSWERS = "which of two answers a person gave"
_LATTICE = r"(?:, both on multiples of 1/(?P<lattice>\d+))?"
_STATED = (
    StatedRandomizer(
        "every honest client runs binary randomised response",
        "rr",
        "whether a person answered yes or no",
        "sends {whose} true answer with a probability that follows from {whose} budget, and the opposite otherwise",
    ),
    StatedRandomizer(
        r"every honest client runs (?P<k>\d+)-ary randomised response",
        "krr(k={k})",
        _ANSWERS,
        "sends {whose} true answer with a probability that follows from {whose} budget, and otherwise one of "
        "the others, all equally likely",
    ),
    StatedRandomizer(
        "every honest client clips its value, rounds it at random to one bit",
        "onebit",
        _NUMBERS,
        "rounds {whose} number at random to one end of the range, and sends that end with a probability that "
        "follows from {whose} budget, and the other end otherwise",
    ),
    StatedRandomizer(
        rf"every honest client adds Laplace noise of scale .* to a value in \[0, 1\]{_LATTICE}$",
        "laplace",
        _NUMBERS,
        "adds random (Laplace) noise to {whose} number: the smaller {whose} budget, the more",
    ),
    StatedRandomizer(
        rf"every honest client adds Gaussian noise to a value in \[0, 1\]{_LATTICE}",
        "gaussian",
        _NUMBERS,
        "adds random (Gaussian) noise to {whose} number: the smaller {whose} budget, the more",
    ),
    StatedRandomizer(
        "every honest client reports a uniform point of the half sphere",
        "hemisphere(d=2)",  # the certificate is the same in every dimension
        "which of two contributions a person made",
        "sends a random direction: with a probability that follows from {whose} budget on the side of {whose} "
        "own, and otherwise on the opposite one",
    ),
    StatedRandomizer(
        r"every honest client clips the vector of each of its records, of which it has at least (?P<records>\d+)",
        "gaussian_vector(d=1, records={records})",
        "which of two values ONE RECORD of a person had",
        "cuts what it computes from each of {whose} records to a fixed length, and adds random (Gaussian) "
        "noise to the mean, enough to hide ONE RECORD among {records}, and not all of them",
    ),
    StatedRandomizer(
        r"every honest client draws its report from the declared table (?P<label>.*) of its own",
        "{label}",
        _ANSWERS,
        "draws what it sends from the declared table {label}",
    ),
)
_SENTENCES = (
    *((kind.stated, f"The device of every honest person {kind.does}.") for kind in _STATED),
    (
        "neighbouring data sets differ in the value of one user",
        "A person is in it with one answer. The promise is about that answer, while those of all others stay as they "
        "are.",
    ),
    (
        "at least one shuffler keeps its order secret",
        "At least one of the servers that shuffle keeps secret in which order it has passed the reports on. A "
        "person's report hides among those of the honest people that reach this server.",
    ),
    (
        "at most 0 of the other clients are dishonest",
        "None of the other people works together with the observer, or uses less noise than their budget says.",
    ),
    (
        r"at most (?P<f>\d+) of the other clients are dishonest",
        "At most {f} of the other people work together with the observer, or use less noise than their budget says.",
    ),
    (
        "the multiset of local budgets is public",
        "How many people have which budget is public, and does not depend on their answers.",
    ),
    ("no report depends on the report of another user", "What a person sends does not depend on what others sent."),
    (
        "clients answer in a secret uniform order",
        "People are asked one after the other, in an order that is drawn at random and kept secret. What they are "
        "asked may depend on earlier answers.",
    ),
    ("nothing links a report to the budget", "Nothing shows which budget a report was made with."),
    (
        "a report shows its tier",
        "Every report shows its budget: a person hides only among those with the same budget.",
    ),
    (
        r"every round .*fresh randomness, and one client takes part in at most (?P<rounds>\d+)",
        "Noise and order are drawn anew in every round, and a person takes part in at most {rounds} of them.",
    ),
    (
        "the terms of all releases were fixed before the first result",
        "Which questions are asked, and who answers them with which budget, was fixed before the first result.",
    ),
    (
        "the declared local deltas are not spent",
        "This kind of noise needs no local δ; the ones that were declared count for nothing.",
    ),
    (
        "RECORD level, not user level",
        "The promise is about ONE RECORD of one person, while all other records stay as they are.",
    ),
    ("a person with several records", "A person who has several records is NOT protected as a whole."),
    (
        "the number of records of every client is public",
        "How many records a person has is public, and does not depend on what is in them.",
    ),
    (
        "the length of a report tells its tier",
        "The shuffle is not counted on: this is what the person's own noise promises, even if all others collude.",
    ),
    (
        "the first shuffler is honest",
        "The first of the servers that shuffle is honest: it draws the order of the people at random and keeps it "
        "secret.",
    ),
    (
        r"(?P<who>at least \d+|\d+) of (?P<all>\d+) clients answer(?:ed)?, each once",
        "Of {all} people {who} answer, each once.",
    ),
    (
        "whether a client answers depends neither on the data",
        "Who does not answer has nothing to do with anybody's answer, nor with the moment at which they are asked.",
    ),
    (
        "no one who learns the answers watches the clients' connections",
        "No one who learns the answers watches people's network connections, which show who is asked, and when.",
    ),
    (
        r"an answer is passed on (?P<ms>\d+) ms after",
        "An answer is passed on {ms} ms after it was asked for, so that its time tells nothing.",
    ),
    (
        r"the roster is genuine: .* at most 0 are dishonest",
        "Those who were admitted are different, real people, none of whom is dishonest.",
    ),
    (
        r"the roster is genuine: .* at most (?P<f>\d+) are dishonest",
        "Those who were admitted are different, real people, of whom at most {f} are dishonest.",
    ),
    (
        "the accountant follows the protocol",
        "The server that certifies follows the rules: it admits only people on the list, counts the budgets that "
        "really arrived, and lets reports be opened only together with this certificate. Otherwise dishonest "
        "servers can replace what all other people sent, and only a person's own noise protects them.",
    ),
)

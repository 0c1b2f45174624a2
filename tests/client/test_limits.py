"""A client's own limits: what a round may ask for, and what all rounds together may spend, counted durably and once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from croupier.client.limits import Limits, SpentHere, read_limits, write_limits
from croupier.client.outbox import Outbox
from croupier.client.submission import SealedSubmission
from croupier.protocol.errors import LimitError
from croupier.protocol.mechanisms.gaussian import Gaussian
from croupier.protocol.names import RoundId
from croupier.protocol.questions import Question
from croupier.protocol.v1 import messages_pb2 as pb
from tests.support import make_kit
from tests.support.messages import naming

NONE = Limits()


@pytest.mark.parametrize(
    ("limits", "why"),
    [
        ({"max_local_epsilon": 0.9}, "ε.*1.*0.9"),
        ({"epsilon_max": 0.5}, "epsilon_max.*1.*0.5"),
        ({"min_batch_size": 100}, "min_batch_size.*2.*100"),
    ],
)
def test_a_round_beyond_a_limit_is_named_with_both_numbers(limits: dict[str, Any], why: str) -> None:
    terms = make_kit().terms
    Limits(max_local_epsilon=1.0, epsilon_max=1.0, min_batch_size=2).check_round(terms, 1.0)
    with pytest.raises(ValueError, match=why):
        Limits(**limits).check_round(terms, 1.0)


def test_with_hop_noise_a_local_epsilon_above_8_takes_ones_own_limit() -> None:
    kit = make_kit()
    (question,) = kit.survey.questions
    del question.budget_grid[:]
    question.budget_grid.extend(pb.LocalBudget(epsilon=epsilon) for epsilon in (8.0, 8.5))
    Limits().check_round(kit.terms, 8.5)
    kit.survey.hop_noise.MergeFrom(pb.HopNoise(epsilon=1.0, delta=1e-7))
    terms = kit.terms
    Limits().check_round(terms, 8.0)
    with pytest.raises(LimitError, match=naming("8.5", 8)):
        Limits().check_round(terms, 8.5)
    Limits(max_local_epsilon=9.0).check_round(terms, 8.5)
    with pytest.raises(LimitError, match=naming("limit", 2)):
        Limits(max_local_epsilon=2.0).check_round(terms, 8.0)


def test_the_epsilon_max_of_the_budget_to_be_used_is_the_one_that_counts() -> None:
    kit = make_kit()
    kit.survey.questions[0].budget_grid[2].epsilon_max = 3.0
    terms = kit.terms
    Limits(epsilon_max=1.0).check_round(terms, 1.0)
    with pytest.raises(ValueError, match=naming(3, 1)):
        Limits(epsilon_max=1.0).check_round(terms, 2.0)


def test_the_sum_of_local_epsilons_and_the_number_of_rounds_are_limited(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path / "outbox.db")
    outbox.begin(RoundId("first"), 0.5, 0.0, Limits(lifetime_epsilon=1.5))
    outbox.keep(RoundId("first"), {"alice": SealedSubmission(b"sealed", b"", 0.5)})
    outbox.keep(
        RoundId("answers/first"), {"alice": SealedSubmission(b"sealed", b"")}
    )  # of a sequential round: counted with its budget
    outbox.begin(RoundId("second"), 1.0, 0.0, Limits(lifetime_epsilon=1.5, max_rounds=2))
    with pytest.raises(ValueError, match=naming("1.5", 2, 2)):
        outbox.begin(RoundId("third"), 0.5, 0.0, Limits(lifetime_epsilon=1.5))
    with pytest.raises(ValueError, match=naming(3, 2)):
        outbox.begin(RoundId("third"), 0.5, 0.0, Limits(max_rounds=2))
    assert outbox.spent_in_all() == SpentHere(1.5, 0.0, 2)
    outbox.close()


@pytest.mark.parametrize(("rounds", "limit", "one_more"), [(10, 1.0, "1.000000001"), (3, 0.3, "0.300000001")])
def test_tenths_add_up_as_people_write_them(tmp_path: Path, rounds: int, limit: float, one_more: str) -> None:
    """In binary .1 + .1 + .1 is .30000000000000004, and the third round was refused, with "0.3" on both sides."""
    outbox = Outbox(tmp_path / "outbox.db")
    for number in range(rounds):
        outbox.begin(RoundId(f"round {number}"), 0.1, 0.0, Limits(lifetime_epsilon=limit))
    assert outbox.spent_in_all() == SpentHere(limit, 0.0, rounds)
    with pytest.raises(ValueError, match=naming(f"{limit:g}", rounds, one_more)):
        outbox.begin(RoundId("one more"), 1e-9, 0.0, Limits(lifetime_epsilon=limit))
    outbox.close()


def test_a_round_counts_once_however_often_it_is_begun_and_whatever_dies(tmp_path: Path) -> None:
    """With what may have been sent: the most that any attempt was begun with."""
    limits, attempts = Limits(lifetime_epsilon=2.0, max_rounds=1), []
    for epsilon in (1.0, 2.0, 1.0):
        outbox = Outbox(tmp_path / "outbox.db")  # each as if the process before had died
        attempts.append(outbox.begin(RoundId("round"), epsilon, 0.0, limits))
        outbox.close()
    outbox = Outbox(tmp_path / "outbox.db")
    assert outbox.spent_in_all() == SpentHere(2.0, 0.0, 1)
    outbox.keep(RoundId("round"), {"alice": SealedSubmission(b"sealed", b"", 1.0)})
    outbox.withdraw(attempts[0])
    assert outbox.spent_in_all() == SpentHere(2.0, 0.0, 1)  # another attempt's place is not withdrawn
    for attempt in attempts:
        outbox.withdraw(attempt)
    assert outbox.spent_in_all() == SpentHere(1.0, 0.0, 1)  # what was stored is not withdrawn
    outbox.close()


def test_what_is_stored_has_its_place_in_the_limits_checked_again(tmp_path: Path) -> None:
    """It was not: an answer whose place was given to another one meanwhile was stored, and sent, beside it."""
    outbox, limits = Outbox(tmp_path / "outbox.db"), Limits(lifetime_epsilon=1.0)
    outbox.withdraw(outbox.begin(RoundId("first"), 1.0, 0.0, limits))
    outbox.begin(RoundId("second"), 1.0, 0.0, limits)
    with pytest.raises(LimitError, match=naming(1, 1, 2)):
        outbox.keep(RoundId("first"), {"alice": SealedSubmission(b"sealed", b"", 1.0)}, limits=limits)
    assert outbox.users(RoundId("first")) == set()
    outbox.keep(RoundId("second"), {"alice": SealedSubmission(b"sealed", b"", 1.0)}, limits=limits)
    outbox.close()


def test_the_deltas_of_gaussian_rounds_add_up_and_are_limited(tmp_path: Path) -> None:
    """They were not: 600 rounds of (1e-8, 0.1) counted as 6e-6, and the mean of the reports showed the value."""
    outbox, limits = Outbox(tmp_path / "outbox.db"), Limits(lifetime_epsilon=0.001)
    for number in range(10):
        outbox.begin(RoundId(f"round {number}"), 1e-8, 1e-6, limits)
    assert outbox.spent_in_all() == SpentHere(1e-7, 1e-5, 10)
    with pytest.raises(LimitError, match=naming("1e-05", 10, "1.1e-05")):
        outbox.begin(RoundId("one more"), 1e-8, 1e-6, limits)
    outbox.begin(RoundId("without a delta"), 1e-8, 0.0, limits)
    outbox.begin(RoundId("one more"), 1e-8, 1e-6, Limits(lifetime_delta=2e-5))
    outbox.close()


def test_the_local_delta_of_one_round_is_limited() -> None:
    terms = make_kit(question=Question("g", Gaussian(low=0.0, high=1.0, local_delta=1e-4))).terms
    with pytest.raises(LimitError, match=naming("local δ", "0.0001", "1e-05")):
        NONE.check_round(terms, 1.0)
    Limits(max_local_delta=1e-4).check_round(terms, 1.0)


def test_of_two_limits_the_stricter_holds_but_not_a_default() -> None:
    """A person who raises a limit of δ is not held to the default of an application that says nothing about it."""
    raised = Limits(max_local_delta=1e-4, lifetime_delta=1e-3, min_batch_size=20)
    for stricter in (raised.stricter(NONE), NONE.stricter(raised)):
        assert stricter == raised
    both = raised.stricter(Limits(max_local_delta=1e-6, min_batch_size=30))
    assert both == Limits(max_local_delta=1e-6, lifetime_delta=1e-3, min_batch_size=30)
    assert (NONE.lifetime_delta, NONE.max_local_delta) == (1e-5, 1e-5)


def test_two_processes_do_not_spend_the_same_rest(tmp_path: Path) -> None:
    outbox, other = Outbox(tmp_path / "outbox.db"), Outbox(tmp_path / "outbox.db")
    outbox.begin(RoundId("first"), 1.0, 0.0, Limits(lifetime_epsilon=1.0))
    with pytest.raises(ValueError, match=naming("limit", 1)):
        other.begin(RoundId("second"), 1.0, 0.0, Limits(lifetime_epsilon=1.0))
    outbox.close()
    other.close()


def test_limits_are_read_as_written_and_a_misspelt_one_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "client" / "limits.toml"
    assert read_limits(file) == NONE
    limits = Limits(lifetime_epsilon=1e-5, max_rounds=3, max_local_epsilon=1.0, epsilon_max=0.25, min_batch_size=500)
    write_limits(file, limits)
    assert file.stat().st_mode & 0o777 == 0o600  # what a person is ready to spend is private
    assert read_limits(file) == limits
    raised = Limits(lifetime_delta=1e-4)
    write_limits(file, raised)
    assert file.read_text() == "lifetime_delta = 0.0001\n"  # a default stays one
    for line in (
        "max_local_delta = 0.01",
        "lifetime_delta = -1e-9",
        "lifetime = 1.0",
        "lifetime_epsilon = 0.0",
        "epsilon_max = nan",
        "max_rounds = 0",
        "min_batch_size",
    ):
        file.write_text(line)
        with pytest.raises(ValueError, match=naming(file, "limits")):
            read_limits(file)

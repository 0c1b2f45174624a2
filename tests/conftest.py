"""Fixtures that several directories need, and the rule that in CI no test is skipped."""

from __future__ import annotations

import asyncio
import fcntl
import gc
import json
import os
import tempfile
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path

import grpc.aio
import pytest
from hypothesis import HealthCheck, settings

from croupier.operator.keys import PORTS_VARIABLE
from tests.support.postgresql import Server, postgresql_server
from tests.support.virtual_time import VirtualTimeLoop

settings.register_profile(
    "house", max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)  # no test times itself
settings.load_profile("house")

_NO_SKIPS = "CROUPIER_NO_SKIPS"
_PARTS, _FIRST_PORT, _PORTS_EACH = 16, 10_000, 1_400
"""The ports that deployments choose from, below those that systems choose themselves."""


HUNTED = (
    "tests/accountant/bounds/test_closed_forms.py::test_arbitrary_budgets_are_reported_in_close_groups",
    "tests/accountant/bounds/test_density_blanket.py::test_a_span_covers_every_victim_in_it",
    "tests/accountant/bounds/test_exchange_laplace.py::test_many_budgets_get_less_than_the_blanket",
    "tests/accountant/bounds/test_exchange_lattice.py::test_victims_that_are_answered_together",
    "tests/accountant/bounds/test_two_groups.py::test_between_the_attack_and_what_the_largest_victims_have[tiers1",
    "tests/accountant/bounds/test_two_groups.py::test_between_the_attack_and_what_the_largest_victims_have[tiers2",
    "tests/accountant/bounds/test_two_groups.py::test_between_the_attack_and_what_the_largest_victims_have[tiers3",
    "tests/accountant/bounds/test_two_groups.py::test_the_bound_is_just_above_a_data_set[tiers1",
    "tests/accountant/bounds/test_two_groups.py::test_the_whole_certificate_and_its_curves",
    "tests/accountant/test_certified_profile.py::test_a_curve_of_1000_people_is_within_5_percent_of_certify",
    "tests/accountant/test_composition.py::test_a_round_of_which_no_curve_says_anything_is_composed_by_adding",
    "tests/accountant/test_hunt.py::test_many_tiers_on_both_sides_of_the_thresholds[randomizer3-32",
    "tests/accountant/test_hunt.py::test_many_tiers_on_both_sides_of_the_thresholds[randomizer6-29",
    "tests/accountant/test_hunt.py::test_very_many_tiers_of_bits_on_both_sides_of_the_thresholds",
    "tests/accountant/test_planner.py::test_all_tiers_are_certified_once[krr(k=5)-30",
)
"""Long numerical tests that run in `make hunt`, or when their file is named: quicker tests cover the same code."""

LONG = (
    # Minutes; the shorter test beside each covers the same.
    "tests/deploy/test_study_killed.py",
    "tests/integration/test_year_of_telemetry.py::test_a_year_of_telemetry",
    # Minutes; the smallest size and the page's own verdicts: the tests beside it.
    "tests/deploy/test_experiments.py::test_the_published_verdicts_come_out_again",
    # Clients that die in this process: the other tests of the file.
    "tests/client/test_crashes.py::test_clients_killed_two_hundred_times_count_once_each",
    # Doses of fewer rounds: the tests beside them.
    "tests/analyzer/test_differences.py::test_differences_cover_over_ten_thousand_rounds",
    "tests/analyzer/test_projective.py::test_shares_are_covered_over_ten_thousand_rounds",
    "tests/analyzer/test_tables.py::test_a_difference_between_rows_is_covered_over_ten_thousand_rounds",
    "tests/analyzer/test_tables.py::test_intervals_of_a_table_cover_over_ten_thousand_rounds",
    # A dose of 60 rounds: test_a_dose_of_rounds_is_covered.
    "tests/analyzer/test_levels.py::test_intervals_over_ten_thousand_rounds",
    # Needs root, for users and namespaces: tests/integration/test_three_organisations.py follows the same page.
    "tests/integration/test_four_organisations.py::test_four_organisations_that_share_nothing_but_a_network",
    # Deployments of processes: the same code runs in memory in tests/integration/test_rounds.py, and with processes in
    # the tests of tests/integration/test_processes.py that stay: a round from the command line, kill -9, a canary.
    "tests/integration/test_processes.py::test_bench_measures_and_keeps_its_rows",
    "tests/integration/test_processes.py::test_demo_prints_what_others_script_against",
    "tests/integration/test_processes.py::test_the_demonstration_with_hop_noise_is_as_exact_as_promised",
    "tests/integration/test_processes.py::test_every_row_of_every_file_is_counted_or_named",
    "tests/integration/test_processes.py::test_up_serves_the_console_and_ends_it_alone",
    "tests/integration/test_postgresql.py::test_a_round_is_answered_and_no_file_holds_it",
    "tests/integration/test_postgresql.py::test_kill_minus_nine_loses_nothing",
    "tests/integration/test_postgresql.py::test_a_second_process_of_a_service_is_refused_and_the_first_goes_on[postgr",
    # The same with 13 rounds for each answer.
    "tests/attacks/test_hop_noise_collusion.py::test_all_but_one_hop_see_no_more_than_the_certificate_says[250",
    # test_no_choice_in_front_of_the_honest_hop_shows_more_than_the_bound: five points of the grid.
    "tests/accountant/bounds/test_hop_noise.py::test_no_choice_shows_more_than_the_bound_on_the_whole_grid",
    "tests/integration/test_rounds.py::test_two_kinds_of_question_are_answered_over_tls",
    "tests/operations/test_rendered_files.py::test_what_the_image_is_built_from_serves",
    "tests/operations/test_stop.py::test_ctrl_c_in_a_demonstration_leaves_no_process_behind",
    # In memory: the tests of rotation and of the store's tables.
    "tests/faults/test_leftovers.py::test_schedules_leave_no_descriptor_thread_service_or_memory_behind",
    "tests/faults/test_reproductions.py::test_what_once_went_wrong_does_not_again[everybody's keys change",
    "tests/runtime/test_store.py::test_a_hundred_megabytes_come_back_in_order_and_are_forgotten[postgresql",
    # A tenth of the calls: the same test.
    "tests/load/test_load.py::test_large_calls_hold_no_more_than_their_budget_whatever_the_answer[1000",
    "tests/runtime/test_store.py::test_a_large_round_is_forgotten_in_pieces[postgresql",
    "tests/runtime/test_store.py::test_what_was_cut_short_is_forgotten_after_the_restart[postgresql",
    "tests/runtime/test_postgresql.py::test_the_bench_of_the_stores_measures_both",
    # A wheel is built and looked into in test_a_wheel_has_one_package_with_every_file_of_it.
    "tests/operations/test_wheel.py::test_a_source_distribution_makes_a_wheel_with_the_address_of_either",
    # A deployment of processes; its round is that of other tests.
    "tests/deploy/test_bench.py::test_everybody_who_answers_a_simulated_survey_is_counted",
    # Twelve more people: the same test.
    "tests/participant/test_surveys_in_the_browser.py::test_a_survey_by_the_documented_commands[20",
    # Load: a few bad peers of every kind stay in tests/net.
    "tests/load/test_load.py::test_many_clients_get_through_thirty_bad_peers_of_every_kind",
    "tests/load/test_load.py::test_no_answer_is_lost_of_300_clients_with_connections_of_their_own",
    # A cluster of processes: test_points_are_measured_on_a_cluster and test_a_cluster_without_certificates_is_refused.
    "tests/deploy/test_cluster.py::test_a_worker_that_is_killed_while_it_opens_costs_no_report",
    # Training in memory: tests/training/test_deployed.py and test_sequential_training.py; one command stays, which
    # trains through a deployment of its own.
    "tests/training/test_command.py::test_both_modes_are_measured_with_the_same_numbers",
    "tests/training/test_command.py::test_one_user_after_the_other_is_certified_like_all_at_once",
    "tests/training/test_command.py::test_silos_train_through_a_deployment",
    "tests/training/test_command.py::test_the_same_command_twice_is_one_training",
    "tests/training/test_deployed.py::test_a_checkpoint_of_another_training_is_refused[budgets",
    "tests/training/test_deployed.py::test_a_checkpoint_of_another_training_is_refused[features",
    "tests/training/test_scattering.py::test_the_features_of_an_image_depend_on_nothing_else",
    "tests/training/test_sequential_training.py::test_every_step_is_as_long_as_in_the_simulation",
    "tests/training/test_sequential_training.py::test_silos_are_protected_by_the_record[Sequential",
    "tests/training/test_simulation.py::test_small_batches_take_more_steps",
    # 1.1 million reports, and four whole rounds; fewer people stay in the same file.
    "tests/deploy/test_discovery.py::test_two_thousand_people_find_words_through_a_deployment",
    "tests/deploy/test_discovery.py::test_words_of_a_hundred_thousand_people_are_found",
    # An optimizer of torch takes seconds to import; the plain steps stay.
    "tests/training/test_train.py::test_a_simulation_that_was_stopped_goes_on_as_if_it_had_not[Adam",
    "tests/training/test_train.py::test_an_optimizer_that_needs_more_than_a_gradient_is_refused",
    "tests/training/test_train.py::test_any_module_learns_with_an_optimizer_and_a_schedule_of_torch",
    "tests/training/test_train.py::test_the_optimizer_takes_the_steps_that_torch_would",
    # The other claims of the papers stay, the smallest of each experiment.
    "tests/deploy/test_experiments.py::test_the_verdict_of_every_claim[gspa-fig2]",
    # Statistics of many draws; smaller doses of the same stay.
    "tests/accountant/test_hunt.py::test_many_gaussian_tiers_with_their_own_local_deltas[33",
    "tests/accountant/test_wrong_certificates.py::test_a_group_of_gaussian_budgets_covers_its_noisiest_member",
    "tests/attacks/test_certificates_against_hops.py::test_no_pattern_of_all_hops_but_one_gets_a_false_certificate",
    "tests/shuffler/test_fakes.py::test_fakes_of_two_values_add_up_and_have_the_law[1.0-1e-06",
    "tests/shuffler/test_fakes.py::test_fakes_of_two_values_add_up_and_have_the_law[3.0-0.001",
    "tests/training/test_privacy.py::test_who_may_have_been_there_with_any_budget_may_have_lost_something",
    # A browser: the same page is driven in the tests that stay, by keyboard, with two tabs, and closed in between.
    "tests/participant/test_surveys_in_the_browser.py::test_a_survey_goes_on_in_a_page_that_was_closed[Submit",
    "tests/participant/test_in_the_browser.py::test_a_page_that_was_closed_goes_on[Submit",
    # The other notebook stays.
    "tests/notebooks/test_notebooks.py::test_a_notebook_runs_and_shows_what_it_computes[survey_end_to_end",
)
"""Long tests that run in `make long`, or when their file is named: shorter tests cover the same code."""

LONG_FROM_S = 2.0
"""Tests that took as long, on two busy cores, run in `make long` only, except `ALWAYS`: `make test` has six minutes."""
ALWAYS = (
    "tests/accountant/test_ledger.py",
    "tests/attacks/test_approvals.py",
    "tests/attacks/test_bad_input.py::test_messages_and_calls_above_the_caps_are_refused_and_others_go_on",
    "tests/attacks/test_budgets.py::test_a_hop_that_pretends_to_lose_a_submission_gets_the_same_bytes",
    "tests/attacks/test_budgets.py::test_liars_within_the_grid_are_what_f_is_for",
    "tests/attacks/test_budgets_from_certificates.py::test_a_budget_that_one_of_two_granted_rounds_lost_shows_as_lost",
    "tests/attacks/test_dishonest_hops.py::test_a_trusting_analyzer_publishes_no_forged_report",
    "tests/attacks/test_fakes_drawn_once.py",
    "tests/attacks/test_hop_noise.py::test_a_ticket_of_a_fake_counts_once",
    "tests/attacks/test_participants_page.py::test_rounds_of_two_descriptions_are_no_survey_to_anybody",
    "tests/attacks/test_release.py::test_a_last_hop_and_an_analyzer_open_nothing_with_a_forgery",
    "tests/attacks/test_retired_identities.py::test_a_later_round_gets_an_earlier_time_by_all_services_only",
    "tests/attacks/test_limits.py::test_two_windows_together_keep_to_the_lifetime_limit",
    "tests/client/test_crashes.py::test_a_person_whose_client_dies_around_its_tickets_counts_once",
    "tests/deploy/test_discovery.py::test_a_small_discovery_finds_what_many_hold",
    "tests/deploy/test_organisations.py::test_what_is_signed_is_shown_and_asked_before",
    "tests/deploy/test_study_runs.py::test_every_wave_opens_closes_and_is_published_in_time",
    "tests/faults/test_schedules.py::test_every_transaction_of_a_round_can_be_a_commit_point",
    "tests/faults/test_schedules.py::test_what_is_acknowledged_is_counted_once",
    "tests/integration/test_held_rounds.py::test_at_its_deadline_a_round_at_risk_is_held_and_not_mixed",
    "tests/integration/test_processes.py::test_a_round_from_the_command_line",
    "tests/integration/test_processes.py::test_kill_minus_nine_of_each_service_loses_nothing",
    "tests/integration/test_rounds.py::test_every_kind_of_question_is_answered",
    "tests/operations/test_wheel.py::test_an_installed_wheel_works_in_a_folder_full_of_traps",
    "tests/operations/test_lost_ledger.py",
    "tests/participant/test_studies_in_the_browser.py::test_one_link_and_one_consent_are_for_all_waves",
    "tests/participant/test_surveys_in_the_browser.py::test_one_person_reads_answers_and_finds_the_results",
    "tests/runtime/test_store.py::test_kill_minus_nine_keeps_what_was_committed_and_frees_the_lock[postgresql",
    "tests/shuffler/test_mix.py::test_every_order_of_four_is_equally_likely",
    "tests/test_house.py",
)
"""Long tests that run with every change all the same: each shows what no shorter one does."""


class Durations:
    """The seconds that each test took in earlier runs: the longest tests go first, those of a group as one.

    Otherwise a worker would begin a long test when the others have nothing left to do. They are in pytest's cache, and
    for a fresh checkout, those of the longest tests in `longest.json`. The order need not be exact: the file is written
    again (`python -m tests.longest`) when the tests at its top have changed.
    """

    NAME = "durations of earlier runs"
    KEY = "croupier/durations"
    LONGEST = Path(__file__).parent / "longest.json"

    def __init__(self, config: pytest.Config) -> None:
        self._cache = getattr(config, "cache", None)  # none with -p no:cacheprovider
        self._known: dict[str, float] = json.loads(self.LONGEST.read_text(encoding="utf-8"))
        if self._cache:
            self._known |= self._cache.get(self.KEY, {})
        self._seen: dict[str, float] = {}

    def sort(self, items: list[pytest.Item]) -> None:
        """Puts the longest first. A group stays as it was collected: what its files share is then made once."""
        blocks: dict[str, list[pytest.Item]] = {}
        for item in items:
            mark = item.get_closest_marker("xdist_group")
            blocks.setdefault(mark.args[0] if mark else item.nodeid, []).append(item)
        longest = sorted(blocks.values(), key=lambda block: -sum(self._known.get(item.nodeid, 0.0) for item in block))
        items[:] = [item for block in longest for item in block]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        name = report.nodeid.partition("@")[0]  # behind it xdist names the group
        self._seen[name] = round(self._seen.get(name, 0.0) + report.duration, 2)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Only where the reports of all workers arrive."""
        if self._cache and not hasattr(session.config, "workerinput"):
            self._cache.set(self.KEY, self._known | self._seen)


def pytest_configure(config: pytest.Config) -> None:
    """Deployments of several workers, and of several runs, are made at the same time: each has ports of its own.

    A service that a test stops and starts again finds its port free, whatever else is tested on the machine. The part
    is locked as long as the process lives. Programs that a test starts choose from the same part.

    gRPC's queue lives as long, too. It would be shut down whenever a garbage collection has taken its last user, which
    waits for operations of services that a test has killed, for ever where their loop is closed.
    """
    grpc.aio.init_grpc_aio()
    config.pluginmanager.register(Durations(config), Durations.NAME)
    for part in range(_PARTS):
        with ExitStack() as held, suppress(OSError):  # it is another process's, or another user's
            lock = held.enter_context((Path(tempfile.gettempdir()) / f"croupier-tests-ports-{part}.lock").open("w"))
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            config.add_cleanup(held.pop_all().close)
            break
    else:
        return
    first = _FIRST_PORT + part * _PORTS_EACH
    os.environ[PORTS_VARIABLE] = f"{first}-{first + _PORTS_EACH - 1}"


@pytest.hookimpl(tryfirst=True)  # before xdist looks at the groups
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Puts tests in order, those that need a PostgreSQL server together: a worker has its own. Leaves out long ones."""
    if not config.option.file_or_dir:
        known = json.loads(Durations.LONGEST.read_text(encoding="utf-8"))
        long = {name for name, seconds in known.items() if seconds >= LONG_FROM_S and not name.startswith(ALWAYS)}
        items[:] = [item for item in items if not item.nodeid.startswith(HUNTED + LONG) and item.nodeid not in long]
    for item in items:
        parameters = item.callspec.params if hasattr(item, "callspec") else {}
        needs = (parameters.get("database_url"), *getattr(item, "fixturenames", ()))
        if "postgresql" in needs and item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group("postgresql"))
    durations: Durations = config.pluginmanager.getplugin(Durations.NAME)
    durations.sort(items)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is imported stays: garbage collections would look at it again and again, a fifth of the time of it all."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish() -> None:
    """All that exists before the first test stays; no garbage collection has to look at it again."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """With CROUPIER_NO_SKIPS=1, as in `.ci/run`, a skipped test has failed: what it shows was not shown."""
    report = yield
    if report.skipped and not hasattr(report, "wasxfail") and os.environ.get(_NO_SKIPS) == "1":
        report.outcome = "failed"
        report.longrepr = f"skipped, which {_NO_SKIPS} does not allow: {report.longreprtext}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Makes a failure of a module that skips itself as a whole."""
    report = yield
    if report.outcome == "skipped" and os.environ.get(_NO_SKIPS) == "1":
        report.outcome = "failed"
        report.longrepr = f"skipped, which {_NO_SKIPS} does not allow: {report.longreprtext}"
    return report


def pytest_asyncio_loop_factories(item: pytest.Item) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """A test that is marked so has an event loop in which waiting takes no time."""
    virtual = item.get_closest_marker("virtual_time") is not None
    return {"virtual": VirtualTimeLoop} if virtual else {"real": asyncio.new_event_loop}


@pytest.fixture(scope="session")
def postgresql() -> Iterator[Server]:
    """A PostgreSQL server; see `tests.support.postgresql`."""
    with postgresql_server() as server:
        yield server


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty database: the test runs once on each kind that a store may have."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'rounds.db'}"
    server: Server = request.getfixturevalue("postgresql")
    return server.new_database()

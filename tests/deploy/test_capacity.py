"""The model of very large rounds: it is arithmetic on measurements, and the page shows what comes of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from research.bench.capacity import Feed, Machine, PerUser, capacity_lines, costs_per_user, feed_of, needs
from research.bench.cluster import scaling_lines
from research.page_parts import part_of_page
from tests.support.command_line import answer, refused
from tests.support.messages import naming

DOCS = Path(__file__).parents[2] / "docs"
MACHINE = Machine(cores=10, memory_bytes=1e9, disk_bytes=1e10, network_bytes_per_s=1e6)
COST = PerUser(own_s=1e-4, workers_s=1e-3, wire_bytes=500.0, disk_bytes=2000.0, memory_bytes=100.0, items=2)
FEED = Feed(own_s=5e-5, scheduler_s=1e-5)


def test_needs_are_costs_times_users() -> None:
    need = needs(COST, FEED, 10**6, 1.0, MACHINE)
    assert need.own_hours == pytest.approx(1e6 * (1e-4 + 2 * 5e-5) / 3600)
    assert need.worker_cores == pytest.approx(1e6 * 1e-3 / 3600)
    assert need.most_worker_cores == pytest.approx(5)
    assert need.machines == 2
    assert (need.disk_bytes, need.memory_bytes, need.wire_bytes) == (2e9, 1e8, 5e8)
    assert need.shares == pytest.approx(
        {
            "its own process": 200 / 3600,
            "the scheduler": 20 / 3600,
            "network": 500 / 3600,
            "memory": 0.1,
            "disk": 0.2,
        }
    )
    assert need.first == "disk"


def test_a_slow_scheduler_keeps_fewer_workers_busy_than_the_service_could() -> None:
    need = needs(COST, Feed(own_s=5e-5, scheduler_s=2e-4), 10**6, 1.0, MACHINE)
    assert need.most_worker_cores == pytest.approx(1e-3 / 4e-4)
    assert need.first == "disk"
    assert needs(COST, Feed(own_s=0.0, scheduler_s=1e-3), 10**6, 1.0, MACHINE).first == "the scheduler"


def test_twice_the_users_need_twice_of_everything() -> None:
    once, two = (needs(COST, FEED, users, 5.0, MACHINE) for users in (10**7, 2 * 10**7))
    assert two.shares == pytest.approx({name: 2 * share for name, share in once.shares.items()})
    assert needs(COST, FEED, 10**7, 10.0, MACHINE).worker_cores == pytest.approx(once.worker_cores / 2)
    assert needs(COST, FEED, 10**9, 5.0, MACHINE).machines == 1 + 6  # 55.6 cores, 10 a machine


@pytest.mark.parametrize(("users", "hours"), [(0, 1.0), (1, 0.0), (1, float("nan"))])
def test_needs_of_no_users_or_no_time_are_refused(users: int, hours: float) -> None:
    with pytest.raises(ValueError, match=naming("at least 1", "> 0")):
        needs(COST, FEED, users, hours, MACHINE)


def row(users: int, memory: float) -> dict[str, Any]:
    names = ("shuffler-1", "shuffler-2", "accountant", "analyzer")
    return {
        "users": users,
        "cpu_s": dict.fromkeys(names, 3e-3 * users),
        "own_cpu_s": dict.fromkeys(names, 1e-3 * users),
        "disk_bytes": dict.fromkeys(names, 1000 * users),
        "sent_bytes": {
            "fleet": 900 * users,
            "shuffler-1": 700 * users,
            "shuffler-2": 500 * users,
            "accountant": 0,
            "analyzer": 100 * users,
        },
        "peak_memory_bytes": dict.fromkeys(names, memory),
    }


def test_costs_are_those_of_the_largest_round_and_memory_is_growth() -> None:
    costs = costs_per_user([row(10, 5e7), row(1000, 6e7), row(11_000, 6.3e7)])
    assert {name: cost.wire_bytes for name, cost in costs.items()} == {
        "shuffler-1": 1600,
        "shuffler-2": 1200,
        "accountant": 500,
        "analyzer": 600,
    }
    assert [cost.items for cost in costs.values()] == [1, 2, 2, 2]
    hop = costs["shuffler-1"]
    assert (hop.own_s, hop.workers_s, hop.disk_bytes, hop.memory_bytes) == pytest.approx((1e-3, 2e-3, 1000, 300))
    assert costs_per_user([row(1000, 6e7), row(2000, 5e7)])["analyzer"].memory_bytes == 0
    with pytest.raises(ValueError, match=naming("two sizes")):
        costs_per_user([row(1000, 1.0)])


def test_the_page_shows_what_the_function_says_of_the_measurements(tmp_path: Path) -> None:
    bench, cluster = DOCS / "cluster" / "bench.json", DOCS / "cluster" / "cluster.json"
    costs = costs_per_user(json.loads(bench.read_text())["rows"])
    feed = feed_of(json.loads(cluster.read_text()))
    lines = capacity_lines(costs, feed, [10**8, 10**9], 24.0, Machine())
    _, inside, _ = part_of_page(DOCS / "cluster.md", "capacity")
    assert inside == "\n" + "\n".join(lines)
    _, curve, _ = part_of_page(DOCS / "cluster.md", "scaling")
    assert curve == "\n" + "\n".join(scaling_lines(json.loads(cluster.read_text())))
    page = tmp_path / "page.md"
    page.write_text("# A page\n<!-- capacity -->\nold\n<!-- end of capacity -->\nand more\n")
    said = answer("research", "capacity", "--bench", bench, "--cluster", cluster, "--page", page)
    assert page.read_text() == f"# A page\n<!-- capacity -->{inside}<!-- end of capacity -->\nand more\n"
    assert {row["users"] for row in said["rows"]} == {10**8, 10**9}
    assert {row["service"] for row in said["rows"]} == set(costs)
    page.write_text("# Another\n")
    options = ("research", "capacity", "--bench", bench, "--cluster", cluster, "--page", page)
    assert "must have <!-- capacity -->" in refused(*options)

"""What the papers do not show: error against what is certified, what personal budgets gain, dependence, tightness."""

from __future__ import annotations

import math
from collections.abc import Sequence

from croupier.protocol.rounding import round_up
from research.experiments.bounds import bound_columns, bound_point
from research.experiments.figure import Column, Figure, Finding, Line, Panel, Point, Row, Settings, Size
from research.experiments.measures.amplification import measure_epsilon
from research.experiments.measures.estimation import GROUPS, measure_dependence, measure_utility
from research.experiments.measures.throughput import measure_round

_REPEATS = {Size.QUICK: 60, Size.NORMAL: 200, Size.FULL: 1000}
_MECHANISMS = ("rr", "krr(k=4)", "onebit", "laplace")
_POLICIES = {"personal": (0.1, 0.5, 1.0), "all the smallest": (0.1,) * 3, "all the largest": (1.0,) * 3}


def _groups(settings: Settings, epsilons: Sequence[float]) -> dict[str, object]:
    return {
        "n": 10_000,
        "shares": list(GROUPS),
        "epsilons": list(epsilons),
        "repeats": _REPEATS[settings.size],
        "seed": settings.seed,
    }


def _utility_points(settings: Settings) -> list[Point]:
    locals_ = (0.5, 2.0) if settings.size is Size.QUICK else (0.25, 0.5, 1.0, 2.0, 3.0)
    mechanisms = _MECHANISMS[:2] if settings.size is Size.QUICK else _MECHANISMS
    return [
        {**_groups(settings, (local,) * 3), "mechanism": name, "local": local}
        for name in mechanisms
        for local in locals_
    ]


def _utility_findings(rows: Sequence[Row]) -> list[Finding]:
    own = [row["rmse"][row["mechanism"]] for row in rows]
    alone = [row["rmse"]["local"] / row["rmse"]["rr"] for row in rows if row["mechanism"] == "rr"]
    noise = 3 / math.sqrt(2 * rows[0]["repeats"])
    trusted = [error / row["rmse"]["Gaussian"] for row, error in zip(rows, own, strict=True)]
    return [
        Finding.whether(
            "at the same central ε, shuffled reports are better than local ones",
            min(alone) > 1,
            f"Randomized response without a shuffle has {min(alone):.1f} to {max(alone):.0f} times the error.",
        ),
        Finding.whether(
            "and no better than a party that is trusted with the data",
            min(trusted) > 1 - noise,
            f"Their error is {min(trusted):.2f} to {max(trusted):.1f} times that of the Gaussian mechanism at the "
            "CERTIFIED ε and δ = 1e−6.",
        ),
    ]


def _gain_points(settings: Settings) -> list[Point]:
    return [{**_groups(settings, own), "mechanism": "rr", "policy": name} for name, own in _POLICIES.items()]


def _gain_findings(rows: Sequence[Row]) -> list[Finding]:
    by = {row["policy"]: row for row in rows}
    error = {name: row["rmse"]["rr"] for name, row in by.items()}
    central = {name: row["central"] for name, row in by.items()}
    return [
        Finding.whether(
            "personal budgets have a smaller error than everyone taking the smallest",
            error["personal"] < error["all the smallest"],
            f"{error['personal']:.2g} against {error['all the smallest']:.2g}; with the largest "
            f"{error['all the largest']:.2g}.",
        ),
        Finding.whether(
            "and cost the most liberal no more than where all take the largest",
            central["personal"] < central["all the largest"],
            f"Their CERTIFIED central ε is {round_up(central['personal'], 3)}, against "
            f"{round_up(central['all the largest'], 3)}: the noise of careful users hides others better. The "
            "local ε of the careful stays 0.1.",
        ),
    ]


def _dependence_points(settings: Settings) -> list[Point]:
    differences = (0.0, 0.2) if settings.size is Size.QUICK else (0.0, 0.05, 0.1, 0.15, 0.2)
    return [{**_groups(settings, _POLICIES["personal"]), "difference": difference} for difference in differences]


def _dependence_findings(rows: Sequence[Row]) -> list[Finding]:
    none, most = rows[0], rows[-1]
    repaired = all(abs(row["bias"]["stratified"]) < 4 * row["error"]["stratified"] for row in rows)
    return [
        Finding.whether(
            "the shuffled estimate is unbiased where budgets say nothing about values",
            abs(none["bias"]["separate"]) < 4 * none["error"]["separate"],
            f"Bias {none['bias']['separate']:.2g} with a standard error of {none['error']['separate']:.2g}.",
        ),
        Finding.whether(
            "and biased where they do",
            abs(most["bias"]["separate"]) > 4 * most["error"]["separate"],
            f"Bias {most['bias']['separate']:.2g} where the groups' shares are {0.3 + most['difference']:.2g}, 0.3 "
            f"and {0.3 - most['difference']:.2g}.",
        ),
        Finding.whether(
            "stratified linkage repairs it",
            repaired,
            f"Bias {most['bias']['stratified']:.2g} with a standard error of {most['error']['stratified']:.2g}; the "
            f"CERTIFIED central ε becomes {round_up(most['certified']['stratified'], 3)} instead of "
            f"{round_up(most['certified']['separate'], 3)}, and the root mean square error "
            f"{most['rmse']['stratified']:.2g} instead of {most['rmse']['separate']:.2g}.",
        ),
    ]


def _tightness_points(settings: Settings) -> list[Point]:
    users = (1000, 10_000) if settings.size is Size.QUICK else (1000, 10_000, 100_000, 1_000_000)
    names = ["rr", "krr(k=10)"] if settings.size is Size.QUICK else ["rr", "krr(k=10)", "laplace"]
    return [bound_point(settings, names, names, [], n=n, tiers=[[1.0, n]], delta=1e-6) for n in users]


def _tightness_findings(rows: Sequence[Row]) -> list[Finding]:
    ratios = [ratio for row in rows for ratio in row["ratio"].values()]
    return [
        Finding.whether(
            "the certificate is within 10 % of an attack at local ε = 1",
            1 <= max(ratios) < 1.1,
            f"CERTIFIED / LOWER_BOUND is {min(ratios):.4f} to {max(ratios):.4f}.",
        )
    ]


def _throughput_points(settings: Settings) -> list[Point]:
    users = {Size.QUICK: (50,), Size.NORMAL: (100, 1000), Size.FULL: (100, 1000, 10_000)}
    return [{"users": n, "hops": 2} for n in users[settings.size]]


def _throughput_findings(rows: Sequence[Row]) -> list[Finding]:
    most = rows[-1]
    findings = [
        Finding.whether(
            "a user costs less than 10 kB on the wire, all services together",
            most["bytes"] < 10_000,
            f"{most['bytes']:,.0f} bytes at {most['users']:,} users and two shufflers.",
        )
    ]
    if len(rows) > 1:
        findings.append(
            Finding.whether(
                "the work grows in proportion to the number of users, or slower",
                most["cpu_ms"] < 1.2 * rows[0]["cpu_ms"],
                f"A user takes {rows[0]['cpu_ms']:.1f} ms of CPU at {rows[0]['users']:,} users and "
                f"{most['cpu_ms']:.1f} ms at {most['users']:,}, where a round has {most['users_per_s']:.0f} users a "
                f"second and the bare cryptography, on the same machine, {most['floor']:.0f}.",
            )
        )
    return findings


_UTILITY_LINES = (
    Line("rr, shuffled, at its CERTIFIED ε", "rmse:rr", "certified"),
    Line("krr(k=4), shuffled, CERTIFIED ε", "rmse:krr(k=4)"),
    Line("onebit, shuffled, CERTIFIED ε", "rmse:onebit"),
    Line("laplace, shuffled, CERTIFIED ε", "rmse:laplace"),
)
_COMPARED_LINES = (
    Line("randomized response, local", "rmse:local", "other 4"),
    Line("rr, shuffled, at its CERTIFIED ε", "rmse:rr", "certified"),
    Line("Gaussian, central", "rmse:Gaussian", "other 5"),
    Line("Laplace, central", "rmse:Laplace", "other 6"),
)

FIGURES = (
    Figure(
        "utility",
        "croupier",
        "error against certified ε: local, shuffled, central",
        "n = 10⁴ users of one budget, δ = 1e−6; shares or means in [0, 1]. The certificate of `hemisphere` is that of "
        "rr; its error is one of vectors (docs/sgd.md).",
        measure_utility,
        _utility_points,
        _utility_findings,
        (
            Column("mechanism", "mechanism"),
            Column("local ε", "local"),
            Column("central ε, CERTIFIED", "central", 4, "up"),
            Column("rr", "rmse:rr", 3),
            Column("krr(k=4)", "rmse:krr(k=4)", 3),
            Column("onebit", "rmse:onebit", 3),
            Column("laplace", "rmse:laplace", 3),
            Column("local rr", "rmse:local", 3),
            Column("central Gaussian", "rmse:Gaussian", 3),
            Column("central Laplace", "rmse:Laplace", 3),
        ),
        (
            Panel(
                "shuffled rr between local and central",
                "central",
                "central ε at δ = 1e−6",
                "root mean square error",
                _COMPARED_LINES,
                {"mechanism": "rr"},
            ),
            Panel("the mechanisms", "central", "central ε at δ = 1e−6", "root mean square error", _UTILITY_LINES),
        ),
    ),
    Figure(
        "personal-budgets",
        "croupier",
        "what personal budgets gain",
        "n = 10⁴ users of rr, 54 % with local ε 0.1, 37 % with 0.5, 9 % with 1; δ = 1e−6.",
        measure_utility,
        _gain_points,
        _gain_findings,
        (
            Column("budgets", "policy"),
            Column("central ε of the largest, CERTIFIED", "central", 4, "up"),
            Column("root mean square error", "rmse:rr", 3),
        ),
    ),
    Figure(
        "dependence",
        "croupier",
        "budgets that depend on values, and stratified linkage",
        "The same groups; the careful hold a 1 more often than the liberal. Stratified reports show their tier.",
        measure_dependence,
        _dependence_points,
        _dependence_findings,
        (
            Column("difference of shares", "difference"),
            Column("bias, separate", "bias:separate", 2),
            Column("bias, stratified", "bias:stratified", 2),
            Column("separate: central ε, CERTIFIED", "certified:separate", 4, "up"),
            Column("stratified: central ε, CERTIFIED", "certified:stratified", 4, "up"),
        ),
        (
            Panel(
                "rr, local ε 0.1, 0.5 and 1, simulated",
                "difference",
                "how much more often the careful hold a 1",
                "bias of the share",
                (
                    Line("separate linkage", "bias:separate"),
                    Line("stratified linkage", "bias:stratified", "certified"),
                ),
                log="",
            ),
        ),
    ),
    Figure(
        "tightness",
        "croupier",
        "certified ε over attacked ε, against n",
        "All users have local ε = 1, δ = 1e−6; more cases are in docs/tightness.md.",
        measure_epsilon,
        _tightness_points,
        _tightness_findings,
        (
            Column("n", "n"),
            *bound_columns("rr", "krr(k=10)", "laplace"),
        ),
        (
            Panel(
                "local ε = 1, δ = 1e−6",
                "n",
                "users n",
                "CERTIFIED ε / LOWER_BOUND ε",
                (
                    Line("rr", "ratio:rr", "certified"),
                    Line("krr(k=10)", "ratio:krr(k=10)"),
                    Line("laplace", "ratio:laplace"),
                ),
                log="x",
            ),
        ),
    ),
    Figure(
        "throughput",
        "croupier",
        "throughput against users",
        "`croupier bench`: rr, two shufflers, accountant and analyzer as processes on this machine, every user a "
        "client with a key of its own. Times depend on the machine and on what else it does.",
        measure_round,
        _throughput_points,
        _throughput_findings,
        (
            Column("users", "users"),
            Column("users a second", "users_per_s", 3),
            Column("bare cryptography, users a second", "floor", 3),
            Column("CPU ms a user", "cpu_ms", 3),
            Column("bytes a user", "bytes", 5),
        ),
        (
            Panel(
                "rr, two shufflers, one machine",
                "users",
                "users n",
                "users a second",
                (
                    Line("a round, end to end", "users_per_s"),
                    Line("the bare cryptography", "floor", "other 6"),
                ),
            ),
        ),
        alone=True,
    ),
)

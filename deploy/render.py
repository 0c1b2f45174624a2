"""What people look at: tables in the terminal, and plots."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from accountant.results import round_down, round_up

__all__ = [
    "bench_table",
    "certificate_table",
    "counted",
    "curve_table",
    "demo_table",
    "plot_bench",
    "plot_curve",
    "plot_demo",
    "privacy_table",
    "stage_table",
    "steps_table",
    "timing_table",
]


def counted(count: int, thing: str) -> str:
    """Returns "1 epoch", or "2 epochs"."""
    return f"{count} {thing}" if count == 1 else f"{count} {thing}s"


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _epsilon(bound: dict[str, Any]) -> str:
    return "out of range" if bound["epsilon"] is None else round_up(bound["epsilon"], 4)


def demo_table(result: dict[str, Any]) -> Table:
    """Returns truth against estimate for each question."""
    table = Table(title="what the analyzer learned")
    for heading in ("question", "truth", "estimate ± standard error", "95 % interval"):
        table.add_column(heading, justify="left" if heading == "question" else "right")
    for question in result["questions"]:
        truths, estimates = _listed(question["truth"]), _listed(question["estimate"])
        errors, labels = _listed(question["standard_error"]), question["labels"] or [""]
        intervals = question["confidence_interval"] if len(truths) > 1 else [question["confidence_interval"]]
        for index, truth in enumerate(truths):
            table.add_row(
                f"{question['name']} = {labels[index]}" if len(truths) > 1 else question["name"],
                f"{truth:.4f}",
                f"{estimates[index]:.4f} ± {errors[index]:.4f}",
                "[{:.4f}, {:.4f}]".format(*intervals[index]),
                end_section=index == len(truths) - 1,
            )
    return table


def privacy_table(result: dict[str, Any]) -> Table:
    """Returns the local and the central budget of each question, with grades."""
    delta = result["questions"][0]["certificate"]["delta"]
    table = Table(title=f"what it cost one person: ε at δ = {round_up(delta)}, replacing one answer")
    if len(result["questions"]) > 1:
        table.caption = (
            "each question by itself; who answers several loses at most the sum of the ε, at the sum of the δ"
        )
    for heading in ("question", "local ε", "central ε", "GSPA Thm 2 says", "users/s"):
        table.add_column(heading, justify="left" if heading == "question" else "right")
    for question in result["questions"]:
        certificate = question["certificate"]
        other = certificate["comparison"][0] if certificate["comparison"] else None
        table.add_row(
            question["name"],
            ", ".join(round_up(tier["local_epsilon"]) for tier in certificate["tiers"]),
            f"{round_up(certificate['epsilon'], 4)} {certificate['grade']}",
            f"{_epsilon(other)} {other['grade']}" if other else "",
            f"{question['users_per_s']:.0f}",
        )
    return table


def stage_table(result: dict[str, Any]) -> Table:
    """Returns the wall and CPU seconds of every stage of every question."""
    table = Table(title="wall (CPU) seconds per stage", caption="CPU of all processes; seal and admit overlap")
    table.add_column("stage")
    for question in result["questions"]:
        table.add_column(question["name"], justify="right")
    for stage in result["questions"][0]["stages"]:
        costs = [question["stages"][stage] for question in result["questions"]]
        table.add_row(stage, *(f"{cost['wall_s']:.2f} ({cost['cpu_s']:.2f})" for cost in costs))
    return table


def certificate_table(certificate: dict[str, Any]) -> Table:
    """Returns a certificate: headline, tiers, both trust statements, and published figures beside it."""
    epsilon, delta = round_up(certificate["epsilon"]), round_up(certificate["delta"], 3)
    table = Table(title=f"ε = {epsilon} at δ = {delta}   {certificate['grade']}")
    table.add_column("statement")
    table.add_column("ε", justify="right")
    table.add_column("grade")
    grade = certificate["grade"]
    for tier in certificate["tiers"][:20]:
        table.add_row(
            f"{counted(tier['count'], 'user')} of local ε {round_up(tier['local_epsilon'])}",
            round_up(tier["epsilon"]),
            grade,
        )
    if len(certificate["tiers"]) > 20:
        table.add_row(f"… {len(certificate['tiers']) - 20} more tiers, all in --json", "", "")
    table.add_section()
    table.add_row(
        _trust(certificate),
        epsilon,
        grade,
    )
    alone = certificate["everyone_else_colludes"]
    local_delta = f", at its local δ = {round_up(alone['delta'])}" if alone["delta"] else ""
    table.add_row(f"everyone else colludes{local_delta}", round_up(alone["epsilon"]), "CERTIFIED")
    lower = certificate.get("lower_bound") or {}
    if lower.get("epsilon") is not None:
        table.add_row(f"attack: {lower['attack']}", f"≥ {round_down(lower['epsilon'])}", "LOWER_BOUND")
    table.add_section()
    for bound in certificate["comparison"]:
        guarantee = "" if bound["grade"] == "CERTIFIED" else " (no guarantee)"
        refuted = (", ", ("refuted", "red")) if bound["status"] == "refuted" else ()
        verdict = Text.assemble("" if bound["epsilon"] is None else bound["grade"], *refuted)
        table.add_row(f"{bound['name']}{guarantee}", _epsilon(bound), verdict)
    table.caption = f"{certificate['method']}; numerical slack in δ {round_up(certificate['numerical_slack'], 2)}"
    return table


def _trust(certificate: dict[str, Any]) -> str:
    """Returns in a few words for whom the headline holds; the assumptions say all of it."""
    lines = certificate["assumptions"]
    if any(line.startswith("RECORD level") for line in lines):
        return "one RECORD of one client, whoever is honest"
    first = any(line.startswith("the first shuffler is honest") for line in lines)
    honest = "an honest first shuffler" if first else "one honest shuffler"
    return f"{honest}, at most {counted(certificate['dishonest'], 'dishonest client')}"


def steps_table(steps: Sequence[str]) -> Table:
    """Returns every step of a certificate, one line each."""
    table = Table(title="how this number came about", show_header=False)
    for step in steps:
        tier, _, text = step.partition(": ")
        table.add_row(tier, text)
    return table


def timing_table(rows: Sequence[dict[str, Any]]) -> Table:
    """Returns seconds, share of the target, seconds of the attack, and peak memory of each timed certificate."""
    table = Table("certificate", "seconds", "of the target", "attack, seconds", "peak memory")
    for row in rows:
        share = f"{row['share_of_target']:.2f} of {row['target_s']:g} s"
        memory = f"{row['peak_memory_bytes'] / 1e6:.0f} MB"
        table.add_row(row["case"], f"{row['certify_s']:.3f}", share, f"{row['attack_s']:.3f}", memory)
    return table


def curve_table(points: Sequence[dict[str, Any]]) -> Table:
    """Returns one line per delta: certified epsilon, attack, and their ratio."""
    table = Table("δ", "CERTIFIED ε", "attack ε ≥", "ratio")
    for point in points:
        lower = point["lower_bound"]["epsilon"]
        ratio = f"{point['epsilon'] / lower:.4f}" if lower else ""
        attack = "" if lower is None else round_down(lower)
        table.add_row(round_up(point["delta"]), round_up(point["epsilon"]), attack, ratio)
    return table


def plot_curve(title: str, points: Sequence[dict[str, Any]], path: Path) -> None:
    """Draws delta against epsilon: the certificate, the attack, the area between them, and the published bounds."""
    plt = _pyplot()
    figure, axis = plt.subplots(figsize=(8.4, 5.6))
    deltas = [point["delta"] for point in points]
    certified = [point["epsilon"] for point in points]
    attacks = [point["lower_bound"]["epsilon"] for point in points]
    names = [bound["name"] for bound in points[0]["comparison"]]
    for index, name in enumerate(names):
        rows = [point["comparison"][index] for point in points]
        drawn = [(row["epsilon"], delta) for row, delta in zip(rows, deltas, strict=True) if row["epsilon"] is not None]
        if drawn:
            refuted = any(row["status"] == "refuted" for row in rows)
            label = f"{name}, {rows[0]['grade']}{', refuted' if refuted else ''}"
            style = ":" if refuted else "--"
            axis.plot(*zip(*drawn, strict=True), style, lw=1.1, alpha=0.8, label=label)
    axis.plot(certified, deltas, color="#2a6f97", lw=2.4, label="croupier, CERTIFIED")
    if all(attack is not None for attack in attacks):
        axis.plot(attacks, deltas, color="#b8336a", lw=1.8, label="attack, LOWER_BOUND")
        axis.fill_betweenx(deltas, attacks, certified, color="#2a6f97", alpha=0.15)
    axis.set_xlim(0, 6 * max(certified) if names else None)
    axis.set(yscale="log", xlabel="central ε", ylabel="δ", title=f"{title}: what the shuffled batch reveals")
    axis.grid(alpha=0.3)
    axis.legend(fontsize=8)
    _save(figure, path)


def bench_table(rows: Sequence[dict[str, Any]]) -> Table:
    """Returns one column per number of users."""
    table = Table(title="wall seconds (CPU seconds of all processes); seal and admit overlap")
    table.add_column("users")
    for row in rows:
        table.add_column(f"{row['users']:,}", justify="right")
    for stage in rows[0]["stages"]:
        costs = [row["stages"][stage] for row in rows]
        table.add_row(stage, *(f"{cost['wall_s']:.2f} ({cost['cpu_s']:.2f})" for cost in costs))
    table.add_section()
    table.add_row("end to end", *(f"{row['wall_s']:.2f}" for row in rows))
    table.add_row("floor: HPKE alone", *(f"{row['floor_s']:.2f}" for row in rows))
    table.add_row("floor / end to end", *(f"{row['ratio_to_floor']:.2f}" for row in rows))
    table.add_row("users per second", *(f"{row['users_per_s']:,.0f}" for row in rows))
    table.add_row("bytes on the wire per user", *(f"{row['wire_bytes_per_user']:.0f}" for row in rows))
    table.add_section()
    for process in rows[0]["peak_memory_bytes"]:
        peaks = [row["peak_memory_bytes"][process] / 1e6 for row in rows]
        table.add_row(f"peak memory, {process}", *(f"{peak:.0f} MB" for peak in peaks))
    return table


def _pyplot() -> Any:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    return pyplot


def plot_demo(result: dict[str, Any], path: Path) -> None:
    """Draws estimates with their 95 % intervals on the truth, and below the local and the central budget."""
    plt = _pyplot()
    questions = result["questions"]
    figure, axes = plt.subplots(2, len(questions), figsize=(4.6 * len(questions), 7.2), squeeze=False)
    for question, upper, lower in zip(questions, axes[0], axes[1], strict=True):
        truths, estimates = _listed(question["truth"]), _listed(question["estimate"])
        intervals = question["confidence_interval"] if len(truths) > 1 else [question["confidence_interval"]]
        places = range(len(truths))
        upper.bar(places, truths, color="#c9d6df", width=0.6, label="truth")
        errors = [[e - low for e, (low, _) in zip(estimates, intervals, strict=True)]]
        errors.append([high - e for e, (_, high) in zip(estimates, intervals, strict=True)])
        upper.errorbar(places, estimates, errors, fmt="o", color="#b8336a", capsize=5, label="estimate, 95 %")
        upper.set_xticks(list(places), question["labels"] or [""])
        upper.set_xlim(-1, len(truths))
        upper.margins(y=0.25)
        upper.set_title(question["name"])
        upper.legend(fontsize=8, loc="upper left")
        tiers = question["certificate"]["tiers"]
        rows = range(len(tiers))
        lower.barh([r + 0.2 for r in rows], [t["local_epsilon"] for t in tiers], 0.36, color="#c9d6df", label="local ε")
        lower.barh(
            [r - 0.2 for r in rows], [t["epsilon"] for t in tiers], 0.36, color="#2a6f97", label="central ε, CERTIFIED"
        )
        for row, tier in zip(rows, tiers, strict=True):
            lower.text(tier["epsilon"], row - 0.2, f" {round_up(tier['epsilon'], 4)}", va="center", fontsize=8)
        lower.set_yticks(list(rows), [f"{t['count']} users" for t in tiers])
        lower.set_xlabel(f"ε at δ = {round_up(question['certificate']['delta'])}")
        lower.legend(fontsize=8, loc="lower right")
    figure.suptitle("What the analyzer learned, and what it cost each tier of users")
    _save(figure, path)


def plot_bench(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Draws throughput, and the seconds of each stage per 1000 users, against the number of users."""
    plt = _pyplot()
    figure, (left, right) = plt.subplots(1, 2, figsize=(12, 4.8))
    users = [row["users"] for row in rows]
    left.loglog(users, [row["users"] / row["floor_s"] for row in rows], "k--", label="floor: HPKE alone, same run")
    left.loglog(users, [row["users_per_s"] for row in rows], "o-", color="#b8336a", label="end to end")
    left.set(xlabel="users", ylabel="users per second", title="throughput")
    left.legend()
    for stage in rows[0]["stages"]:
        cost = [1000 * row["stages"][stage]["cpu_s"] / row["users"] for row in rows]
        right.loglog(users, cost, "o-", label=stage)
    right.set(xlabel="users", ylabel="CPU seconds per 1000 users", title="where the time goes")
    right.legend(fontsize=8)
    for axis in (left, right):
        axis.grid(alpha=0.3)
    _save(figure, path)


def _save(figure: Any, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.tight_layout()
    figure.savefig(path, dpi=110)

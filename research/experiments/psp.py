"""Liu, Liu, Xiong, Gu, Chen: Enhanced Privacy Bound for Shuffle Model with Personalized Privacy, 2024 (PSP)."""

from __future__ import annotations

from collections.abc import Sequence

from croupier.protocol.rounding import round_down
from research.experiments.bounds import bound_columns, bound_point, published_columns, settings_elsewhere
from research.experiments.figure import Column, Figure, Finding, Line, Panel, Point, Row, Settings, Size, Verdict
from research.experiments.measures.amplification import measure_confusion, measure_delta, measure_epsilon

_TABLE_1 = ("U(0.05, 1)", "N(0.8, 0.5) in [0.05, 1]", "U(0.5, 2)", "N(1.5, 0.5) in [0.5, 2]")
_USERS = {Size.QUICK: (3000,), Size.NORMAL: (1000, 3000, 10_000), Size.FULL: (1000, 2000, 4000, 7000, 10_000)}
_OURS = "Liu 2024"
_DRAWN = {
    _OURS: "PSP (Liu 2024)",
    "BBGN19 Bennett at max": "BBGN19, max ε",
    "FMT23 leftover clones at max": "FMT23, max ε",
    "GSPA Thm 2, μ/√2": "GSPA Thm 2 with μ/√2, as PSP draws it",
    "Echo": "Echo",
}
_CLONES = "FMT23, local δ"
_NOISES = (("pure", "laplace", tuple(_DRAWN)), ("approximate", "gaussian", (_OURS, _CLONES, "GSPA Thm 2, μ/√2")))


def _figure_3_points(settings: Settings) -> list[Point]:
    steps = 5 if settings.size is Size.QUICK else 21
    places = [{"part": "a", "x": index / (steps - 1), "local_epsilon": 1.0, "largest": 3.0} for index in range(steps)]
    budgets = [0.5, 1.0, 2.0] if settings.size is Size.QUICK else [round(0.1 * index, 1) for index in range(1, 31)]
    return [*places, *({"part": "b", "x": 1.0, "local_epsilon": own, "largest": 3.0} for own in budgets)]


def _figure_3_findings(rows: Sequence[Row]) -> list[Finding]:
    places, budgets = ([row for row in rows if row["part"] == part] for part in "ab")
    ends = min(places[0]["p"], places[-1]["p"])
    best = max(budgets, key=lambda row: row["p"])
    return [
        Finding.whether(
            "the worst case is at x_i = x_0 or x_1",
            ends <= min(row["p"] for row in places) * (1 + 1e-6),
            f"min(p0, p1) is {ends:.3g} at the ends and {max(row['p'] for row in places):.3g} at most, at ε_i = 1.",
        ),
        Finding.whether(
            "p_i is highest around ε_i = 1 where ε_1 = 3",
            0.7 <= best["local_epsilon"] <= 1.3,
            f"It is highest at ε_i = {best['local_epsilon']:g}, where it is {best['p']:.3g}. What the figure shows is "
            "a testing error; that it is the weight of a mixture, which the bound needs, does not follow "
            "(psp-theorem2).",
        ),
    ]


def _figure_4_points(settings: Settings) -> list[Point]:
    return [
        bound_point(
            settings,
            [mechanism],
            [] if settings.size is Size.QUICK else [mechanism],
            published,
            kind=kind,
            distribution=name,
            n=n,
            delta=1e-5,
            local_delta=0.0 if kind == "pure" else 1e-10,
            step=0.0 if kind == "pure" else 0.05,
        )
        for kind, mechanism, published in _NOISES
        for name in (_TABLE_1[2:3] if settings.size is Size.QUICK else _TABLE_1)
        for n in _USERS[settings.size]
    ]


def _figure_4_findings(rows: Sequence[Row]) -> list[Finding]:
    gains = []
    for row in rows:
        rivals = [epsilon for name, epsilon in row["published"].items() if name != _OURS and epsilon is not None]
        gains.append(min(rivals) / row["published"][_OURS])
    below = [row for row in rows if any(row["published"][_OURS] < attack for attack in row["attack"].values())]
    pure = {(row["distribution"], row["n"]): row["published"][_OURS] for row in rows if row["kind"] == "pure"}
    tighter = [
        pure[row["distribution"], row["n"]] / row["published"][_OURS] for row in rows if row["kind"] == "approximate"
    ]
    return [
        Finding.whether(
            "the strongest amplification of all that are drawn",
            min(gains) > 1,
            f"The other lines are {min(gains):.2f} to {max(gains):.1f} times as high, the line of GSPA drawn with μ "
            "smaller by √2 than its theorem has it, as PSP draws it (psp-table2).",
        ),
        Finding.whether(
            "up to 5 times smaller than the others",
            max(gains) >= 5,
            f"Up to {max(gains):.1f} times here; the largest factors are those of Gaussian noise, of which GSPA's "
            "bound takes no notice.",
        ),
        Finding.whether(
            "the bound is tighter for approximate PLDP than for pure",
            min(tighter) > 1,
            f"By a factor of {min(tighter):.1f} to {max(tighter):.1f}: Gaussian noise with δ = 1e−10 is much wider.",
        ),
        Finding(
            "no attack reaches the bound at the points of the figure",
            Verdict.REFUTED if below else Verdict.REPRODUCED,
            f"{len(below)} of {len(rows)} points lie below an attack; HEURISTIC all the same (elsewhere: "
            "psp-theorem2).",
        ),
    ]


_EPSILONS = (0.01, 0.03, 0.05, 0.08, 0.1)
_CLAIMED = (7e-4, 2e-6, 3e-10, 1e-18, 1e-25)
_CLAIMED_GSPA = (4.2e-3, 7e-4, 5e-5, 3e-7, 3e-9)
_CLAIMED_FMT = (8.3e-3, 2.9e-3, 8e-4, 6e-5, 1e-5)


def _table_2_points(settings: Settings) -> list[Point]:
    claims = list(zip(_EPSILONS, _CLAIMED, _CLAIMED_GSPA, _CLAIMED_FMT, strict=True))
    certify: dict[Size, list[str]] = {Size.QUICK: [], Size.NORMAL: ["laplace"], Size.FULL: ["gaussian", "laplace"]}
    return [
        bound_point(
            settings,
            ["gaussian", "laplace"],
            certify[settings.size],
            [],
            distribution="U(0.5, 2)",
            n=10_000,
            epsilon=epsilon,
            claimed=claimed,
            claimed_gspa=gspa,
            claimed_fmt=fmt,
            local_delta=1e-10,
            step=0.05,
        )
        for epsilon, claimed, gspa, fmt in (claims[:1] if settings.size is Size.QUICK else claims)
    ]


def _table_2_findings(rows: Sequence[Row]) -> list[Finding]:
    ours, laplace = ([row["published"][f"{_OURS}, {noise}"] for row in rows] for noise in ("gaussian", "laplace"))
    variant = [row["published"]["GSPA Thm 2, μ/√2"] / row["claimed_gspa"] for row in rows]
    below = {noise: [row for row in rows if row["claimed"] < row["attack"][noise]] for noise in ("gaussian", "laplace")}
    clones = [row["published"][_CLONES] for row in rows]
    printed, first = [row["published"]["GSPA Thm 2"] for row in rows], rows[0]
    return [
        Finding.whether(
            "δ of the bound: 7e−4, 2e−6, 3e−10, 1e−18, 1e−25",
            all(0.5 < delta / row["claimed"] < 2 for delta, row in zip(ours, rows, strict=True)),
            f"The formula gives {', '.join(f'{delta:.1g}' for delta in ours)} for Gaussian noise that is calibrated "
            f"analytically, and {', '.join(f'{delta:.1g}' for delta in laplace)} for Laplace noise. Unexplained: no "
            "noise that the paper names gives its numbers.",
        ),
        Finding(
            "δ of GSPA: 4.2e−3, 7e−4, 5e−5, 3e−7, 3e−9",
            Verdict.PARTLY if all(0.9 < ratio < 1.4 for ratio in variant) else Verdict.NOT,
            "Exactly what Theorem 2 of GSPA gives with μ/√2 instead of μ; with its own μ it gives "
            f"{', '.join(f'{own:.1g}' for own in printed)}. The column is not GSPA's bound.",
        ),
        Finding.whether(
            "δ of FMT23: 8.3e−3, 2.9e−3, 8e−4, 6e−5, 1e−5",
            all(0.75 < delta / row["claimed_fmt"] < 1.05 for delta, row in zip(clones, rows, strict=True)),
            f"{', '.join(f'{delta:.2g}' for delta in clones)} at the largest budget, the local δ added: their numbers "
            "are rounded up.",
        ),
        Finding(
            "no attack reaches the δ of the table, for Gaussian noise",
            Verdict.REFUTED if below["gaussian"] else Verdict.REPRODUCED,
            f"Below an attack at {len(below['gaussian'])} of {len(rows)} ε: nothing contradicts them.",
        ),
        Finding(
            "“the performance on pure-PLDP is similar”, read as: these δ hold for Laplace noise",
            Verdict.NOT if below["laplace"] else Verdict.REPRODUCED,
            f"Below an attack at {len(below['laplace'])} of {len(rows)} ε: at ε = {first['epsilon']} an attack "
            f"reaches δ = {round_down(first['attack']['laplace'], 2)}, where the table has {first['claimed']:g}.",
        ),
    ]


_ELSEWHERE = (
    ("laplace", ((4.0, 1000),), 1e-4),
    ("laplace", ((3.0, 1000),), 1e-6),
    ("laplace", ((0.01, 999), (8.0, 1)), 1e-6),
)


def _theorem_2_points(settings: Settings) -> list[Point]:
    return settings_elsewhere(settings, _OURS, _ELSEWHERE)


def _theorem_2_findings(rows: Sequence[Row]) -> list[Finding]:
    ratios = [row["attack"]["laplace"] / row["published"][_OURS] for row in rows]
    below = sum(ratio > 1 for ratio in ratios)
    return [
        Finding(
            "Theorem 2 holds for any personal budgets and Laplace noise",
            Verdict.REFUTED if below else Verdict.REPRODUCED,
            f"At {below} of {len(rows)} settings an attack reaches more than its ε, up to {max(ratios):.2f} times: "
            "the error of a likelihood-ratio test is no weight with which one report is a mixture of two others.",
        )
    ]


def _figure_4_lines(mechanism: str, published: Sequence[str]) -> tuple[Line, ...]:
    """Returns the lines of a panel; a bound looks the same in all of them."""
    attack = f"attack:{mechanism}"
    return (
        *(
            Line(f"{label}, HEURISTIC", f"published:{name}", f"other {place}", attack)
            for place, (name, label) in enumerate(_DRAWN.items(), 1)
            if name in published
        ),
        *([Line("FMT23, max ε, HEURISTIC", f"published:{_CLONES}", "other 3", attack)] if _CLONES in published else []),
        Line("croupier, CERTIFIED", f"certified:{mechanism}", "certified"),
        Line("attack, LOWER_BOUND", attack, "attack"),
    )


FIGURES = (
    Figure(
        "psp-fig3",
        "PSP",
        "Figure 3: how often a report is taken for the victim's",
        "Laplace noise on [0, 1], the victim's ε_1 = 3. The paper's own examples in part (a) are not stated: ε_i = 1 "
        "here.",
        measure_confusion,
        _figure_3_points,
        _figure_3_findings,
        (
            Column("part", "part"),
            Column("x_i", "x"),
            Column("ε_i", "local_epsilon"),
            Column("p0", "p0"),
            Column("p1", "p1"),
            Column("min", "p"),
        ),
        (
            Panel(
                "(a) ε_1 = 3, ε_i = 1",
                "x",
                "x_i",
                "testing error",
                (Line("p0: taken for x_0", "p0"), Line("p1: taken for x_1", "p1")),
                {"part": "a"},
                log="",
            ),
            Panel(
                "(b) ε_1 = 3, x_i = x_1",
                "local_epsilon",
                "local ε_i",
                "testing error",
                (Line("p_i = min(p0, p1)", "p", "other 3"),),
                {"part": "b"},
                log="",
            ),
        ),
    ),
    Figure(
        "psp-fig4",
        "PSP",
        "Figure 4: central ε against n for the budgets of Table 1",
        "δ = 1e−5. Laplace noise for pure and Gaussian noise with δ = 1e−10 for approximate budgets; the latter are "
        "drawn to multiples of 0.05, because every tier has a calibrated σ of its own. FMT23 is drawn with everyone "
        "at the largest budget; for approximate budgets local δs are added as in FMT22.",
        measure_epsilon,
        _figure_4_points,
        _figure_4_findings,
        (
            Column("kind", "kind"),
            Column("local ε", "distribution"),
            Column("n", "n"),
            *published_columns({f"{label} (HEURISTIC)": name for name, label in _DRAWN.items()}),
            *published_columns({"FMT23, max ε, with local δ (HEURISTIC)": _CLONES}),
            *bound_columns("laplace", "gaussian"),
        ),
        tuple(
            Panel(
                f"{name}, {mechanism.title()} noise",
                "n",
                "users n",
                "central ε at δ = 1e−5",
                _figure_4_lines(mechanism, published),
                {"distribution": name, "kind": kind},
            )
            for name in _TABLE_1
            for kind, mechanism, published in _NOISES
        ),
    ),
    Figure(
        "psp-table2",
        "PSP",
        "Table 2: δ at fixed central ε",
        "n = 10⁴ and U(0.5, 2), drawn to multiples of 0.05; local δ = 1e−10 for Gaussian noise. The formula is "
        "inverted by bisection, down to 1e−40.",
        measure_delta,
        _table_2_points,
        _table_2_findings,
        (
            Column("ε", "epsilon"),
            Column("claimed δ", "claimed"),
            Column("their formula, Gaussian (HEURISTIC)", "published:Liu 2024, gaussian", 2),
            Column("attack on Gaussian (LOWER_BOUND)", "attack:gaussian", 2, "down"),
            Column("Gaussian (CERTIFIED)", "certified:gaussian", 2, "up"),
            Column("their formula, Laplace (HEURISTIC)", "published:Liu 2024, laplace", 2),
            Column("attack on Laplace (LOWER_BOUND)", "attack:laplace", 2, "down"),
            Column("Laplace (CERTIFIED)", "certified:laplace", 2, "up"),
            Column("claimed δ of GSPA", "claimed_gspa"),
            Column("GSPA Thm 2, μ/√2 (HEURISTIC)", "published:GSPA Thm 2, μ/√2", 2),
            Column("GSPA Thm 2 (ASYMPTOTIC)", "published:GSPA Thm 2", 2),
            Column("claimed δ of FMT23", "claimed_fmt"),
            Column("FMT23 with local δ (HEURISTIC)", f"published:{_CLONES}", 2),
        ),
    ),
    Figure(
        "psp-theorem2",
        "PSP",
        "Theorem 2 as a bound, at settings that Figure 4 leaves out",
        "Laplace noise with larger or more different budgets; δ = 1e−4 in the first row, 1e−6 in the others.",
        measure_epsilon,
        _theorem_2_points,
        _theorem_2_findings,
        (
            Column("users × local ε", "distribution"),
            *published_columns({"PSP (HEURISTIC)": _OURS}),
            *bound_columns("laplace"),
        ),
    ),
)

"""Chen, Cao, Ge: A Generalized Shuffle Framework for Privacy Amplification, AAAI 2024 (GSPA)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from research.experiments.bounds import bound_columns, bound_point, published_columns, settings_elsewhere
from research.experiments.figure import Column, Figure, Finding, Line, Panel, Point, Row, Settings, Size, Verdict
from research.experiments.measures.amplification import measure_epsilon
from research.experiments.measures.estimation import GROUPS, measure_error
from research.experiments.measures.training import measure_training

_TABLE_2 = ("U(0.01, 1)", "U(0.01, 2)", "all 0.5", "half 0.5, half 0.01")
_DRAWN_BY_THEM = ("Echo", "FMT22 closed form", "EFMRTT19 at max")
_PUBLISHED = ("GSPA Thm 2", "GSPA Thm 1", "FMT22 numeric", *_DRAWN_BY_THEM)
_USERS = {
    Size.QUICK: (1000, 10_000),
    Size.NORMAL: (1000, 2000, 5000, 10_000),
    Size.FULL: tuple(range(1000, 10_001, 1000)),
}


def _figure_2_points(settings: Settings) -> list[Point]:
    chosen = _TABLE_2[3:] if settings.size is Size.QUICK else _TABLE_2
    certify = ["rr"] if settings.size is Size.QUICK else ["rr", "laplace"]
    return [
        bound_point(settings, ["rr", "laplace"], certify, _PUBLISHED, distribution=name, n=n, delta=1e-4)
        for name in chosen
        for n in _USERS[settings.size]
    ]


def _figure_2_findings(rows: Sequence[Row]) -> list[Finding]:
    theirs = [row["published"]["GSPA Thm 2"] for row in rows]
    gains = []
    for row, epsilon in zip(rows, theirs, strict=True):
        rivals = [row["published"][name] for name in _DRAWN_BY_THEM if row["published"][name] is not None]
        gains.append(1 - epsilon / min(rivals))
    least, where = min(zip(gains, rows, strict=True), key=lambda pair: pair[0])
    place = f"{where['distribution']}, n = {where['n']:,}"
    behind = [row for row, epsilon in zip(rows, theirs, strict=True) if row["published"]["FMT22 numeric"] < epsilon]
    beaten = [row for row in rows if row["published"]["FMT22 numeric"] < row["attack"]["laplace"] * (1 - 1e-6)]
    factor = max(row["published"]["GSPA Thm 2"] / row["published"]["FMT22 numeric"] for row in rows)
    looser = [row["published"]["GSPA Thm 2"] / epsilon for row in rows for epsilon in row["certified"].values()]
    refuted = [
        row for row in rows for name in ("rr", "laplace") if row["published"]["GSPA Thm 2"] < row["attack"][name]
    ]
    slopes = [
        _slope([row for row in rows if row["distribution"] == name])
        for name in dict.fromkeys(r["distribution"] for r in rows)
    ]
    return [
        Finding.whether(
            "Theorem 2 is below the bounds that the figure draws, in all scenarios",
            least > 0,
            f"Against Echo and the closed forms of FMT22 and EFMRTT19 it is lower by {100 * least:.0f} % ({place}) to "
            f"{100 * max(gains):.0f} %.",
        ),
        Finding.whether(
            "it significantly outperforms existing results in all current scenarios",
            not behind,
            f"FMT22's own pair, evaluated instead of bounded in closed form, is lower at {len(behind)} of {len(rows)} "
            f"points, by a factor of up to {factor:.1f}. That is CERTIFIED for rr; for Laplace noise of different "
            f"widths it is HEURISTIC, and below an attack at {len(beaten)} points. Theorem 2 gives away the victim's "
            "own randomness, which is most of what small budgets have.",
        ),
        Finding.whether(
            "it saves at least 33 %",
            least >= 0.33,
            f"The least saving is {100 * least:.0f} % ({place}), against the lines that the figure draws.",
        ),
        Finding.whether(
            "ε falls as 1/√n",
            all(abs(slope + 0.5) < 0.1 for slope in slopes),
            f"It falls as n to the power {sum(slopes) / len(slopes):.2f}: at a fixed δ faster than μ does.",
        ),
        Finding(
            "no attack reaches the line of Theorem 2",
            Verdict.REFUTED if refuted else Verdict.REPRODUCED,
            f"{len(refuted)} points lie below an attack."
            if refuted
            else f"None does at these {len(rows)} points, for rr and Laplace noise (elsewhere: gspa-theorem2). "
            f"The line is {min(looser):.2g} to {max(looser):.2g} times our CERTIFIED ε.",
        ),
    ]


def _slope(rows: Sequence[Row]) -> float:
    first, last = rows[0], rows[-1]
    fall = math.log(last["published"]["GSPA Thm 2"] / first["published"]["GSPA Thm 2"])
    return fall / math.log(last["n"] / first["n"])


def _theorem_1_findings(rows: Sequence[Row]) -> list[Finding]:
    findings = []
    for name, what in (("rr", "randomized response"), ("laplace", "Laplace noise, as in Algorithm 1")):
        below = [row for row in rows if row["published"]["GSPA Thm 1"] < row["attack"][name] * (1 - 1e-6)]
        gaps = [row["attack"][name] / row["published"]["GSPA Thm 1"] for row in below]
        where = ", ".join(dict.fromkeys(row["distribution"] for row in below))
        findings.append(
            Finding(
                f"Theorem 1 bounds {what}",
                Verdict.REFUTED if below else Verdict.REPRODUCED,
                f"An attack exceeds it at {len(below)} of {len(rows)} points ({where}), by up to "
                f"{100 * (max(gaps) - 1):.0f} %: users with wide noise do not hide one with narrow noise."
                if below
                else f"No attack exceeds it at {len(rows)} points"
                + (", and for bits it is proved (CERTIFIED)." if name == "rr" else "; for noise it is HEURISTIC."),
            )
        )
    return findings


_ELSEWHERE = (
    ("rr", ((4.0, 1000),), 1e-6),
    ("rr", ((2.0, 99), (8.0, 1)), 1e-6),
    ("laplace", ((0.1, 9000), (3.0, 1000)), 1e-6),
    ("laplace", ((0.01, 999), (8.0, 1)), 1e-6),
)


def _theorem_2_points(settings: Settings) -> list[Point]:
    return settings_elsewhere(settings, "GSPA Thm 2", _ELSEWHERE)


def _theorem_2_findings(rows: Sequence[Row]) -> list[Finding]:
    gaps = [_only(row["attack"]) / row["published"]["GSPA Thm 2"] for row in rows]
    below = sum(gap > 1 for gap in gaps)
    return [
        Finding(
            "Theorem 2 holds for arbitrary local budgets",
            Verdict.REFUTED if below else Verdict.REPRODUCED,
            f"At {below} of {len(rows)} settings an attack reaches more than its ε, up to {max(gaps):.1f} times. Its "
            "error C/√n is never quantified, and its proof takes noise of all widths for randomized response.",
        )
    ]


def _only(values: Mapping[str, float]) -> float:
    (value,) = values.values()
    return value


def _error_point(settings: Settings, question: str, shares: Sequence[float], epsilons: Sequence[float]) -> Point:
    repeats = {Size.QUICK: 40, Size.NORMAL: 200, Size.FULL: 1000}
    return {
        "question": question,
        "n": 10_000,
        "shares": list(shares),
        "epsilons": list(epsilons),
        "conservative_share": shares[0],
        "conservative_epsilon": epsilons[0],
        "repeats": repeats[settings.size],
        "seed": settings.seed,
    }


def _figure_3a_points(settings: Settings) -> list[Point]:
    shares = [0.01, 0.5] if settings.size is Size.QUICK else [0.01, 0.1, 0.2, 0.3, 0.4, 0.5]
    simulated = [
        _error_point(settings, question, (share, round(0.91 - share, 2), 0.09), (0.1, 0.5, 1.0))
        for question in ("mean", "frequency")
        for share in shares
    ]
    return simulated + _deployed(settings, simulated)


def _deployed(settings: Settings, simulated: Sequence[Point]) -> list[Point]:
    """Returns some of these points again, to be measured through a deployment: one, or the ends of both questions."""
    half = len(simulated) // 2
    places = {Size.QUICK: (), Size.NORMAL: (-1,), Size.FULL: (0, half - 1, half, -1)}
    return [{**simulated[place], "repeats": 1, "deployed": True} for place in places[settings.size]]


def _figure_3b_points(settings: Settings) -> list[Point]:
    epsilons = [0.05, 0.5] if settings.size is Size.QUICK else [0.05, 0.1, 0.2, 0.3, 0.4, 0.5]
    simulated = [
        _error_point(settings, question, GROUPS, (epsilon, 0.5, 1.0))
        for question in ("mean", "frequency")
        for epsilon in epsilons
    ]
    return simulated + _deployed(settings, simulated)


def _figure_3_findings(claim: str, x: str, *, rising: bool) -> Callable[[Sequence[Row]], list[Finding]]:
    def judge(rows: Sequence[Row]) -> list[Finding]:
        findings = []
        for question in ("mean", "frequency"):
            chosen = [row for row in rows if row["question"] == question and "mae" in row]
            first, last = chosen[0], chosen[-1]
            apart = last["low"] > first["high"] if rising else last["high"] < first["low"]
            findings.append(
                Finding.whether(
                    f"{question}: {claim}",
                    apart,
                    f"MAE {first['mae']:.3g} at {first[x]:g} and {last['mae']:.3g} at {last[x]:g}; the 95 % bands "
                    f"{'are' if apart else 'are not'} apart.",
                )
            )
        return findings + _deployed_findings(rows)

    return judge


def _deployed_findings(rows: Sequence[Row]) -> list[Finding]:
    simulated = {(row["question"], *row["shares"], *row["epsilons"]): row["mae"] for row in rows if "mae" in row}
    ratios = [
        row["deployed"] / simulated[row["question"], *row["shares"], *row["epsilons"]]
        for row in rows
        if "deployed" in row
    ]
    if not ratios:
        return []
    mean = sum(ratios) / len(ratios)
    return [
        Finding.whether(
            "not in the paper: the estimates of a deployment have these errors",
            mean < 1 + 3 / math.sqrt(len(ratios)),  # four standard deviations of the mean of half-normal errors
            f"{len(ratios)} rounds of 10,000 clients through two shufflers, the accountant and the analyzer, "
            f"processes of their own: the errors of the published estimates are {mean:.2f} times the MAE on average.",
        )
    ]


_MAE = (
    Line("MAE, with its 95 % band", "mae", "certified", band=("low", "high")),
    Line("one round through a deployment", "deployed", "single"),
)


def _figure_3_panels(x: str, x_label: str) -> tuple[Panel, ...]:
    return tuple(
        Panel(f"{question}, n = 10,000, simulated", x, x_label, "MAE", _MAE, {"question": question}, log="")
        for question in ("mean", "frequency")
    )


def _figure_3(part: str, x: str, x_label: str, claim: str, *, rising: bool) -> Figure:
    return Figure(
        f"gspa-fig3{part}",
        "GSPA",
        f"Figure 3{part}: MAE against the {x_label}",
        "Laplace noise on [20, 80] for the mean, randomized response for the frequency; the estimates are those of "
        "the analyzer's code, on simulated reports. The paper does not say σ of the values: 10 here.",
        measure_error,
        _figure_3a_points if part == "a" else _figure_3b_points,
        _figure_3_findings(claim, x, rising=rising),
        (
            Column("question", "question"),
            Column("f_c", "conservative_share"),
            Column("ε_C", "conservative_epsilon"),
            Column("rounds", "repeats"),
            Column("MAE", "mae"),
            Column("95 % band from", "low"),
            Column("to", "high"),
            Column("error of a deployed round", "deployed"),
        ),
        _figure_3_panels(x, x_label),
    )


_ACCURACIES = {"no noise": 0.9678, "all 0.5": 0.948, "U(0.01, 2)": 0.935}
_TRAININGS = ("no noise", "U(0.5, 1)", "U(0.01, 1)", "U(0.01, 2)", "all 0.5", "half 0.5, half 0.01")


def _figure_4_points(settings: Settings) -> list[Point]:
    mnist = settings.mnist if settings.size is Size.FULL else None
    return [
        {
            "distribution": name,
            "data": "digits" if mnist is None else "MNIST",
            "files": None if mnist is None else str(mnist),
            "clients": 10 if mnist is None else 100,
            "trained_epochs": 10 if settings.size is Size.QUICK else 50,
            "seed": settings.seed,
        }
        for name in (("no noise", "all 0.5") if settings.size is Size.QUICK else _TRAININGS)
    ]


def _figure_4_findings(rows: Sequence[Row]) -> list[Finding]:
    reached = {row["distribution"]: row["reached"] for row in rows}
    spent = {row["distribution"]: (row["spent"], row["asymptotic"]) for row in rows if row["spent"] is not None}
    local = ", ".join(f"{epsilon:.3g} for {name}" for name, (epsilon, _) in spent.items())
    theorem = ", ".join(f"{epsilon:.3g}" for _, epsilon in spent.values())
    findings = [
        Finding.whether(
            "shuffling amplifies the personal budgets of all epochs (Theorem 5)",
            all(row["grade"] == "CERTIFIED" for row in rows if row["spent"] is not None),
            "The length of a noisy gradient shows whose it is, so nothing is certified beyond the local budgets, "
            f"composed: ε of one record is {local}, HEURISTIC, since the fitted components are published without "
            f"noise. Theorem 5 gives {theorem}, ASYMPTOTIC.",
        )
    ]
    if rows[0]["data"] != "MNIST":
        return findings
    noisy = {name: accuracy for name, accuracy in reached.items() if name in spent}
    best = max(noisy, key=lambda name: noisy[name])
    return [
        Finding.whether(
            "accuracies: 96.78 % without noise, 94.8 % for constant 0.5, 93.5 % for U(0.01, 2)",
            all(abs(reached[name] - claimed) < 0.01 for name, claimed in _ACCURACIES.items()),
            f"{', '.join(f'{100 * reached[name]:.1f} %' for name in _ACCURACIES)}. Every example is clipped, not the "
            "mean, which would bound nothing about a record; and the paper says neither the width of its network nor "
            "its σ.",
        ),
        Finding.whether(
            "U(0.5, 1) has the best accuracy of the noisy ones",
            best == "U(0.5, 1)",
            f"The best is {best} with {100 * noisy[best]:.1f} %.",
        ),
        Finding.whether(
            "constant 0.5 is better than U(0.01, 2), whose budgets are larger on average",
            noisy["all 0.5"] > noisy["U(0.01, 2)"],
            "The few smallest budgets have noise so wide that their steps undo those of others.",
        ),
        *findings,
    ]


_FIGURE_2_LINES = (
    *(
        Line(label, f"published:{name}", attack="attack:laplace")
        for label, name in (
            ("GSPA Thm 2, ASYMPTOTIC", "GSPA Thm 2"),
            ("GSPA Thm 1, HEURISTIC for Laplace", "GSPA Thm 1"),
            ("Echo, HEURISTIC", "Echo"),
            ("FMT22 closed form, max ε, HEURISTIC", "FMT22 closed form"),
            ("FMT22 numeric, max ε, HEURISTIC", "FMT22 numeric"),
            ("EFMRTT19, max ε, HEURISTIC", "EFMRTT19 at max"),
        )
    ),
    Line("croupier rr, CERTIFIED", "certified:rr", "certified"),
    Line("attack on rr, LOWER_BOUND", "attack:rr", "attack"),
    Line("croupier laplace, CERTIFIED", "certified:laplace", "certified"),
    Line("attack on laplace, LOWER_BOUND", "attack:laplace", "attack"),
)
_FIGURE_2_COLUMNS = (
    Column("local ε", "distribution"),
    Column("n", "n"),
    *published_columns(
        {
            "GSPA Thm 2 (ASYMPTOTIC)": "GSPA Thm 2",
            "GSPA Thm 1 (for rr CERTIFIED, for laplace HEURISTIC)": "GSPA Thm 1",
            "Echo (HEURISTIC)": "Echo",
            "FMT22 closed form (HEURISTIC)": "FMT22 closed form",
            "FMT22 numeric (HEURISTIC)": "FMT22 numeric",
            "EFMRTT19 (HEURISTIC)": "EFMRTT19 at max",
        }
    ),
    *bound_columns("rr", "laplace"),
)

FIGURES = (
    Figure(
        "gspa-fig2",
        "GSPA",
        "Figure 2: central ε against n for the budgets of Table 2",
        "δ = 1e−4; a thousand budgets are drawn and repeated, as in the paper. It does not say which randomizer is "
        "meant, nor in which form FMT22 is drawn: both are here. Bounds for equal budgets take all at the largest. "
        "Grades are those for Laplace noise of different widths; for rr FMT22 is CERTIFIED, and where all have 0.5 "
        "EFMRTT19 is, too.",
        measure_epsilon,
        _figure_2_points,
        _figure_2_findings,
        _FIGURE_2_COLUMNS,
        tuple(
            Panel(f"local ε: {name}", "n", "users n", "central ε at δ = 1e−4", _FIGURE_2_LINES, {"distribution": name})
            for name in _TABLE_2
        ),
    ),
    Figure(
        "gspa-theorem1",
        "GSPA",
        "Theorem 1, evaluated, at the points of Figure 2",
        "The pair of the theorem is evaluated without loss, for a victim of the largest budget. Every user keeps "
        "their own budget, as in Algorithms 1 and 2.",
        measure_epsilon,
        _figure_2_points,
        _theorem_1_findings,
        tuple(_FIGURE_2_COLUMNS[index] for index in (0, 1, 3)) + bound_columns("rr", "laplace"),
    ),
    Figure(
        "gspa-theorem2",
        "GSPA",
        "Theorem 2 as a bound, at settings that Figure 2 leaves out",
        "δ = 1e−6: few users, large budgets, and noise of very different widths. The attack is on randomized response "
        "(rr) or on Laplace noise, as the column says.",
        measure_epsilon,
        _theorem_2_points,
        _theorem_2_findings,
        (
            Column("users × local ε", "distribution"),
            *published_columns({"GSPA Thm 2 (ASYMPTOTIC)": "GSPA Thm 2"}),
            *bound_columns("rr", "laplace"),
        ),
    ),
    _figure_3(
        "a",
        "conservative_share",
        "share of conservative users",
        "more conservative users, less accuracy",
        rising=True,
    ),
    _figure_3(
        "b",
        "conservative_epsilon",
        "local ε of conservative users",
        "a larger budget of theirs, more accuracy",
        rising=False,
    ),
    Figure(
        "gspa-fig4",
        "GSPA",
        "Table 3 and Figure 4: training on MNIST with noise of personal budgets",
        "`croupier train --simulate --unit record --order sequential`: C = 2, η = 0.05, 60 principal components, one "
        "hidden layer of 128. With --full, and MNIST's files in --data, as in Table 3: 100 clients with 550 records "
        "each (5,000 images are kept for validation), 50 epochs. Else scikit-learn's digits, 10 clients with 129 "
        "records each: claims about MNIST's accuracies are not judged on them.",
        measure_training,
        _figure_4_points,
        _figure_4_findings,
        (
            Column("local ε", "distribution"),
            Column("data", "data"),
            Column("clients", "clients"),
            Column("epochs", "trained_epochs"),
            Column("test accuracy", "reached"),
            Column("ε of one record (HEURISTIC)", "spent", rounding="up"),
            Column("GSPA Thm 5 (ASYMPTOTIC)", "asymptotic", rounding="up"),
        ),
        (
            Panel(
                "accuracy, simulated",
                "epochs",
                "epoch",
                "test accuracy",
                tuple(Line(name, f"accuracy:{name}") for name in _TRAININGS),
                log="",
                said="data",
            ),
        ),
    ),
)

"""The paper of the exchange bound: its tables and figures, and the source turned into HTML and PDF.

The source, docs/paper/exchange-bound.md, is Markdown with formulas. pandoc makes HTML with MathML and a Typst file of
it, and typst makes the PDF; both come from the package index. Nothing here proves anything.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from croupier.protocol.rounding import round_down, round_up

SOURCE = Path("docs/paper/exchange-bound.md")
BESIDE = ("paper.yaml", "macros.tex", "paper.css")
"""Title, abstract and references; abbreviations in formulas; how the HTML page looks."""

Tiers = tuple[tuple[float, int], ...]
SQUARES: Tiers = tuple((k / 10, 1000 * k * k) for k in range(3, 8))
CASES: dict[str, tuple[tuple[str, Tiers, float], ...]] = {
    "bits": (
        *(("rr", ((1.0, n),), 1e-6) for n in (1_000, 10_000, 60_000)),
        *(("rr", ((2.0, n),), 1e-6) for n in (1_000, 10_000, 60_000)),
        *(("rr", ((4.0, n),), 1e-6) for n in (10_000, 60_000)),
        ("hemisphere(d=60)", ((2.0, 10_000),), 1e-6),
        ("rr", ((0.5, 9_000), (2.0, 1_000)), 1e-6),
        ("rr", ((0.1, 9_999), (4.0, 1)), 1e-6),
        ("rr", ((0.5, 3_438), (1.0, 2_355), (2.0, 573)), 1e-6),
    ),
    "laplace": (
        *(("laplace", ((e, 10_000),), 1e-6) for e in (1.0, 2.0, 3.0, 4.0)),
        ("laplace", ((0.5, 1_000),), 1e-4),
        ("laplace", ((0.1, 5_400), (0.5, 3_700), (1.0, 900)), 1e-6),
        ("laplace", ((0.1, 9_000), (3.0, 1_000)), 1e-6),
        ("laplace", ((0.1, 900_000), (3.0, 100_000)), 1e-6),
        ("laplace", ((0.05, 9_000), (3.0, 1_000)), 1e-6),
    ),
    "groups": (
        ("laplace", ((0.3, 1_000), (0.5, 9_000)), 1e-3),
        ("laplace", ((0.3, 100_000), (0.5, 900_000)), 1e-12),
        ("laplace", ((0.05, 500), (1.0, 500), (2.0, 9_000)), 1e-6),
        ("laplace", ((1.0, 1_000), (1.3, 9_000)), 1e-6),
        ("laplace", ((0.5, 1_000), (1.0, 9_000)), 1e-6),
        ("laplace", ((0.25, 3_000), (0.5, 10_000), (1.0, 87_000)), 1e-9),
        ("laplace", ((0.8, 2_000), (1.0, 5_000), (1.5, 93_000)), 1e-6),
        ("laplace", ((2.0, 1_000), (4.0, 9_000)), 1e-6),
        ("laplace", ((1.0, 500), (3.0, 9_500)), 1e-6),
        ("laplace", ((0.1, 1_000), (0.2, 2_000), (0.4, 4_000), (0.8, 93_000)), 1e-6),
        ("laplace", ((1.0, 20_000), (3.0, 980_000)), 1e-6),
        ("laplace", SQUARES, 1e-6),
    ),
}
"""The rows of each table, by the name of its part of the page."""
FIGURES = {"bits": ("rr", 2.0), "laplace": ("laplace", 1.0)}
USERS = (300, 1_000, 3_000, 10_000, 30_000, 100_000)


@dataclass(frozen=True)
class PaperRow:
    """One setting: the attack, the certificate, and the certificate by the blanket bound alone."""

    part: str
    randomizer: str
    tiers: str
    delta: float
    attack: float
    certified: float
    blanket: float


def paper_rows(seconds: float, note: Callable[[str], None]) -> Iterator[PaperRow]:
    """Yields the row of every setting; `seconds` is the time of search for each attack."""
    for part, cases in CASES.items():
        for randomizer, tiers, delta in cases:
            text = ", ".join(f"{count:,} × {epsilon:g}" for epsilon, count in tiers)
            row = PaperRow(part, randomizer, text, delta, *_three(randomizer, tiers, delta, seconds))
            note(f"{randomizer}, {text}: {row.certified / row.attack:.4f}")
            yield row


def _three(randomizer: str, tiers: Tiers, delta: float, seconds: float) -> tuple[float, float, float]:
    """Epsilon of the attack, of the certificate and by the blanket bound."""
    from croupier.accountant import Budgets, certify, lower_bound

    budgets = Budgets.from_tiers(tiers)
    return (
        lower_bound(budgets, randomizer, delta=delta, seconds=seconds).epsilon,
        certify(budgets, randomizer, delta=delta, attack=False).epsilon,
        certify(budgets, randomizer, delta=delta, attack=False, bounds="blanket").epsilon,
    )


def write_tables(rows: list[PaperRow], source: Path) -> None:
    """Writes the tables into their parts of the source."""
    from research.page_parts import write_part

    for part in CASES:
        lines = [
            "",
            "| randomizer | users × local ε | δ | attack | certified | ratio | blanket |",
            f"|:{'-' * 20}|:{'-' * 38}|{'-' * 9}:|{'-' * 12}:|{'-' * 12}:|{'-' * 9}:|{'-' * 12}:|",
        ]
        for row in rows:
            if row.part == part:
                certified, blanket = round_up(row.certified, 4), round_up(row.blanket, 4)
                cells = [row.randomizer, row.tiers, f"{row.delta:.0e}", round_down(row.attack, 4), certified]
                lines.append(f"| {' | '.join([*cells, f'{row.certified / row.attack:.3f}', blanket])} |")
        write_part(source, part, [*lines, ""])


def draw_figures(folder: Path, seconds: float) -> list[PaperRow]:
    """Draws epsilon against the number of users, for bits and for Laplace noise; returns the points."""
    from croupier.show.drawing import CERTIFIED, COMPARED, MEASURED
    from croupier.show.plots import figure_file

    points: list[PaperRow] = []
    for name, (randomizer, local) in FIGURES.items():
        epsilons = [_three(randomizer, ((local, n),), 1e-6, seconds) for n in USERS]
        points += [
            PaperRow(name, randomizer, f"{n:,} × {local:g}", 1e-6, *three)
            for n, three in zip(USERS, epsilons, strict=True)
        ]
        with figure_file(folder / f"{name}.svg", 1, height=3.4) as (_, [[axes]]):
            attack, certified, blanket = zip(*epsilons, strict=True)
            axes.loglog(USERS, blanket, color=COMPARED, ls="--", marker="s", label="blanket")
            axes.loglog(USERS, certified, color=CERTIFIED, marker="o", label="certified, with the exchange bound")
            axes.loglog(USERS, attack, color=MEASURED, ls=":", marker="x", label="attack")
            axes.set_xlabel("users")
            axes.set_ylabel("central ε")
            axes.legend()
    return points


def paper_digest(source: Path) -> str:
    """Returns the digest of the source, the tables and the figures, which the HTML page has among its keywords."""
    inputs = [source, *sorted(source.parent.glob("*.svg")), *(source.parent / name for name in BESIDE)]
    return hashlib.sha256(b"".join(path.read_bytes() for path in inputs)).hexdigest()


def build_paper(source: Path, out: Path) -> list[Path]:
    """Writes the paper as HTML, one file, and as PDF; returns their paths. Needs the extra 'paper'."""
    import pypandoc
    import typst

    out.mkdir(parents=True, exist_ok=True)
    folder = source.parent
    common = [
        f"--metadata-file={folder / 'paper.yaml'}",
        "--citeproc",
        "--standalone",
        f"--resource-path={folder}",
    ]
    text = (folder / "macros.tex").read_text(encoding="utf-8") + "\n" + source.read_text(encoding="utf-8")
    html, pdf = out / f"{source.stem}.html", out / f"{source.stem}.pdf"
    style = [
        f"--metadata=keywords:{paper_digest(source)}",
        f"--css={folder / 'paper.css'}",
        "--embed-resources",
        "--mathml",
    ]
    pypandoc.convert_text(text, "html5", "markdown", outputfile=str(html), extra_args=[*common, *style])
    body = pypandoc.convert_text(text, "typst", "markdown", extra_args=[*common, "--variable=papersize:a4"])
    typed = folder / ".paper.typ"  # beside the figures, which it names
    try:
        typed.write_text(body, encoding="utf-8")
        typst.compile(str(typed), output=str(pdf))
    finally:
        typed.unlink(missing_ok=True)
    return [html, pdf]

"""A report on answered questions for people who were not there: one HTML page without scripts, which prints.

The page holds everything itself, downloads included, and loads nothing. All texts come from others and are escaped; a
content security policy allows the page's own style and no script.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from croupier.accountant.basic_composition import weakest
from croupier.accountant.certificate import Certificate
from croupier.accountant.composed_certificates import compose, worst_cases
from croupier.accountant.guarantees import Guarantee
from croupier.accountant.guessing import right_at_most
from croupier.protocol.names import JsonObject
from croupier.protocol.rounding import percent, round_up
from croupier.protocol.shown import sanitize_for_display
from croupier.show.blocks import Bar, Bars, Block, Folded, Heading, Points, Section, Sentence, Table, Tone
from croupier.show.csv_file import result_csv
from croupier.show.differences import difference_blocks
from croupier.show.halving import halving_lines
from croupier.show.html import STATIC, html
from croupier.show.language import device_step, number, plain_sentences, say, speaking
from croupier.show.results import question_blocks, remarks
from croupier.show.statistics import Statistic, statistic
from croupier.show.study_results import differences_table

_UNNAMED = re.compile(r"[^A-Za-z0-9._-]")


@dataclass(frozen=True)
class ReportRound:
    """A round in a report.

    Attributes:
        result: `publication_json`.
        group: the people of this round, if others answered the same question in another one; or "".
        signed: the document signed by the analyzer, if it is known.
        wave: in which the question was asked; 0 for a survey that is asked once.
    """

    result: JsonObject
    group: str = ""
    signed: bytes = b""
    wave: int = 0


@dataclass(frozen=True)
class WavesTogether:
    """All waves of a survey, which the same people may have answered.

    Attributes:
        guarantee: of all results so far, for a person who took part in every wave with the largest budget; None if no
            bound is known.
        limit: the epsilon and delta that all waves together may cost a person at most.
        differences: between waves, as `differences_between` returns them; none of permanent reports.
    """

    guarantee: Guarantee | None
    limit: tuple[float, float]
    differences: Sequence[JsonObject]


def report_of(
    title: str,
    rounds: Sequence[ReportRound],
    *,
    introduction: Sequence[str] = (),
    verified: str = "",
    language: str = "",
    fixed_terms: bool = False,
    waves: WavesTogether | None = None,
) -> str:
    """Returns the page.

    Args:
        title: above everything.
        rounds: in the order of the questions; at least one. Rounds with different groups that ask the same question
            are compared; their people must be different ones.
        introduction: paragraphs below the title.
        verified: the deployment whose keys all signatures were verified with; "" if that has not been done, which the
            page then says.
        language: of the wordings, the first one of a question without a wording in it; and of the page, if `locales`
            has it.
        fixed_terms: all rounds were planned before the first result, like those of a survey.
        waves: if the rounds are those of a survey's waves, each of which is shown like a group.

    Raises:
        ValueError: no round, or a document that is not that of a result.
    """
    if not rounds:
        raise ValueError("the report has no round; name at least one")
    ids = [report_round.result["round_id"] for report_round in rounds]
    if len(set(ids)) < len(ids):
        twice = next(round_id for round_id in ids if ids.count(round_id) > 1)
        raise ValueError(
            f"round {twice!r} is named twice; each is reported once, and groups must hold different people"
        )
    results: list[JsonObject] = sanitize_for_display([report_round.result for report_round in rounds])
    groups: list[str] = sanitize_for_display([report_round.group for report_round in rounds])
    tables = [
        result_csv(result) if result["certificate"]["granted"] and not result["sealed"] else "" for result in results
    ]
    with speaking(language) as spoken:
        groups = [
            say("Wave {wave}", wave=each.wave) if each.wave else group
            for each, group in zip(rounds, groups, strict=True)
        ]
        asked = [statistic(result, language, group) for result, group in zip(results, groups, strict=True)]
        certified = [(each, _certificate(each.result)) for each in asked if each.granted]
        parts: list[list[Block]] = [_how_to_read(asked)]
        parts += _questions(asked, waves)
        if certified:
            of_groups = [(each.group, certificate) for each, certificate in certified]
            together = _waves_together(waves) if waves else _together(of_groups, fixed_terms)
            parts.append(_promised(certified, together))
        parts.append(_check(sanitize_for_display(verified), rounds))
        files = [_files(*each) for each in zip(results, tables, rounds, strict=True)]
        said = sanitize_for_display([*introduction])
        body = [html([Heading(sanitize_for_display(title), 1), *map(Sentence, said)])]
        body += [f"<section>\n{html(part)}\n</section>" for part in parts]
        body.append(f'<section>{html([Heading(say("Files"))])}<ul class="files">{"".join(files)}</ul></section>')
    return _page(sanitize_for_display(title), "\n".join(body), spoken)


def _page(title: str, body: str, language: str) -> str:
    style = "".join((STATIC / name).read_text(encoding="utf-8") for name in ("blocks.css", "report.css"))
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    return f"""<!doctype html>
<html lang="{language}">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="referrer" content="no-referrer">
<title>{escape(title)}</title>
<style>{style}</style>
</head>
<body>
<main>
{body}
</main>
</body>
</html>
"""


def _certificate(result: JsonObject) -> Certificate:
    certificate = Certificate.from_json(result["certificate"])
    certificate.check_not_refuted()
    return certificate


def _how_to_read(asked: Sequence[Statistic]) -> list[Block]:
    """Returns the meaning of the numbers, with an example of each interval."""
    level = next((each.level_text for each in asked if each.level), "95 %")
    people = say("Their true number is in this range with {level} confidence.", level=level)
    population = say(
        "The true number of a larger population is in this range with {level} confidence, if the people who took part "
        "are a random sample of it. If they chose themselves, use the first range only.",
        level=level,
    )
    of_people = Bar(say("The people who took part"), "", "", "", "", "", people, 0.5, (0.3, 0.7), (0.5, 0.5))
    of_population = Bar(say("Everyone they represent"), "", "", "", "", "", population, 0.5, (0.5, 0.5), (0.25, 0.75))
    often = say("One such range in 20 misses the truth by chance.")
    if level != "95 %":
        often = say("One such range in several misses the truth by chance.")
    told = (
        "Each person's device changed the answer at random before it left, as described below. So every number here is "
        "an estimate, with two ranges:"
    )
    return [
        Heading(say("How to read the numbers")),
        Sentence(say(told)),
        Bars([of_people, of_population], [], filled=False, confidence=0.95),
        Sentence(often),
    ]


def _questions(asked: Sequence[Statistic], waves: WavesTogether | None) -> list[list[Block]]:
    """Returns a part for each question, and one for the remarks that all of them share."""
    questions: dict[object, list[Statistic]] = {}
    for place, each in enumerate(asked):
        # The same labels and scale: a round with others has another question, whatever its name.
        key = (each.name, each.question, each.about, *(n.label for n in each.numbers)) if each.group else place
        questions.setdefault(key, []).append(each)
    noted = [remarks(group) for group in questions.values()]
    common = [line for line in noted[0] if len(noted) > 1 and all(line in lines for lines in noted)]
    parts = [
        [
            *question_blocks(group, halving_lines),
            *(_wave_differences(group, waves) if waves else difference_blocks(group)),
            *(Sentence(line, Tone.QUIET) for line in lines if line not in common),
        ]
        for group, lines in zip(questions.values(), noted, strict=True)
    ]
    return [*parts, [Heading(say("About all questions")), *map(Sentence, common)]] if common else parts


def _wave_differences(group: Sequence[Statistic], waves: WavesTogether) -> list[Block]:
    """Returns the differences of a question between its waves, folded."""
    shown = {(asked.name, asked.group) for asked in group}
    differences = [
        each for each in waves.differences if (each["question"], say("Wave {wave}", wave=each["wave"])) in shown
    ]
    return [Folded(say("Differences between waves"), [differences_table(differences)])] if differences else []


def _promised(certified: Sequence[tuple[Statistic, Certificate]], together: Sequence[Block]) -> list[Block]:
    """Returns the cost of every question for a person, that of all together, and the assumptions."""
    devices = list(dict.fromkeys(_device(asked.result) for asked, _ in certified))
    shuffled, with_hop, alone = (
        say("If the assumptions below hold"),
        say("If one server is honest"),
        say("Even if all others conspire"),
    )
    has_hop_noise = any(certificate.one_honest_hop for _, certificate in certified)
    columns = [shuffled, *([with_hop] if has_hop_noise else []), alone]
    table = Table(say("Question"), say("People"), *columns)
    for asked, certificate in certified:
        hop = certificate.one_honest_hop
        of_hop = [_chance(hop) if hop else say("no hop noise")] if has_hop_noise else []
        about = " · ".join(part for part in (asked.title, asked.group) if part)
        people = number(f"{certificate.num_users:,}")
        table.row(about, people, _chance(certificate), *of_hop, _chance(certificate.everyone_else_colludes))
    blocks: list[Block] = [Heading(say("What participants were promised"))]
    if len(devices) == 1:
        blocks.append(Sentence(say("Each person's device {does}.", does=devices[0])))
    else:
        blocks += [
            Sentence(say("Depending on the question, each person's device")),
            Points([f"… {does}." for does in devices]),
        ]
    blocks += [
        Sentence(
            say(
                "Nothing else about an answer left the device. A chain of servers then mixed all reports, so that a "
                "report does not show whose it is."
            )
        ),
        Sentence(
            say(
                "Suppose someone wants to find out one person's answer, and already holds two possible answers for "
                "equally likely. Guessing is right 50 % of the time. With everything that was published they are right "
                "at most this often:"
            )
        ),
        table,
        *together,
        Sentence(
            say(
                "ε (epsilon) is the privacy loss of differential privacy; smaller is more private. δ (delta) is what "
                "may come on top: at worst, as if the answer were shown with that probability. The percentages include "
                "it. All figures are for people with the largest local budget; nobody lost more. CERTIFIED means "
                "proved for exactly these people, with rounding counted in."
            ),
            Tone.QUIET,
        ),
        Heading(say("What this rests on"), 3),
        Sentence(
            say(
                "The first figure of each question holds if all of this is true. The last column rests on the person's "
                "own device alone."
            )
        ),
    ]
    if has_hop_noise:
        told = (
            "The column before it also needs one honest server among those that mixed the reports, and nothing else: "
            "neither the other servers, nor the accountant, nor other people."
        )
        blocks.append(Sentence(say(told)))
    return [*blocks, Points(plain_sentences(line for _, each in certified for line in each.assumptions), Tone.QUIET)]


def _device(result: JsonObject) -> str:
    kind = result["certificate"].get("randomizer", "").partition("(")[0]
    return device_step(kind, "the person's", records=0) or say("randomizes the person's answer")


def _figures(guarantee: Certificate | Guarantee) -> str:
    delta = f", δ = {number(round_up(guarantee.delta, 3))}" if guarantee.delta else ""
    return f"ε = {number(round_up(guarantee.epsilon, 4))}{delta}, {guarantee.grade}"


def _right(guarantee: Certificate | Guarantee) -> str:
    return number(percent(right_at_most(guarantee.epsilon, guarantee.delta)))


def _chance(guarantee: Certificate | Guarantee) -> str:
    return f"{_right(guarantee)} ({_figures(guarantee)})"


def _waves_together(waves: WavesTogether) -> list[Block]:
    """Returns the total cost of all waves for a person, and the most that it can become."""
    told = "All waves together, for a person who took part in each of them with the largest budget:"
    epsilon, delta = waves.limit
    limit = say(
        "after the last wave, right at most {right} ({figures}), the limit that every server has signed",
        right=number(percent(right_at_most(epsilon, delta))),
        figures=f"ε = {number(round_up(epsilon, 4))}, δ = {number(round_up(delta, 3))}",
    )
    if waves.guarantee is None:
        return [Sentence(say(told)), Points([limit])]
    now = say(
        "right at most {right} if the assumptions below hold ({figures})",
        right=_right(waves.guarantee),
        figures=_figures(waves.guarantee),
    )
    assumed = plain_sentences(waves.guarantee.assumptions[-1:])
    also = [Sentence(say("The first figure also assumes: {assumed}", assumed=line)) for line in assumed]
    return [Sentence(say(told)), Points([now, limit]), *also]


def _together(certified: Sequence[tuple[str, Certificate]], fixed_terms: bool) -> list[Block]:
    """Returns the total cost of all rounds for a person in one group with all answers; nothing for one round each."""
    groups = sorted({group for group, _ in certified if group}) or [""]
    of_groups = [[certificate for group, certificate in certified if group in ("", name)] for name in groups]
    of_groups = [mine for mine in of_groups if len(mine) > 1]
    if not of_groups:
        return []
    rounds = max(map(len, of_groups))
    try:
        composed = [compose(mine, fixed_terms=fixed_terms) for mine in of_groups]
    except ValueError:  # more is lost with certainty than a delta allows
        told = (
            "What all {rounds} questions together cost a person who answered each of them is not computed here. It is "
            "more than any one of them."
        )
        return [Sentence(say(told, rounds=rounds))]
    cases = [worst_cases(mine) for mine in of_groups]
    shuffled, alone = weakest(composed), weakest(case.no_honest_hop for case in cases)
    lines = [
        say(
            "right at most {right} if the assumptions below hold ({figures})",
            right=_right(shuffled),
            figures=_figures(shuffled),
        )
    ]
    if any(case.one_honest_hop for case in cases):
        hop = weakest(case.one_honest_hop or case.no_honest_hop for case in cases)
        told = (
            "right at most {right} if one server that shuffles is honest, whatever all other servers and people do "
            "({figures})"
        )
        lines.append(say(told, right=_right(hop), figures=_figures(hop)))
    lines.append(
        say(
            "right at most {right} even if all others conspire ({figures})",
            right=_right(alone),
            figures=_figures(alone),
        )
    )
    (assumed,) = plain_sentences(composed[0].assumptions[-1:])
    told = "All {rounds} questions together, for a person who answered each of them:"
    also = Sentence(say("The first figure also assumes: {assumed}", assumed=assumed))
    return [Sentence(say(told, rounds=rounds)), Points(lines), also]


def _check(verified: str, rounds: Sequence[ReportRound]) -> list[Block]:
    """Returns what was verified, and how a reader verifies it."""
    if verified:
        told = (
            "When this report was made, the signatures of the analyzer and the accountant on every result were "
            "verified with the keys of the deployment “{deployment}”. This page itself is not signed; the signed "
            "documents below are."
        )
        said = Sentence(say(told, deployment=verified))
    else:
        told = (
            "This report was made from files, whose signatures were not checked. It does not show who made the numbers."
        )
        said = Sentence(say(told), Tone.ALARM)
    commands = []
    for each in rounds:
        round_id = sanitize_for_display(each.result["round_id"])
        if each.signed:
            commands.append(f"croupier survey results {round_id} --document {_file_name(round_id)}.signed --dir DIR")
        commands.append(f"croupier verify {round_id} --dir DIR")
    told = (
        "With the deployment's public file, deployment.toml, in a directory DIR, anyone can check a signed document, "
        "on any machine. A participant can check that no server lost their answer:"
    )
    return [Heading(say("Check it")), said, Section("", [say(told)], commands=["\n".join(commands)])]


def _file_name(round_id: str) -> str:
    return _UNNAMED.sub("_", round_id)[:100]


def _files(result: JsonObject, table: str, report_round: ReportRound) -> str:
    """Returns a round's id and links to its files, which are inside the page."""
    name = _file_name(result["round_id"])
    files = [(f"{name}.json", say("result and certificate"), "application/json", json.dumps(result, indent=1).encode())]
    if table:
        files.append((f"{name}.csv", say("table for spreadsheets"), "text/csv", table.encode()))
    if report_round.signed:
        files.append((f"{name}.signed", say("signed document"), "application/octet-stream", report_round.signed))
    links = [
        f'<a href="data:{kind};base64,{base64.b64encode(content).decode()}" download="{file}">{escape(what)}</a>'
        for file, what, kind, content in files
    ]
    return f'<li><span class="id">{escape(result["round_id"])}</span>: {", ".join(links)}</li>'

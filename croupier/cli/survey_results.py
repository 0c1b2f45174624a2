"""'croupier survey results': the verified results of a round, of a survey, or of all waves of one with a calendar."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from croupier.cli.console import HERE, NOT_CERTIFIED, Argument, Directory, Gateway, Json, fail, note, show
from croupier.deploy.directory import client_transport
from croupier.operator.opened_surveys import kept_versions
from croupier.operator.published_result import PublishedResult, kept_result, open_published, published_results
from croupier.protocol.certificates import refusals_of
from croupier.protocol.documents import document_of
from croupier.protocol.names import JsonObject, RoundId
from croupier.protocol.rounding import round_up
from croupier.protocol.statements import joined
from croupier.show.blocks import Block, Heading
from croupier.show.certificate_tables import certificate_table
from croupier.show.distribution import with_quantiles
from croupier.show.published import publication_json
from croupier.show.results import result_blocks
from croupier.show.survey_description import LEFT_OUT_TEXTS
from croupier.show.text import note_lines


@Parameter(name="*", group="All waves of a calendar")
@dataclass(frozen=True)
class WaveOptions:
    """Where the results of all waves go, beside the terminal."""

    out: Annotated[Path | None, Parameter(help="Write the table into this file: .csv, .json or .parquet.")] = None
    chart: Annotated[Path | None, Parameter(help="Draw the trends into this file: .png, .svg or .pdf.")] = None
    against: Annotated[str, Parameter(help="Compare each wave with the 'previous' one or the 'first'.")] = "previous"


@Parameter(name="*")
@dataclass(frozen=True)
class FurtherEstimates:
    """The estimates of a single question beside the shares, the mean and the usual quantiles."""

    quantile: Annotated[
        list[float] | None, Parameter(help="levels: a further quantile, such as 0.99; may be repeated.")
    ] = None
    table: Annotated[bool, Parameter(help="Of a question that asks two as one: the cross table, with a test.")] = False
    sums: Annotated[
        list[str] | None,
        Parameter("--sum", help="The share of people with any of these answers, separated by semicolons; repeatable."),
    ] = None


def survey_results(
    name: Annotated[str, Argument(help="The survey, or one of its rounds, as printed by 'survey open'.")],
    /,
    *,
    directory: Directory = HERE,
    wait_s: Annotated[float, Parameter(help="How many seconds to wait for each result.")] = 60.0,
    collector_key: Annotated[
        Path | None, Parameter(help="Open a sealed result with this key, from 'keygen --collector'.")
    ] = None,
    document: Annotated[
        Path | None, Parameter(help="Instead of asking the analyzer: the signed document, kept from the console.")
    ] = None,
    gateway: Gateway = "",
    further: FurtherEstimates = FurtherEstimates(),
    waves: WaveOptions = WaveOptions(),
    as_json: Json = False,
) -> None:
    versions = list(kept_versions(directory, name).values())
    if versions and versions[-1].schedule is not None:
        _show_waves(directory, name, waves, as_json)
        return
    if document is not None:
        results = [kept_result(directory, RoundId(name), document)]
    else:
        results = asyncio.run(published_results(directory, name, wait_s, client_transport(gateway), note))
    if len(results) == 1:
        _show_round(results[0], collector_key, further, as_json)
        return
    shown = _results_json(results)
    show(as_json, shown, *([] if as_json else _results_blocks(shown)))
    refused = [question["name"] for question in shown["questions"] if not question["result"]["certificate"]["granted"]]
    if refused:
        raise fail(NOT_CERTIFIED, f"the accountant refused {', '.join(refused)}; 'croupier survey show ROUND' says why")


def _show_round(
    published: PublishedResult, collector_key: Path | None, further: FurtherEstimates, as_json: bool
) -> None:
    from croupier.show.cross_tables import add_computed
    from croupier.show.halving import halving_lines

    publication, certificate, _ = published
    result, refused = publication_json(publication, certificate), joined(refusals_of(certificate))
    if not certificate.granted:
        if as_json:
            show(as_json, result)
        raise fail(NOT_CERTIFIED, f"the accountant refused {publication.round_id}: {refused}")
    if collector_key is not None:
        publication = open_published(publication, collector_key)
    result = with_quantiles(publication_json(publication, certificate), further.quantile or [])
    sums = [text.split(";") for text in further.sums or []]
    add_computed(result, publication, certificate, sums, table=further.table)
    blocks = [*result_blocks(result, halving_lines), certificate_table(result["certificate"])]
    show(as_json, result, *blocks, *(["--collector-key opens the result"] if result["sealed"] else []))


def _results_json(results: Sequence[PublishedResult]) -> JsonObject:
    from croupier.operator.reports import together

    survey = results[0].terms.survey
    return {
        "survey_id": survey.survey_id,
        "hash": survey.hash.hex(),
        "left_out": survey.left_out,
        "wordings": document_of(survey.wordings),
        "questions": [
            {
                "name": question.terms.question.name,
                "wordings": document_of(question.terms.question.wordings),
                "result": publication_json(question.publication, question.certificate),
            }
            for question in results
        ],
        "together": document_of(together(results)),
    }


def _results_blocks(document: JsonObject) -> list[Block | str]:
    from croupier.show.halving import halving_lines

    blocks: list[Block | str] = [Heading(document["wordings"][0]["title"], 1)]
    for question in document["questions"]:
        blocks += result_blocks(question["result"], halving_lines)
    blocks.append(LEFT_OUT_TEXTS[document["left_out"]])
    if together := document["together"]:
        blocks += [
            f"All questions together, for a person who answered each with the largest budget: {together['grade']} "
            f"ε = {round_up(together['epsilon'])} at δ = {round_up(together['delta'])}, under the assumptions of the "
            "certificates, and that the terms were fixed before the first result, as the signed description shows.",
            *note_lines(together["notes"]),
        ]
    return blocks


def _show_waves(directory: Path, name: str, waves: WaveOptions, as_json: bool) -> None:
    from croupier.show.plots import check_plot_file, plot_study
    from croupier.show.study_results import study_blocks
    from croupier.study.discovery import discovered
    from croupier.study.wave_results import study_state, study_view

    if waves.against not in ("previous", "first"):
        raise ValueError(f"against is {waves.against!r}; it must be previous or first")
    if waves.chart is not None:
        check_plot_file(waves.chart)
    state = study_state(directory, name)
    document = study_view(state, waves.against)  # type: ignore[arg-type]
    found = discovered(state)
    if found is not None:
        document["discovery"] = found.document()
    if waves.out is not None:
        _write_rows(waves.out, document)
    if waves.chart is not None:
        plot_study(document["rows"], document["questions"], waves.chart)
    show(as_json, document, *(found.blocks() if found else []), *study_blocks(document))


def _write_rows(file: Path, document: JsonObject) -> None:
    """Writes the tidy table; raises ValueError for a file with another ending, ImportError without polars."""
    ending = file.suffix.lower()
    if ending == ".csv":
        from croupier.show.study_results import study_csv

        file.write_text(study_csv(document["rows"]), encoding="utf-8")
    elif ending == ".json":
        file.write_text(json.dumps(document["rows"]) + "\n", encoding="utf-8")
    elif ending == ".parquet":
        import polars

        polars.DataFrame(document["rows"], infer_schema_length=None).write_parquet(file)
    else:
        raise ValueError(f"{file} cannot be written; its name must end in .csv, .json or .parquet")

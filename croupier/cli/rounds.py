"""Commands about rounds: the operator opens, lists, closes and withdraws them; anyone may see terms and results."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from rich.table import Table

from croupier.cli.console import (
    HERE,
    NOT_CERTIFIED,
    NOT_NOW,
    REFUSED,
    Argument,
    Directory,
    Gateway,
    Json,
    fail,
    note,
    show,
)
from croupier.cli.forecasts import ForecastOptions, deployment_in, fitted_json, forecasts_of
from croupier.cli.mechanism_options import HopNoiseOptions
from croupier.cli.round_options import (
    BatchOptions,
    CertificateOptions,
    EncryptionOptions,
    QuestionOptions,
    WordingOptions,
    settings_of,
)
from croupier.deploy.directory import client_transport
from croupier.deploy.local.clients import client_of, terms_of
from croupier.operator.operator import Operator, is_operators, sees_rounds
from croupier.operator.overview import approvals_of, ledger_left, overview
from croupier.operator.published_result import kept_result, open_published, published_result
from croupier.operator.round_settings import RoundSettings
from croupier.protocol.certificates import refusals_of
from croupier.protocol.errors import Refusal
from croupier.protocol.manifest import state_name
from croupier.protocol.names import RoundId
from croupier.protocol.statements import joined
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.protocol.v1 import services_pb2 as rpc
from croupier.show.certificate_tables import certificate_table, counted
from croupier.show.distribution import with_quantiles
from croupier.show.estimates import distribution_tables, estimates_table, result_remarks
from croupier.show.forecasts import ForecastView, closing_lines, forecast_json, forecast_table
from croupier.show.published import publication_json
from croupier.show.round_text import rounds_text, terms_text
from croupier.show.views.overview import OverviewView
from croupier.show.views.published_results import ResultView
from croupier.show.views.questions import TermsView

if TYPE_CHECKING:
    from croupier.operator.forecasts import GridFit


@Parameter(name="*")
@dataclass(frozen=True)
class RoundOptions:
    """All terms of a round that is opened."""

    wording: WordingOptions = WordingOptions()
    question: QuestionOptions = QuestionOptions()
    certificate: CertificateOptions = CertificateOptions()
    batch: BatchOptions = BatchOptions()
    noise: HopNoiseOptions = HopNoiseOptions()
    forecasting: ForecastOptions = ForecastOptions()
    encryption: EncryptionOptions = EncryptionOptions()
    close_after_s: Annotated[
        float, Parameter(help="Close automatically after this many seconds; 0: only by command.")
    ] = 0.0

    def settings(self, name: str) -> RoundSettings:
        """Returns the settings of a round; raises ValueError for options that do not fit each other."""
        groups = (self.wording, self.question, self.certificate, self.batch, self.noise, self.encryption)
        return settings_of(name, *groups, self.close_after_s)


def round_open(
    name: Annotated[str, Argument(help="A short name for the question.")],
    /,
    *,
    directory: Directory = HERE,
    options: RoundOptions = RoundOptions(),
    as_json: Json = False,
) -> None:
    settings = options.settings(name)

    async def open_it() -> tuple[str, GridFit, list[ForecastView]]:
        async with Operator(directory) as operator:
            fitted = options.forecasting.fitted(settings, operator.deployment)
            forecasts = await forecasts_of(options.forecasting, fitted, operator)
            return (await operator.open_round(fitted.settings)).round_id, fitted, forecasts

    round_id, fitted, forecasts = asyncio.run(open_it())
    document = {"round_id": round_id, **fitted_json(fitted), "forecasts": forecasts}
    show(as_json, document, forecast_table(forecasts), f"round {round_id} is open")


def round_forecast(
    *,
    directory: Directory = HERE,
    question: QuestionOptions = QuestionOptions(),
    certificate: CertificateOptions = CertificateOptions(),
    batch: BatchOptions = BatchOptions(),
    noise: HopNoiseOptions = HopNoiseOptions(),
    forecasting: ForecastOptions = ForecastOptions(),
    as_json: Json = False,
) -> None:
    settings = settings_of("forecast", WordingOptions(), question, certificate, batch, noise, EncryptionOptions(), 0.0)
    deployment = deployment_in(directory)
    fitted = forecasting.fitted(settings, deployment)

    async def ask() -> list[ForecastView]:
        if deployment is None or deployment.privacy_limit is None or not is_operators(directory):
            return await forecasts_of(forecasting, fitted, None, deployment)
        async with Operator(directory) as operator:
            return await forecasts_of(forecasting, fitted, operator)

    forecasts = asyncio.run(ask())
    budgets = ",".join(f"{budget:g}" for budget in fitted.settings.budget_grid)
    show(as_json, {**fitted_json(fitted), "forecasts": forecasts}, forecast_table(forecasts), f"--grid {budgets}")


def round_list(*, directory: Directory = HERE, as_json: Json = False) -> None:
    async def ask() -> OverviewView:
        async with Operator(directory, only_reads=True) as operator:
            return await overview(operator, {})

    seen = asyncio.run(ask())
    text = rounds_text(seen, time.time(), most=len(seen["rounds"]), services=False)
    show(as_json, {"rounds": seen["rounds"]}, text)
    missing = [service["service"] for service in seen["services"] if service.get("problem")]
    if missing:
        raise fail(NOT_NOW, f"out of reach: {', '.join(missing)}; 'croupier status' has more")


def round_show(
    round_id: Annotated[str, Argument(help="The round; the newest open one if not given.")] = "",
    /,
    *,
    directory: Directory = HERE,
    gateway: Gateway = "",
    as_json: Json = False,
) -> None:
    async def look() -> TermsView:
        async with client_of(directory, gateway) as client:
            terms = await terms_of(await client.round(round_id))
        if sees_rounds(directory):
            async with Operator(directory, only_reads=True) as operator:
                if terms["privacy_limit"] is not None:
                    terms["ledger"] = await ledger_left(operator)
                terms["approved_by"] = await approvals_of(operator, RoundId(terms["round_id"]))
        return terms

    try:
        terms = asyncio.run(look())
    except Refusal as refusal:
        if as_json:
            show(as_json, {"round_id": round_id, "refusal": {"code": refusal.code.name, "said": str(refusal)}})
        raise
    show(as_json, terms, terms_text(terms, time.time(), "" if directory == HERE else str(directory), gateway))


def round_close(
    round_id: Annotated[str, Argument(help="As printed by 'round open'.")],
    /,
    *,
    end_sequential: Annotated[bool, Parameter(help="Sequential rounds: ask no further client.")] = False,
    at_risk: Annotated[
        bool, Parameter(help="Close although some choice of budgets would have every answer destroyed.")
    ] = False,
    forecast: Annotated[bool, Parameter(help="Only say what closing would come to now; close nothing.")] = False,
    directory: Directory = HERE,
    as_json: Json = False,
) -> None:
    from croupier.operator.forecasts import forecast_now

    async def close_it() -> rpc.CloseResponse:
        async with Operator(directory) as operator:
            if forecast:
                response = await forecast_now(operator, RoundId(round_id))
                return rpc.CloseResponse(num_clients=response.num_reports, forecast=response)
            hold = not (at_risk or end_sequential)
            return await operator.close_round(RoundId(round_id), end_sequential=end_sequential, hold_at_risk=hold)

    answer = asyncio.run(close_it())
    state, view = state_name(answer.state), forecast_json(answer.forecast) if answer.HasField("forecast") else None
    document = {"round_id": round_id, "state": state, "num_clients": answer.num_clients, "forecast": view}
    if forecast and view is not None:
        del document["state"]
        show(as_json, document, forecast_table([view]), *closing_lines(view, RoundId(round_id)))
        return
    held = view is not None and state == "OPEN"
    why = {"OPEN": " (too few clients: held)", "DISPOSED": " (too few clients: deleted)"}.get(state, "")
    lines = closing_lines(view, RoundId(round_id)) if view is not None else []
    show(
        as_json,
        document,
        f"{state}{' (at risk: held)' if held else why}: {counted(answer.num_clients, 'client')}",
        *lines,
    )
    if held:
        raise SystemExit(REFUSED)


def round_withdraw(
    round_id: Annotated[str, Argument(help="A round that is not certified yet, or sequential and still under way.")],
    /,
    *,
    directory: Directory = HERE,
    as_json: Json = False,
) -> None:
    async def withdraw() -> dict[str, str]:
        async with Operator(directory) as operator:
            return await operator.withdraw(RoundId(round_id))

    states = asyncio.run(withdraw())
    show(as_json, {"round_id": round_id, "services": states}, "\n".join(f"{name}: {s}" for name, s in states.items()))
    if set(states.values()) != {"DISPOSED"}:
        raise SystemExit(REFUSED)


@Parameter(name="*")
@dataclass(frozen=True)
class FurtherEstimates:
    """What `round result` estimates beside the shares, the mean and the usual quantiles."""

    quantile: Annotated[
        list[float] | None, Parameter(help="levels: a further quantile, such as 0.99; may be repeated.")
    ] = None
    table: Annotated[bool, Parameter(help="Of a question that asks two as one: the cross table, with a test.")] = False
    sums: Annotated[
        list[str] | None,
        Parameter("--sum", help="The share of people with any of these answers, separated by semicolons; repeatable."),
    ] = None


def round_result(
    round_id: Annotated[str, Argument(help="As printed by 'round open'.")],
    /,
    *,
    directory: Directory = HERE,
    wait_s: Annotated[float, Parameter(help="How many seconds to wait for it.")] = 60.0,
    collector_key: Annotated[
        Path | None, Parameter(help="Open a sealed result with this key, from 'keygen --collector'.")
    ] = None,
    document: Annotated[
        Path | None, Parameter(help="Instead of asking the analyzer: the signed document, kept from the console.")
    ] = None,
    gateway: Gateway = "",
    further: FurtherEstimates = FurtherEstimates(),
    as_json: Json = False,
) -> None:
    from croupier.show.statistics import halving_lines

    if document is not None:
        publication, certificate = kept_result(directory, RoundId(round_id), document)
    else:
        publication, certificate = asyncio.run(
            published_result(directory, RoundId(round_id), wait_s, client_transport(gateway), note)
        )
    result, refused = publication_json(publication, certificate), joined(refusals_of(certificate))
    if not certificate.granted:
        if as_json:
            show(as_json, result)
        raise fail(NOT_CERTIFIED, f"the accountant refused round {round_id}: {refused}")
    if collector_key is not None:
        publication = open_published(publication, collector_key)
    result = with_quantiles(publication_json(publication, certificate), further.quantile or [])
    more, said = _of_categories(result, publication, certificate, further.sums or [], table=further.table)
    lines = [*result_remarks(result), *halving_lines(result)]
    if result["sealed"]:
        lines.append("the result is sealed to its collector; --collector-key opens it")
    tables = [] if result["sealed"] else [estimates_table(result), *distribution_tables(result)]
    show(as_json, result, *tables, *more, *said, certificate_table(result["certificate"]), *lines)


def _of_categories(
    result: ResultView, publication: pb.Publication, certificate: pb.Certificate, sums: list[str], *, table: bool
) -> tuple[list[Table], list[str]]:
    """Adds the sums and the cross table that are asked for to a result; returns the tables and sentences about them."""
    from croupier.show.cross_tables import cross_table, cross_table_lines, cross_tables, share_model, sum_of, sums_table

    tables: list[Table] = []
    if not sums and not table:
        return tables, []
    model = share_model(publication, certificate)
    if sums:
        result["sums"] = [sum_of(model, text.split(";")) for text in sums]
        tables.append(sums_table(result["sums"]))
    if not table:
        return tables, []
    asked = result["asked"]
    result["table"] = cross_table(model, asked["question"] if asked else "")
    return [*tables, *cross_tables(result["table"])], cross_table_lines(result["table"])

"""The pages and where they are: an application for any ASGI server.

Errors that are expected become a page with one sentence. People answer on the participants' page (`deploy.page`), whose
calls go through a gateway in this process: no answer gets here before it is randomized and sealed.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.parse import quote

import grpc.aio
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from croupier.console.guard import Guard, Listening
from croupier.console.source import Source
from croupier.deploy.gateway.app import GATEWAY_PATHS
from croupier.deploy.gateway.app import make_app as make_gateway_app
from croupier.deploy.page.participants import PAGE_PATH
from croupier.net.retrying import why_unreachable
from croupier.operator.ledger import budgets_told, spent
from croupier.operator.published_result import PublishedResult
from croupier.protocol.errors import Code, CroupierError, Refusal, UnreachableError
from croupier.protocol.mechanisms import form_of
from croupier.protocol.mechanisms.base import Form
from croupier.protocol.names import JsonObject
from croupier.show.blocks import Block, Folded, Sentence
from croupier.show.certificate_tables import certificate_blocks
from croupier.show.cross_tables import add_computed, has_table
from croupier.show.csv_file import result_csv
from croupier.show.documents import spent_json
from croupier.show.explanation import explain, profile_around
from croupier.show.forecasts import ledger_line
from croupier.show.halving import halving_lines
from croupier.show.html import STATIC, html
from croupier.show.ledger import spent_blocks
from croupier.show.numbers import labels_of
from croupier.show.plots import plot_study
from croupier.show.profile import profile_blocks
from croupier.show.results import result_blocks, sum_blocks, table_blocks
from croupier.show.round_text import describe_device_step, terms_sections, values_of
from croupier.show.statistics import statistic
from croupier.show.study_results import study_blocks, study_csv
from croupier.show.text import counted
from croupier.study.versions import kept_schedules
from croupier.study.wave_results import study_state, study_view

_NOT_FOUND = (Code.UNKNOWN_ROUND, Code.NOT_READY)
_ENDED = ("PUBLISHED", "REFUSED")
_BEFORE = ("PREPARED", "OPEN")
Handler = Callable[[Request], Awaitable[Response]]


def make_app(source: Source, where: Listening) -> ASGIApp:
    """Returns the application.

    Args:
        source: what the pages show; opened and closed with the application.
        where: who can reach it. On loopback it is a gateway, too, with the page on which participants answer: elsewhere
            a gateway serves that page, under a name and a certificate that people's browsers know.
    """
    pages = _Pages(source, where)
    of_round = "/rounds/{round_id}"
    routes = [
        Route("/", pages.index),
        Route("/events", pages.index_events),
        Route("/ledger", pages.ledger),
        Route("/studies", pages.studies),
        Route("/studies/{study_id}", pages.study),
        Route("/studies/{study_id}/trends.png", pages.study_trends),
        Route("/studies/{study_id}/results.csv", pages.study_csv),
        Route(of_round, pages.round),
        Route(f"{of_round}/events", pages.round_events),
        Route(f"{of_round}/explanation", pages.explanation),
        Route(f"{of_round}/profile", pages.profile),
        Route(f"{of_round}/table", pages.table),
        Route(f"{of_round}/result.json", pages.as_json),
        Route(f"{of_round}/result.csv", pages.as_csv),
        Route(f"{of_round}/result.signed", pages.as_signed),
        Mount("/static", StaticFiles(directory=Path(__file__).parent / "static")),
        Mount("/shown", StaticFiles(directory=STATIC)),
    ]
    gateway = make_gateway_app(source.directory, source.transport) if where.on_loopback else Starlette()
    routes += [Mount(path, gateway) for path in GATEWAY_PATHS if where.on_loopback]

    @asynccontextmanager
    async def opened(_: Starlette) -> AsyncIterator[None]:
        async with source, gateway.router.lifespan_context(gateway):
            yield

    errors: dict[Any, Any] = dict.fromkeys(
        (HTTPException, CroupierError, ValueError, TimeoutError, grpc.aio.AioRpcError), pages.error
    )
    return Guard(Starlette(routes=routes, lifespan=opened, exception_handlers=errors), where)


class _Pages:
    """A method for each page."""

    def __init__(self, source: Source, where: Listening) -> None:
        self._source = source
        self._where = where
        self._templates = Environment(
            loader=PackageLoader("croupier.console"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.filters |= {"grouped": "{:,}".format}
        self._templates.globals |= {
            "version": version("croupier"),
            "counted": counted,
            "drawn": lambda blocks, top=2: Markup(html(blocks, top)),  # noqa: S704 (every text is escaped there)
            "is_operator": source.operator is not None,
            "participants_page": PAGE_PATH if where.on_loopback else "",
            "values_of": values_of,
            "describe_device_step": describe_device_step,
            "ledger_line": ledger_line,
        }

    def _render(self, template: str, **values: Any) -> str:
        return self._templates.get_template(template).render(deployment=self._source.deployment.name, **values)

    def _page(self, template: str, status: int = 200, **values: Any) -> HTMLResponse:
        return HTMLResponse(self._render(template, **values), status)

    async def error(self, request: Request, error: Exception) -> Response:
        """A page with one sentence."""
        status, said = _told(error)
        # A path that begins with two slashes would be a link to another host, and so would one with a backslash.
        return self._page("error.html", status, said=said, path="/" + quote(request.url.path.lstrip("/\\"), safe="/%"))

    # ------------------------------------------------------------- what goes on

    async def index(self, _: Request) -> Response:
        """The deployment; to one who is not the operator, the newest open round."""
        if self._source.operator is not None:
            return self._page("index.html", seen=await self._source.look(), terms=None)
        try:
            terms = await self._source.terms()
        except Refusal:
            terms = None
        return self._page("index.html", seen=None, terms=terms)

    async def index_events(self, _: Request) -> Response:
        """The overview again, whenever something has changed."""
        return self._events(lambda seen: self._render("_overview.html", seen=seen))

    async def round(self, request: Request) -> Response:
        """A round: how far it is, or its result."""
        round_id = request.path_params["round_id"]
        view = await self._source.round(round_id)
        terms = None if view is None else view["terms"]
        if terms is None and view is None:
            terms = await self._source.terms(round_id)
        finished = None
        state = view["stage"] if view is not None else terms["state"] if terms is not None else ""
        if state in _ENDED or (view is None and state not in _BEFORE):
            try:
                finished = await self._source.finished(round_id)
            except Refusal as refusal:
                if view is not None or refusal.code is not Code.NOT_READY:
                    raise
        sections = [] if terms is None else terms_sections({"state": state} | terms, time.time())
        values = {"round_id": round_id, "one": view, "terms": terms, "state": state, "sections": sections}
        if finished is None:
            return self._page("round.html", **values)
        added = _added_up(finished, request.query_params.getlist("sum"))
        here = str(self._source.directory)
        return self._page("finished.html", **values, **_shown(finished, terms), sums=added, here=here)

    async def round_events(self, request: Request) -> Response:
        """How far it is, whenever that has changed."""
        round_id = request.path_params["round_id"]

        def fragment(seen: JsonObject) -> str:
            view = next((round_view for round_view in seen["rounds"] if round_view["round_id"] == round_id), None)
            return self._render("_round.html", one=view)

        return self._events(fragment)

    def _events(self, fragment: Callable[[JsonObject], str]) -> Response:
        async def stream() -> AsyncIterator[str]:
            before = ""
            async for seen in self._source.watch():
                html = fragment(seen)
                if html != before:
                    yield "".join(f"data: {line}\n" for line in html.splitlines()) + "\n"
                else:
                    yield ":\n\n"  # finds out whether there is still a reader
                before = html

        if self._source.operator is None:
            raise HTTPException(404, "the services answer the operator alone, whose keys are not here")
        return StreamingResponse(stream(), media_type="text/event-stream")

    async def ledger(self, request: Request) -> Response:
        """What all rounds together have cost."""
        given, blocks, said = request.query_params.get("delta", "1e-6"), [], ""
        try:
            delta = float(given)
            if not 0 < delta < 1:
                raise ValueError(f"delta is {given}; it must be in (0, 1)")
            totals = await asyncio.to_thread(spent, self._source.directory, delta)
            told = await asyncio.to_thread(budgets_told, self._source.directory)
            blocks = spent_blocks(spent_json(totals, delta, told, fixed_terms=False), fixed_terms=False)
        except ValueError as error:
            said = str(error)
        return self._page("ledger.html", blocks=blocks, delta=given, said=said)

    # ------------------------------------------------------------- studies

    async def studies(self, _: Request) -> Response:
        """The studies that were begun from here."""
        views = [
            study_view(await asyncio.to_thread(study_state, self._source.directory, name))
            for name in kept_schedules(self._source.directory)
        ]
        return self._page("studies.html", studies=views)

    async def study(self, request: Request) -> Response:
        """A study: its waves and what has become of them, its trends and its numbers."""
        study = await self._study(request)
        return self._page("study.html", study=study, blocks=study_blocks(study))

    async def study_trends(self, request: Request) -> Response:
        """The trends as a picture; needs matplotlib."""
        study = await self._study(request)
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "trends.png"
            try:
                await asyncio.to_thread(plot_study, study["rows"], study["questions"], file)
            except ImportError as error:
                raise HTTPException(503, "matplotlib is not installed; it comes with 'croupier[console]'") from error
            return Response(file.read_bytes(), media_type="image/png")

    async def study_csv(self, request: Request) -> Response:
        """The tidy table of a study."""
        study = await self._study(request)
        name = quote(f"{study['study_id']}.csv", safe="")
        headers = {"Content-Disposition": f"attachment; filename*=UTF-8''{name}"}
        return Response(study_csv(study["rows"]).encode(), media_type="text/csv; charset=utf-8", headers=headers)

    async def _study(self, request: Request) -> JsonObject:
        name = request.path_params["study_id"]
        if name not in kept_schedules(self._source.directory):
            raise HTTPException(404, f"no study {name!r} was begun from here")
        return study_view(await asyncio.to_thread(study_state, self._source.directory, name))

    # ------------------------------------------------------------- a finished round

    async def explanation(self, request: Request) -> Response:
        """The certificate in words; takes seconds, because it says what would make it better."""
        return await self._computed(request, "explanation", _in_words)

    async def profile(self, request: Request) -> Response:
        """The privacy profile, certified at several deltas; takes seconds."""
        return await self._computed(
            request, "profile", lambda finished: profile_blocks(profile_around(finished.document))
        )

    async def table(self, request: Request) -> Response:
        """The cross table of two questions that were asked as one; takes seconds where it has many cells."""
        return await self._computed(request, "table", _table)

    async def _computed(
        self, request: Request, name: str, compute: Callable[[PublishedResult], Sequence[Block]]
    ) -> Response:
        try:
            found = await self._source.computed(request.path_params["round_id"], name, compute)
        except ValueError as error:
            found = [Sentence(str(error))]
        return self._page("computed.html", name=name, blocks=found)

    async def as_json(self, request: Request) -> Response:
        """What 'croupier survey results --json' prints."""
        finished = await self._source.finished(request.path_params["round_id"])
        return _download(request, "json", "application/json", json.dumps(finished.document, indent=1).encode())

    async def as_csv(self, request: Request) -> Response:
        """A line for each number, and on each what it cost."""
        result = (await self._source.finished(request.path_params["round_id"])).document
        return _download(request, "csv", "text/csv; charset=utf-8", result_csv(result).encode())

    async def as_signed(self, request: Request) -> Response:
        """The document as the analyzer has signed it."""
        finished = await self._source.finished(request.path_params["round_id"])
        return _download(request, "signed", "application/octet-stream", finished.signed)


def _told(error: Exception) -> tuple[int, str]:
    """Returns the status and the sentence for an error that is expected."""
    if isinstance(error, HTTPException):
        return error.status_code, error.detail
    if isinstance(error, Refusal):
        return 404 if error.code in _NOT_FOUND else 409, str(error)
    called = error.__cause__ if isinstance(error, UnreachableError) else error
    if isinstance(called, grpc.aio.AioRpcError):
        return 503, f"a service is out of reach ({why_unreachable(called)}); is the deployment up?"
    if isinstance(error, TimeoutError):
        return 503, "a service is out of reach; is the deployment up?"
    return 409 if isinstance(error, CroupierError) else 400, str(error)


def _shown(finished: PublishedResult, terms: JsonObject | None) -> JsonObject:
    """What the page of a finished round shows, beside its terms."""
    result = finished.document
    certificate, granted = result["certificate"], result["certificate"]["granted"]
    certified = certificate_blocks(certificate) if granted else []
    return {
        "result": result,
        "certificate": certificate,
        "learned": result_blocks(result, halving_lines),
        "certified": certified,
        "has_table": granted and has_table(result),
        "addends": labels_of(result) if granted and terms and form_of(terms["randomizer"]) is Form.ONE_CHOICE else [],
    }


def _in_words(finished: PublishedResult) -> list[Block]:
    """The certificate in words; what most readers do not look for is folded."""
    sections = explain(finished.document["certificate"]).sections
    more = "How close an attack comes, what this is worth, and what would make it better"
    return [*sections[:2], Folded(more, sections[2:])]


def _table(finished: PublishedResult) -> list[Block]:
    """The cross table of a finished round.

    Raises:
        ValueError: the question does not ask two as one.
    """
    return table_blocks(statistic(_extended(finished, [], table=True)))


def _extended(finished: PublishedResult, sums: Sequence[Sequence[str]], *, table: bool = False) -> JsonObject:
    """Returns the result of a finished round with sums, or its cross table."""
    result = finished.document
    add_computed(result, finished.publication, finished.certificate, sums, table=table)
    return result


def _added_up(finished: PublishedResult, places: Sequence[str]) -> list[Block]:
    """Returns the sum of the answers with these places, beginning with 0; nothing without places.

    Raises:
        ValueError: a place that no answer has, or a result that is not of categories.
    """
    if not places:
        return []
    labels = labels_of(finished.document)
    if not all(place.isdecimal() and int(place) < len(labels) for place in places):
        raise ValueError(f"sum is {', '.join(places)}; it must be places of answers, 0 to {len(labels) - 1}")
    return sum_blocks(statistic(_extended(finished, [[labels[int(place)] for place in places]])))


def _download(request: Request, ending: str, media_type: str, content: bytes) -> Response:
    name = quote(f"{request.path_params['round_id']}.{ending}", safe="")
    return Response(
        content, media_type=media_type, headers={"Content-Disposition": f"attachment; filename*=UTF-8''{name}"}
    )

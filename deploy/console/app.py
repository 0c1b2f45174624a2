"""The pages and where they are: an application for any ASGI server.

Errors that are expected become a page with one sentence. Of an answer nothing is written anywhere but what
`AsyncClient` keeps, which is sealed; what was typed is never part of a log.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote

import grpc.aio
from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from croupier.client.key_file import read_private_key
from croupier.client.limits import SpentHere, local_budget
from croupier.client.one_answer import ALREADY_ANSWERED, Answered, Respondent
from croupier.deploy.console.drawing import bars, curve, histogram, strips
from croupier.deploy.console.guard import Guard, Listening, from_own_page
from croupier.deploy.console.source import FinishedRound, Source
from croupier.deploy.local.clients import verify_directory
from croupier.deploy.operator.ledger import budgets_told, spent
from croupier.deploy.operator.roster import enrolling
from croupier.net.retrying import why_unreachable
from croupier.protocol.errors import Code, CroupierError, OtherPersonError, Refusal, UnreachableError
from croupier.protocol.rounding import round_down, round_up
from croupier.protocol.views import JsonObject
from croupier.show.csv_file import result_csv
from croupier.show.documents import spent_json
from croupier.show.estimates import clamping_line, hop_line, merging_line, notes_of, precision_line
from croupier.show.explanation import explain, profile_around
from croupier.show.forecasts import budgets_line, ledger_line
from croupier.show.ledger import spent_rests_on
from croupier.show.promises import certificate_lines
from croupier.show.rounds import describe_device_step, right_at_most_line, terms_sections, values_of
from croupier.show.statistics import halving_lines
from croupier.show.tables import counted
from croupier.show.views import OverviewView, ResultView, TermsView

__all__ = ["make_app"]

_MOST_BYTES = 4096
"""The largest form that is read."""
_NOT_FOUND = (Code.UNKNOWN_ROUND, Code.NOT_READY)
_ENDED = ("PUBLISHED", "REFUSED")
_BEFORE = ("PREPARED", "OPEN")
_WRITTEN = ("rr", "krr", "onebit", "levels", "laplace", "gaussian")
Handler = Callable[[Request], Awaitable[Response]]


def make_app(source: Source, where: Listening, key: Path | None = None) -> ASGIApp:
    """Returns the application.

    Args:
        source: what the pages show; opened and closed with the application.
        where: who can reach it. Only on loopback a person may answer: elsewhere the answer would travel to a process
            that is not the person's own.
        key: of the person who answers here, from 'keygen --client'; a new one if not given.
    """
    pages = _Pages(source, where, key)
    of_round = "/rounds/{round_id}"
    routes = [
        Route("/", pages.index),
        Route("/events", pages.index_events),
        Route("/ledger", pages.ledger),
        Route(of_round, pages.round),
        Route(f"{of_round}/events", pages.round_events),
        Route(f"{of_round}/explanation", pages.explanation),
        Route(f"{of_round}/profile", pages.profile),
        Route(f"{of_round}/result.json", pages.as_json),
        Route(f"{of_round}/result.csv", pages.as_csv),
        Route(f"{of_round}/result.signed", pages.as_signed),
        Route(f"{of_round}/answer", pages.answer, methods=["GET", "POST"]),
        Route(f"{of_round}/included", pages.included),
        Mount("/static", StaticFiles(directory=Path(__file__).parent / "static")),
    ]

    @asynccontextmanager
    async def opened(_: Starlette) -> AsyncIterator[None]:
        async with source:
            yield

    errors: dict[Any, Any] = dict.fromkeys(
        (HTTPException, CroupierError, ValueError, TimeoutError, grpc.aio.AioRpcError), pages.error
    )
    return Guard(Starlette(routes=routes, lifespan=opened, exception_handlers=errors), where)


class _Pages:
    """A method for each page."""

    def __init__(self, source: Source, where: Listening, key: Path | None) -> None:
        self._source = source
        self._where = where
        self._key = key
        self._answering = asyncio.Lock()
        self._templates = Environment(
            loader=PackageLoader("croupier.deploy.console"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.filters |= {"up": round_up, "down": round_down, "grouped": "{:,}".format}
        self._templates.globals |= {
            "version": version("croupier"),
            "counted": counted,
            "local_budget": local_budget,
            "is_operator": source.operator is not None,
            "may_answer": where.on_loopback,
            "values_of": values_of,
            "describe_device_step": describe_device_step,
            "budgets_line": budgets_line,
            "ledger_line": ledger_line,
            "right_at_most_line": right_at_most_line,
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
        one = await self._source.round(round_id)
        terms = None if one is None else one["terms"]
        if terms is None and one is None:
            terms = await self._source.terms(round_id)
        finished = None
        state = one["stage"] if one is not None else terms["state"] if terms is not None else ""
        if state in _ENDED or (one is None and state not in _BEFORE):
            try:
                finished = await self._source.finished(round_id)
            except Refusal as refusal:
                if one is not None or refusal.code is not Code.NOT_READY:
                    raise
        sections = [] if terms is None else terms_sections({"state": state} | terms, time.time())
        values = {"round_id": round_id, "one": one, "terms": terms, "state": state, "sections": sections}
        if finished is None:
            return self._page("round.html", **values)
        return self._page("finished.html", **values, **_shown(finished, terms), here=str(self._source.directory))

    async def round_events(self, request: Request) -> Response:
        """How far it is, whenever that has changed."""
        round_id = request.path_params["round_id"]

        def fragment(seen: OverviewView) -> str:
            one = next((one for one in seen["rounds"] if one["round_id"] == round_id), None)
            return self._render("_round.html", one=one)

        return self._events(fragment)

    def _events(self, fragment: Callable[[OverviewView], str]) -> Response:
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
        given = request.query_params.get("delta", "1e-6")
        try:
            delta = float(given)
            if not 0 < delta < 1:
                raise ValueError(f"delta is {given}; it must be in (0, 1)")
            found = await asyncio.to_thread(spent, self._source.directory, delta)
            told = await asyncio.to_thread(budgets_told, self._source.directory)
            document = spent_json(found, delta, told, fixed_terms=False)
        except ValueError as error:
            return self._page(
                "ledger.html", document=None, delta=given, said=str(error), rests_on=spent_rests_on(fixed_terms=False)
            )
        return self._page(
            "ledger.html", document=document, delta=given, said="", rests_on=spent_rests_on(fixed_terms=False)
        )

    # ------------------------------------------------------------- a finished round

    async def explanation(self, request: Request) -> Response:
        """The certificate in words; takes seconds, because it says what would make it better."""
        return await self._computed(
            request, "explanation", lambda result: explain(result["certificate"]).to_json()["sections"]
        )

    async def profile(self, request: Request) -> Response:
        """The privacy profile, certified at several deltas; takes seconds."""
        return await self._computed(request, "profile", lambda result: curve(profile_around(result)))

    async def _computed(self, request: Request, name: str, compute: Callable[[ResultView], Any]) -> Response:
        try:
            found, why_not = await self._source.computed(request.path_params["round_id"], name, compute), ""
        except ValueError as error:
            found, why_not = None, str(error)
        return self._page(f"_{name}.html", found=found, why_not=why_not)

    async def as_json(self, request: Request) -> Response:
        """What 'croupier round result --json' prints."""
        finished = await self._source.finished(request.path_params["round_id"])
        return _download(request, "json", "application/json", json.dumps(finished.result, indent=1).encode())

    async def as_csv(self, request: Request) -> Response:
        """A line for each number, and on each what it cost."""
        result = (await self._source.finished(request.path_params["round_id"])).result
        return _download(request, "csv", "text/csv; charset=utf-8", result_csv(result).encode())

    async def as_signed(self, request: Request) -> Response:
        """The document as the analyzer has signed it."""
        finished = await self._source.finished(request.path_params["round_id"])
        return _download(request, "signed", "application/octet-stream", finished.signed)

    # ------------------------------------------------------------- one's own answer

    async def answer(self, request: Request) -> Response:
        """The form, and what became of an answer."""
        round_id = request.path_params["round_id"]
        if not self._where.on_loopback:
            raise HTTPException(403, "answers are taken on the person's own machine alone: run croupier console there")
        terms = await self._source.terms(round_id)
        if terms["randomizer"] not in _WRITTEN:
            raise HTTPException(404, "people do not write down an answer to this round; a program computes it")
        if request.method == "GET":
            return await self._form(terms)
        if not from_own_page(request.headers):
            raise HTTPException(403, "this answer was not sent from this page")
        given = await _fields(request)
        try:
            token = bytes.fromhex(given.get("token", "").strip())
        except ValueError:
            return await self._form(terms, "the token cannot be read; it must be 64 hexadecimal digits", given)
        if "answer" not in given or "epsilon" not in given:
            return await self._form(terms, "an answer and a budget are needed", given)
        is_enrolled = self._source.operator is not None and "enrol" in given
        try:
            key = await asyncio.to_thread(read_private_key, self._key) if self._key else b""
            respondent = Respondent(key=key, token=token, new_key=True)
            async with self._answering:
                done = await self._send(round_id, given["answer"], float(given["epsilon"]), respondent, is_enrolled)
        except (CroupierError, ValueError, RuntimeError, OSError, grpc.aio.AioRpcError) as error:
            return await self._form(terms, _told(error)[1], given)
        if done.code not in ("ACCEPTED", ALREADY_ANSWERED):
            return await self._form(terms, Code[done.code].message, given)
        sections = terms_sections(terms, time.time())
        return self._page("receipt.html", terms=terms, done=done, sections=sections, here=self._here())

    async def _send(
        self, round_id: str, value: str, max_local_epsilon: float, respondent: Respondent, is_enrolled: bool
    ) -> Answered:
        source = self._source
        enrol = enrolling(source.directory, source.transport) if is_enrolled else None
        async with source.client() as client:
            asked = await client.round(round_id)
            try:
                return await asked.answer(value, max_local_epsilon, respondent, enrol)
            except OtherPersonError as error:
                how = "another person answers with 'croupier submit --another-person'"
                raise OtherPersonError(f"{error}; {how}") from error

    def _here(self) -> str:
        return str(self._source.directory / "client")

    async def _form(self, terms: TermsView, said: str = "", given: dict[str, str] | None = None) -> Response:
        """The form; after an error with the budget that was chosen, and without the answer."""
        spent_here = None
        if (self._source.directory / "client" / "outbox.db").exists():
            spent_here = await self._spent_here()
        return self._page(
            "answer.html",
            422 if said else 200,
            terms=terms,
            sections=terms_sections(terms, time.time()),
            labels=terms["parameters"].get("labels") or [*map(str, range(terms["parameters"].get("k", 0)))],
            said=said,
            chosen=(given or {}).get("epsilon", ""),
            enrol=given is None or "enrol" in given,
            spent_here=spent_here,
            has_key=self._key is not None,
        )

    async def _spent_here(self) -> SpentHere:
        async with self._source.client() as client:
            return await asyncio.to_thread(lambda: client.spent)

    async def included(self, request: Request) -> Response:
        """Whether every hop has passed on what was sent from here."""
        round_id = request.path_params["round_id"]
        await self._source.terms(round_id)  # which says sooner that hop 1 is out of reach
        try:
            async with asyncio.timeout(60.0), self._source.client() as client:
                sent, missing = await verify_directory(client, self._source.directory, round_id, 1.0)
        except Refusal as refusal:
            if refusal.code is not Code.NOT_READY:
                raise
            said = "the round has no certificate yet; look again when it is published"
            return self._page("included.html", round_id=round_id, sent=0, missing={}, said=said)
        return self._page("included.html", round_id=round_id, sent=sent, missing=missing, said="")


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


async def _fields(request: Request) -> dict[str, str]:
    """Returns the fields of a form, the last of each name."""
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > _MOST_BYTES:
            raise HTTPException(413, f"the form has more than {_MOST_BYTES} bytes")
    try:
        return {name: values[-1] for name, values in parse_qs(body.decode()).items()}
    except UnicodeDecodeError:
        raise HTTPException(400, "the form cannot be read") from None


def _shown(finished: FinishedRound, terms: TermsView | None) -> JsonObject:
    """What the page of a finished round shows, beside its terms."""
    result = finished.result
    certificate = result["certificate"]
    granted = certificate["granted"]
    lines = (
        [precision_line(result), clamping_line(result), merging_line(result), hop_line(result), *notes_of(result)]
        if granted
        else []
    )
    return {
        "result": result,
        "certificate": certificate,
        "estimates": strips(result, terms) if granted and not result["sealed"] else [],
        "histogram": histogram(result) if granted else [],
        "tiers": bars(certificate) if granted else [],
        "remarks": [*(line for line in lines if line), *halving_lines(result)],
        "promises": certificate_lines(certificate) if granted else (),
    }


def _download(request: Request, ending: str, media_type: str, content: bytes) -> Response:
    name = quote(f"{request.path_params['round_id']}.{ending}", safe="")
    return Response(
        content, media_type=media_type, headers={"Content-Disposition": f"attachment; filename*=UTF-8''{name}"}
    )

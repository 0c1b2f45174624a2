"""What every command shares: exit codes, errors as one sentence, one JSON object or tables on standard output."""

from __future__ import annotations

import difflib
import enum
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

from cyclopts import CycloptsError, Parameter, UnknownCommandError, ValidationError

from croupier.protocol.shown import sanitize_for_display, sanitize_lines

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from croupier.show.blocks import Block


class ExitCode(enum.IntEnum):
    """What a command ends with; docs/operations-reference.md has the table.

    Attributes:
        happened: what has happened.
        reaction: what a script does then; empty where nothing follows.
    """

    happened: str
    reaction: str

    def __new__(cls, number: int, happened: str, reaction: str) -> Self:
        """Returns the code of this number."""
        code = int.__new__(cls, number)
        code._value_, code.happened, code.reaction = number, happened, reaction
        return code

    DONE = 0, "done", "goes on"
    SOMETHING_WRONG = (
        1,
        "`doctor`: something is wrong. Else an error that nothing foresaw; a service's log, or the traceback, says "
        "which",
        "tells somebody",
    )
    BAD_INPUT = (
        2,
        "an input or a setting that cannot be used, a library that is not installed, or a second process of a service",
        "is corrected",
    )
    REFUSED = (
        3,
        "a service refused, or what it says is not signed as it must be",
        "reads why; the same again is refused again",
    )
    NOT_NOW = (
        4,
        "not now: a service is out of reach or has too much to do, or a result or certificate is not there yet",
        "tries again later",
    )
    NOT_CERTIFIED = (
        5,
        "the accountant refused the round: there is no result, and no report was read",
        "asks more people, or for less",
    )
    NOT_ACCEPTED = (
        6,
        "`submit`: an answer was not accepted, or rows of a file were not counted; `verify`, `canary`: something is "
        "missing behind a hop",
        "reads which",
    )
    CUT_SHORT = 130, "cut short by Ctrl-C", ""


BAD_INPUT, REFUSED, NOT_NOW = ExitCode.BAD_INPUT, ExitCode.REFUSED, ExitCode.NOT_NOW
NOT_CERTIFIED, NOT_ACCEPTED = ExitCode.NOT_CERTIFIED, ExitCode.NOT_ACCEPTED

Argument = partial(Parameter, allow_leading_hyphen=False)
"""A positional argument; where a file may be -, standard input, it is a `Parameter`."""

HERE = Path("croupier-local")
STANDARD_INPUT = Path("-")
Directory = Annotated[Path, Parameter("--dir", help="The deployment's directory.")]
Gateway = Annotated[
    str, Parameter(help="https://… of a gateway to call through, where gRPC does not get through; see 'gateway'.")
]
Json = Annotated[bool, Parameter("--json", help="Print one JSON object.")]
Hops = Annotated[int, Parameter(help="Number of shufflers, 1..32.")]
BudgetGroups = Annotated[
    str, Parameter(help="Groups epsilon:share that the participants' budgets are drawn from; shares are relative.")
]


_MOST_REASONS = 10
"""The most reasons for rejection that are printed; the number of the others is printed after them."""
_NEWEST = "get the newest deployment.toml from the operator; if you have it, do not trust that server"


def terminal(**how: Any) -> Console:
    """Returns where commands write for people, on standard output unless `stderr` is given: no text moves the cursor.

    Commands repeat what files, organisations and services say. Styles are added after each text was sanitised.
    """
    from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderHook
    from rich.segment import Segment

    class Sanitized:
        def __init__(self, renderable: ConsoleRenderable) -> None:
            self.renderable = renderable

        def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
            for segment in console.render(self.renderable, options):
                yield segment if segment.control else Segment(sanitize_lines(segment.text), segment.style)

    class Hook(RenderHook):
        def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
            return [Sanitized(renderable) for renderable in renderables]

    console = Console(**how)
    console.push_render_hook(Hook())
    return console


def fail(code: int, message: str) -> SystemExit:
    """Writes a message to standard error, and returns what to raise in order to end with the exit code."""
    from rich.text import Text

    # Messages contain input as it was typed: "[/x]" in it is not markup.
    terminal(stderr=True, soft_wrap=True).print(Text.assemble(("croupier:", "bold red"), f" {message}"))
    return SystemExit(code)


@contextmanager
def plain_errors(extra: str = "") -> Iterator[None]:
    """Ends the command with one sentence and an exit code where an error is expected to happen.

    The extra is what to install where a library is missing; see `missing_library`.
    """
    try:
        yield
    except KeyboardInterrupt:
        raise SystemExit(ExitCode.CUT_SHORT) from None
    except EOFError as error:  # the end of standard input where a question was asked
        raise fail(ExitCode.SOMETHING_WRONG, "aborted") from error
    except UnknownCommandError as error:  # its own sentence would import the module of every command
        raise fail(BAD_INPUT, _unknown_command(error)) from error
    except CycloptsError as error:
        raise fail(BAD_INPUT, f"{error.__cause__ if isinstance(error, ValidationError) else error}") from error
    except ValueError as error:
        raise fail(BAD_INPUT, str(error)) from error
    except FileNotFoundError as error:
        raise fail(BAD_INPUT, f"{error.filename} does not exist" if error.filename else str(error)) from error
    except (FileExistsError, IsADirectoryError, NotADirectoryError, PermissionError) as error:
        raise fail(BAD_INPUT, f"{error.filename}: {error.strerror}" if error.filename else str(error)) from error
    except BrokenPipeError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else it is flushed again at the end
        raise SystemExit(ExitCode.SOMETHING_WRONG) from error
    except OSError as error:
        if error.filename is None:
            raise
        raise fail(BAD_INPUT, f"{error.filename}: {error.strerror}") from error
    except ImportError as error:
        from croupier.deploy.node.extras import missing_library

        missing = error.__cause__ if isinstance(error.__cause__, ImportError) else error  # of a command's module
        raise fail(BAD_INPUT, missing_library(missing, extra)) from error
    except RuntimeError as error:
        raise fail(REFUSED, str(error)) from error
    except ExceptionGroup as group:
        with plain_errors():
            raise group.exceptions[0] from group
    except Exception as error:  # what comes over the network, which not every command loads
        import grpc

        from croupier.protocol.errors import (
            CroupierError,
            Refusal,
            RetiredIdentityError,
            SignatureError,
            UnreachableError,
        )

        if isinstance(error, UnreachableError) and isinstance(error.__cause__, grpc.aio.AioRpcError):
            raise fail(NOT_NOW, _out_of_reach(error.__cause__)) from error
        if isinstance(error, SignatureError) and not isinstance(error, RetiredIdentityError):
            raise fail(REFUSED, f"{error}; {_NEWEST}") from error
        if isinstance(error, CroupierError):
            later = isinstance(error, Refusal) and error.code.may_pass
            raise fail(NOT_NOW if later else REFUSED, str(error)) from error
        if isinstance(error, grpc.aio.AioRpcError):
            raise fail(NOT_NOW, _out_of_reach(error)) from error
        raise


def _unknown_command(error: UnknownCommandError) -> str:
    (name, *_), known = error.unused_tokens or [""], [name for name in error.app or () if not name.startswith("-")]
    near = difflib.get_close_matches(name, known)
    return f"{name!r} is not a command; " + (
        f"did you mean {' or '.join(map(repr, near))}?" if near else f"the commands are {', '.join(known)}"
    )


def _out_of_reach(error: Any) -> str:
    """Returns one sentence on a call that did not arrive: why, where to, and the way out."""
    from croupier.net.retrying import HOW_TO_TRUST, is_not_pinned, is_not_trusted, why_unreachable

    if is_not_trusted(error):
        way_out = HOW_TO_TRUST
    elif is_not_pinned(error):
        way_out = _NEWEST
    else:
        way_out = "are you online, and is the deployment up? Its operator sees that in 'croupier status'"
    return f"a service is out of reach ({why_unreachable(error)}); {way_out}"


def text_of(file: Path) -> str:
    """Returns the text in the file of an option, - for standard input, without the spaces and ends of lines around it.

    Raises:
        ValueError: the file is not text.
    """
    try:
        return (sys.stdin.read() if file == STANDARD_INPUT else file.read_text(encoding="utf-8")).strip()
    except UnicodeDecodeError as error:  # which would show the content
        raise ValueError(f"{file} is not a text file; it must be UTF-8") from error


def lines_of(file: Path) -> list[tuple[int, list[str]]]:
    """Returns the cells of each line of an option's file, CSV as many countries write it or Excel, with its number.

    A note says what was assumed in order to read it. Standard input is CSV with commas.

    Raises:
        ValueError: it cannot be read.
    """
    import csv

    from croupier.deploy.local.sheets import read_lines

    if file == STANDARD_INPUT:
        return list(enumerate(csv.reader(text_of(file).splitlines()), start=1))
    lines, assumed = read_lines(file)
    if assumed:
        note(assumed)
    return lines


def ask(question: str, default: Any = None, kind: Callable[[str], Any] = str) -> Any:
    """Returns what a person at the terminal answers, as the kind or that of the default; asks again until it is one.

    An empty answer is the default, if there is one.
    """
    kind = kind if default is None else type(default)
    while True:
        answer = _line(f"{question} [{default}]: " if default else f"{question}: ")
        if not answer and default is not None:
            return default
        try:
            if answer:
                return kind(answer)
        except ValueError:
            note(f"{answer!r} is not a number")


def agrees(question: str) -> bool:
    """Whether a person at the terminal says yes; an empty answer is no, and after any other one it asks again."""
    while (answer := _line(f"{question} [y/N]: ").lower()) not in ("", "y", "yes", "n", "no"):
        note(f"{answer!r} is neither y nor n")
    return answer.startswith("y")


def _line(prompt: str) -> str:
    sys.stderr.write(prompt)
    sys.stderr.flush()
    if not (line := sys.stdin.readline()):
        raise EOFError
    return line.strip()


def note(line: str) -> None:
    """Writes a line about what is going on to standard error."""
    terminal(stderr=True, markup=False, highlight=False).print(line)


@contextmanager
def progress_bar(*, transient: bool = False) -> Iterator[Callable[[float, float, str], None]]:
    """Shows a bar on standard error, and yields what moves it: called with done, total and a description.

    It is there from the first call on, a transient one from the beginning, and on a terminal only.
    """
    if transient and not sys.stderr.isatty():
        yield lambda done, total, text: None
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    description = TextColumn("{task.description}", markup=False)
    shown = (description, BarColumn(), TimeRemainingColumn())
    bar = Progress(*shown, console=terminal(stderr=True), transient=transient)
    task = bar.add_task("", total=None)
    begun = transient
    if begun:
        bar.start()

    def move(done: float, total: float, text: str) -> None:
        nonlocal begun
        bar.update(task, completed=done, total=total, description=sanitize_for_display(text))
        if not begun:
            bar.start()
            begun = True

    try:
        yield move
    finally:
        if begun:
            bar.stop()


def progress_of(move: Callable[[float, float, str], None], name: str) -> Callable[[int, int], None]:
    """Returns a function of (done, total) that moves a bar, with a description that names what is done."""
    return lambda done, total: move(done, total, f"{name}: {done:,} of {total:,}")


def note_left_out(rejected: Mapping[str, str]) -> None:
    """Writes to standard error which rows of a file were left out and why, for the first of them."""
    for reason in list(rejected.values())[:_MOST_REASONS]:
        note(f"left out: {reason}")
    if len(rejected) > _MOST_REASONS:
        note(f"left out: {len(rejected) - _MOST_REASONS:,} more")


def show(as_json: bool, document: Any, *blocks: Block | RenderableType) -> None:
    """Writes the document as JSON, or else blocks and texts, to standard output."""
    if as_json:
        sys.stdout.write(json.dumps(document) + "\n")
        sys.stdout.flush()  # who reads it through a pipe may wait for it while a page is still served
        return
    from rich.text import Text

    from croupier.show.terminal import drawn

    console = terminal(markup=False)
    drawings = [drawn(block) for block in blocks]
    if drawings and isinstance(drawings[-1], Text):
        drawings[-1].rstrip()  # of the line behind a section
    for drawing in drawings:
        # Text that is wrapped already stays as it is: a command in it can be copied.
        console.print(drawing, soft_wrap=bool(getattr(drawing, "no_wrap", False)))

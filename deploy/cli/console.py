"""What every command shares: exit codes, errors as one sentence, one JSON object or tables on standard output.

Exit codes: 0 done; 2 an input that cannot be used; 3 a service refused; 4 a service is out of reach; 5 the accountant
refused the round, so there is no result; 6 some submissions were not accepted. Messages go to standard error.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

__all__ = [
    "BAD_INPUT",
    "HERE",
    "NOT_ACCEPTED",
    "NOT_CERTIFIED",
    "REFUSED",
    "UNREACHABLE",
    "Directory",
    "Json",
    "RandomizerOption",
    "fail",
    "plain_errors",
    "run_async",
    "show",
]

BAD_INPUT, REFUSED, UNREACHABLE, NOT_CERTIFIED, NOT_ACCEPTED = 2, 3, 4, 5, 6

HERE = Path("croupier-local")
Directory = Annotated[Path, typer.Option("--dir", help="The deployment's directory.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
RandomizerOption = Annotated[
    str, typer.Option(help="rr, krr, onebit or laplace; for bounds also gaussian, hemisphere.")
]


def fail(code: int, message: str) -> typer.Exit:
    from rich.console import Console
    from rich.text import Text

    # What people have typed stands in messages as it is: "[/x]" in it is no markup.
    Console(stderr=True, soft_wrap=True).print(Text.assemble(("croupier:", "bold red"), f" {message}"))
    return typer.Exit(code)


@contextmanager
def plain_errors() -> Iterator[None]:
    """Turns what can go wrong into one sentence and an exit code."""
    import grpc

    from protocol.errors import CroupierError

    try:
        yield
    except ValueError as error:
        raise fail(BAD_INPUT, str(error)) from error
    except FileNotFoundError as error:
        raise fail(BAD_INPUT, f"{error.filename} does not exist" if error.filename else str(error)) from error
    except (FileExistsError, IsADirectoryError, NotADirectoryError, PermissionError) as error:
        raise fail(BAD_INPUT, f"{error.filename}: {error.strerror}" if error.filename else str(error)) from error
    except ModuleNotFoundError as error:
        extra = "sgd" if error.name in ("torch", "sklearn") else "demo"
        raise fail(BAD_INPUT, f"{error.name} is not installed; it comes with 'croupier[{extra}]'") from error
    except CroupierError as error:
        raise fail(REFUSED, str(error)) from error
    except grpc.aio.AioRpcError as error:
        raise fail(UNREACHABLE, f"a service is out of reach ({error.code().name}); is the deployment up?") from error
    except RuntimeError as error:
        raise fail(REFUSED, str(error)) from error
    except ExceptionGroup as group:
        with plain_errors():
            raise group.exceptions[0] from group


def run_async(work: Coroutine[Any, Any, Any]) -> Any:
    with plain_errors():
        return asyncio.run(work)


def show(as_json: bool, document: Any, *tables: Any) -> None:
    if as_json:
        sys.stdout.write(json.dumps(document) + "\n")
        return
    from rich.console import Console

    for table in tables:
        Console(markup=False).print(table)

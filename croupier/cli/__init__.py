"""The `croupier` command line: each command parses its options, calls another room, and shows what that returns.

Each command also prints one JSON object with `--json`. Exit codes: 0 done; 1 `doctor` has found something wrong, or an
error that nothing foresaw; 2 an input that cannot be used; 3 a service refused; 4 not now: a service is out of reach,
or what is asked for is not there yet; 5 the accountant refused the round, so there is no result; 6 some submissions
were not accepted or are missing; 130 cut short by Ctrl-C. Messages go to standard error.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import get_args

from cyclopts import App, ArgumentCollection, CoercionError, Group, Parameter

from croupier.cli.commands import BY_PATH, CHECKOUT, COMMANDS, MEASURE
from croupier.cli.console import BAD_INPUT, plain_errors, terminal

# Read when grpc is imported: its C core would write lines of its own between ours, which are JSON.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

_ROOT = Path(__file__).resolve().parents[2]
_IN_CHECKOUT = (_ROOT / "research" / "commands.py").is_file()
"""Whether research/ lies beside croupier/; beside an installed package it does not."""
if _IN_CHECKOUT and str(_ROOT) not in sys.path:
    sys.path.append(str(_ROOT))


def _check_numbers(_app: App, _commands: tuple[str, ...], arguments: ArgumentCollection) -> None:
    """Refuses what is not a number: cyclopts would round 2.5 to a whole number, and take 'none' for no number.

    An environment variable that is empty counts as one that is not set.
    """
    for argument in arguments:
        argument.tokens[:] = [token for token in argument.tokens if token.value or token.source != "env"]
        for kind in {int, float} & {argument.hint, *get_args(argument.hint)}:
            for token in argument.tokens:
                try:
                    kind(token.value)
                except ValueError as error:
                    raise CoercionError(token=token, argument=argument, target_type=kind) from error


def _assembled() -> App:
    """Returns the command line with every command of the table; their modules are not imported."""
    app = App(
        "croupier",
        help="""Ask people what they would not tell you; learn the answer about all, with a proof of what it reveals
about one.

Begin with 'croupier demo'; --help after any command shows its options and an example.

Exit codes: 0 done; 1 'doctor' found something wrong, or an unforeseen error;
2 bad input; 3 refused; 4 not now, try again later; 5 not certified; 6 not all
accepted; 130 cut short by Ctrl-C.""",
        version=lambda: version("croupier"),
        help_format="plaintext",
        version_format="plaintext",
        group_parameters=Group("Options", sort_key=0),
        config=_check_numbers,
        default_parameter=Parameter(
            negative=(),
            allow_repeating=True,
            allow_leading_hyphen=True,
            json_dict=False,
            json_list=False,
            show_default=lambda value: None if value is False or value in (None, "") else str(value),
        ),
        print_error=False,
        exit_on_error=False,
        result_action="return_value",
    )
    for heading, commands in COMMANDS.items():
        group = Group.create_ordered(heading)
        for order, (path, command) in enumerate(commands.items()):
            *above, name = path.split()
            if isinstance(command, str):
                app.command(App(name, help=command, group=group, sort_key=order, version_flags=()))
            else:
                (app[above[0]] if above else app).command(
                    f"croupier.cli.{command.function}",
                    name,
                    help=command.help,
                    help_epilogue=f"Example: croupier {path} {command.example}".rstrip(),
                    sort_key=order,
                    version_flags=(),
                    group=None if above else group,
                )
    group = Group.create_ordered(MEASURE)
    for name, (module, purpose) in CHECKOUT.items():
        app.command(f"{module}:app", name, help=purpose, group=group)
    for flag in ("--help", "--version"):
        app[flag].group = "Options"
    app.command(
        _install_completion, "--install-completion", help="Install completion for the current shell.", group="Options"
    )
    return app


def _install_completion() -> None:
    """Writes a script for the shell, which completes the commands whose libraries are installed."""
    for path in [*(path for commands in COMMANDS.values() for path in commands), *CHECKOUT]:
        *above, name = path.split()
        group = app[above[0]] if above else app
        try:
            group[name]
        except ImportError:
            del group[name]
    sys.stdout.write(f"{app.install_completion()}\n")


app = _assembled()


def run(arguments: Sequence[str]) -> None:
    """Runs a command; raises SystemExit where its exit code is not 0."""
    paths = (" ".join(arguments[:words]) for words in (2, 1))
    with plain_errors(next((BY_PATH[path].extra for path in paths if path in BY_PATH), "")):
        if arguments and arguments[0] in CHECKOUT and not _IN_CHECKOUT:
            raise ValueError(
                f"'croupier {arguments[0]}' is not part of an installed package: clone the repository, "
                f"run 'make check' in it, and then .venv/bin/croupier {arguments[0]}"
            )
        command, bound, _ = app.parse_args(arguments, console=terminal())
        command(*bound.args, **bound.kwargs)
        sys.stdout.flush()
    if command == app.help_print and not {*app.help_flags} & {*arguments}:  # nothing was asked for
        raise SystemExit(BAD_INPUT)


def main() -> None:
    """Runs the command that the process was started with."""
    # The products here are small: a second BLAS thread would only wait busily, on a core that others need.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    gc.set_threshold(10_000, 20, 20)  # what is made for one of very many users is freed without the collector
    run(sys.argv[1:])

"""What `--help` shows beside the options: an example of every command, and groups of options where there are many.

Commands declare their options; this file knows only their names. An option that declares a group itself keeps it.
"""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperCommand, TyperOption

MANY_OPTIONS = 12
"""Options of a command from which they are shown in groups; fewer fit on a screen and are read faster in one list."""

GROUPS: dict[str, tuple[str, ...]] = {
    "The question and its randomizer": (
        *("randomizer", "k", "q", "labels", "categories", "low", "high", "lattice", "local_delta", "dimension"),
    ),
    "Privacy": (
        *("grid", "budgets", "delta", "epsilon", "epsilon_max", "epsilon_limit", "dishonest", "linkage", "rounds"),
    ),
    "Hops and their fake reports": ("hops", "hop_noise", "hop_noise_delta"),
    "People and time": (
        *("users", "groups", "expected", "min_batch_size", "max_batch_size", "short_batch", "at_risk", "close_after_s"),
    ),
    "A file of people": (
        *("csv", "value_column", "epsilon_column", "id_column", "group_by", "where", "ordered", "clamp", "limit"),
    ),
    "The data and the model": ("dataset", "data", "target", "columns", "features", "model", "unit", "clients"),
    "The training": (
        *("epochs", "batch_size", "order", "clipping_norm", "learning_rate", "momentum", "averaging", "period_s"),
        *("private", "baseline"),
    ),
}
"""The names of parameters by the heading under which they are shown."""

EXAMPLES = {
    "docs": "runbook#a-round-is-held",
    "demo": "--csv people.csv --value-column smokes --value-column hours:0:24",
    "bench": "--users 10000,100000",
    "discover": "--csv words.csv --value-column word --alphabet abcdefghijklmnopqrstuvwxyz --simulate",
    "train": "--dataset digits --epochs 5",
    "certify": "budgets.csv --randomizer rr --delta 1e-6 --compare",
    "explain": "certificate.json",
    "curve": "budgets.csv --randomizer laplace --out curve.png",
    "audit": "budgets.csv --randomizer rr",
    "plan": "--error 0.05 --epsilon 0.5",
    "submit": "--dir clinic --value-file answer --epsilon 1 --key me.key",
    "join": "wellbeing --dir clinic --answers answers.toml --follow",
    "joined": "--dir clinic",
    "leave": "wellbeing --dir clinic",
    "limits": "--dir clinic --lifetime-epsilon 10 --max-local-epsilon 1",
    "verify": "smokes-1 --dir clinic",
    "canary": "smokes-1 --dir clinic --over 3600",
    "keygen": "--client me.key",
    "rotate": "shuffler-1 --dir clinic --activate",
    "enrol": "me.key.pub --label Ada --dir clinic",
    "revoke": f"{'9f' * 32} --dir clinic",
    "serve": "shuffler-1 --dir /var/lib/croupier",
    "up": "--dir croupier-trial",
    "down": "--dir croupier-trial",
    "status": "--dir clinic --watch",
    "ledger": "--dir /var/lib/croupier --forecast",
    "participant-page": "participate.html",
    "report": "how-we-work --out report.html",
    "console": "--dir clinic --open",
    "gateway": "--dir clinic --listen 127.0.0.1:8790",
    "init": "--dir clinic --shuffler a.example --shuffler b.example --accountant c.example --analyzer d.example",
    "doctor": "--dir clinic",
    "round forecast": "--epsilon-max 0.5 --min-batch-size 200 --expected 1000",
    "round open": 'mood --dir clinic --question "How are you?" --choices "well;not well" --epsilon-max 0.5',
    "round propose": "sleep --min-batch-size 500 --out sleep.json --dir study",
    "round approve": "sleep.json --dir study",
    "round list": "--dir clinic",
    "round show": "smokes-1 --dir clinic",
    "round close": "smokes-1 --dir clinic --forecast",
    "round withdraw": "smokes-1 --dir clinic",
    "round result": "smokes-1 --dir clinic",
    "survey new": "",
    "survey forecast": "survey.toml --expected 300",
    "survey open": "survey.toml --dir clinic",
    "survey show": "how-we-work --dir clinic",
    "survey close": "how-we-work --dir clinic",
    "survey results": "how-we-work --dir clinic",
    "study new": "study.toml",
    "study plan": "study.toml --expected 1000 --epsilon-total 8",
    "study show": "study.toml",
    "study run": "study.toml --dir clinic",
    "study change": 'study.toml --dir clinic --because "The question about sleep is asked once a week."',
    "study results": "wellbeing --out wellbeing.csv --chart wellbeing.png",
    "invite make": "how-we-work --people people.csv --gateway https://gateway.example",
    "invite status": "how-we-work --remind",
    "invite reissue": 'how-we-work "Ada Lovelace"',
    "invite revoke": 'how-we-work "Ada Lovelace"',
    "invite restore": "how-we-work --dir clinic",
    "invite rounds": "links.csv --people people.csv --gateway https://gateway.example",
    "proposal show": "sleep.json --dir study",
    "proposal approve": "sleep.json --dir study",
    "proposal merge": "sleep.json sleep-of-B.json",
    "proposal send": "sleep.json --dir study",
    "org new": "--role shuffler --host a.example --dir study",
    "org show": "study/shuffler-1.public.toml",
    "deployment assemble": "study/shuffler-1.public.toml study/accountant.public.toml --name study --dir study",
    "deployment sign": "--dir study",
    "deployment diff": "--dir study",
    "deployment log": "--dir study",
    "deployment fingerprint": "--dir study",
    "cluster keys": "/var/lib/croupier/shuffler-1/cluster",
    "cluster scheduler": "--certificates cluster --listen 10.0.0.5:8786",
    "cluster worker": "tls://10.0.0.5:8786 --certificates cluster --host 10.0.0.5",
}
"""What follows `croupier` and the command in its example."""


class _Grouped(TyperCommand):
    """A command whose options are shown in groups if there are many."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        options = [option for option in self.params if isinstance(option, TyperOption)]
        if len(options) > MANY_OPTIONS:
            heading = {name: group for group, names in GROUPS.items() for name in names}
            for option in options:
                option.rich_help_panel = option.rich_help_panel or heading.get(option.name or "")


def add_examples_and_groups(app: typer.Typer, above: str = "") -> None:
    """Gives every command below `app` its example and its groups; `above` is what is typed before its name."""
    for command in app.registered_commands:
        name = command.name or str(getattr(command.callback, "__name__", "")).replace("_", "-")
        path = f"{above}{name}"
        command.cls = _Grouped
        if path in EXAMPLES:
            command.epilog = f"Example: croupier {path} {EXAMPLES[path]}".rstrip()
    for group in app.registered_groups:
        if group.typer_instance is not None and group.name:
            add_examples_and_groups(group.typer_instance, f"{above}{group.name} ")

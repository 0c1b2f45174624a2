"""The table of commands: the function that each runs, its heading in `croupier --help`, its help and an example.

The module of a command is imported when the command runs, and not before: `croupier --help` and a client stay light.
"""

from __future__ import annotations

from typing import NamedTuple

DEMONSTRATE = "Try it"
ASK = "Ask people"
MATHEMATICS = "Only the mathematics: no deployment needed"
TAKE_PART = "Take part"
OPERATE = "Run a deployment"
SET_UP = "Set up: keys, people, organisations"
MEASURE = "Measure and repeat"


class Command(NamedTuple):
    """One command.

    Attributes:
        function: what it runs, as module:function below croupier.cli.
        help: what it does; the first paragraph is shown in lists of commands.
        example: what follows `croupier` and the command in its example.
        extra: what to install where a library is missing, if several extras come with it.
    """

    function: str
    help: str
    example: str
    extra: str = ""


COMMANDS: dict[str, dict[str, Command | str]] = {
    DEMONSTRATE: {
        "demo": Command(
            "demonstration:demo",
            "Run a whole deployment on loopback, and answer questions about the participants in a file.",
            "--csv people.csv --value-column smokes --value-column hours:0:24",
            extra="demo",
        ),
        "bench": Command(
            "demonstration:bench",
            "Measure throughput against the number of users, beside the bare cryptography.",
            "--users 10000,100000",
        ),
        "train": Command(
            "training:train",
            "Train a model on shuffled, locally randomized gradients, with all clients played here; show what it "
            "costs.",
            "--dataset digits --epochs 5",
        ),
        "docs": Command(
            "documentation:docs",
            "Read a page of the documentation, as it belongs to this version of the program.",
            "runbook#a-round-is-held",
        ),
    },
    ASK: {
        "report": Command(
            "report:report",
            "Write a report on results: charts, sentences with both intervals, what it cost, and how to check it.",
            "how-we-work --out report.html",
            extra="report",
        ),
        "survey": "Ask people: one question or several, once or again and again, with one consent and one budget.",
        "survey new": Command(
            "surveys:survey_new",
            "Ask what to ask, and write it into a new file; of a single question the options may say everything.",
            'survey.toml --question "How are you?" --choices "well;not well"',
        ),
        "survey check": Command(
            "surveys:survey_check",
            "Say what each question would come to: granted or not, at which ε, how exact, and what the ledger has "
            "left; "
            "nothing is opened.\n\n"
            "Of a survey with a calendar: error and ε of every question per wave, per year and in all; give an error, "
            "a "
            "total ε, or both, and the budget, or the number of waves, is found. Without a deployment, and without the "
            "operator's keys, the ledger is left out.",
            "survey.toml --expected 300",
        ),
        "survey open": Command(
            "surveys:survey_open",
            "Open a survey, after a forecast of it: every service makes keys and signs. After a failure the same "
            "command "
            "goes on.\n\n"
            "A single question needs no file: the options describe it. Of a survey with a calendar this fixes version "
            "1, "
            "and 'survey run' opens its waves. Where organisations must approve, the command writes a proposal for "
            "them, "
            "and 'croupier proposal send' opens the survey.",
            'mood --dir clinic --question "How are you?" --choices "well;not well" --epsilon-max 0.5',
        ),
        "survey run": Command(
            "surveys:survey_run",
            "Run a survey with a calendar until its last wave is over: open, close and publish every wave in time.\n\n"
            "After a restart the same command goes on. It ends with 3 where a limit does not bear the next wave.",
            "study.toml --dir clinic",
        ),
        "survey show": Command(
            "surveys:survey_show",
            "Show what a participant should read before answering: the signed terms, verified; or what a file would "
            "ask.",
            "smokes-1 --dir clinic",
        ),
        "survey close": Command(
            "surveys:survey_close",
            "End admission; every round is then mixed, certified and published automatically.\n\n"
            "A round that some choice of budgets, or the ledger, would have refused is held open; nothing of it is "
            "destroyed, and the exit code is 3. With --withdraw it is deleted instead: one that is stuck, or that "
            "should "
            "never have been opened.",
            "smokes-1 --dir clinic --forecast",
        ),
        "survey change": Command(
            "surveys:survey_change",
            "Make a new version of a survey with a calendar from its changed file, for the waves that are not due yet."
            "\n\n"
            "People see it with the next wave, and consent again. Waves that are open keep the version that they have.",
            'study.toml --dir clinic --because "The question about sleep is asked once a week."',
        ),
        "survey results": Command(
            "survey_results:survey_results",
            "Print published results with their certificates, all verified; exit code 4 while there are none yet.\n\n"
            "Of several questions, also what they reveal together about one person; of all waves of a calendar, as "
            "their "
            "process has kept them, the differences between waves.",
            "smokes-1 --dir clinic",
            extra="plots",
        ),
        "invite": Command(
            "participants:invite",
            "Make a link with a secret for each person: it admits anyone who has it, once, to every question.\n\n"
            "The link of a study admits to all of its waves. --status counts the links and the people who have used "
            "them; --reissue and --revoke end links.",
            "how-we-work --people people.csv --gateway https://gateway.example",
            extra="invitations",
        ),
    },
    MATHEMATICS: {
        "certify": Command(
            "accounting:certify",
            "Certify the central guarantee of a shuffled batch from its local budgets, with an attack beside it.",
            "budgets.csv --randomizer rr --delta 1e-6 --compare",
        ),
        "explain": Command(
            "accounting:explain",
            "Say in plain language what a certificate promises, what that rests on, and what would make it better.",
            "certificate.json",
        ),
        "curve": Command(
            "accounting:curve",
            "Draw delta against epsilon: certified, the attack, and the published bounds.",
            "budgets.csv --randomizer laplace --out curve.png",
        ),
        "audit": Command(
            "accounting:audit",
            "Attack the shuffled batch: the largest epsilon that some data set and statistic reach, beside the "
            "certificate.",
            "budgets.csv --randomizer rr",
        ),
        "plan": Command(
            "accounting:plan",
            "Find what is not given: the largest local budgets, the number of users, or the accuracy to expect.\n\n"
            "With --error and one of --epsilon, --users and --budgets: the people or the budgets for that error. "
            "Local budgets are looked for up to 20, the most that a client accepts; with hop noise up to 8. Of "
            '--randomizer mean the levels with the least error; of "categories(k=1024)" the mechanism with it.',
            "--error 0.05 --epsilon 0.5",
        ),
    },
    TAKE_PART: {
        "submit": Command(
            "clients:submit",
            "Randomize, seal and submit: one user, or a fleet from a CSV file.",
            "--dir clinic --value-file answer --epsilon 1 --key me.key",
        ),
        "limits": Command(
            "clients:limits",
            "Show or set this client's own limits, which 'submit' keeps to before it randomizes or sends anything.",
            "--dir clinic --lifetime-epsilon 10 --max-local-epsilon 1",
        ),
        "verify": Command(
            "clients:verify",
            "Check that every hop has passed on everything that was submitted from here.",
            "smokes-1 --dir clinic",
        ),
        "participant-page": Command(
            "participants:participant_page",
            "Print the SHA-256 of the page on which participants answer; keep the page as a file; say whether it is "
            "signed.",
            "participate.html",
        ),
        "join": Command(
            "joining:join",
            "Consent to a study once, and answer its waves: those that are open, or with --follow all of them.\n\n"
            "The same command again goes on, and asks again only where the study has a new version.",
            "wellbeing --dir clinic --answers answers.toml --follow",
        ),
        "leave": Command(
            "joining:leave",
            "Leave a study: answer no more of its waves, and destroy what this device keeps for it.",
            "wellbeing --dir clinic",
        ),
    },
    OPERATE: {
        "canary": Command(
            "clients:canary",
            "Play clients of your own, and find out whether a hop loses or replaces submissions.",
            "smokes-1 --dir clinic --over 3600",
        ),
        "serve": Command(
            "deployment:serve", "Run one service in the foreground until SIGTERM.", "shuffler-1 --dir /var/lib/croupier"
        ),
        "up": Command(
            "deployment:up", "Start a local deployment, each service in its own process.", "--dir croupier-trial"
        ),
        "down": Command("deployment:down", "Stop a local deployment.", "--dir croupier-trial"),
        "status": Command(
            "deployment:status",
            "Show every service, whether it is ready, and the newest rounds: question, progress, deadline, state.",
            "--dir clinic --watch",
        ),
        "ledger": Command(
            "deployment:ledger",
            "Show what all rounds together have cost, back up that record, or restore it. Run it where the accountant"
            " runs.\n\n"
            "Where a shuffler runs, it shows what that shuffler's own ledger comes to, and its noise_limit.",
            "--dir /var/lib/croupier --forecast",
        ),
        "console": Command(
            "web:console",
            "Serve a web page: services, rounds as they happen, results and certificates, and participants' page.",
            "--dir clinic --open",
        ),
        "gateway": Command(
            "web:gateway",
            "Pass on the calls of clients that cannot speak gRPC, over HTTPS. It needs deployment.toml and no key.",
            "--dir clinic --listen 127.0.0.1:8790",
            extra="gateway",
        ),
        "doctor": Command(
            "hosts:doctor",
            "Examine a running deployment and say what to do; exit code 1 when something is wrong.\n\n"
            "Run it where the operator's keys are, to ask every service, and on each machine.",
            "--dir clinic",
        ),
    },
    SET_UP: {
        "keygen": Command(
            "deployment:keygen",
            "Make the keys of a deployment; or one client's or collector's key, or the certificates of a cluster.",
            "--client me.key",
        ),
        "rotate": Command(
            "deployment:rotate",
            "Change the identity and TLS key of a running service; each step is a version that every organisation "
            "signs.",
            "shuffler-1 --dir clinic --activate",
        ),
        "enrol": Command(
            "deployment:enrol",
            "Enrol clients by their public keys, or revoke keys.\n\n"
            "Hop 1 and the accountant admit an enrolled key to every round from then on. They never again admit a "
            "revoked key.",
            "me.key.pub --label Ada --dir clinic",
        ),
        "init": Command(
            "hosts:init",
            "Write a deployment for several machines, for one person who tries it: all keys are made here.\n\n"
            "Organisations that do not trust each other make their own: 'croupier org new'.",
            "--dir clinic --shuffler a.example --shuffler b.example --accountant c.example --analyzer d.example",
        ),
        "org": "Make the keys of one organisation, on its own machine.",
        "org new": Command(
            "organisations:new",
            "Make the keys and settings of one service, and a public file for the other organisations.",
            "--role shuffler --host a.example --dir study",
        ),
        "org show": Command(
            "organisations:show_files",
            "Show the words and the QR code of a public file, or of the deployment file with all of its versions.\n\n"
            "Compare them by telephone. Of each version: what it changed, and whether everybody consented.",
            "study/shuffler-1.public.toml",
        ),
        "proposal": "Sign together: versions of the deployment, and what the operator wants to do where it must ask.",
        "proposal new": Command(
            "proposals:proposal_new",
            "Make the next version from what the owners state; changes by several owners are merged by name.",
            "study/shuffler-1.public.toml study/accountant.public.toml --name study --dir study",
        ),
        "proposal show": Command(
            "proposals:proposal_show", "Show what a proposal changes, its words, and who has signed it.", "--dir study"
        ),
        "proposal sign": Command(
            "proposals:proposal_sign",
            "Show a proposal, ask, and sign it with the keys that are here; signatures of all copies are merged.\n\n"
            "The last signature on a version makes it the deployment.",
            "--dir study",
        ),
        "proposal send": Command(
            "proposals:proposal_send",
            "Carry out what enough have signed: do it, or install the version. The same command again is harmless.",
            "study/operator/proposals/1.toml copy.toml --dir study",
        ),
        "cluster": Command(
            "cluster:cluster",
            "More machines for one service: run the scheduler, or the workers of one machine, until SIGTERM.\n\n"
            "'croupier keygen --cluster' makes their certificates.",
            "tls://10.0.0.5:8786 --certificates cluster --host 10.0.0.5",
        ),
    },
}
"""The commands by heading, in the order of `croupier --help`; of a group of commands there is its purpose."""

BY_PATH = {
    path: command
    for commands in COMMANDS.values()
    for path, command in commands.items()
    if isinstance(command, Command)
}
"""Every command, by what is typed in order to run it."""

CHECKOUT = {
    "experiment": ("research.experiment_commands", "Repeat the papers' figures and tables; needs a checkout."),
    "research": ("research.commands", "Measurements and the tables of the documentation; needs a checkout."),
}
"""The maintainers' groups of commands, which are in a checkout and not in a wheel: their module and their purpose."""

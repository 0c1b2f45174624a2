"""The documentation is true: TOML samples load, commands and linked files exist, settings and metrics are described."""

from __future__ import annotations

import math
import re
import shlex
import tomllib
from pathlib import Path

import pytest

import croupier.cli
from croupier.accountant.budgets import Budgets
from croupier.accountant.certification import certify
from croupier.accountant.guarantees import Grade, Status
from croupier.accountant.mechanism_choice import standard_error
from croupier.accountant.mechanisms.base import Randomizer
from croupier.accountant.mechanisms.registry import RANDOMIZERS, as_randomizer
from croupier.accountant.planner import resized
from croupier.cli import app
from croupier.cli.commands import BY_PATH
from croupier.deploy.local.budget_groups import GSPA_BUDGETS, parse_budget_groups
from croupier.operator.keys import make_deployment
from croupier.operator.survey_file import read_survey_file
from croupier.protocol.deployment import DEPLOYMENT_FILE, load_deployment
from croupier.protocol.errors import Code
from croupier.protocol.rounding import round_up
from croupier.runtime.service_directory import SETTINGS_FILE, ServiceSettings, load_settings
from research.paper import SOURCE, paper_digest
from research.reference import commands_tables, errors_table, metrics_table
from tests.support import sign_again

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "docs" / "operations-reference.md"
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "deploy").rglob("*.md")])


README = (ROOT / "README.md").read_text()
MATHEMATICS = "".join((ROOT / "docs" / page).read_text() for page in ("accounting.md", "bounds.md"))


def fenced(page: Path, language: str) -> list[str]:
    blocks = re.findall(rf"^ *```{language}\n(.*?)^ *```", page.read_text(), re.MULTILINE | re.DOTALL)
    return [re.sub(r"^   ", "", block, flags=re.MULTILINE) for block in blocks]


SAMPLES = [(page, sample) for page in PAGES for sample in fenced(page, "toml")]


@pytest.mark.parametrize(("page", "sample"), SAMPLES, ids=lambda value: getattr(value, "name", None))
def test_every_toml_sample_is_read_by_the_real_loader(page: Path, sample: str, tmp_path: Path) -> None:
    (first, *_) = sample.splitlines()
    if SETTINGS_FILE in first:
        (tmp_path / SETTINGS_FILE).write_text(sample)
        assert load_settings(tmp_path) != ServiceSettings()
    elif "survey.toml" in first:
        (tmp_path / "survey.toml").write_text(sample)
        assert len(read_survey_file(tmp_path / "survey.toml").asked()) == 3
    elif "study.toml" in first or "words.toml" in first:
        (tmp_path / "study.toml").write_text(sample)
        assert len(read_survey_file(tmp_path / "study.toml").asked()) == 1
    else:
        assert DEPLOYMENT_FILE in first
        make_deployment(tmp_path / "d", "clinic", 1)
        with (tmp_path / "d" / DEPLOYMENT_FILE).open("a") as file:
            file.write(sample)
        sign_again(tmp_path / "d")
        assert load_deployment(tmp_path / "d" / DEPLOYMENT_FILE).privacy_limit is not None


def test_there_are_samples_and_the_first_names_every_setting() -> None:
    assert len(SAMPLES) >= 3
    described = set(tomllib.loads(fenced(REFERENCE, "toml")[0]))
    assert described == set(ServiceSettings.model_fields)


def commands(page: Path) -> list[str]:
    lines = [line for block in fenced(page, "(?:sh)?") for line in block.splitlines()]
    inline = re.findall(r"`(croupier [^`]+)`", page.read_text())
    return [line.partition("#")[0].split("&&")[0].strip() for line in lines if line.startswith("croupier ")] + inline


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_that_is_written_down_exists_with_its_options(page: Path) -> None:
    for line in commands(page):
        _, (*_, here), words = app.parse_commands(shlex.split(line)[1:])
        assert here.default_command or not words, line
        known = {name for argument in here.assemble_argument_collection() for name in argument.names} if words else ()
        for word in words:
            if word.startswith("--"):
                assert word in known, line


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_croupier_is_never_installed_from_a_public_index(page: Path) -> None:
    """Reproduction: 'pip install croupier[...]' cannot work, or installs what someone else has put there."""
    for installed in re.findall(r"pip install[^`\n]*?croupier(?!-)[^`\n]*", page.read_text()):
        assert "--no-index" in installed, installed


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_within_the_repository_leads_to_a_file(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#\s]+)(?:#\S*)?\)", page.read_text()):
        assert (page.parent / target).exists(), target


def test_every_metric_is_described_with_its_labels() -> None:
    rows = re.findall(r"^\| `(croupier_\w+)` \| ([\w, ]*) \| (\w.*\.) \|$", metrics_table(), re.MULTILINE)
    assert metrics_table() in REFERENCE.read_text()
    assert len(rows) == len(metrics_table().splitlines()) - 2 >= 16
    assert {name: labels for name, labels, _ in rows}["croupier_drops_total"] == "lane, reason"


def test_commands_and_errors_are_listed_from_the_program() -> None:
    listed = re.findall(r"^\| `([a-z -]+)` \| (\w.*) \| `croupier (.*)` \|$", commands_tables(), re.MULTILINE)
    assert [path for path, _, _ in listed] == [path for path, _, example in listed if example.startswith(path)]
    assert {path for path, _, _ in listed} == BY_PATH.keys()
    assert re.findall(r"^\| `(\w+)` ", errors_table(), re.MULTILINE) == [code.name for code in Code]
    assert errors_table() in REFERENCE.read_text()


def test_the_help_has_every_exit_code_that_is_described() -> None:
    """Reproduction: it left out 1 and 130."""
    described = re.findall(r"^\| (\d+) \| ", REFERENCE.read_text().partition("## Exit codes")[2], re.MULTILINE)
    for text in (app.help, croupier.cli.__doc__ or ""):
        assert re.findall(r"(?<![\w.])\d+(?= )", text.partition("Exit codes:")[2]) == described


def test_the_readme_has_a_word_on_every_grade_and_verdict() -> None:
    for word in (*Grade, *(status for status in Status if status in ("refuted", "out of range"))):
        assert re.search(rf"[`*]{word}[`*]", README), word


@pytest.mark.parametrize("kind", RANDOMIZERS)
def test_the_bounds_of_each_mechanism_are_described(kind: str) -> None:
    """Reproduction: the exchange bound was not named for the half sphere, and four others that have it."""
    (row,) = re.findall(rf"^\| `{kind}` .*", (ROOT / "docs" / "mechanisms.md").read_text(), re.MULTILINE)
    # One code for reports of finitely many values has it for bits; `pgr` is never one.
    has_it = RANDOMIZERS[kind].exchange_profile is not Randomizer.exchange_profile and kind != "pgr"
    assert has_it == ("(exchange-bound.md)" in row or "| as `rr` |" in row)


def row_of_readme(approach: str) -> str:
    (row,) = re.findall(rf"^\| \W*{approach}.*", README, re.MULTILINE)
    error: str = re.findall(r"\| ([\d.]+) \|", row)[0]
    return error


def test_the_errors_in_the_readme_are_those_of_the_program() -> None:
    """Reproduction: two of them were of other settings than they said."""
    ((users, epsilon),) = re.findall(r"among these ([\d,]+) people at ε = ([\d.]+)", README)
    num_users, central = int(users.replace(",", "")), float(epsilon)
    assert row_of_readme("central differential privacy") == f"{math.sqrt(2) / (num_users * central):.4f}"
    alone = standard_error(Budgets.from_tiers([(central, num_users)]), as_randomizer("rr"))
    assert row_of_readme("local differential privacy") == f"{alone:.3f}"
    drawn = Budgets.from_tiers(
        [(group.max_local_epsilon, int(group.share)) for group in parse_budget_groups(GSPA_BUDGETS)]
    )
    shuffled = standard_error(resized(drawn, num_users), as_randomizer("rr"))
    assert float(row_of_readme(r"croupier\*\*,")) == pytest.approx(shuffled, rel=0.03)  # of one run: it draws budgets


def test_what_the_readme_says_of_a_few_hundred_people_is_so() -> None:
    said = (
        r"\((\d+) with a local budget of (\d): error ([\d.]+) for a share and ([\d.]+) for a mean .*?, ε = ([\d.]+)\)"
    )
    ((users, budget, share, mean, epsilon),) = re.findall(said, README)
    few = Budgets.from_tiers([(float(budget), int(users))])
    assert share == f"{standard_error(few, as_randomizer('rr')):.3f}"
    assert mean == f"{standard_error(few, as_randomizer('onebit')):.3f}"
    assert epsilon == round_up(certify(few, "rr", delta=1e-6, attack=False).epsilon, 2)


def test_the_blanket_of_laplace_noise_is_as_good_as_it_says() -> None:
    """Reproduction: the table was of an earlier search, and said 0.0482 where 0.0484 is certified."""
    said = re.findall(r"^\| (\d[^|]*) \| 0\.\d+ \| (0\.\d+) \|$", MATHEMATICS, re.MULTILINE)
    assert len(said) == 3
    for people, epsilon in said:
        if "each of" in people:
            count, _, listed = people.partition(" each of ")
            tiers = [(float(budget), int(count)) for budget in listed.split(", ")]
        else:
            tiers = [
                (float(budget), int(count)) for count, budget in (part.split(" × ") for part in people.split(", "))
            ]
        certificate = certify(Budgets.from_tiers(tiers), "laplace", delta=1e-6, bounds="blanket", attack=False)
        assert certificate.epsilon <= float(epsilon) < certificate.epsilon + 1e-4


def test_the_victims_of_laplace_noise_are_certified_as_it_says() -> None:
    """Reproduction: 1.15, where 1.156 is certified, and 0.288, where it is 0.261 now."""
    mathematics = " ".join(MATHEMATICS.split())  # wherever its lines end
    ((few, largest, narrow, wide, broad),) = re.findall(
        r"Laplace, (\d+) others of ε = (\d), δ = 10⁻⁴: the certificate of a victim of ε = ([\d.]+) is ([\d.]+), that "
        r"of one of ε = \d is ([\d.]+\d)",
        mathematics,
    )
    for budget, epsilon in ((float(narrow), wide), (float(largest), broad)):
        around = Budgets.from_epsilons([budget] + [float(largest)] * int(few))
        tiers = certify(around, "laplace", delta=1e-4, attack=False).tiers
        (certified,) = (tier.epsilon for tier in tiers if tier.local_epsilon == budget)
        assert float(round_up(certified, 3)) == float(epsilon)


def test_the_built_paper_is_that_of_its_source() -> None:
    """`make paper` was run after the last change of docs/paper."""
    digest = paper_digest(ROOT / SOURCE)
    assert f'<meta name="keywords" content="{digest}"' in (ROOT / SOURCE).with_suffix(".html").read_text()
    assert (ROOT / SOURCE).with_suffix(".pdf").read_bytes().startswith(b"%PDF")  # built by the same command


def test_code_names_sections_that_the_paper_has() -> None:
    headings = set(re.findall(r"^# (\d)\.", (ROOT / SOURCE).read_text(), re.MULTILINE))
    named = {
        number
        for file in (ROOT / "accountant" / "bounds").glob("*.py")
        for number in re.findall(r"docs/paper, section (\d)", file.read_text())
    }
    assert {"1", "2", "5", "6"} <= named <= headings == set("1234567")

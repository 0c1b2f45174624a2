"""Organisations that make their own keys and sign one deployment file: what each checks, and what is refused."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from croupier.deploy.directory import read_deployment
from croupier.deploy.page.participants import page_hash
from croupier.deploy.version_files import write_deployment
from croupier.operator import organisations
from croupier.operator.keys import make_deployment
from croupier.operator.organisations import assemble, shared
from croupier.operator.public_file import read_public_file
from croupier.protocol import words
from croupier.protocol.deployment import (
    DEPLOYMENT_FILE,
    Deployment,
    RetiredIdentity,
    ServiceEntry,
    load_deployment,
    read_unchecked,
)
from croupier.protocol.names import Digest
from croupier.protocol.versions import follow
from croupier.protocol.words import fingerprint_words
from tests.support.command_line import answer, croupier
from tests.support.messages import naming

ROLES = {"a": "shuffler", "b": "accountant", "c": "analyzer"}
NAMES = {"a": "shuffler-1", "b": "accountant", "c": "analyzer"}


def found(place: Path, members: str = "abc") -> dict[str, Path]:
    """Three organisations with keys of their own, and one that opens rounds."""
    homes = {name: place / name for name in members}
    for name, home in homes.items():
        croupier(
            *("org", "new", "--role", ROLES[name], "--host", f"{name}.example", "--dir", home),
            *("--organisation", f"University {name.upper()}"),
        )
    if "b" in homes:
        croupier("org", "new", "--role", "operator", "--dir", homes["b"])
    return homes


def agree(homes: dict[str, Path], file: Path) -> Any:
    """Everybody signs a proposal, one after the other, and gets the file that all have signed."""
    for home in homes.values():
        said = answer("proposal", "sign", "--yes", file, "--dir", home)
        if said["not_signed_by"]:
            file = home / "proposal.toml"
    for home in homes.values():
        if home != list(homes.values())[-1]:
            answer("proposal", "sign", "--yes", list(homes.values())[-1] / DEPLOYMENT_FILE, "--dir", home)
    return said


def founded(place: Path) -> dict[str, Path]:
    homes = found(place)
    public = [home / f"{NAMES[name]}.public.toml" for name, home in homes.items()]
    operator = homes["b"] / "operator.public.toml"
    said = answer("proposal", "new", *public, operator, "--name", "study", "--dir", homes["a"])
    assert said["not_signed_by"] == ["shuffler-1", "accountant", "analyzer"]
    agree(homes, homes["a"] / "proposal.toml")
    return homes


@pytest.mark.slow
def test_three_organisations_make_one_deployment(tmp_path: Path) -> None:
    homes = founded(tmp_path)
    versions = [read_deployment(home) for home in homes.values()]
    assert len({version.fingerprint for version in versions}) == 1
    assert versions[0].chain == ("shuffler-1", "accountant", "analyzer")
    said = answer("org", "show", "--dir", homes["c"])
    assert said["words"] == fingerprint_words(versions[0].fingerprint)
    assert len(said["words"].split()) == 12
    secrets = {name: [file.read_bytes() for file in home.rglob("*.key")] for name, home in homes.items()}
    for name, home in homes.items():
        others = b"".join(file.read_bytes() for file in home.rglob("*") if file.is_file())
        for owner, keys in secrets.items():
            assert len(keys) == (6 if owner == "b" else 3)
            assert owner == name or not any(key in others for key in keys)


def test_a_file_that_lacks_a_signature_is_not_loaded(tmp_path: Path) -> None:
    made = make_deployment(tmp_path, "local", 1)
    file = tmp_path / DEPLOYMENT_FILE
    write_deployment(tmp_path, made.model_copy(update={"signatures": made.signatures[1:]}))
    with pytest.raises(ValueError, match=naming(made.signatures[0].signer)):
        load_deployment(file)
    write_deployment(tmp_path, made.model_copy(update={"name": "other"}))
    with pytest.raises(ValueError, match=naming("shuffler-1, accountant, analyzer")):
        load_deployment(file)
    assert "lacks the signature" in " ".join(croupier("serve", "analyzer", "--dir", tmp_path, expect=2).stderr.split())


@pytest.mark.slow
def test_an_own_entry_that_was_changed_is_not_signed(tmp_path: Path) -> None:
    homes = found(tmp_path)
    public = [home / f"{NAMES[name]}.public.toml" for name, home in homes.items()]
    operator = homes["b"] / "operator.public.toml"
    croupier("proposal", "new", *public, operator, "--name", "study", "--dir", homes["a"])
    proposal = homes["a"] / "proposal.toml"
    proposal.write_text(proposal.read_text().replace("c.example:7101", "evil.example:7101"))
    croupier("proposal", "sign", "--yes", proposal, "--dir", homes["b"])
    said = " ".join(croupier("proposal", "sign", "--yes", proposal, "--dir", homes["c"], expect=2).stderr.split())
    assert "changes public_address of analyzer, which is yours" in said
    (tmp_path / "strange").mkdir()
    stranger = tmp_path / "strange" / "operator.public.toml"
    croupier("org", "new", "--role", "operator", "--dir", stranger.parent)
    croupier("proposal", "new", *public, stranger, "--name", "study", "--dir", homes["a"])
    said = " ".join(croupier("proposal", "sign", "--yes", proposal, "--dir", homes["b"], expect=2).stderr.split())
    assert re.search(naming("operator.public.toml"), said)
    file = homes["c"] / "analyzer.public.toml"
    file.write_text(file.read_text().replace("c.example", "d.example"))
    assert "signed by analyzer" in croupier("org", "show", file, expect=2).stderr


@pytest.mark.slow
def test_two_rotations_at_once_are_merged_by_name(tmp_path: Path) -> None:
    homes = founded(tmp_path)
    for name in "ac":
        said = answer("rotate", NAMES[name], "--dir", homes[name])
        assert len(said["not_signed_by"]) == 3  # its owner, too, signs what is shown
    again = croupier("rotate", "analyzer", "--dir", homes["c"], expect=2).stderr
    assert "pending keys" in " ".join(again.split())
    stated = [homes[name] / f"{NAMES[name]}.public.toml" for name in "ac"]
    answer("proposal", "new", *stated, "--dir", homes["b"])
    changed = answer("proposal", "show", "--dir", homes["b"])["changed"]
    assert {line.partition(":")[0] for line in changed} == {"shuffler-1", "analyzer"}
    agree(homes, homes["b"] / "proposal.toml")
    for name in "ac":
        answer("rotate", NAMES[name], "--activate", "--dir", homes[name])
    answer("proposal", "new", *stated, "--dir", homes["b"])
    agree(homes, homes["b"] / "proposal.toml")
    newest = read_deployment(homes["b"])
    assert newest.version == 3
    assert [len(entry.retired_identities) for entry in newest.services] == [1, 0, 1]
    assert [version["version"] for version in answer("org", "show", "--dir", homes["b"])["versions"]] == [1, 2, 3]
    first, *later = [load_deployment(homes["c"] / "versions" / f"{number}.toml") for number in (1, 2, 3)]
    assert follow(first, later) == newest


@pytest.mark.slow
def test_two_statements_about_one_name_are_refused_with_the_difference(tmp_path: Path) -> None:
    homes = founded(tmp_path)
    edited = []
    for number, host in enumerate(("x.example", "y.example")):
        file = tmp_path / f"edited-{number}.toml"
        file.write_text((homes["a"] / DEPLOYMENT_FILE).read_text().replace("b.example:7101", f"{host}:7101"))
        edited.append(file)
    said = " ".join(croupier("proposal", "new", *edited, "--dir", homes["a"], expect=2).stderr.split())
    assert "accountant: public address" in said


@pytest.mark.slow
def test_a_service_is_handed_over_and_its_past_stays(tmp_path: Path) -> None:
    homes = founded(tmp_path)
    before = read_deployment(homes["a"])
    homes["d"] = tmp_path / "d"
    croupier("org", "new", "--role", "analyzer", "--host", "d.example", "--dir", homes["d"])
    answer("proposal", "new", homes["d"] / "analyzer.public.toml", "--dir", homes["a"])
    proposal = homes["a"] / "proposal.toml"
    for name in "abd":
        said = answer("proposal", "sign", "--yes", proposal, "--dir", homes[name])
        proposal = homes[name] / ("proposal.toml" if said["not_signed_by"] else DEPLOYMENT_FILE)
    assert said["not_signed_by"] == []
    # The former holder has not agreed: those who have the version before do not follow.
    loaded = read_unchecked(proposal)
    with pytest.raises(ValueError, match=naming("analyzer")):
        follow(before, [loaded])
    said = answer("proposal", "sign", "--yes", proposal, "--dir", homes["a"])
    assert said["not_signed_by"] == ["analyzer"]
    said = answer("proposal", "sign", "--yes", proposal, "--accept-loss", "analyzer", "--dir", homes["a"])
    assert said["not_signed_by"] == []
    assert answer("org", "show", "--dir", homes["a"])["versions"][1]["objected"] == ["analyzer"]
    entry = read_deployment(homes["a"]).analyzer
    assert [retired.identity for retired in entry.retired_identities] == [before.analyzer.identity]
    # With the former holder's agreement everybody follows.
    said = answer("proposal", "sign", "--yes", "--hand-over", "analyzer", proposal, "--dir", homes["c"])
    assert follow(before, [read_deployment(homes["c"])]).analyzer == entry


@pytest.mark.slow
def test_a_version_that_continues_another_one_is_refused(tmp_path: Path) -> None:
    homes = founded(tmp_path)
    shutil.copytree(homes["a"], tmp_path / "other")
    for home, limit in ((homes["a"], 1.0), (tmp_path / "other", 2.0)):
        copy = home / "edited.toml"
        copy.write_text(
            (home / DEPLOYMENT_FILE).read_text() + f"\n[privacy_limit]\ntotal_epsilon = {limit}\ntotal_delta = 1e-5\n"
        )
        answer("proposal", "new", copy, "--dir", home)
        answer("proposal", "sign", "--yes", "--dir", home)
    said = croupier(
        "proposal",
        "sign",
        "--yes",
        homes["a"] / "proposal.toml",
        tmp_path / "other" / "proposal.toml",
        "--dir",
        homes["b"],
        expect=2,
    ).stderr
    assert "privacy limit: (total_epsilon 1.0" in " ".join(said.split())
    agree(homes, homes["a"] / "proposal.toml")
    said = croupier(
        "proposal", "sign", "--yes", tmp_path / "other" / "proposal.toml", "--dir", homes["b"], expect=2
    ).stderr
    assert re.search(naming("version 2"), " ".join(said.split()))


def test_an_edited_file_is_signed_as_the_next_version(tmp_path: Path) -> None:
    """Reproduction: after a privacy limit was added, nothing started and nothing could be signed."""
    make_deployment(tmp_path, "local", 1)
    file = tmp_path / DEPLOYMENT_FILE
    file.write_text(file.read_text() + "\n[privacy_limit]\ntotal_epsilon = 1.5\ntotal_delta = 1e-5\n")
    with pytest.raises(ValueError, match=naming("croupier proposal sign")):
        read_deployment(tmp_path)
    signed = answer("proposal", "sign", "--yes", file, "--dir", tmp_path)
    assert (signed["version"], signed["not_signed_by"]) == (2, [])
    assert [line for line in signed["changed"] if "privacy limit" in line]
    limit = read_deployment(tmp_path).privacy_limit
    assert limit is not None
    assert limit.total_epsilon == 1.5


def test_a_file_from_before_signatures_is_signed(tmp_path: Path) -> None:
    write_deployment(tmp_path, make_deployment(tmp_path, "local", 1).model_copy(update={"signatures": ()}))
    shutil.rmtree(tmp_path / "versions")
    assert answer("proposal", "sign", "--yes", tmp_path / DEPLOYMENT_FILE, "--dir", tmp_path)["not_signed_by"] == []
    assert read_deployment(tmp_path).version == 1


def test_those_who_share_are_named_before_anybody_signs(tmp_path: Path) -> None:
    home = tmp_path / "x"
    for role in ("shuffler", "accountant", "analyzer"):
        port = {"shuffler": 7100, "accountant": 7110, "analyzer": 7120}[role]
        host = "one.example" if role != "shuffler" else "two.example"
        croupier(
            "org", "new", "--role", role, "--host", host, "--port", f"{port}", "--administrator", "Ada", "--dir", home
        )
    croupier("org", "new", "--role", "operator", "--host", "one.example", "--organisation", "Institute", "--dir", home)
    said = answer("proposal", "new", *sorted(home.glob("*.public.toml")), "--name", "s", "--dir", home)
    on_one_host, of_ada = said["shared"]
    assert re.match(naming("accountant", "analyzer", "operator", "one.example"), on_one_host)
    assert len(on_one_host.split("; ")) == 2  # both pairs with the accountant
    assert re.match(naming("shuffler-1", "accountant", "analyzer", "Ada"), of_ada)
    assert "; " not in of_ada
    assert json.loads(croupier("proposal", "sign", "--yes", "--dir", home, "--json").stdout)["not_signed_by"] == []


@pytest.mark.parametrize(
    ("field", "value", "who"),
    [
        ("organisation", "Bo's", "it"),
        ("administrator", "Bo", "this administrator"),
        ("host", "127.0.0.1", "its administrator"),
    ],
)
def test_an_operator_that_is_the_accountant_too_is_named(tmp_path: Path, field: str, value: str, who: str) -> None:
    made = make_deployment(tmp_path, "local", 1)
    entries = [
        entry.model_dump()
        | {"address": f"{'127.0.0.1' if entry.role == 'accountant' else entry.name}:7100"}
        | ({field: value} if entry.role == "accountant" and field != "host" else {})
        for entry in made.services
    ]
    stated = {"services": entries, "operator": {field: value}}
    deployment = Deployment.model_validate(made.model_dump() | stated)
    (said,) = shared(deployment)
    assert re.match(naming("accountant", "operator", value, who), said)
    write_deployment(tmp_path, deployment)
    assert read_unchecked(tmp_path / DEPLOYMENT_FILE) == deployment


def test_the_words_are_those_of_the_standard(tmp_path: Path) -> None:
    text = (Path(words.__file__).parent / "words.txt").read_bytes()
    assert hashlib.sha256(text).hexdigest() == "2f5eed53a4727b4bf8880d8f3f199efc90e58503646d9ff8eff3a2ed3b24dbda"
    # A vector of BIP-39 with 128 bits: its first eleven words do not depend on the checksum.
    first = ["legal", "winner", "thank", "year", "wave", "sausage", "worth", "useful", "legal", "winner", "thank"]
    assert fingerprint_words(Digest(bytes.fromhex("7f" * 16) + bytes(16))).split()[:11] == first


def test_the_page_of_a_new_release_is_signed_as_a_new_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_deployment(tmp_path, "local", 1)
    file = tmp_path / DEPLOYMENT_FILE
    with pytest.raises(ValueError, match=naming("nothing new")):
        assemble(tmp_path, [])
    monkeypatch.setattr(organisations, "page_hash", lambda: "cd" * 32)
    proposal = assemble(tmp_path, [])
    assert proposal.participant_pages == ("cd" * 32, page_hash())
    write_deployment(tmp_path, proposal, "proposal.toml")
    said = " ".join(croupier("proposal", "sign", "--yes", "--dir", tmp_path).stdout.split())
    assert re.search(naming(f"participants {'cd' * 32}"), said)
    assert re.search(naming(f"participants {page_hash()}"), said)
    assert load_deployment(file).participant_pages == proposal.participant_pages


@pytest.mark.slow
def test_before_signing_everybody_reads_the_words_of_every_public_file(tmp_path: Path) -> None:
    homes = found(tmp_path)
    public = {name: home / f"{NAMES[name]}.public.toml" for name, home in homes.items()}
    told = {name: answer("org", "show", file)["words"] for name, file in public.items()}
    operator = homes["b"] / "operator.public.toml"
    croupier("proposal", "new", *public.values(), operator, "--name", "study", "--dir", homes["a"])
    said = " ".join(croupier("proposal", "sign", "--yes", "--dir", homes["a"]).stdout.split())
    assert all(words in said for words in told.values())
    # A file that was changed on its way to A has other words, there and in what A signs.
    stranger = found(tmp_path / "strangers", "c")["c"] / public["c"].name
    other = tmp_path / "other"
    croupier("proposal", "new", public["a"], public["b"], stranger, operator, "--name", "study", "--dir", other)
    refused = croupier("proposal", "sign", "--yes", other / "proposal.toml", "--dir", homes["a"], expect=2)
    shown = " ".join(refused.stdout.split())  # A has agreed to another version 1
    assert told["a"] in shown
    assert told["c"] not in shown


def test_the_words_are_shown_as_a_code_for_telephones_too(tmp_path: Path) -> None:
    found(tmp_path, "a")
    said = croupier("org", "show", tmp_path / "a" / "shuffler-1.public.toml").stdout
    assert sum("█" in line or "▀" in line or "▄" in line for line in said.split("\n")) > 15


@pytest.mark.slow
def test_the_log_notices_a_version_that_was_rewritten(tmp_path: Path) -> None:
    homes = founded(tmp_path)
    croupier("rotate", "analyzer", "--dir", homes["c"])
    croupier("proposal", "new", homes["c"] / "analyzer.public.toml", "--dir", homes["a"])
    agree(homes, homes["a"] / "proposal.toml")
    log = answer("org", "show", "--dir", homes["a"])["versions"]
    assert [(version["version"], version["objected"]) for version in log] == [(1, []), (2, [])]
    first = homes["a"] / "versions" / "1.toml"
    assert 'organisation = "University B"' in first.read_text(encoding="utf-8")
    first.write_text(first.read_text(encoding="utf-8").replace("University B", "University X"), encoding="utf-8")
    refused = croupier("org", "show", "--dir", homes["a"], expect=2).stderr
    assert "1.toml" in refused


@pytest.mark.slow
def test_more_approvals_than_organisations_are_refused(tmp_path: Path) -> None:
    homes = founded(tmp_path)
    refused = croupier("proposal", "new", "--approvals", "4", "--dir", homes["a"], expect=2).stderr
    assert re.search(naming(4, "3 organisations", "0..3"), " ".join(refused.split()))


def edited(homes: dict[str, Path], name: str, *changes: tuple[str, str]) -> Path:
    """A copy of the installed file that somebody has changed."""
    text = (homes["a"] / DEPLOYMENT_FILE).read_text(encoding="utf-8")
    for before, after in changes:
        assert before in text
        text = text.replace(before, after)
    file = homes["a"] / name
    file.write_text(text, encoding="utf-8")
    return file


@pytest.mark.slow
def test_a_foreign_identity_in_ones_own_place_is_not_signed(tmp_path: Path) -> None:
    """Reproduction: the replaced owner's command ended with 0 and "all have signed", and installed the file."""
    homes = found(tmp_path)
    stranger = found(tmp_path / "strangers", "c")["c"]
    public = [homes["a"] / "shuffler-1.public.toml", homes["b"] / "accountant.public.toml"]
    public += [stranger / "analyzer.public.toml", homes["b"] / "operator.public.toml"]
    croupier("proposal", "new", *public, "--name", "study", "--dir", homes["a"])
    proposal = homes["a"] / "proposal.toml"
    for home in (homes["a"], homes["b"], stranger):
        croupier("proposal", "sign", "--yes", proposal, "--dir", home)
        proposal = home / "proposal.toml" if (home / "proposal.toml").exists() else home / DEPLOYMENT_FILE
    for more in ((), ("--hand-over", "analyzer")):
        said = croupier("proposal", "sign", "--yes", proposal, *more, "--dir", homes["c"], expect=2).stderr
        assert re.search(naming("another identity", "analyzer", "your service"), " ".join(said.split()))
    assert not (homes["c"] / DEPLOYMENT_FILE).exists()


def test_a_foreign_identity_among_ones_own_retired_ones_is_not_signed(tmp_path: Path) -> None:
    """Reproduction: the owner signed it, was not shown it in a first version, and it was believed in every round."""
    homes = found(tmp_path)
    foreign = "ab" * 32
    public = [home / f"{NAMES[name]}.public.toml" for name, home in homes.items()]
    operator = homes["b"] / "operator.public.toml"
    croupier("proposal", "new", *public, operator, "--name", "study", "--dir", homes["a"])
    made = read_unchecked(homes["a"] / "proposal.toml")
    retired = (RetiredIdentity(identity=foreign),)
    added = made.analyzer.model_copy(update={"retired_identities": retired})
    write_deployment(homes["a"], with_entry(made, added), "edited.toml")
    for stated in (True, False):  # also where no public file says what the owner has stated
        if not stated:
            (homes["c"] / "analyzer.public.toml").unlink()
        said = croupier("proposal", "sign", "--yes", homes["a"] / "edited.toml", "--dir", homes["c"], expect=2).stderr
        assert re.search(naming("retired_identities", "analyzer"), " ".join(said.split()))
    agree(homes, homes["a"] / "proposal.toml")
    installed = read_deployment(homes["a"])
    following = {"version": 2, "previous": installed.fingerprint.hex(), "signatures": ()}
    later = with_entry(installed, added).model_copy(update=following)
    write_deployment(homes["a"], later, "edited.toml")
    for home in homes.values():  # nobody signs that somebody else has an identity that nobody has seen before
        said = croupier("proposal", "sign", "--yes", homes["a"] / "edited.toml", "--dir", home, expect=2).stderr
        assert re.search(naming(foreign[:8], "analyzer"), " ".join(said.split()))


@pytest.mark.slow
def test_a_stolen_identity_stays_marked_in_what_its_owner_signs(tmp_path: Path) -> None:
    """Reproduction: the owner signed a proposal in which the mark, or the date, was taken away."""
    homes = founded(tmp_path)
    for step in ((), ("--activate",)):
        answer("rotate", "shuffler-1", *step, "--dir", homes["a"])
        agree(homes, homes["a"] / "proposal.toml")
    answer("rotate", "shuffler-1", "--compromised", "--dir", homes["a"])
    made = read_unchecked(homes["a"] / "proposal.toml")
    entry = made.service("shuffler-1")
    (marked,) = entry.retired_identities
    assert marked.compromised
    cleared = entry.model_copy(update={"retired_identities": (marked.model_copy(update={"compromised": False}),)})
    write_deployment(homes["a"], with_entry(made, cleared), "edited.toml")
    said = croupier("proposal", "sign", "--yes", homes["a"] / "edited.toml", "--dir", homes["a"], expect=2).stderr
    assert re.search(naming("retired_identities", "shuffler-1"), " ".join(said.split()))


@pytest.mark.slow
def test_a_service_is_handed_over_by_its_name_alone(tmp_path: Path) -> None:
    """Reproduction: `sign` gave one's own service to other keys without a question, and clients followed."""
    homes = founded(tmp_path)
    homes["d"] = tmp_path / "d"
    made = ("org", "new", "--role", "analyzer", "--host", "d.example", "--organisation", "Clinic D")
    words_of_d = answer(*made, "--dir", homes["d"])["words"]
    answer("proposal", "new", homes["d"] / "analyzer.public.toml", "--dir", homes["a"])
    proposal = homes["a"] / "proposal.toml"
    said = croupier("proposal", "sign", "--yes", proposal, "--dir", homes["c"], expect=2)
    assert re.search(naming("analyzer", "Clinic D", words_of_d), " ".join(said.stdout.split()))
    assert re.search(naming("analyzer", "--hand-over analyzer"), " ".join(said.stderr.split()))
    assert not (homes["c"] / "proposal.toml").exists()
    given = ("--yes", "--hand-over", "analyzer")
    said = answer("proposal", "sign", *given, proposal, "--dir", homes["c"])
    assert said["not_signed_by"] == ["shuffler-1", "accountant", "analyzer"]  # D, too, signs for the analyzer
    assert all(
        words_of_d in " ".join(croupier("proposal", "sign", proposal, "--dir", homes[name], expect=1).stdout.split())
        for name in "ab"
    )


@pytest.mark.slow
def test_pending_keys_that_are_not_ones_own_are_not_signed(tmp_path: Path) -> None:
    """Also where no public file says what the owner has stated."""
    homes = founded(tmp_path)
    stranger = found(tmp_path / "strangers", "c")["c"]
    (homes["c"] / "analyzer.public.toml").unlink()
    installed = read_deployment(homes["a"])
    entry = installed.analyzer
    theirs = read_public_file(stranger / "analyzer.public.toml").service
    assert theirs is not None
    for wrong, change in (
        ("pending_identity", {"pending_identity": theirs.identity}),
        ("tls_certificate", {"tls_certificate": theirs.tls_certificate}),
        ("tls_certificate", {"pending_tls_certificate": theirs.tls_certificate}),
    ):
        write_deployment(homes["a"], with_entry(installed, entry.model_copy(update=change)), "edited.toml")
        said = croupier("proposal", "sign", "--yes", homes["a"] / "edited.toml", "--dir", homes["c"], expect=2).stderr
        assert re.search(naming(wrong, "analyzer"), " ".join(said.split()))


def with_entry(deployment: Deployment, entry: ServiceEntry) -> Deployment:
    services = tuple(entry if service.name == entry.name else service for service in deployment.services)
    return deployment.model_copy(update={"services": services})


def test_what_is_signed_is_shown_and_asked_before(tmp_path: Path) -> None:
    homes = founded(tmp_path)
    limit = ("[[services]]", "[privacy_limit]\ntotal_epsilon = 1.5\ntotal_delta = 1e-5\n\n[[services]]")
    text = (homes["a"] / DEPLOYMENT_FILE).read_text(encoding="utf-8").replace(*limit, 1)
    file = homes["a"] / "edited.toml"
    file.write_text(text, encoding="utf-8")
    before = {path: path.read_bytes() for path in homes["a"].rglob("*") if path.is_file()}
    said = croupier("proposal", "sign", file, "--dir", homes["a"], expect=1, typed="n\n")
    assert "total_epsilon 1.5" in " ".join(said.stdout.split())
    assert {path: path.read_bytes() for path in homes["a"].rglob("*") if path.is_file()} == before
    for how in ("--json", "--print"):
        croupier("proposal", "sign", file, how, "--dir", homes["a"], expect=2)
    signed = croupier("proposal", "sign", file, "--dir", homes["a"], typed="y\n")
    words_shown = fingerprint_words(read_unchecked(homes["a"] / "proposal.toml").fingerprint)
    assert words_shown in " ".join(said.stdout.split())
    assert words_shown in " ".join(signed.stdout.split())
    # What one has agreed to is not asked again: the file that all have signed is brought home.
    agree(homes, homes["a"] / "proposal.toml")
    assert "Sign this?" not in croupier("proposal", "sign", homes["c"] / DEPLOYMENT_FILE, "--dir", homes["b"]).stderr
    assert answer("proposal", "show", homes["a"] / "versions" / "2.toml", "--dir", homes["a"])["changed"] == []
    _, second = answer("org", "show", "--dir", homes["a"])["versions"]
    assert len([line for line in second["changed"] if "privacy limit" in line]) == 1


@pytest.mark.slow
def test_nobody_signs_two_versions_with_one_number_without_knowing(tmp_path: Path) -> None:
    """Reproduction: two complete versions 2, which services and participants could be led to."""
    homes = founded(tmp_path)
    proposals = [
        edited(homes, f"{host}.toml", ("b.example:7101", f"{host}:7101")) for host in ("x.example", "y.example")
    ]
    (homes["b"] / "accountant.public.toml").unlink()
    answer("proposal", "sign", "--yes", proposals[0], "--dir", homes["a"])
    first = read_unchecked(homes["a"] / "proposal.toml").fingerprint.hex()
    said = " ".join(croupier("proposal", "sign", "--yes", proposals[1], "--dir", homes["a"], expect=2).stderr.split())
    assert f"--instead-of {first[:16]}" in said
    for wrong in (first[:15], "0" * 16):
        croupier("proposal", "sign", "--yes", proposals[1], "--instead-of", wrong, "--dir", homes["a"], expect=2)
    answer("proposal", "sign", "--yes", proposals[1], "--instead-of", first[:16], "--dir", homes["a"])
    said = " ".join(croupier("proposal", "sign", "--yes", proposals[0], "--dir", homes["a"], expect=2).stderr.split())
    assert first[:16] not in said  # the last one that was agreed to counts

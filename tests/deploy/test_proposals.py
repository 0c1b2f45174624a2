"""Both kinds of proposal, versions of the deployment and actions of the operator, are shown, signed, merged alike."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from croupier.client.submission import new_client_key
from croupier.deploy.directory import read_deployment
from croupier.deploy.version_files import write_deployment
from croupier.operator.keys import make_deployment, signed_here
from croupier.operator.proposals import Approvals
from croupier.protocol.approvals import proposal_to_admit
from croupier.protocol.deployment import DEPLOYMENT_FILE, Deployment
from croupier.protocol.identity import public_key_of
from croupier.protocol.v1 import messages_pb2 as pb
from tests.support.command_line import answer, croupier


def organisations(place: Path) -> dict[str, Path]:
    """Folders of three organisations that have to agree, each with the keys of its service."""
    made = make_deployment(place / "all", "local", 1)
    services = [entry.model_dump() | {"organisation": f"Org {entry.name}"} for entry in made.services]
    named = Deployment.model_validate(made.model_dump() | {"services": services, "approvals": 3})
    deployment = signed_here(named, [place / "all"])
    homes = {name: place / name for name in deployment.chain}
    for name, home in homes.items():
        home.mkdir()
        (home / name).symlink_to(place / "all" / name)
        write_deployment(home, deployment)
    return homes


def version(home: Path, gateway: str) -> Path:
    edited = home / f"{gateway}.toml"
    text = (home / DEPLOYMENT_FILE).read_text(encoding="utf-8")
    edited.write_text(f'gateway = "https://{gateway}.example"\n{text}', encoding="utf-8")
    answer("proposal", "new", edited, "--dir", home)
    return (home / "proposal.toml").rename(edited)


def registration(home: Path, _: str) -> Path:
    deployment = read_deployment(home)
    request = pb.RegisterClientsRequest(client_keys=[public_key_of(new_client_key())])
    return Approvals(home, deployment).write([proposal_to_admit(deployment, request)])


@pytest.mark.parametrize("proposed", [version, registration])
def test_copies_are_shown_and_signed_apart_and_merged(tmp_path: Path, proposed: Callable[[Path, str], Path]) -> None:
    homes = organisations(tmp_path)
    first, *others = homes.values()
    file, another = proposed(first, "one"), proposed(first, "two")
    copies = []
    for home in homes.values():
        copies.append(shutil.copy(file, home / "copy.toml"))
        shown = answer("proposal", "show", copies[-1], "--dir", home)
        assert (shown["signed_by"], len(shown["not_signed_by"])) == ([], 3)
        signed = answer("proposal", "sign", copies[-1], "--yes", "--dir", home)
        assert (signed["words"], len(signed["signed_by"])) == (shown["words"], 1)
        if proposed is version:
            copies[-1] = home / "proposal.toml"
    croupier("proposal", "send", *copies[:2], "--dir", first, expect=4)
    merged = answer("proposal", "show", *copies, "--dir", first)
    assert (len(merged["signed_by"]), merged["not_signed_by"]) == (3, [])
    refused = croupier("proposal", "sign", "--yes", copies[0], another, "--dir", first, expect=2).stderr
    assert str(another) in "".join(refused.split())
    (tmp_path / "nobody").mkdir()
    shutil.copy(first / DEPLOYMENT_FILE, tmp_path / "nobody")
    croupier("proposal", "sign", "--yes", file, "--dir", tmp_path / "nobody", expect=2)
    if proposed is version:
        answer("proposal", "send", *copies, "--dir", others[0])
        assert read_deployment(others[0]).gateway == "https://one.example"

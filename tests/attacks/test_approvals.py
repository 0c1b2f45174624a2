"""An operator that decides alone: where two organisations must approve, it opens, enrols and revokes nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from croupier.client.submission import new_client_key
from croupier.deploy.version_files import write_signed
from croupier.operator.canaries import enrol_with_canaries, take_keys
from croupier.operator.carry_out import actions_proposal, carry_out
from croupier.operator.keys import make_deployment
from croupier.operator.operator import Operator
from croupier.operator.overview import approvals_of
from croupier.operator.proposals import VALID_S, ActionApproval, Actions, Approvals, read_actions, read_copies
from croupier.operator.roster import Enrolment, enrol, enrolled
from croupier.protocol.approvals import (
    MOST_VALID_S,
    approving_organisations,
    proposal_to_admit,
    with_expiry,
)
from croupier.protocol.deployment import DEPLOYMENT_FILE, Deployment, read_unchecked
from croupier.protocol.errors import Code, Refusal
from croupier.protocol.identity import Identity, Kind, public_key_of
from croupier.protocol.names import PrivateKey, RoundId
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.protocol.v1 import services_pb2 as rpc
from croupier.runtime.clock import SystemClock
from croupier.runtime.kinds import DocumentKind
from croupier.runtime.peers import Peers
from croupier.runtime.service_directory import identity_keys
from croupier.runtime.steps import StoreStep
from tests.support import InProcess, in_memory, settings, sign_again
from tests.support.approvals import approve_file
from tests.support.command_line import answer, croupier
from tests.support.messages import naming, refuses

pytestmark = pytest.mark.virtual_time


@contextmanager
def is_not_approved() -> Iterator[None]:
    with refuses(Code.NOT_APPROVED):
        yield


def organisation(inside: InProcess, folder: Path, *names: str) -> Path:
    """The directory of an organisation that has the keys of these services and no others."""
    folder.mkdir()
    for name in names:
        (folder / name).symlink_to(inside.directory / name)
    return folder


def signed_by(inside: InProcess, name: str, proposal: bytes) -> pb.Signature:
    home = inside.directory / name
    return Identity(name, identity_keys(home)[0]).sign(Kind.PROPOSAL, proposal)


class SignsFor(Approvals):
    """A dishonest operator's list: the signatures are there for whatever it asks."""

    signatures: tuple[pb.Signature, ...] = ()
    expires_unix_s = 0

    def valid(self, action: bytes) -> ActionApproval:
        return ActionApproval(list(self.signatures), [], self.expires_unix_s)

    def of(self, actions: Sequence[bytes]) -> list[ActionApproval]:
        return [self.valid(action) for action in actions]


def dishonest(inside: InProcess, *signatures: pb.Signature, expires_unix_s: int = 0) -> Operator:
    operator = inside.operator()
    operator.approvals = SignsFor(inside.directory, operator.deployment)
    operator.approvals.signatures, operator.approvals.expires_unix_s = signatures, expires_unix_s
    return operator


async def test_an_operator_opens_enrols_and_revokes_nothing_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = public_key_of(new_client_key())
    async with in_memory(tmp_path / "d", 2, approvals=2, clock=SystemClock()) as inside:
        async with inside.operator() as honest:
            with is_not_approved():
                await honest.open_round(settings(), RoundId("asked"))
        (file,) = (inside.directory / "operator" / "proposals").glob("*.toml")
        action, expires = bytes.fromhex(read_actions(file).actions[0]), read_actions(file).expires_unix_s
        signature, again = signed_by(inside, "shuffler-1", action), signed_by(inside, "shuffler-1", action)
        other = signed_by(inside, "accountant", action)
        for signatures in (
            (),
            (signature,),
            (signature, again),
            (signature, pb.Signature(signer="accountant", signature=other.signature[::-1])),
        ):
            async with dishonest(inside, *signatures, expires_unix_s=expires) as operator:
                with is_not_approved():
                    await operator.open_round(settings(), RoundId("asked"))
        async with dishonest(inside, signature, other, expires_unix_s=expires) as operator:
            for changed in (replace(settings(), epsilon_max=9.0), replace(settings(), min_batch_size=3)):
                with is_not_approved():  # what was approved has other terms
                    await operator.open_round(changed, RoundId("asked"))
            with is_not_approved():
                await operator.open_round(settings(), RoundId("another-round"))
            for call in (operator.enrol([key]), operator.revoke([key])):
                with is_not_approved():
                    await call
            assert (await operator.open_round(settings(), RoundId("asked"))).round_id == "asked"
        approved = pb.ProposalApproved()
        monkeypatch.setattr(Peers, "require_approval", lambda *_: approved)  # that check alone stops it
        async with dishonest(inside) as operator:
            await operator.enrol([key])
            assert (await operator.open_round(settings(), RoundId("alone"))).round_id == "alone"


async def test_approvals_expire(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An approval that was never used was good for ever, also when its organisation had decided otherwise."""
    async with in_memory(tmp_path / "d", 1, approvals=2, clock=SystemClock()) as inside:
        async with inside.operator() as honest:
            with is_not_approved():
                await honest.open_round(settings(), RoundId("asked"))
        (file,) = (inside.directory / "operator" / "proposals").glob("*.toml")
        content, now = with_expiry(bytes.fromhex(read_actions(file).actions[0]), 0), inside.clock.now()
        for expires, signed, reason in (
            (int(now) - 60, 0, naming("UTC")),
            (0, 0, "expired"),
            (int(now + MOST_VALID_S) + 86400, 0, naming(31, 30)),
            (int(now) + 3600, int(now) - 60, naming(0, 2)),  # what says more was signed
        ):
            action = with_expiry(content, signed or expires)
            signatures = [signed_by(inside, name, action) for name in ("shuffler-1", "accountant")]
            async with dishonest(inside, *signatures, expires_unix_s=expires) as operator:
                with refuses(Code.NOT_APPROVED, reason):
                    await operator.open_round(settings(), RoundId("asked"))
                if not signed:
                    with pytest.raises(Refusal, match="expire"):
                        await signed_revocation(operator, inside, expires)


async def signed_revocation(operator: Operator, inside: InProcess, expires_unix_s: int) -> None:
    """Revokes a key with the approval of two organisations."""
    request = pb.RevokeClientsRequest(client_keys=[public_key_of(new_client_key())])
    action = with_expiry(proposal_to_admit(operator.deployment, request), expires_unix_s)
    approvals = operator.approvals
    assert isinstance(approvals, SignsFor)
    approvals.signatures = tuple(signed_by(inside, name, action) for name in ("shuffler-1", "accountant"))
    await operator.carry_out_revocation([request])


def test_a_proposal_that_has_expired_is_written_again(tmp_path: Path) -> None:
    deployment = make_deployment(tmp_path, "local", 1)
    request = pb.RegisterClientsRequest(client_keys=[public_key_of(new_client_key())])
    content, now = proposal_to_admit(deployment, request), 1e9
    first = Approvals(tmp_path, deployment, lambda: now).write([content])
    assert read_actions(first).expires_unix_s == now + VALID_S
    assert Approvals(tmp_path, deployment, lambda: now + 60).write([content]) == first  # the same, as it was
    before = approve_file(tmp_path, first, deployment, now=lambda: now + VALID_S - 1)
    assert before.signed_by(deployment)
    with pytest.raises(ValueError, match=naming("2001-09-16 01:46 UTC")):
        approve_file(tmp_path, first, deployment, now=lambda: now + VALID_S)
    assert "expired" in croupier("proposal", "send", first, "--dir", tmp_path, expect=2).stderr
    assert Approvals(tmp_path, deployment, lambda: now + VALID_S).write([content]) == first
    assert read_actions(first).expires_unix_s == now + 2 * VALID_S
    assert not read_actions(first).signatures


async def test_two_services_of_one_organisation_are_one_approval(tmp_path: Path) -> None:
    """Also where it has them in one file, and the rule of another organisation asks for its own signature."""
    rule = '[rules]\napproved_by = ["Org accountant"]\n'
    here = in_memory(
        tmp_path / "d",
        2,
        approvals=2,
        clock=SystemClock(),
        settings_of=lambda name: rule if name == "accountant" else "",
    )
    async with here as inside:
        await inside.stop(*inside.running)
        text = (inside.directory / DEPLOYMENT_FILE).read_text(encoding="utf-8")
        for name in ("shuffler-1", "analyzer"):
            text = text.replace(f"Org {name}", "Both")
        (inside.directory / DEPLOYMENT_FILE).write_text(text, encoding="utf-8")
        deployment = sign_again(inside.directory)
        await inside.start(*deployment.chain)
        both = organisation(inside, tmp_path / "both", "shuffler-1", "analyzer")
        hop = organisation(inside, tmp_path / "hop", "shuffler-2")
        last = organisation(inside, tmp_path / "last", "accountant")
        async with inside.operator() as operator:
            with is_not_approved():
                await operator.open_round(settings(), RoundId("asked"))
            (file,) = (inside.directory / "operator" / "proposals").glob("*.toml")
            assert approve_file(both, file, deployment).signed_by(deployment) == ["Both"]
            with is_not_approved():
                await operator.open_round(settings(), RoundId("asked"))
            assert approve_file(hop, file, deployment).signed_by(deployment) == ["Both", "Org shuffler-2"]
            with refuses(Code.BAD_MANIFEST, naming("Org accountant")):
                await operator.open_round(settings(), RoundId("asked"))
            approve_file(last, file, deployment)
            assert (await operator.open_round(settings(), RoundId("asked"))).round_id == "asked"


async def test_what_was_approved_is_carried_out_and_the_roster_says_by_whom(tmp_path: Path) -> None:
    async with in_memory(tmp_path / "d", 2, approvals=2, clock=SystemClock()) as inside:
        home, deployment = inside.directory, read_unchecked(inside.directory / DEPLOYMENT_FILE)
        folders = [organisation(inside, tmp_path / name, name) for name in ("shuffler-1", "accountant")]

        def approved(file: Path) -> Path:
            """Both sign copies of their own; the operator brings them together."""
            copies = []
            for folder in folders:
                copies.append(folder / file.name)
                copies[-1].write_bytes(file.read_bytes())
                approve_file(folder, copies[-1], deployment)
            write_signed(file, read_copies([file, *copies]))
            return file

        def proposed(before: set[Path]) -> Path:
            (file,) = set((home / "operator" / "proposals").glob("*.toml")) - before
            return file

        known = Enrolment(public_key_of(new_client_key()).hex(), "Ada")
        with is_not_approved():
            await enrol(home, [known], inside.transport)
        assert [(row.label, row.enrolled_at) for row in enrolled(home)] == [("Ada", "")]
        first = proposed(set())
        with is_not_approved():
            await carry_out(home, first, inside.transport)
        said = croupier("proposal", "send", first, "--dir", home, expect=4).stderr
        assert re.search(naming(first, "nobody", 2), " ".join(said.split()))
        assert await carry_out(home, approved(first), inside.transport) == ["done: register 1 keys"]
        assert [(row.label, row.enrolled_by) for row in enrolled(home)] == [("Ada", "Org accountant, Org shuffler-1")]
        assert await enrol(home, [known], inside.transport) == 0  # the same command again, now approved

        with is_not_approved():
            await enrol_with_canaries(home, [replace(known, label="Bob")], 2, inside.transport)
        second = proposed({first})
        assert await carry_out(home, approved(second), inside.transport) == ["done: register 3 keys"]
        keys = [public_key_of(key) for key in take_keys(home, 2)]
        async with inside.operator() as operator:
            with is_not_approved():
                await operator.revoke(keys)
            third = proposed({first, second})
            await carry_out(home, approved(third), inside.transport)
            assert set((await operator.revoke(keys)).values()) == {0}  # that has revoked all of them

            with is_not_approved():
                await operator.open_round(settings(), RoundId("asked"))
            await carry_out(home, approved(proposed({first, second, third})), inside.transport)
            answers = [
                answer for answer in await operator.status(RoundId("asked")) if isinstance(answer, rpc.StatusResponse)
            ]
            states = [row.state for answer in answers for row in answer.rounds]
            assert set(states) == {pb.ROUND_STATE_OPEN}
            both = ["Org accountant", "Org shuffler-1"]
            assert await approvals_of(operator, RoundId("asked")) == dict.fromkeys(deployment.chain, both)
        (folders[0] / DEPLOYMENT_FILE).symlink_to(home / DEPLOYMENT_FILE)
        async with Operator(folders[0], inside.transport, only_reads=True) as on_call:  # with a service's key
            assert list(await approvals_of(on_call, RoundId("asked"))) == list(deployment.chain)
        store = inside.running["analyzer"].service.store
        kept = await store.run(StoreStep.READ_STATUS, lambda tx: tx.document(RoundId("asked"), DocumentKind.APPROVALS))
        record = pb.ProposalApproved.FromString(kept or b"")
        assert sorted(approving_organisations(deployment, record.proposal, record.signatures)) == both


@pytest.mark.parametrize(
    ("names", "objection"),
    [
        (("A", "A ", "B", "C"), "'A' and 'A ' look alike"),
        (("A", "a\u200b", "B", "C"), "invisible characters"),
        (("A", "", "B", "C"), "shuffler-2 names no organisation"),
        (("A", "A", "A", "A"), "approvals is 2, but 1 organisations run services"),
    ],
)
def test_no_organisation_counts_twice_under_two_names(tmp_path: Path, names: tuple[str, ...], objection: str) -> None:
    made = make_deployment(tmp_path, "local", 2)
    services = [entry.model_dump() | {"organisation": name} for entry, name in zip(made.services, names, strict=True)]
    with pytest.raises(ValueError, match=objection):
        Deployment.model_validate(made.model_dump() | {"services": services, "approvals": 2})


def test_a_retired_identity_approves_of_nothing(tmp_path: Path) -> None:
    """Also one without a date, which is believed in documents of every round."""
    made = make_deployment(tmp_path, "local", 1)
    old = Identity("accountant", PrivateKey(bytes(range(32))))
    retired = {"retired_identities": [{"identity": old.public_key.hex()}]}
    entries = [entry.model_dump() | (retired if entry.name == old.name else {}) for entry in made.services]
    deployment = Deployment.model_validate(made.model_dump() | {"services": entries})
    assert approving_organisations(deployment, b"proposal", [old.sign(Kind.PROPOSAL, b"proposal")]) == []
    active = Identity("accountant", identity_keys(tmp_path / "accountant")[0])
    assert approving_organisations(deployment, b"proposal", [active.sign(Kind.PROPOSAL, b"proposal")])


def test_what_a_version_does_not_know_is_shown_to_nobody_and_not_signed(tmp_path: Path) -> None:
    deployment = make_deployment(tmp_path, "local", 1)
    known = pb.Proposal(deployment="local", register=pb.RegisterClientsRequest(client_keys=[bytes(32)]))
    newer = known.SerializeToString() + bytes([15 << 3 | 2, 1, 0])  # a field 15 that only a newer version has
    within = pb.RegisterClientsRequest.FromString(known.register.SerializeToString() + bytes([15 << 3 | 2, 1, 0]))
    for action in (newer, pb.Proposal(deployment="local", register=within).SerializeToString()):
        file = tmp_path / f"{len(action)}.toml"
        write_signed(file, Actions(actions=(action.hex(),)))
        before = file.read_bytes()
        assert "does not know" in croupier("proposal", "sign", file, "--yes", "--dir", tmp_path, expect=2).stderr
        assert file.read_bytes() == before
    actions = Actions(actions=(known.SerializeToString().hex(),))
    assert len(actions_proposal(tmp_path, actions, deployment, file).actions) == 1


def test_what_was_shown_is_signed_and_not_what_lies_in_the_file_by_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reproduction: the file was read again after the answer, and another registration was signed."""
    deployment = make_deployment(tmp_path, "local", 1)
    keys = [public_key_of(new_client_key()) for _ in range(2)]
    shown, other = (
        Approvals(tmp_path, deployment).write(
            [proposal_to_admit(deployment, pb.RegisterClientsRequest(client_keys=[key]))]
        )
        for key in keys
    )
    actions = read_actions(shown).actions

    def exchanged(question: str, **_: object) -> bool:
        shown.write_bytes(other.read_bytes())
        return True

    monkeypatch.setattr("croupier.cli.proposals.agrees", exchanged)
    said = croupier("proposal", "sign", shown, "--dir", tmp_path).stdout
    assert keys[0].hex() in "".join(said.split())
    signed = read_actions(shown)
    assert signed.actions == actions
    assert signed.signed_by(deployment)
    # The key is shown, and the words of the file, as at the operator's.
    seen, another = (answer("proposal", "show", file, "--dir", tmp_path) for file in (shown, other))
    assert seen["words"] in " ".join(said.split())
    assert (seen["actions"][0]["register"], seen["words"] == another["words"]) == ([keys[0].hex()], False)

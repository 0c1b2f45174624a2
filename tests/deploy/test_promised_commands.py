"""Collector, limits and revocation as their users type them, on a deployment over TLS that goes on running."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import grpc.aio
import pytest

from croupier.accountant.guessing import right_at_most
from croupier.cli import deployment
from croupier.cli.question_options import QuestionOptions
from croupier.client.round_checks import fetch_signed_result, fetch_terms
from croupier.client.submission import Participant, send
from croupier.operator.operator import Operator
from croupier.operator.published_result import open_published
from croupier.protocol.errors import Code
from croupier.protocol.hop_noise import HopNoise
from croupier.protocol.names import PublicKey, RoundId
from croupier.protocol.v1 import messages_pb2 as pb
from tests.support import in_process
from tests.support.clients import seal_all_of
from tests.support.command_line import Beside, answer, croupier, refused
from tests.support.messages import naming

HEX = "ab" * 32


@pytest.mark.slow
async def test_a_round_with_hop_noise_from_opening_to_its_result(tmp_path: Path) -> None:
    place = tmp_path / "d"

    say, ask = Beside(place).say, Beside(place).ask

    async with in_process(place, 1) as inside, inside.operator() as operator, operator.client_channel() as channel:
        terms_of = ("--grid", "4,12", "--min-batch-size", "2", "--epsilon-max", "0.5", "--delta", "1e-4")
        said = await say(
            "survey", "open", "noisy", "--hop-noise", "0.5", "--hop-noise-delta", "1e-3", *terms_of, expect=2
        )
        assert re.search(naming("hop_noise.delta", "0.001", "0.0001"), " ".join(said.stderr.split()))
        opened = await ask("survey", "open", "noisy", "--hop-noise", "0.5", "--hop-noise-delta", "1e-5", *terms_of)
        named = ("--round", opened["survey_id"])
        terms = await fetch_terms(channel, operator.deployment, opened["survey_id"])
        assert terms.fakes is not None
        assert terms.fakes.noise == HopNoise(0.5, 1e-5)
        said = await say("submit", "--value", "1", "--epsilon", "12", "--enrol", *named, expect=2)
        assert re.search(naming("ε", 12, "8 unless"), " ".join(said.stderr.split()))
        sent = await ask("submit", "--value", "1", "--epsilon", "4", "--enrol", *named)
        assert sent["one_honest_right_at_most"] == right_at_most(0.5, 1e-5)
        assert sent["alone_right_at_most"] == right_at_most(4.0)
        await say("limits", "--max-local-epsilon", "12")  # a person may consent to more
        mine = ("--value", "1", "--epsilon", "12", "--enrol", "--another-person")
        told = " ".join((await say("submit", *mine, *named)).stdout.split())
        assert "is honest: about" in told
        assert "your own noise" in told
        await ask("survey", "close", opened["survey_id"])
        result = await ask("survey", "results", opened["survey_id"])
        assert result["certificate"]["one_honest_hop"]["epsilon"] <= 0.5
        assert result["hop_influence"] > 0


@pytest.mark.slow
async def test_a_round_with_a_collector_limits_and_a_revoked_client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, own, other = tmp_path / "d", tmp_path / "own.key", tmp_path / "other.key"

    say, ask = Beside(place).say, Beside(place).ask

    async with in_process(place, 1) as inside, inside.operator() as operator, operator.client_channel() as channel:
        for file in (own, other):
            made = await ask("keygen", "--collector", file)
            assert made == {"collector_key": str(file), "public": f"{file}.pub"}
        assert own.stat().st_mode & 0o077 == 0
        terms_of = ("--min-batch-size", "20", "--epsilon-max", "4", "--delta", "1e-4")
        opened = await ask("survey", "open", "bit", "--collector", f"{own}.pub", *terms_of)
        terms = opened["survey_id"]

        await say("limits", "--lifetime-epsilon", "1.5", "--min-batch-size", "21")
        mine = ("submit", "--value", "1", "--epsilon", "1", "--enrol", "--round", terms)
        said = await say(*mine, expect=2)
        assert re.search(naming("min_batch_size", 20, "least 21"), said.stderr)
        await say("limits", "--min-batch-size", "20")
        assert (await ask(*mine))["code"] == "ACCEPTED"
        kept = await ask("limits")
        assert kept["spent"] == {"local_epsilon": 1.0, "local_delta": 0.0, "rounds": 1}
        assert (kept["limits"]["lifetime_epsilon"], kept["limits"]["min_batch_size"]) == (1.5, 20)

        lost = tmp_path / "lost.key"
        public = (await asyncio.to_thread(answer, "keygen", "--client", lost))["client_key"]
        await operator.enrol([PublicKey(bytes.fromhex(public))])
        new = (await ask("enrol", "--revoke", public, "--revoke", HEX))["revoked"]
        assert new == {"accountant": 2, "shuffler-1": 2}
        thief = ("submit", "--value", "1", "--epsilon", "0.5", "--key", lost, "--another-person", "--round", terms)
        assert (await ask(*thief, expect=6))["code"] == "UNKNOWN_CLIENT"
        assert re.search(naming("FILE.pub"), " ".join((await say(*thief, expect=6)).stderr.split()))
        stranger = ("submit", "--value", "1", "--epsilon", "0.5", "--another-person", "--round", terms)
        assert re.search(naming("--key"), " ".join((await say(*stranger, expect=6)).stderr.split()))
        told = await ask("status")
        assert [service["num_revoked"] for service in told["services"]] == [2, 2, 0]
        said = await say("status")
        assert said.stdout.count("revoked keys: 2") == 2
        assert f"\n{terms}\n" in said.stdout
        assert "1 report, 20 needed" in said.stdout
        shown = await ask("survey", "show")
        assert (shown["round_id"], shown["state"], shown["sealed_to_collector"]) == (terms, "OPEN", True)
        said = await say("survey", "show", terms)
        command = ("croupier submit --value-file FILE --epsilon BUDGET", f"--round {terms}", f"--dir {place}\n")
        assert said.stdout.endswith(" \\\n  ".join(command))
        assert "the collector's key" in " ".join(said.stdout.split())
        said = await say("survey", "show", "never", expect=3)
        assert said.stderr == f"croupier: {Code.UNKNOWN_ROUND.message}: 'never'\n"

        said = await say("survey", "results", terms, "--wait-s", "0", expect=4)
        still_open = f"round '{terms}' is not published yet; it takes answers until its operator closes it"
        assert f"croupier: {Code.NOT_READY.message}: {still_open}" in " ".join(said.stderr.split())
        said = await say("survey", "close", terms)
        assert said.stdout == f"{terms}: OPEN (too few people: held), 1 answer\n"
        held = " ".join((await say("survey", "results", terms, expect=4)).stderr.split())
        assert "waiting for up to" not in held, "it waited for a minute for people who do not come"
        assert re.search(naming("than 20"), held)
        assert re.search(naming(f"'croupier survey close {terms} --withdraw'"), held)
        await _crowd(operator, channel, terms)
        await say("survey", "close", terms)
        public_result = await ask("survey", "results", terms)
        assert public_result["sealed"]
        assert public_result["values"] == []
        assert public_result["num_reports"] == 25
        kept, other_round = tmp_path / "result.signed", "another-round"
        async with operator.client_channel("analyzer") as analyzer:
            signed = await fetch_signed_result(analyzer, terms, 5.0)
        kept.write_bytes(signed.SerializeToString())
        assert await ask("survey", "results", terms, "--document", kept) == public_result
        said = await say("survey", "results", other_round, "--document", kept, expect=3)
        assert re.search(naming(f"'{other_round}'", f"'{terms}'"), " ".join(said.stderr.split()))
        signed.payload = signed.payload.replace(terms.encode(), other_round.encode().ljust(len(terms), b"-"))
        kept.write_bytes(signed.SerializeToString())
        await say("survey", "results", terms, "--document", kept, expect=3)
        kept.write_bytes(b"no document")
        said = await say("survey", "results", terms, "--document", kept, expect=2)
        assert "a signed document" in " ".join(said.stderr.split())
        printed = await say("survey", "results", terms, "--json")
        said = await asyncio.to_thread(partial(croupier, "explain", "-", typed=printed.stdout))
        assert "25 people took part" in said.stdout
        assert "server that certifies" in said.stdout
        assert "every local budget" in said.stdout
        said = await say("ledger", "--delta", "1e-3")
        assert "assume" in " ".join(said.stdout.split())
        (listed,) = (await ask("status"))["rounds"]
        assert (listed["stage"], listed["num_reports"], listed["terms"]["question"]) == ("PUBLISHED", 25, "bit")
        assert f"{terms}\nPUBLISHED · bit: 1 (yes) or 0 (no) (rr)\n" in (await say("status")).stdout

        async def twice() -> AsyncIterator[None]:
            yield
            yield
            raise KeyboardInterrupt

        monkeypatch.setattr(deployment, "ticks", twice)
        said = await say("status", "--watch", "--json")
        (line,) = said.stdout.splitlines()  # nothing had changed when it looked again
        assert json.loads(line)["rounds"] == [listed]
        assert f"{terms}\nPUBLISHED" in (await say("status", "--watch")).stdout
        assert "its collector" in (await say("survey", "results", terms)).stdout
        opened = await ask("survey", "results", terms, "--collector-key", own)
        assert not opened["sealed"]
        (number,) = opened["values"]
        assert number["confidence_interval"]["low"] <= number["projected"] <= number["confidence_interval"]["high"]
        assert opened["certificate"] == public_result["certificate"]
        said = await say("survey", "results", terms, "--collector-key", other, expect=2)
        assert re.search(naming(f"'{terms}'", other), " ".join(said.stderr.split()))


async def _crowd(operator: Operator, channel: grpc.aio.Channel, round_id: str) -> None:
    terms = await fetch_terms(channel, operator.deployment, RoundId(round_id))
    crowd = await seal_all_of(operator, terms, [Participant(1, 1.0)] * 24)
    named = {str(index): person.submission for index, person in enumerate(crowd)}
    assert set((await send(channel, RoundId(round_id), named)).values()) == {pb.SUBMISSION_CODE_ACCEPTED}


@pytest.mark.slow
def test_what_cannot_be_revoked_or_limited_is_said(tmp_path: Path) -> None:
    croupier("keygen", "--dir", tmp_path / "d", "--hops", "1")
    here = ("--dir", tmp_path / "d")
    assert "key 2 has 2 characters; it must be 64 hexadecimal digits" in refused(
        "enrol", "--revoke", HEX, "--revoke", "zz", *here
    )
    said = refused("enrol", "--revoke", HEX, "--revoke", f"secret{HEX}", *here)
    assert "key 2 has 70 characters" in said
    assert HEX not in said
    assert "lifetime_epsilon is -1.0; it must be greater than 0" in refused("limits", "--lifetime-epsilon", "-1", *here)
    assert not (tmp_path / "d" / "client" / "limits.toml").exists()
    key = tmp_path / "collector.key"
    croupier("keygen", "--collector", key, "--suite", "x25519-sha256-aes128gcm")
    assert "sealed" in refused("keygen", "--collector", key)
    assert QuestionOptions(collector=Path(f"{key}.pub")).file("x", "x").hpke_suite == "x25519-sha256-aes128gcm"
    sealed = pb.Publication(round_id="round", sealed_result=b"sealed")
    for publication, file, why in (
        (sealed, Path(f"{key}.pub"), "collector's"),
        (sealed, tmp_path / "d" / "deployment.toml", "this.*collector's"),
        (pb.Publication(round_id="round"), key, "'round'"),
    ):
        with pytest.raises(ValueError, match=why):
            open_published(publication, file)

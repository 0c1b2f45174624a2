"""An answer of the second client reaches a real deployment over TLS and is counted."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from croupier.protocol.names import Lane
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.protocol.v1 import services_pb2 as rpc
from croupier.protocol.v1 import services_pb2_grpc as stubs
from tests.another_client.rounds import Answer, Round, check_included, choose_budget, randomize_bit, signed_by_all
from tests.support import settings
from tests.support.rounds import QUESTIONS, people, table


def draw(_: str, length: int) -> bytes:
    return os.urandom(length)


def channel(service: Mapping[str, Any]) -> grpc.aio.Channel:
    """Section 2 of the page."""
    credentials = grpc.ssl_channel_credentials(service["tls_certificate"].encode())
    options = [("grpc.ssl_target_name_override", service["name"])]
    return grpc.aio.secure_channel(service["public_address"], credentials, options=options)


@pytest.mark.asyncio
async def test_an_answer_of_another_client_is_counted(tmp_path: Path) -> None:
    async with table(tmp_path, 2, over_tls=True) as here, AsyncExitStack() as stack:
        terms = await here.operator.open_round(settings())
        await here.submit(terms, people(QUESTIONS[0], 20, seed=4))
        (token,) = await here.operator.issue_tokens(1)

        deployment = tomllib.loads((here.inside.directory / "deployment.toml").read_text(encoding="utf-8"))
        services = {service["name"]: service for service in deployment["services"]}
        pinned = {name: [bytes.fromhex(service["identity"])] for name, service in services.items()}
        first, accountant, analyzer = [
            await stack.enter_async_context(channel(services[name]))
            for name in ("shuffler-1", "accountant", "analyzer")
        ]

        shown = await stubs.ShufflerStub(first).GetRound(rpc.GetRoundRequest())
        asked = Round(signed_by_all("manifest", shown.manifest, pinned))
        assert (asked.manifest.protocol_version, asked.manifest.deployment) == (1, deployment["name"])
        budget = choose_budget(1.5, asked.manifest)
        answer = Answer(asked, randomize_bit(1, budget.epsilon, draw), budget, token, draw)
        given = await stubs.AccountantStub(accountant).GetTickets(
            pb.GetTicketsRequest(round_id=asked.manifest.round_id, requests=[answer.request])
        )
        assert list(given.codes) == [pb.SUBMISSION_CODE_ACCEPTED]
        submission = answer.submission([given.report_evaluations, given.parameter_evaluations])
        request = pb.SubmitRequest(round_id=asked.manifest.round_id, submissions=[submission])
        for _ in range(2):
            assert list((await stubs.ShufflerStub(first).Submit(request)).codes) == [pb.SUBMISSION_CODE_ACCEPTED]

        await here.finish(terms)
        result = await stubs.AnalyzerStub(analyzer).GetResult(rpc.GetResultRequest(round_id=asked.manifest.round_id))
        publication = pb.Publication.FromString(
            signed_by_all("publication", result.publication, {"analyzer": pinned["analyzer"]})
        )
        certificate = pb.Certificate.FromString(
            signed_by_all("certificate", publication.certificate, {"accountant": pinned["accountant"]})
        )
        assert (certificate.granted, certificate.manifest_hash) == (True, asked.hash)
        assert (publication.num_reports, certificate.num_users, certificate.num_tickets) == (21, 21, 21)
        assert {tier.local_epsilon for tier in certificate.tiers} >= {budget.epsilon}
        assert not publication.drops
        lists = {}
        lanes: tuple[Lane, ...] = (pb.LANE_REPORT, pb.LANE_PARAMETER)
        for hop in (1, 2):
            for lane in lanes:
                page = await stubs.ShufflerStub(first).GetInclusion(
                    rpc.GetInclusionRequest(round_id=asked.manifest.round_id, lane=lane, hop=hop)
                )
                lists[hop, lane] = page.hashes
        check_included(asked, certificate, lambda hop, lane: lists[hop, lane], answer.inclusion(), pinned)

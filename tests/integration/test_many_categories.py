"""A whole round about 65,536 categories: its manifest, its result and the result's documents fit where they must."""

from __future__ import annotations

from pathlib import Path

import pytest

from croupier.client.round_result import RoundResult
from croupier.client.submission import Participant
from croupier.net.sizes import MESSAGE_BYTES
from croupier.operator.round_settings import RoundSettings
from croupier.protocol.errors import Refusal
from croupier.protocol.mechanisms.krr import KaryResponse
from croupier.protocol.questions import Question
from tests.support.messages import naming
from tests.support.rounds import table

MOST = 1 << 16


@pytest.mark.slow
@pytest.mark.virtual_time
async def test_a_round_about_as_many_categories_as_there_may_be_is_published(tmp_path: Path) -> None:
    labels = tuple(f"{place:016}" for place in range(MOST))
    question = Question("word", KaryResponse(MOST, labels))
    async with table(tmp_path, 2) as at:
        terms = await at.operator.open_round(RoundSettings(question, (20.0,), min_batch_size=2, epsilon_max=20.0))
        await at.submit(terms, [Participant(value, 20.0) for value in (5, 5, MOST - 1)])
        publication, certificate = await at.finish(terms)
        noisy = RoundSettings(question, (8.0,), min_batch_size=2, epsilon_max=8.0, hop_noise=1.5)
        with pytest.raises((Refusal, ValueError), match=naming("1,179,648", "1,000,000")):
            await at.operator.open_round(noisy)
    assert not publication.values
    assert publication.ByteSize() < MESSAGE_BYTES
    result = RoundResult.read(publication, certificate)
    assert len(result.values) == MOST
    largest = sorted(result.values, key=lambda value: -value.estimate)[:2]
    assert [(value.label, round(3 * value.estimate)) for value in largest] == [(labels[5], 2), (labels[-1], 1)]

"""Embeddings: an upstream over real HTTP, and MiniLM in this process."""

from __future__ import annotations

import math
import struct
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from antiphon.backends.weights import WeightsUnavailable
from antiphon.tools.index.embed import EmbeddingFailed, pack_vector
from antiphon.tools.index.embed_api import EmbeddingsUpstream
from antiphon.tools.index.embed_local import LocalEmbedder, can_embed
from tests.tools.index.embeddings_upstream import KEY, EmbeddingsServer, embeddings_server


def numbers(vector: bytes) -> tuple[float, ...]:
    return struct.unpack(f"<{len(vector) // 4}f", vector)


def cosine(one: bytes, other: bytes) -> float:
    return sum(a * b for a, b in zip(numbers(one), numbers(other), strict=True))


@pytest.fixture
async def server() -> AsyncIterator[EmbeddingsServer]:
    async with embeddings_server() as running:
        yield running


@pytest.fixture
async def embedder(server: EmbeddingsServer) -> AsyncIterator[EmbeddingsUpstream]:
    made = server.embedder()
    yield made
    await made.close()


@pytest.mark.parametrize("form", ["float", "base64"])
async def test_vectors_come_in_the_order_of_their_texts(
    form: str, server: EmbeddingsServer, embedder: EmbeddingsUpstream
) -> None:
    server.form = form
    first, second = await embedder.embed("ann", ["tides of the sea", "bread and salt"])
    query = await embedder.embed_query("ann", "sea tides")
    assert cosine(query, first) > cosine(query, second)
    assert math.hypot(*numbers(first)) == pytest.approx(1.0, abs=1e-5)
    assert server.bodies[0] == {
        "model": "words-64",
        "input": ["tides of the sea", "bread and salt"],
        "encoding_format": "float",
    }


async def test_dimensions_are_sent_and_are_part_of_the_kind(server: EmbeddingsServer) -> None:
    embedder = server.embedder(dimensions=64)
    await embedder.embed_query("ann", "x")
    await embedder.close()
    assert server.bodies[0]["dimensions"] == 64
    assert embedder.kind == "api:words-64:64"


@pytest.mark.parametrize(
    ("status", "may_pass"), [(400, False), (401, False), (429, True), (500, True), (503, True)]
)
async def test_a_refusal_is_a_failure_without_the_key(
    status: int, may_pass: bool, server: EmbeddingsServer, embedder: EmbeddingsUpstream
) -> None:
    server.statuses = [status]
    with pytest.raises(EmbeddingFailed, match=f"HTTP {status}: no, ") as caught:
        await embedder.embed("ann", ["x"])
    assert caught.value.may_pass == may_pass
    assert caught.value.wait == 0.0
    assert KEY not in str(caught.value)


@pytest.mark.parametrize(
    "answer",
    [
        [],
        {"data": None},
        {"data": [{"index": 0}]},
        {"data": [{"index": 0, "embedding": [1.0]}]},
        {"data": [{"index": 0, "embedding": [1.0]}, {"index": 2, "embedding": [1.0]}]},
        {"data": [{"index": 0, "embedding": [1.0]}, {"index": 1, "embedding": [1.0, 2.0]}]},
        {"data": [{"index": n, "embedding": [1.0]} for n in range(3)]},
        {"data": [{"index": 0, "embedding": [0.0]}, {"index": 1, "embedding": [0.0]}]},
        {"data": [{"index": 0, "embedding": ["1"]}, {"index": 1, "embedding": [1.0]}]},
        {"data": [{"index": 0, "embedding": "%"}, {"index": 1, "embedding": "AAAA"}]},
    ],
)
async def test_an_answer_without_all_vectors_is_a_failure(
    answer: Any, server: EmbeddingsServer, embedder: EmbeddingsUpstream
) -> None:
    server.answer = answer
    with pytest.raises(EmbeddingFailed):
        await embedder.embed("ann", ["x", "y"])


async def test_a_server_that_is_not_there_is_a_failure_that_may_pass() -> None:
    embedder = EmbeddingsUpstream("http://127.0.0.1:9/v1", None, model="m")
    with pytest.raises(EmbeddingFailed) as caught:
        await embedder.embed("ann", ["x"])
    assert caught.value.may_pass
    await embedder.close()


@pytest.mark.parametrize("found", [[0.0, 0.0], [math.inf, 1.0], [math.nan]])
def test_numbers_without_a_direction_are_no_vector(found: list[float]) -> None:
    with pytest.raises(EmbeddingFailed):
        pack_vector(found)


# In this process.


async def test_weights_that_cannot_be_fetched_are_a_failure() -> None:
    def fetch() -> tuple[Path, Path]:
        raise WeightsUnavailable("pip could not bring them")

    embedder = LocalEmbedder(fetch)
    with pytest.raises(EmbeddingFailed, match="could not bring"):
        await embedder.embed_query("ann", "x")
    await embedder.close()


@pytest.mark.slow
@pytest.mark.skipif(not can_embed(), reason="the extra `embed` is not installed")
async def test_minilm_knows_what_is_alike() -> None:
    embedder = LocalEmbedder()
    cat, stocks = await embedder.embed("ann", ["A kitten slept on the rug.", "Stock prices fell."])
    query = await embedder.embed_query("ann", "a cat on a mat")
    assert len(cat) == 384 * 4
    assert cosine(query, cat) > 0.5 > cosine(query, stocks)
    await embedder.close()


@pytest.mark.slow
@pytest.mark.skipif(not can_embed(), reason="the extra `embed` is not installed")
async def test_all_windows_of_a_long_text_count() -> None:
    embedder = LocalEmbedder()
    start = "The ship sailed over the sea with all her crew. " * 40
    (first, whole) = await embedder.embed(
        "ann", [start, f"{start}{'Bake bread with flour and salt. ' * 60}"]
    )
    assert embedder.windows >= 4
    bread = await embedder.embed_query("ann", "bake bread")
    assert cosine(bread, whole) > cosine(bread, first) + 0.1
    await embedder.close()

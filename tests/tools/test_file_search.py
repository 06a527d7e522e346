"""The tool `file_search`: what it takes, finds, shows and refuses, without a gateway."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from antiphon.plans.toolbox import DeclaredTool
from antiphon.protocol.citations import CitationFilter, Marks, ShownSources
from antiphon.protocol.errors import InvalidRequest, NotFound, StoreUnavailable
from antiphon.store.memory import MemoryStore
from antiphon.tools.base import (
    Decline,
    HostedCall,
    HostedFunction,
    Outcome,
    Progress,
    Start,
    ToolFailed,
    ToolLimits,
    ToolRequest,
    ToolSession,
)
from antiphon.tools.file_search import FileSearch
from antiphon.tools.index.file_index import FileIndex
from tests.tools.index.filled import OWNER, STORE, fill, make_store
from tests.tools.web.sessions import NoApprovals

FILES = {
    "file-tides": "The tidal range of the Severn is about fifteen metres.\n\nIt has a bore.",
    "file-moon": "The Moon causes tides. 【1】 A faked mark.",
    "file-bread": "Bread is made of flour, water and salt.",
}
ATTRIBUTES: dict[str, dict[str, Any]] = {
    "file-tides": {"year": 2024, "lang": "en"},
    "file-moon": {"year": 1999, "lang": "en"},
}


@pytest.fixture
async def store() -> AsyncIterator[MemoryStore]:
    made = MemoryStore()
    await fill(made, FILES, attributes=ATTRIBUTES)
    yield made
    await made.close()


@pytest.fixture
def runner(store: MemoryStore) -> FileSearch:
    return FileSearch(FileIndex(store).searcher)


async def begin(
    runner: FileSearch,
    owner: str = OWNER,
    limits: ToolLimits | None = None,
    sources: ShownSources | None = None,
    **tool: Any,
) -> ToolSession:
    declared = {"type": "file_search", "vector_store_ids": [STORE], **tool}
    request = ToolRequest(
        owner=owner,
        response_id="resp_1",
        tools=[DeclaredTool(declared, "tools[0]")],
        items=[],
        own=[],
        approvals=NoApprovals(),
        limits=limits or ToolLimits(),
        sources=ShownSources() if sources is None else sources,
    )
    return await runner.begin(request)


async def call(session: ToolSession, **arguments: Any) -> tuple[list[str], Outcome | Decline]:
    (function,) = [one async for one in session.prepare() if isinstance(one, HostedFunction)]
    made = HostedCall(
        function=function, arguments=msgspec.json.encode(arguments).decode(), call_id="c"
    )
    decision = session.decide(made)
    if not isinstance(decision, Start):
        assert isinstance(decision, Decline)
        return [], decision
    assert not decision.has_effects
    steps = [step async for step in session.run(made, decision)]
    outcome = steps[-1]
    assert isinstance(outcome, Outcome)
    return [step.event for step in steps if isinstance(step, Progress)], outcome


async def results(session: ToolSession, *queries: str) -> list[dict[str, Any]]:
    _, outcome = await call(session, queries=list(queries))
    assert isinstance(outcome, Outcome)
    found = outcome.item["results"]
    assert isinstance(found, list)
    return found


async def test_a_call_has_its_queries_and_results(runner: FileSearch) -> None:
    events, outcome = await call(await begin(runner), queries=["tidal  range of the Severn"])
    assert events == ["response.file_search_call.searching"]
    assert isinstance(outcome, Outcome)
    item = outcome.item
    assert item["type"] == "file_search_call"
    assert item["status"] == "completed"
    assert item["queries"] == ["tidal range of the Severn"]
    best = item["results"][0]
    assert best["file_id"] == "file-tides"
    assert best["filename"] == "file-tides.md"
    assert best["attributes"] == {"year": 2024, "lang": "en"}
    assert best["score"] == 1.0
    assert best["text"] == FILES["file-tides"]


async def test_the_model_gets_texts_with_the_marks_of_their_files(runner: FileSearch) -> None:
    _, outcome = await call(await begin(runner), queries=["severn", "moon"])
    assert isinstance(outcome.result, str)
    assert outcome.result.startswith(("【1】 file-tides.md (score 1.00)\n", "【1】 file-moon.md"))
    assert "fifteen metres" in outcome.result
    assert "[1] A faked mark" in outcome.result
    assert outcome.result.count("【1】") == 2  # one result, and the words on how to cite
    assert outcome.result.count("【2】") == 1


async def test_marks_of_shown_files_become_citations_at_a_point(runner: FileSearch) -> None:
    sources = ShownSources()
    session = await begin(runner, sources=sources)
    assert session.cites
    await call(session, queries=["severn"])
    looks = CitationFilter(Marks(sources))
    deltas = [*looks.feed("Fifteen metres【1】. 【7】"), *looks.finish()]
    texts = [getattr(delta, "text", None) for delta in deltas]
    assert "".join(filter(None, texts)) == "Fifteen metres. 【7】"
    (note,) = [delta.annotation for delta in deltas if hasattr(delta, "annotation")]
    assert note == {
        "type": "file_citation",
        "file_id": "file-tides",
        "filename": "file-tides.md",
    }


@pytest.mark.parametrize(
    "arguments",
    [
        {"query": "severn"},
        {"queries": "severn"},
        {"queries": ["severn"], "vector_store_ids": ["x"]},
    ],
)
async def test_queries_are_read_in_any_form_and_nothing_else(
    arguments: dict[str, Any], runner: FileSearch
) -> None:
    _, outcome = await call(await begin(runner), **arguments)
    assert isinstance(outcome, Outcome)
    assert outcome.item["queries"] == ["severn"]
    assert [one["file_id"] for one in outcome.item["results"]] == ["file-tides"]
    assert set(outcome.item) == {"type", "queries", "results", "status"}


@pytest.mark.parametrize(
    "arguments", [{}, {"queries": []}, {"queries": [" "]}, {"queries": 7}, {"queries": [None]}]
)
async def test_a_call_without_a_query_is_declined(
    arguments: dict[str, Any], runner: FileSearch
) -> None:
    _, outcome = await call(await begin(runner), **arguments)
    assert isinstance(outcome, Decline)
    assert "needs a JSON object" in outcome.result


async def test_a_query_is_no_language(runner: FileSearch) -> None:
    for query in ('"', "severn AND", "NEAR(", "-*", "(severn OR"):
        _, outcome = await call(await begin(runner), queries=[query])
        assert isinstance(outcome, Outcome)
        found = [one["file_id"] for one in outcome.item["results"]]
        assert found == (["file-tides"] if "severn" in query else [])


async def test_nothing_found_is_completed_with_no_results(runner: FileSearch) -> None:
    _, outcome = await call(await begin(runner), queries=["zeppelin"])
    assert isinstance(outcome, Outcome)
    assert outcome.item["results"] == []
    assert outcome.item["status"] == "completed"
    assert outcome.result == "No results."


async def test_a_store_that_fails_is_a_failed_call(store: MemoryStore, runner: FileSearch) -> None:
    session = await begin(runner)
    await store.close()
    with pytest.raises((ToolFailed, StoreUnavailable)):
        await call(session, queries=["severn"])


async def test_the_number_of_results_is_limited(runner: FileSearch) -> None:
    assert len(await results(await begin(runner), "tides bread severn")) == 3
    assert len(await results(await begin(runner, max_num_results=1), "tides bread severn")) == 1


async def test_filters_leave_files_out(runner: FileSearch) -> None:
    newer = {"type": "gte", "key": "year", "value": 2000}
    assert [
        one["file_id"] for one in await results(await begin(runner, filters=newer), "tides range")
    ] == ["file-tides"]
    nothing = {"type": "and", "filters": [newer, {"type": "eq", "key": "lang", "value": "de"}]}
    assert await results(await begin(runner, filters=nothing), "tides") == []


async def test_the_threshold_drops_what_is_far_down(runner: FileSearch) -> None:
    everything = await results(await begin(runner), "tides bread severn")
    options = {"score_threshold": everything[1]["score"]}
    kept = await results(await begin(runner, ranking_options=options), "tides bread severn")
    assert kept == everything[:2]


async def test_results_that_do_not_fit_are_left_out_of_what_the_model_gets(
    store: MemoryStore, runner: FileSearch
) -> None:
    files = {f"file-{n}": f"whale number {n} " + "blubber " * 300 for n in range(9)}
    await fill(store, files, store_id="vs_2")
    limits = ToolLimits(result_bytes=8_000)
    session = await begin(runner, limits=limits, vector_store_ids=["vs_2"])
    _, outcome = await call(session, queries=["whale"])
    assert isinstance(outcome, Outcome)
    assert isinstance(outcome.result, str)
    assert len(outcome.item["results"]) == 9
    assert len(outcome.result.encode()) <= 8_000
    assert "(7 more results are too long to be shown)" in outcome.result
    assert "【3】" not in outcome.result


# Refused before the model is asked.


@pytest.mark.parametrize(("owner", "store_id"), [(OWNER, "vs_none"), ("b", STORE)])
async def test_unknown_and_foreign_vector_stores_are_not_found(
    owner: str, store_id: str, runner: FileSearch
) -> None:
    with pytest.raises(NotFound) as caught:
        await begin(runner, owner, vector_store_ids=[store_id])
    assert caught.value.param == "tools[0].vector_store_ids"
    assert store_id in caught.value.message


async def test_an_expired_vector_store_is_refused(store: MemoryStore, runner: FileSearch) -> None:
    long_ago = int(time.time()) - 2 * 86_400
    await make_store(store, "vs_old", active=long_ago, expires_after_days=1)
    with pytest.raises(InvalidRequest) as caught:
        await begin(runner, vector_store_ids=["vs_old"])
    assert caught.value.code == "vector_store_expired"


@pytest.mark.parametrize(
    ("tool", "param"),
    [
        ({"vector_store_ids": None}, "vector_store_ids"),
        ({"vector_store_ids": []}, "vector_store_ids"),
        ({"vector_store_ids": "vs_1"}, "vector_store_ids"),
        ({"vector_store_ids": [7]}, "vector_store_ids[0]"),
        ({"vector_store_ids": [f"vs_{n}" for n in range(17)]}, "vector_store_ids"),
        ({"max_num_results": 0}, "max_num_results"),
        ({"max_num_results": 51}, "max_num_results"),
        ({"max_num_results": True}, "max_num_results"),
        ({"filters": []}, "filters"),
        ({"filters": {"type": "like", "key": "a", "value": "b"}}, "filters.type"),
        ({"filters": {"type": "eq", "value": "b"}}, "filters.key"),
        (
            {"filters": {"type": "or", "filters": [{"type": "eq", "key": "a", "value": {}}]}},
            "filters.filters[0].value",
        ),
        ({"ranking_options": 1}, "ranking_options"),
        ({"ranking_options": {"ranker": "best"}}, "ranking_options.ranker"),
        ({"ranking_options": {"score_threshold": 1.1}}, "ranking_options.score_threshold"),
        ({"ranking_options": {"boost": 1}}, "ranking_options.boost"),
        (
            {"ranking_options": {"hybrid_search": {"text_weight": 1}}},
            "ranking_options.hybrid_search.embedding_weight",
        ),
        (
            {"ranking_options": {"hybrid_search": {"text_weight": 0, "embedding_weight": 0}}},
            "ranking_options.hybrid_search",
        ),
    ],
)
async def test_wrong_tools_are_refused_with_the_place_of_the_mistake(
    tool: dict[str, Any], param: str, runner: FileSearch
) -> None:
    with pytest.raises(InvalidRequest) as caught:
        await begin(runner, **tool)
    assert caught.value.param == f"tools[0].{param}"
    assert caught.value.status == 400


async def test_weights_of_vectors_are_reported_if_there_are_none(runner: FileSearch) -> None:
    weights = {"hybrid_search": {"embedding_weight": 1, "text_weight": 0}}
    session = await begin(runner, ranking_options=weights, novel=1)
    assert list(session.degraded) == [
        "tools[0].novel",
        "tools[0].ranking_options.hybrid_search: "
        "there are no embeddings here, so only words are ranked",
    ]
    assert (await results(session, "severn"))[0]["score"] == 1.0

"""File search on a chat model, whole: client, gateway, upstream, store and index."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from decimal import Decimal
from typing import Any, Final

import openai
import pytest
from openai.lib import responses_tool_runner
from openai.lib.responses_tool_runner import AsyncRegisteredFunction, AsyncResponsesToolRunner

from antiphon.models.prices import PriceSettings
from antiphon.protocol.codec import encode_event
from antiphon.protocol.machines.referee import judge_stream
from antiphon.store.base.ledger import Budget
from antiphon.store.memory import MemoryStore
from antiphon.testing import Call, ChatBackend, Script, ScriptedUpstream, serve_gateway
from antiphon.testing.gateway import Gateway
from antiphon.tools.index.file_index import FileIndex
from tests.asking import ask, ask_stream, request, terminal
from tests.faults.house import PATIENCE
from tests.talking import talk
from tests.tools.index.embeddings_upstream import embeddings_server
from tests.tools.index.filled import STORE, fill

LOCAL: Final = "local"
TOOL: Final[dict[str, Any]] = {"type": "file_search", "vector_store_ids": [STORE]}
RESULTS: Final = "file_search_call.results"
SEARCH: Final = Script(calls=[Call("file_search", '{"queries": ["severn tidal range"]}')])
ANSWER: Final = Script(
    text=["About ", "fif", "teen metres【", "1", "】. It is", " big", "【9】", "."]
)
TEXT: Final = "About fifteen metres. It is big【9】."
FILES: Final = {
    "file-tides": "The tidal range of the Severn is about fifteen metres.",
    "file-bread": "Bread is made of flour.",
}


class House:
    """A gateway with files, and everything that it speaks to."""

    def __init__(self, gateway: Gateway, upstream: ScriptedUpstream, store: MemoryStore) -> None:
        self.gateway = gateway
        self.upstream = upstream
        self.store = store

    def shown(self, number: int) -> str:
        """Return the results of tools in a request of the gateway to its upstream."""
        messages = self.upstream.requests[number].json["messages"]
        return "\n".join(str(m["content"]) for m in messages if m["role"] == "tool")


@asynccontextmanager
async def house(scripts: Sequence[Script], index: FileIndex | None = None) -> AsyncIterator[House]:
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(asyncio.timeout(PATIENCE))
        store = MemoryStore()
        stack.push_async_callback(store.close)
        await fill(store, FILES, owner=LOCAL)
        upstream = await stack.enter_async_context(ScriptedUpstream(list(scripts)))
        backend = ChatBackend(upstream.base_url)
        index = index or FileIndex(store)
        async with serve_gateway(
            backend, store=store, default_model="echo", index=index
        ) as gateway:
            yield House(gateway, upstream, store)


async def test_a_stream_searches_and_cites_what_the_model_cited() -> None:
    async with house([SEARCH, ANSWER]) as home:
        events = await ask_stream(home.gateway, tools=[TOOL], include=[RESULTS])
    assert judge_stream(events) == []
    search, message = terminal(events).output
    assert search["type"] == "file_search_call"
    assert search["id"].startswith("fs_")
    assert search["status"] == "completed"
    assert search["queries"] == ["severn tidal range"]
    (result,) = search["results"]
    assert result == {
        "file_id": "file-tides",
        "filename": "file-tides.md",
        "score": 1.0,
        "text": FILES["file-tides"],
        "attributes": {},
    }
    (part,) = message["content"]
    assert part["text"] == TEXT
    (note,) = part["annotations"]
    assert note == {
        "type": "file_citation",
        "file_id": "file-tides",
        "filename": "file-tides.md",
        "index": TEXT.index("."),
    }
    assert "【1】 file-tides.md" in home.shown(1)
    assert "fifteen metres" in home.shown(1)


async def test_the_events_of_a_search_come_in_order_and_results_are_hidden() -> None:
    async with house([SEARCH, ANSWER]) as home:
        events = await ask_stream(home.gateway, tools=[TOOL])
    names = [event.type for event in events]
    assert names[2:7] == [
        "response.output_item.added",
        "response.file_search_call.in_progress",
        "response.file_search_call.searching",
        "response.file_search_call.completed",
        "response.output_item.done",
    ]
    assert "response.output_text.annotation.added" in names
    assert terminal(events).output[0]["results"] is None
    assert b"tidal range of" not in b"".join(map(encode_event, events))


@pytest.mark.parametrize("mode", ["whole", "websocket", "background"])
async def test_every_mode_gets_the_cited_text(mode: str) -> None:
    async with house([SEARCH, ANSWER]) as home:
        gateway = home.gateway
        match mode:
            case "whole":
                output = (await ask(gateway, tools=[TOOL])).json["output"]
            case "websocket":
                async with talk(gateway.base_url) as socket:
                    await socket.ask(input="x", tools=[TOOL])
                    output = (await socket.events())[-1]["response"]["output"]
            case _:
                found = (await ask(gateway, tools=[TOOL], background=True)).json
                path = f"/responses/{found['id']}"
                while found["status"] in ("queued", "in_progress"):
                    await asyncio.sleep(0.01)
                    found = (await request(gateway, "GET", path)).json
                output = found["output"]
    (part,) = output[1]["content"]
    assert part["text"] == TEXT
    assert [note["index"] for note in part["annotations"]] == [TEXT.index(".")]


async def test_results_are_stored_and_shown_when_they_are_asked_for() -> None:
    async with house([SEARCH, ANSWER]) as home:
        made = (await ask(home.gateway, tools=[TOOL])).json
        path = f"/responses/{made['id']}"
        plain = (await request(home.gateway, "GET", path)).json
        whole = (await request(home.gateway, "GET", f"{path}?include[]={RESULTS}")).json
    assert made["output"][0]["results"] is None
    assert plain["output"][0]["results"] is None
    assert whole["output"][0]["results"][0]["file_id"] == "file-tides"


async def test_a_failed_search_is_shown_as_failed_and_never_as_empty() -> None:
    async with embeddings_server() as server, house([SEARCH, ANSWER]) as other:
        store = other.store
        index = FileIndex(store, embedder=server.embedder())
        server.statuses = [500] * 9
        scripts = [SEARCH, Script(text="I could not search.")]
        async with (
            ScriptedUpstream(scripts) as upstream,
            serve_gateway(
                ChatBackend(upstream.base_url), store=store, default_model="echo", index=index
            ) as gateway,
        ):
            events = await ask_stream(gateway, tools=[TOOL], include=[RESULTS])
            shown = str(upstream.requests[1].json["messages"][-1]["content"])
    assert judge_stream(events) == []
    response = terminal(events)
    assert response.status == "completed"
    assert response.output[0]["status"] == "failed"
    assert response.output[0]["results"] is None
    assert "error: the embeddings upstream answered HTTP 500" in shown


async def test_unknown_vector_stores_are_404_before_anything_is_sent() -> None:
    async with house([SEARCH]) as home:
        tool = {**TOOL, "vector_store_ids": [STORE, "vs_none"]}
        answers = [
            await ask(home.gateway, tools=[tool]),
            await ask(home.gateway, tools=[tool], stream=True),
            await ask(home.gateway, tools=[tool], background=True),
        ]
        assert home.upstream.requests == []
    for answer in answers:
        assert answer.status == 404
        assert answer.error["param"] == "tools[0].vector_store_ids"
        assert answer.error["code"] == "vector_store_not_found"


async def test_vector_stores_that_the_model_names_are_ignored() -> None:
    arguments = '{"queries": ["severn"], "vector_store_ids": ["vs_other"], "filters": {}}'
    scripts = [Script(calls=[Call("file_search", arguments)]), ANSWER]
    async with house(scripts) as home:
        await fill(home.store, {"file-x": "severn secret"}, store_id="vs_other", owner=LOCAL)
        made = (await ask(home.gateway, tools=[TOOL], include=[RESULTS])).json
    assert [one["file_id"] for one in made["output"][0]["results"]] == ["file-tides"]


async def test_tool_choice_can_force_a_search() -> None:
    async with house([SEARCH, ANSWER]) as home:
        await ask(home.gateway, tools=[TOOL], tool_choice={"type": "file_search"})
        first, second = (one.json for one in home.upstream.requests)
    assert first["tool_choice"] != "auto"
    assert second.get("tool_choice", "auto") == "auto"


async def test_a_search_by_words_and_vectors_counts_both() -> None:
    async with embeddings_server() as server, house([]) as other:
        index = FileIndex(other.store, embedder=server.embedder())
        await fill(
            other.store,
            {"file-a": "alpha beta", "file-b": "gamma delta"},
            index=index,
            store_id="vs_v",
            owner=LOCAL,
        )
        index = FileIndex(other.store, embedder=server.embedder())
        scripts = [Script(calls=[Call("file_search", '{"query": "beta"}')]), ANSWER]
        async with (
            ScriptedUpstream(scripts) as upstream,
            serve_gateway(
                ChatBackend(upstream.base_url), store=other.store, default_model="echo", index=index
            ) as gateway,
        ):
            tool = {**TOOL, "vector_store_ids": ["vs_v"]}
            made = (await ask(gateway, tools=[tool], include=[RESULTS])).json
    first, second = made["output"][0]["results"]
    assert (first["file_id"], first["score"]) == ("file-a", 1.0)
    assert second["score"] < 0.5  # found by its vector alone


@pytest.mark.parametrize("reports", [True, False])
async def test_the_owner_pays_for_every_call_that_makes_vectors(reports: bool) -> None:
    async with embeddings_server() as server, house([]) as other:
        server.reports = reports
        price = PriceSettings(input=Decimal("0.02"), output=Decimal(0)).price
        index = FileIndex(other.store, embedder=server.embedder(batch=2, price=price))
        scripts = [Script(calls=[Call("file_search", '{"query": "beta"}')]), ANSWER]
        backend = ScriptedUpstream(scripts)
        async with (
            backend as upstream,
            serve_gateway(
                ChatBackend(upstream.base_url), store=other.store, default_model="echo", index=index
            ) as gateway,
        ):
            server.statuses = [500]  # it is asked again, and that failure is not charged
            texts = {f"file-{n}": f"alpha beta {n}" for n in range(3)}
            await fill(other.store, texts, index=index, store_id="vs_v", owner=LOCAL)
            tool = {**TOOL, "vector_store_ids": ["vs_v"]}
            await ask(gateway, tools=[tool])
            path = "/vector_stores/vs_v/search"
            found = await request(gateway, "POST", path, {"query": "beta"})
            await gateway.app.engine.store.ledger.put_budget(
                Budget(id="b", scope="project", scope_id=LOCAL, unit="tokens", ceiling=1)
            )
            refused = await request(gateway, "POST", path, {"query": "beta"})
            charges = [
                one
                for one in await other.store.ledger.charges(limit=100)
                if one.kind == "embedding"
            ]
            problems = await other.store.ledger.check()
    paid = [one for one in charges if one.outcome == "completed"]
    assert found.status == 200
    assert refused.status == 429
    assert refused.error["code"] == "insufficient_quota"
    assert [one.outcome for one in charges].count("released") == 1
    assert len(charges) == len(server.bodies) == len(paid) + 1
    assert {one.payer.project for one in charges} == {LOCAL}
    assert {(one.served, one.provider) for one in charges} == {("words-64", "file_search")}
    used = sum(one.used.total for one in paid)
    if reports:
        assert used == server.billed
        assert all(one.cost == one.used.fresh * 20 for one in paid)
    else:
        assert {one.basis for one in paid} == {"counted"}
        assert used >= server.billed
    assert problems == []


# Sent back by clients.


@pytest.mark.parametrize("has_results", [True, False])
@pytest.mark.parametrize("form", ["previous", "whole", "reference", "twice"])
async def test_the_next_turn_knows_the_search(form: str, has_results: bool) -> None:
    scripts = [SEARCH, ANSWER, Script(text="Again【1】.")]
    include = [RESULTS] if has_results else []
    async with house(scripts) as home:
        first = (await ask(home.gateway, tools=[TOOL], include=include)).json
        search, message = first["output"]
        user = {"role": "user", "content": "Again?"}
        match form:
            case "previous":
                fields: dict[str, Any] = {"previous_response_id": first["id"], "input": [user]}
            case "whole":
                fields = {"input": [search, message, user]}
            case "reference":
                named = {"type": "item_reference", "id": search["id"]}
                fields = {"input": [named, message, user]}
            case _:
                named = {"type": "item_reference", "id": search["id"]}
                fields = {"input": [named, named, message, user]}
        again = await ask(home.gateway, tools=[TOOL], **fields)
        assert again.status == 200
        messages = home.upstream.requests[2].json["messages"]
    calls = [call["function"] for one in messages for call in one.get("tool_calls") or ()]
    assert calls[0] == {"name": "file_search", "arguments": '{"queries":["severn tidal range"]}'}
    told = [one["content"] for one in messages if one["role"] == "tool"]
    # What is stored has the results; what the caller sends has them if they were included.
    assert ("fifteen metres" in str(told[0])) == (has_results or form != "whole")
    # No file was shown in this turn, so nothing can be cited.
    (part,) = again.json["output"][0]["content"]
    assert (part["text"], part["annotations"]) == ("Again【1】.", [])


# The official SDK.


async def test_the_openai_sdk_and_its_referee_read_the_stream() -> None:
    tool: Any = TOOL
    async with house([SEARCH, ANSWER]) as home:
        client = openai.AsyncOpenAI(base_url=home.gateway.base_url, api_key="none")
        async with client.responses.stream(
            model="echo", input="How large is it?", tools=[tool], include=[RESULTS]
        ) as stream:
            kinds = [event.type async for event in stream]
            response = await stream.get_final_response()
        await client.close()
    assert "response.output_text.annotation.added" in kinds
    assert "response.file_search_call.completed" in kinds
    search, message = response.output
    assert search.type == "file_search_call"
    assert search.results
    assert search.results[0].filename == "file-tides.md"
    judge: Any = responses_tool_runner._validate_server_item
    judge(search.to_dict(mode="json"), [TOOL])
    assert message.type == "message"
    part = message.content[0]
    assert part.type == "output_text"
    (note,) = part.annotations
    assert note.type == "file_citation"
    assert (note.index, note.filename) == (TEXT.index("."), "file-tides.md")


@pytest.mark.parametrize("streams", [False, True])
async def test_the_tool_runner_of_the_sdk_accepts_and_replays_a_search(streams: bool) -> None:
    """It checks each item of a server's tool, and sends all of them back after a function."""
    scripts = [
        SEARCH,
        Script(text="It is large【1】.", calls=[Call("convert", '{"metres": 15}', "call_1")]),
        Script(text="Fifty feet."),
    ]

    async def convert(arguments: dict[str, object]) -> str:
        assert arguments == {"metres": 15}
        return "49 feet"

    schema: Any = {"type": "object", "properties": {"metres": {"type": "integer"}}}
    function: Any = {"type": "function", "name": "convert", "parameters": schema, "strict": False}
    async with house(scripts) as home:
        client = openai.AsyncOpenAI(base_url=home.gateway.base_url, api_key="none")
        runner = AsyncResponsesToolRunner(
            functions=[AsyncRegisteredFunction(tool=function, execute=convert)]
        )
        params: Any = {"model": "echo", "input": "?", "tools": [TOOL], "include": [RESULTS]}
        response = await runner.run(client, params, stream=streams)
        await client.close()
        last = home.upstream.requests[-1].json["messages"]
    assert response.output_text == "Fifty feet."
    assert [message["role"] for message in last].count("tool") == 2
    assert last[-1] == {"role": "tool", "tool_call_id": "call_1", "content": "49 feet"}

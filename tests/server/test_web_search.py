"""Web search on a chat model, whole: client, gateway, upstream, provider and site over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final

import openai
import pytest
from openai.lib.responses_tool_runner import AsyncRegisteredFunction, AsyncResponsesToolRunner

from antiphon.protocol.codec import encode_event
from antiphon.protocol.machines.referee import judge_stream
from antiphon.testing import Call, ChatBackend, Script, ScriptedUpstream, serve_gateway
from antiphon.testing.gateway import Gateway
from tests.asking import ask, ask_stream, request, terminal
from tests.faults.house import PATIENCE
from tests.talking import talk
from tests.tools.web.sessions import make_runner
from tests.web import KEY, LoopbackWeb, loopback_web

TOOL: Final[dict[str, Any]] = {"type": "web_search"}
SOURCES: Final = "web_search_call.action.sources"
QUERY: Final = '{"query": "severn tidal range"}'
SEARCH: Final = Script(calls=[Call("web_search", QUERY)])
ANSWER: Final = Script(
    text=["About ", "fif", "teen metres【", "1", "】. It is", " big", "【9】", "."]
)


class House:
    """A gateway that searches, with everything that it speaks to."""

    def __init__(self, gateway: Gateway, upstream: ScriptedUpstream, web: LoopbackWeb) -> None:
        self.gateway = gateway
        self.upstream = upstream
        self.web = web

    @property
    def link(self) -> str:
        """What stands in the text for a citation of the first page."""
        return f"([127.0.0.1]({self.web.url}/tides))"

    def shown(self, number: int) -> str:
        """Return the results of tools in a request of the gateway to its upstream."""
        messages = self.upstream.requests[number].json["messages"]
        return "\n".join(str(m["content"]) for m in messages if m["role"] == "tool")


@asynccontextmanager
async def house(
    scripts: Sequence[Script] | Callable[[LoopbackWeb], list[Script]], **settings: Any
) -> AsyncIterator[House]:
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(asyncio.timeout(PATIENCE))
        web = await stack.enter_async_context(loopback_web())
        played = scripts(web) if callable(scripts) else list(scripts)
        upstream = await stack.enter_async_context(ScriptedUpstream(played))
        runner = make_runner(web, **settings)
        backend = ChatBackend(upstream.base_url)
        async with serve_gateway(backend, default_model="echo", tools=[runner]) as gateway:
            yield House(gateway, upstream, web)


def _cited(text: str, annotations: Sequence[dict[str, Any]]) -> list[tuple[str, str]]:
    return [
        (note["url"], text[note["start_index"] : note["end_index"]])
        for note in annotations
        if note["type"] == "url_citation"
    ]


async def test_a_stream_searches_and_cites_what_the_model_cited() -> None:
    async with house([SEARCH, ANSWER]) as home:
        events = await ask_stream(home.gateway, tools=[TOOL], include=[SOURCES])
    assert judge_stream(events) == []
    response = terminal(events)
    search, message = response.output
    address = f"{home.web.url}/tides"
    assert search["type"] == "web_search_call"
    assert search["status"] == "completed"
    assert search["action"]["query"] == "severn tidal range"
    assert search["action"]["sources"][0] == {"type": "url", "url": address}
    (part,) = message["content"]
    assert part["text"] == f"About fifteen metres {home.link}. It is big【9】."
    assert _cited(part["text"], part["annotations"]) == [(address, home.link)]
    assert "fifteen" in home.shown(1)
    assert "【1】" in home.shown(1)
    assert isinstance(response.tool_usage, dict)
    assert response.tool_usage["web_search"] == {"num_requests": 1}


async def test_the_events_of_a_search_come_in_order() -> None:
    async with house([SEARCH, ANSWER]) as home:
        events = await ask_stream(home.gateway, tools=[TOOL])
    names = [event.type for event in events]
    assert names[2:7] == [
        "response.output_item.added",
        "response.web_search_call.in_progress",
        "response.web_search_call.searching",
        "response.web_search_call.completed",
        "response.output_item.done",
    ]
    note = names.index("response.output_text.annotation.added")
    assert "response.output_text.delta" in names[7:note]
    assert names.index("response.output_text.done") > note
    assert b"sources" not in b"".join(map(encode_event, events))


@pytest.mark.parametrize("mode", ["whole", "websocket", "background"])
async def test_every_mode_gets_the_cited_text(mode: str) -> None:
    async with house([SEARCH, ANSWER]) as home:
        gateway, expected = home.gateway, f"About fifteen metres {home.link}. It is big【9】."
        match mode:
            case "whole":
                output = (await ask(gateway, tools=[TOOL])).json["output"]
            case "websocket":
                async with talk(gateway.base_url) as socket:
                    await socket.ask(input="x", tools=[TOOL])
                    output = (await socket.events())[-1]["response"]["output"]
            case _:
                begun = (await ask(gateway, tools=[TOOL], background=True)).json
                path = f"/responses/{begun['id']}"
                found = begun
                while found["status"] in ("queued", "in_progress"):
                    await asyncio.sleep(0.01)
                    found = (await request(gateway, "GET", path)).json
                output = found["output"]
        assert output[1]["content"][0]["text"] == expected
        assert _cited(expected, output[1]["content"][0]["annotations"])


async def test_a_failed_search_is_told_to_the_model_and_shown_as_failed() -> None:
    async with house([SEARCH, Script(text="I could not search.")]) as home:
        home.web.failure = "429"
        events = await ask_stream(home.gateway, tools=[TOOL], include=[SOURCES])
    assert judge_stream(events) == []
    response = terminal(events)
    assert response.status == "completed"
    assert response.output[0]["status"] == "failed"
    assert response.output[0]["action"]["query"] == "severn tidal range"
    assert "error: the search provider has had too many requests" in home.shown(1)
    everything = b"".join(map(encode_event, events)) + home.upstream.requests[1].body
    assert KEY.encode() not in everything


async def test_a_page_is_opened_and_searched_in_one_response() -> None:
    def read(web: LoopbackWeb) -> list[Script]:
        page = f'{{"url": "{web.url}/tides"}}'
        find = f'{{"url": "{web.url}/tides", "pattern": "spring tides"}}'
        return [
            Script(calls=[Call("open_page", page), Call("find_in_page", find)]),
            Script(text="The bore runs at spring tides【1】."),
        ]

    async with house(read) as home:
        events = await ask_stream(
            home.gateway, input=f"What does {home.web.url}/tides say?", tools=[TOOL]
        )
    assert judge_stream(events) == []
    first, second, message = terminal(events).output
    assert first["action"] == {"type": "open_page", "url": f"{home.web.url}/tides"}
    assert second["action"]["type"] == "find_in_page"
    (note,) = message["content"][0]["annotations"]
    assert note["title"] == "Tides of the Severn"


async def test_a_page_inside_is_refused_and_the_model_is_told() -> None:
    inside = "http://169.254.169.254/latest/meta-data"
    scripts = [Script(calls=[Call("open_page", f'{{"url": "{inside}"}}')]), Script(text="No.")]
    async with house(scripts) as home:
        response = terminal(await ask_stream(home.gateway, input=f"Read {inside}", tools=[TOOL]))
    assert response.output[0]["status"] == "failed"
    assert "the address is not a public one" in home.shown(1)


async def test_the_next_turn_knows_the_search_and_marks_begin_again() -> None:
    scripts = [SEARCH, ANSWER, Script(text="Again【1】.")]
    async with house(scripts) as home:
        first = (await ask(home.gateway, tools=[TOOL])).json
        again = await ask(home.gateway, tools=[TOOL], previous_response_id=first["id"])
        messages = home.upstream.requests[2].json["messages"]
    call = next(m for m in messages if m.get("tool_calls"))["tool_calls"][0]["function"]
    assert call == {"name": "web_search", "arguments": QUERY.replace(": ", ":")}
    # No source was shown in this turn, so nothing can be cited.
    (part,) = again.json["output"][0]["content"]
    assert (part["text"], part["annotations"]) == ("Again【1】.", [])


async def test_an_answer_in_json_stays_json() -> None:
    answer = Script(text='{"metres": 15, "why": "it is 【1】 so"}')
    schema = {"type": "object", "properties": {"metres": {"type": "integer"}}}
    form = {"type": "json_schema", "name": "x", "schema": schema}
    async with house([SEARCH, answer]) as home:
        events = await ask_stream(home.gateway, tools=[TOOL], text={"format": form})
    assert judge_stream(events) == []
    (part,) = terminal(events).output[-1]["content"]
    assert part["text"] == '{"metres": 15, "why": "it is  so"}'
    (note,) = part["annotations"]
    assert note["start_index"] == note["end_index"] == part["text"].index(" so")


@pytest.mark.parametrize(
    "pieces",
    [
        ["It is", " big", "【1】"],
        ["It is", " big ", "【1】"],
        ["It is", " big", "【", "1】"],
        ["It is", " big ", "【", "1", "】"],
        list("It is big【1】"),
    ],
)
async def test_a_stream_in_any_pieces_has_one_space_before_a_link(pieces: list[str]) -> None:
    async with house([SEARCH, Script(text=pieces)]) as home:
        events = await ask_stream(home.gateway, tools=[TOOL])
    assert judge_stream(events) == []
    (part,) = terminal(events).output[-1]["content"]
    assert part["text"] == f"It is big {home.link}"
    assert len(part["annotations"]) == 1


@pytest.mark.parametrize("kind", ["web_search_preview", "web_search_2025_08_26"])
async def test_other_versions_of_the_tool_search_too(kind: str) -> None:
    async with house([SEARCH, ANSWER]) as home:
        answer = (await ask(home.gateway, tools=[{"type": kind}])).json
    assert answer["output"][0]["type"] == "web_search_call"


async def test_tool_choice_can_force_a_search() -> None:
    async with house([SEARCH, ANSWER]) as home:
        await ask(home.gateway, tools=[TOOL], tool_choice={"type": "web_search"})
        first, second = (one.json for one in home.upstream.requests)
    assert first["tool_choice"] != "auto"
    assert second.get("tool_choice", "auto") == "auto"


async def test_a_wrong_filter_is_refused_before_anything_is_sent() -> None:
    async with house([SEARCH]) as home:
        tool = {**TOOL, "filters": {"allowed_domains": "x"}}
        answer = await ask(home.gateway, tools=[tool])
        assert home.upstream.requests == []
    assert answer.status == 400
    assert answer.error["param"] == "tools[0].filters.allowed_domains"


async def test_the_openai_sdk_reads_the_stream() -> None:
    async with house([SEARCH, ANSWER]) as home:
        client = openai.AsyncOpenAI(base_url=home.gateway.base_url, api_key="none")
        async with client.responses.stream(
            model="echo", input="How large is it?", tools=[{"type": "web_search"}]
        ) as stream:
            kinds = [event.type async for event in stream]
            response = await stream.get_final_response()
        await client.close()
    assert "response.output_text.annotation.added" in kinds
    search, message = response.output
    assert search.type == "web_search_call"
    assert message.type == "message"
    part = message.content[0]
    assert part.type == "output_text"
    (note,) = part.annotations
    assert note.type == "url_citation"
    assert part.text[note.start_index : note.end_index] == home.link


@pytest.mark.parametrize("streams", [False, True])
async def test_the_tool_runner_of_the_sdk_accepts_and_replays_a_search(streams: bool) -> None:
    """It checks each item of a server's tool, and sends all of them back after a function."""
    scripts = [
        Script(calls=[Call("web_search", QUERY)]),
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
        params: Any = {
            "model": "echo",
            "input": "How large?",
            "tools": [TOOL],
            "include": [SOURCES],
        }
        response = await runner.run(client, params, stream=streams)
        await client.close()
        last = home.upstream.requests[-1].json["messages"]
    assert response.output_text == "Fifty feet."
    roles = [message["role"] for message in last]
    assert roles.count("tool") == 2
    assert last[-1] == {"role": "tool", "tool_call_id": "call_1", "content": "49 feet"}

"""The bridge: what is asked over its pipes, and what comes back."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from antiphon.backends.chat import ChatBackend
from antiphon.backends.scripted import ScriptedBackend
from antiphon.host import DataPart, Message, TextPart, ThinkingPart, ToolCallPart, ToolResultPart
from antiphon.host.bridge.client import BridgeClient, BridgeError, Log, Notice, Options
from antiphon.protocol.deltas import ReasoningGrew, TextGrew
from antiphon.testing import Call, Script, ScriptedUpstream, serve_gateway
from antiphon.wires.host.messages import Tool, UsageChanged
from tests.building import COUNTED, STOP
from tests.client.native import Answer, native, response
from tests.host.bridge.bridging import bridge, greeted, raw_bridge, read_all, stream_of, text_of
from tests.host.streams import call_item, created, done, end, message, message_item
from tests.transport.raw import Request

HELLO = [Message.system("Be brief."), Message.user("Hello there")]
WEATHER = Tool("weather", "Returns the weather.", {"type": "object"})


async def test_models_counts_and_an_answer(tmp_path: Path) -> None:
    notices: list[Notice] = []
    async with (
        serve_gateway(ScriptedBackend(models=["echo"])) as gateway,
        bridge(tmp_path, gateway.base_url, listen=notices.append) as client,
    ):
        models = await client.models()
        counts = await client.count("echo", ["Hello there", Message.user("Hello there"), ""])
        measured = await client.measure("echo", HELLO)
        answer = client.respond("echo", HELLO, Options(session="window"))
        parts = await read_all(answer)

    assert [model.id for model in models] == ["echo"]
    assert 0 < counts[0] < counts[1] and counts[2] == 0
    assert measured.input_tokens > 0 and not measured.is_estimate
    assert "Hello" in text_of(parts)
    assert len(parts) > 1
    assert answer.done is not None
    assert answer.done.status == "completed"
    assert answer.done.usage is not None and not answer.done.usage.is_estimate
    (usage,) = [notice for notice in notices if isinstance(notice, UsageChanged)]
    assert (usage.session, usage.model, usage.totals.turns) == ("window", "echo", 1)
    assert usage.usage == answer.done.usage
    assert usage.line.startswith("echo · in ")


@pytest.mark.parametrize("prefix", ["", "gw-"])
async def test_a_call_goes_to_the_asker_and_its_result_back(tmp_path: Path, prefix: str) -> None:
    scripts = [Script(text="Let me see.", calls=[Call("weather", '{"in": "Rome"}', "call_1")])]
    scripts.append(Script(text="Sunny."))
    options = Options(tools=[WEATHER], session="c")
    async with (
        ScriptedUpstream(scripts) as upstream,
        serve_gateway(ChatBackend(upstream.base_url)) as gateway,
        bridge(tmp_path, gateway.base_url, call_prefix=prefix) as client,
    ):
        parts = await read_all(client.respond("echo", HELLO, options))
        (call,) = [part for part in parts if isinstance(part, ToolCallPart)]
        result = ToolResultPart(call.call_id, [TextPart("sun")])
        messages = [*HELLO, Message.assistant(parts), Message.user([result])]
        again = await read_all(client.respond("echo", messages, options))

    assert call == ToolCallPart(f"{prefix}call_1", "weather", {"in": "Rome"})
    assert text_of(again) == "Sunny."
    sent = upstream.requests[1].json["messages"]
    assert sent[3] == {"role": "tool", "tool_call_id": "call_1", "content": "sun"}


async def test_the_named_tool_is_the_tool_choice(tmp_path: Path) -> None:
    options = Options(tools=[WEATHER], tool_mode="required", tool_name="weather")
    async with (
        native(response(TextGrew("ok"), COUNTED, STOP)) as server,
        bridge(tmp_path, server.base_url) as client,
    ):
        await read_all(client.respond("m", HELLO, options))
        with pytest.raises(BridgeError, match="no tool has this name") as caught:
            await read_all(client.respond("m", HELLO, Options(tool_name="weather")))
    assert server.body(0)["tool_choice"] == {"type": "function", "name": "weather"}
    assert server.body(0)["tools"][0]["name"] == "weather"
    assert caught.value.fault.code == "bad_request"
    assert len(server.requests) == 1


async def test_editors_may_send_many_tools_with_long_descriptions(tmp_path: Path) -> None:
    tools = [Tool(f"tool_{number}", "Does something. " * 100) for number in range(150)]
    async with (
        native(response(TextGrew("ok"), COUNTED, STOP)) as server,
        bridge(tmp_path, server.base_url) as client,
    ):
        await read_all(client.respond("m", HELLO, Options(tools=tools)))
    assert len(server.body(0)["tools"]) == 150


@pytest.mark.parametrize("shows", [True, False])
async def test_thinking_arrives_only_if_wanted(tmp_path: Path, shows: bool) -> None:
    async with (
        native(response(ReasoningGrew("hm"), TextGrew("ok"), COUNTED, STOP)) as server,
        bridge(tmp_path, server.base_url, shows_thinking=shows) as client,
    ):
        parts = await read_all(client.respond("m", HELLO))
    assert any(isinstance(part, ThinkingPart) for part in parts) is shows


async def test_an_answer_of_reasoning_alone_is_an_error_after_its_parts(tmp_path: Path) -> None:
    async with (
        native(response(ReasoningGrew("hm"), COUNTED, STOP)) as server,
        bridge(tmp_path, server.base_url, shows_thinking=True) as client,
    ):
        parts = []
        with pytest.raises(BridgeError) as caught:
            async for part in client.respond("m", HELLO):
                parts.append(part)
    assert [part.value for part in parts if isinstance(part, ThinkingPart)] == ["hm"]
    assert caught.value.fault.code == "empty_answer"
    assert "only reasoning" in caught.value.fault.message
    assert caught.value.fault.action


async def test_the_usage_part_has_the_servers_own_count(tmp_path: Path) -> None:
    async with (
        native(response(TextGrew("ok"), COUNTED, STOP)) as server,
        bridge(tmp_path, server.base_url, usage_part=True) as client,
    ):
        parts = await read_all(client.respond("m", HELLO))
        # It goes back with the answer, and no model sees it.
        await read_all(client.respond("m", [*HELLO, Message.assistant(parts), *HELLO[1:]]))
    last = parts[-1]
    assert isinstance(last, DataPart) and last.mime == "usage"
    assert msgspec.json.decode(last.data) == {
        "prompt_tokens": 3,
        "completion_tokens": 5,
        "total_tokens": 8,
        "prompt_tokens_details": {"cached_tokens": 0},
    }
    assert "prompt_tokens" not in str(server.body(1))


async def test_usage_of_a_server_that_does_not_count_is_an_estimate(tmp_path: Path) -> None:
    async with (
        native(stream_of(created(), *message("ok"), end(message_item("ok")))) as server,
        bridge(tmp_path, server.base_url, usage_part=True) as client,
    ):
        answer = client.respond("m", HELLO)
        parts = await read_all(answer)
    last = parts[-1]
    assert isinstance(last, DataPart)
    assert msgspec.json.decode(last.data)["prompt_tokens"] > 0
    assert answer.done is not None and answer.done.usage is not None
    assert answer.done.usage.is_estimate


async def test_usage_adds_up_by_session_with_its_cost(tmp_path: Path) -> None:
    notices: list[Notice] = []
    async with (
        native(response(TextGrew("ok"), COUNTED, STOP)) as server,
        bridge(tmp_path, server.base_url, listen=notices.append) as client,
    ):
        for session in ("a", "b", "a"):
            await read_all(client.respond("gpt-5", HELLO, Options(session=session)))
        await read_all(client.respond("no-such-model", HELLO, Options(session="a")))
    usage = [notice for notice in notices if isinstance(notice, UsageChanged)]
    assert [(it.session, it.totals.turns, it.totals.input) for it in usage] == [
        *(("a", 1, 3), ("b", 1, 3), ("a", 2, 6), ("a", 3, 9)),
    ]
    cost = usage[0].cost
    assert cost is not None and cost > 0
    assert usage[2].totals.cost == pytest.approx(2 * cost)
    assert "$" in usage[0].line
    assert (usage[3].cost, usage[3].totals.cost) == (None, None)


async def test_a_cancel_closes_the_connection_at_once(tmp_path: Path) -> None:
    """The best of five counts: the machine may be busy with something else."""
    pieces = response(TextGrew("once upon"), COUNTED, STOP).pieces[:5]
    times, codes = [], []
    async with (
        native(Answer(pieces=pieces, then="stall")) as server,
        bridge(tmp_path, server.base_url) as client,
    ):
        for _ in range(5):
            server.raw.closed.clear()
            answer = client.respond("m", HELLO)
            parts = aiter(answer)
            assert await anext(parts)
            begun = time.perf_counter()
            await answer.cancel()
            await server.raw.closed.wait()
            times.append(time.perf_counter() - begun)
            with pytest.raises(BridgeError) as caught:
                await anext(parts)
            codes.append(caught.value.fault.code)
        assert await client.count("m", ["still here"])
    assert codes == ["cancelled"] * 5
    assert min(times) < 0.1


async def test_leaving_the_loop_cancels_the_answer(tmp_path: Path) -> None:
    pieces = response(TextGrew("once upon"), COUNTED, STOP).pieces[:5]
    async with (
        native(Answer(pieces=pieces, then="stall")) as server,
        bridge(tmp_path, server.base_url) as client,
    ):
        parts = aiter(client.respond("m", HELLO))
        await anext(parts)
        await parts.aclose()
        async with asyncio.timeout(60):
            await server.raw.closed.wait()


async def test_a_request_cancelled_before_it_began_is_answered_once(tmp_path: Path) -> None:
    """Both lines are read together, so the task is cancelled before its first step."""
    question = {"type": "respond", "id": 7, "model": "m", "messages": []}
    async with (
        native(response(TextGrew("ok"), COUNTED, STOP)) as server,
        greeted(tmp_path, server.base_url) as raw,
    ):
        await raw.send(question, {"type": "cancel", "id": 7}, {"type": "cancel", "id": 99})
        got = await raw.read_to_end(7)
        await raw.send({"type": "count", "id": 8, "model": "m", "contents": ["a"]})
        got |= await raw.read_to_end(8)
    assert [message["error"]["code"] for message in got[7]] == ["cancelled"]
    assert [message["type"] for message in got[8]] == ["counted"]
    assert len(raw.seen) == 3


async def test_what_cannot_be_read_is_one_error_each_and_changes_nothing(tmp_path: Path) -> None:
    lines: list[tuple[bytes, str, Any]] = [
        (b"no json\n", "invalid_message", None),
        (b"\xff\xfe\x00\n", "invalid_message", None),
        (b"[1]\n", "invalid_message", None),
        (b"[" * 100_000 + b"\n", "invalid_message", None),
        (b'{"type":"sing","id":5}\n', "unknown_type", 5),
        (b'{"id":6}\n', "unknown_type", 6),
        (b'{"type":"count","id":"x"}\n', "invalid_message", "x"),
        (b'{"type":"respond","id":true,"model":"m","messages":[]}\n', "invalid_message", None),
        (b'{"type":"hello","version":1}\n', "invalid_message", None),
        (b'{"type":"hello","version":2}\n', "invalid_message", None),
    ]
    async with (
        native(response(TextGrew("ok"), COUNTED, STOP)) as server,
        greeted(tmp_path, server.base_url) as raw,
    ):
        for line, code, request_id in lines:
            await raw.send(line, b"\n  \n")
            message = await raw.read()
            assert (message["type"], message["error"]["code"]) == ("error", code)
            assert message["id"] == request_id
            assert message["error"]["message"].endswith(".")
        await raw.send({"type": "count", "id": 1, "model": "m", "contents": ["a"]})
        assert (await raw.read())["type"] == "counted"
        assert await raw.close() == 0
        assert await raw.errors.read() == b""


async def test_nothing_is_answered_before_hello(tmp_path: Path) -> None:
    async with raw_bridge(tmp_path) as raw:
        await raw.send({"type": "models", "id": 1}, {"type": "hello", "version": 1})
        first, second = await raw.read(), await raw.read()
    assert (first["id"], first["error"]["code"]) == (1, "not_greeted")
    assert second["type"] == "welcome"
    assert second["max_line_bytes"] == 64 * 1024 * 1024
    assert second["max_requests"] == 256


async def test_another_version_ends_the_bridge(tmp_path: Path) -> None:
    async with raw_bridge(tmp_path) as raw:
        await raw.send({"type": "hello", "version": 2})
        assert (await raw.read())["error"]["code"] == "unsupported_version"
        assert await raw.output.read() == b""
        assert await raw.process.wait() == 0


async def test_settings_that_cannot_be_used_are_refused(tmp_path: Path) -> None:
    async with raw_bridge(tmp_path) as raw:
        for url in ("ftp://x", "http://[::1", "http://a.example:99999/v1"):
            await raw.send({"type": "hello", "version": 1, "settings": {"base_url": url}})
            assert (await raw.read())["error"]["code"] == "bad_request"
        await raw.send({"type": "hello", "version": 1, "settings": {"base_url": ""}})
        assert (await raw.read())["type"] == "welcome"


async def test_a_duplicate_id_does_not_end_the_request_that_has_it(tmp_path: Path) -> None:
    pieces = response(TextGrew("once upon"), COUNTED, STOP).pieces[:5]
    messages = [{"role": "user", "content": [{"type": "text", "value": "hi"}]}]
    question = {"type": "respond", "id": "a", "model": "m", "messages": messages}
    async with (
        native(Answer(pieces=pieces, then="stall")) as server,
        greeted(tmp_path, server.base_url) as raw,
    ):
        await raw.send(question)
        assert (await raw.read())["type"] == "parts"
        await raw.send(question, {"type": "count", "id": "a"})
        errors = [await raw.read(), await raw.read()]
        await raw.send({"type": "cancel", "id": "a"})
        got = await raw.read_to_end("a")
    assert [error["error"]["code"] for error in errors] == ["duplicate_id", "invalid_message"]
    assert [error["id"] for error in errors] == [None, None]
    assert got["a"][-1]["error"]["code"] == "cancelled"


async def test_too_many_requests_are_refused(tmp_path: Path) -> None:
    asked = [{"type": "models", "id": number} for number in range(257)]
    async with (
        native(Answer(pieces=[], then="stall")) as server,
        greeted(tmp_path, server.base_url) as raw,
    ):
        await raw.send(*asked)
        message = await raw.read()
        await raw.send({"type": "cancel", "id": 3})
        got = await raw.read_to_end(3)
        await raw.send({"type": "models", "id": "again"}, {"type": "cancel", "id": "again"})
        got |= await raw.read_to_end("again")
    assert (message["id"], message["error"]["code"]) == (256, "too_many_requests")
    assert got[3][0]["error"]["code"] == "cancelled"
    assert got["again"][0]["error"]["code"] == "cancelled"


async def test_half_a_surrogate_pair_makes_no_message_invalid(tmp_path: Path) -> None:
    """JavaScript writes it as an escape; UTF-8 cannot hold it."""
    line = b'{"type":"respond","id":1,"model":"m","messages":[{"role":"user","content":['
    line += b'{"type":"text","value":"cut \\ud83d"}]}]}\n'
    async with (
        native(response(TextGrew("ok"), COUNTED, STOP)) as server,
        greeted(tmp_path, server.base_url) as raw,
    ):
        await raw.send(line)
        got = await raw.read_to_end(1)
    assert got[1][-1]["type"] == "done"
    assert server.body(0)["input"][0]["content"][0]["text"] == "cut \ufffd"


async def test_a_list_of_models_that_changed_is_announced(tmp_path: Path) -> None:
    notices: list[Notice] = []
    changed = asyncio.Event()

    def listen(notice: Notice) -> None:
        notices.append(notice)
        changed.set()

    lists = [
        Answer(
            pieces=[msgspec.json.encode({"object": "list", "data": [{"id": name} for name in it]})],
            content_type="application/json",
        )
        for it in (["a"], ["a"], ["a", "b"])
    ]
    async with (
        native(*lists) as server,
        bridge(tmp_path, server.base_url, listen=listen) as client,
    ):
        await client.models()
        await client.models(refresh=True)
        assert not notices
        models = await client.models(refresh=True)
        await changed.wait()
    assert [model.id for model in models] == ["a", "b"]
    assert [type(notice).__name__ for notice in notices] == ["ModelsChanged"]


async def test_the_client_reports_a_bridge_that_ends_at_once() -> None:
    with pytest.raises(BridgeError) as caught:
        await BridgeClient.start(["false"])
    assert caught.value.fault.code == "unreachable"


async def test_the_client_reports_a_bridge_that_has_ended(tmp_path: Path) -> None:
    asked = asyncio.Event()

    def stall(request: Request) -> Answer:
        asked.set()
        return Answer(pieces=[], then="stall")

    async with native(stall) as server, bridge(tmp_path, server.base_url) as client:
        asking = asyncio.create_task(client.models())
        await asked.wait()
        client.process.kill()
        with pytest.raises(BridgeError, match="has ended"):
            await asking
        await client.process.wait()
        with pytest.raises(BridgeError, match="has ended"):
            await client.models()


async def test_the_log_is_sent_at_its_level_and_holds_no_content(tmp_path: Path) -> None:
    logs: dict[str, list[Notice]] = {"debug": [], "warning": []}
    for level, notices in logs.items():
        async with (
            native(response(TextGrew("xylophone"), COUNTED, STOP)) as server,
            bridge(tmp_path, server.base_url, listen=notices.append, log_level=level) as client,
        ):
            await read_all(client.respond("m", [Message.user("zeppelin")], Options(session="s")))
    lines = [notice for notice in logs["debug"] if isinstance(notice, Log)]
    assert any("bytes to /responses" in line.message for line in lines)
    assert not any(word in str(lines) for word in ("xylophone", "zeppelin"))
    assert not any(isinstance(notice, Log) for notice in logs["warning"])


async def test_loading_a_tokenizer_does_not_delay_other_counts(tmp_path: Path) -> None:
    """Those of a model that is ready are answered first, although they were asked last."""
    ask = {"type": "count", "contents": ["Hello there, how many?"]}
    async with (
        native(response(TextGrew("ok"), COUNTED, STOP)) as server,
        greeted(tmp_path, server.base_url) as raw,
    ):
        await raw.send(ask | {"id": "prepare", "model": "m"})
        await raw.read_to_end("prepare")
        await raw.send(
            ask | {"id": "loading", "model": "gpt-5"},
            *(ask | {"id": number, "model": "m"} for number in range(20)),
        )
        got = await raw.read_to_end("loading", *range(20))
    order = [message["id"] for message in raw.seen if message["type"] == "counted"]
    assert order == ["prepare", *range(20), "loading"]
    assert got["loading"][0]["tokens"][0] > 0


async def test_half_a_surrogate_pair_in_a_call_is_kept(tmp_path: Path) -> None:
    item = call_item(arguments='{"city":"\\ud83d"}')
    async with (
        native(stream_of(created(), done(item), end(item))) as server,
        bridge(tmp_path, server.base_url, state_part=True) as client,
    ):
        parts = await read_all(client.respond("m", HELLO))
    assert parts[0] == ToolCallPart("call_1", "weather", {"city": "\ud83d"})
    assert isinstance(parts[1], DataPart)

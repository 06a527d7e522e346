"""The marker through the bridge: what the server is sent after a restart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from antiphon.backends.chat import ChatBackend
from antiphon.host import DataPart, Message, TextPart, ToolCallPart, ToolResultPart
from antiphon.host.bridge.client import Options, Tool
from antiphon.protocol.deltas import TextGrew
from antiphon.testing import Call, Script, ScriptedUpstream, serve_gateway
from antiphon.wires.host.parts import Part, ResponsePart
from tests.building import COUNTED, STOP
from tests.client.native import Answer, native, response
from tests.client.native import error as refusal
from tests.host.bridge.bridging import bridge, read_all, text_of
from tests.transport.raw import Request

FIRST = [Message.system("Be brief."), Message.user("first")]
ONE = response(TextGrew("o"), TextGrew("ne"), COUNTED, STOP)
SESSION = Options(session="window")


async def _first_turn(home: Path, base_url: str, options: Options = SESSION) -> list[ResponsePart]:
    """Run the first turn with a bridge of its own."""
    async with bridge(home, base_url, state_part=True) as client:
        return await read_all(client.respond("m", FIRST, options))


def _joined(parts: list[ResponsePart]) -> list[Part]:
    """Return an answer as an editor keeps it: one text, the marker before it."""
    return [*(part for part in parts if isinstance(part, DataPart)), TextPart(text_of(parts))]


@pytest.mark.parametrize("options", [SESSION, Options()], ids=["session", "none"])
async def test_the_second_turn_after_a_restart_sends_only_what_is_new(
    tmp_path: Path, options: Options
) -> None:
    async with native(ONE) as server:
        parts = await _first_turn(tmp_path, server.base_url, options)
        messages = [*FIRST, Message.assistant(_joined(parts)), Message.user("second")]
        async with bridge(tmp_path, server.base_url, state_part=True) as client:
            await read_all(client.respond("m", messages, options))
    marker = parts[-1]
    assert isinstance(marker, DataPart) and marker.mime == "stateful_marker"
    model, _, rest = marker.data.decode().partition("\\")
    assert model == "m" and rest.endswith(":resp_1")
    assert server.body(1)["previous_response_id"] == "resp_1"
    assert [item["content"] for item in server.body(1)["input"]] == [
        [{"type": "input_text", "text": "second"}]
    ]
    assert server.body(1)["instructions"] == "Be brief."


@pytest.mark.parametrize(
    "change",
    [
        lambda it: [it[0], Message.user("1st"), *it[2:]],
        lambda it: [*it[:2], Message.assistant([*it[2].content[:-1], TextPart("two")]), it[3]],
        lambda it: [it[0], *it[2:]],
        lambda it: [it[0], Message.user("before"), *it[1:]],
        lambda it: [Message.user("A summary of all."), *it[2:]],
    ],
    ids=["edited question", "edited answer", "removed", "inserted", "summarised"],
)
@pytest.mark.parametrize("restart", [True, False])
async def test_a_changed_history_is_sent_whole(
    tmp_path: Path, change: object, restart: bool
) -> None:
    async with native(ONE) as server:
        async with bridge(tmp_path, server.base_url, state_part=True) as client:
            parts = await read_all(client.respond("m", FIRST, SESSION))
            messages = [*FIRST, Message.assistant(_joined(parts)), Message.user("second")]
            messages = change(messages)  # type: ignore[operator]
            if not restart:
                await read_all(client.respond("m", messages, SESSION))
        if restart:
            async with bridge(tmp_path, server.base_url, state_part=True) as client:
                await read_all(client.respond("m", messages, SESSION))
    sent = server.body(1)
    assert "previous_response_id" not in sent
    shown = [message for message in messages if message.role.value != "system"]
    assert len(sent["input"]) == len(shown)


async def test_going_back_to_an_earlier_answer_continues_from_that_one(tmp_path: Path) -> None:
    """The session in memory is a turn ahead of what the messages show."""
    numbers = iter(range(1, 10))

    def numbered(request: Request) -> Answer:
        number = next(numbers)
        pieces = [piece.replace(b"resp_1", b"resp_%d" % number) for piece in ONE.pieces]
        return Answer(pieces=pieces)

    async with (
        native(numbered) as server,
        bridge(tmp_path, server.base_url, state_part=True) as client,
    ):
        first = await read_all(client.respond("m", FIRST, SESSION))
        base = [*FIRST, Message.assistant(_joined(first))]
        await read_all(client.respond("m", [*base, Message.user("second")], SESSION))
        await read_all(client.respond("m", [*base, Message.user("instead")], SESSION))
    assert [server.body(n).get("previous_response_id") for n in range(3)] == [
        *(None, "resp_1", "resp_1"),
    ]
    assert server.body(2)["input"][0]["content"][0]["text"] == "instead"
    assert len(server.body(2)["input"]) == 1


@pytest.mark.parametrize("options", [SESSION, Options()], ids=["session", "none"])
async def test_the_marker_of_another_server_is_not_used(tmp_path: Path, options: Options) -> None:
    """The other one may ignore the id, or have given it to a response of its own."""
    async with native(ONE) as server, native(ONE) as other:
        parts = await _first_turn(tmp_path, server.base_url, options)
        messages = [*FIRST, Message.assistant(_joined(parts)), Message.user("second")]
        async with bridge(tmp_path, other.base_url, state_part=True) as client:
            await read_all(client.respond("m", messages, options))
    assert "previous_response_id" not in other.body(0)
    assert len(other.body(0)["input"]) == 3


async def test_a_server_that_has_forgotten_gets_everything(tmp_path: Path) -> None:
    def forgetful(request: Request) -> Answer:
        if "previous_response_id" in msgspec.json.decode(request.body):
            return refusal(404, "previous_response_not_found", "Previous response not found.")
        return ONE

    async with native(forgetful) as server:
        parts = await _first_turn(tmp_path, server.base_url)
        messages = [*FIRST, Message.assistant(_joined(parts)), Message.user("second")]
        async with bridge(tmp_path, server.base_url, state_part=True) as client:
            assert text_of(await read_all(client.respond("m", messages, SESSION))) == "one"
    assert "previous_response_id" in server.body(1)
    assert "previous_response_id" not in server.body(2)
    assert len(server.body(2)["input"]) == 3


async def test_a_tool_turn_goes_on_after_a_restart_at_a_gateway(tmp_path: Path) -> None:
    """With another gateway in the same place, whose store is empty, nothing is lost either."""
    scripts = [
        Script(text="Let me see.", calls=[Call("weather", '{"in": "Rome"}', "call_1")]),
        Script(text="Sunny."),
        Script(text="Sunny."),
    ]
    options = Options(tools=[Tool("weather", "Returns the weather.")], session="c")
    settings: dict[str, Any] = {"state_part": True, "usage_part": True, "call_prefix": "gw-"}
    async with ScriptedUpstream(scripts) as upstream:
        async with serve_gateway(ChatBackend(upstream.base_url)) as gateway:
            async with bridge(tmp_path, gateway.base_url, **settings) as client:
                parts = await read_all(client.respond("echo", FIRST, options))
            (call,) = [part for part in parts if isinstance(part, ToolCallPart)]
            result = Message.user([ToolResultPart(call.call_id, [TextPart("sun")])])
            messages = [*FIRST, Message.assistant(parts), result]
            async with bridge(tmp_path, gateway.base_url, **settings) as client:
                assert text_of(await read_all(client.respond("echo", messages, options)))
        async with (
            serve_gateway(ChatBackend(upstream.base_url)) as empty,
            bridge(tmp_path, empty.base_url, **settings) as client,
        ):
            again = await read_all(client.respond("echo", messages, options))
    assert text_of(again) == "Sunny."
    for request in upstream.requests[1:]:
        sent = request.json["messages"]
        assert [message["role"] for message in sent] == ["system", "user", "assistant", "tool"]
        assert sent[2]["tool_calls"][0]["id"] == "call_1"
        assert sent[3]["content"] == "sun"


async def test_there_is_no_marker_where_nothing_is_stored(tmp_path: Path) -> None:
    options = Options(model_options={"store": False})
    async with native(ONE) as server:
        parts = await _first_turn(tmp_path, server.base_url, options)
    assert not any(isinstance(part, DataPart) for part in parts)

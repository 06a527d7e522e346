"""Every kind of turn takes the same way through the gateway, token by token.

A turn with few tokens and one with many run in the same mode; the functions of ours that were
called more often in the longer one are what a token costs. They must be the same in all modes,
except those of the sink, which are listed here by name, and over all wires, except those of the
reader, whose number is limited.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Final, NamedTuple

import pytest

import antiphon
from antiphon.backends.base import Backend
from antiphon.backends.chat import ChatBackend
from antiphon.backends.host import HostBackend
from antiphon.backends.http import HttpBackend
from antiphon.engine.run.repair import Repair
from antiphon.engine.run.sinks import NO_READER
from antiphon.testing.gateway import Gateway, serve_gateway
from antiphon.testing.tools import ScriptedTool
from antiphon.tools.base import ToolRunner
from antiphon.tools.code_interpreter import CodeInterpreter
from antiphon.tools.index.file_index import FileIndex
from antiphon.tools.shell import HostedShell
from antiphon.transport.http import Limits
from antiphon.wires.gemini.profiles import PROFILES as GEMINI
from antiphon.wires.gemini.wire import GeminiWire
from antiphon.wires.messages.wire import MessagesWire
from antiphon.wires.responses.profiles import PROFILES
from antiphon.wires.responses.wire import ResponsesWire
from tests.asking import ask, events_of, request, terminal
from tests.containers import make_service
from tests.host_upstream import MODELS, part, serve_editor
from tests.talking import talk
from tests.tools.index.filled import STORE, fill
from tests.transport.raw import Connection, Request, chunk, head, raw_server, reply

Json = dict[str, Any]

_OURS: Final = str(Path(antiphon.__file__).parent)
_TESTING: Final = str(Path(antiphon.__file__).parent / "testing")
_COROUTINE: Final = inspect.CO_COROUTINE | inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR
_FEW, _MANY = 8, 40
# Passes of the loop after which a token has gone through everything.
_PASSES: Final = 40
# One is that of the store in memory, whose log is written by a task of its own.
_MOST_WAKE_UPS: Final = 1.5
# The reader of the connection, which all share, its inbox, and the turn that waits for it.
_MOST_WAKE_UPS_OF_EDITOR: Final = 5.5
_READER: Final = ("wires/exchange.py", "protocol/sse.py")
# Functions of a reader that are called for a token. That of chat reads most tokens at once.
_MOST_OF_READER: Final = 12
_MOST_OF_CHAT_READER: Final = 5
_COROUTINES: Final[set[str]] = set()

TOOL: Final = {"type": "function", "name": "look", "parameters": {"type": "object"}}
HOSTED: Final = {"type": "mcp", "server_label": "test"}
SEARCH: Final = {"type": "file_search", "vector_store_ids": [STORE]}
CODE: Final = {"type": "code_interpreter", "container": {"type": "auto"}}
SHELL: Final = {"type": "shell", "environment": {"type": "container_auto"}}
FORMAT: Final = {"format": {"type": "json_schema", "name": "s", "schema": {"type": "string"}}}

# What a sink does to encode and to show events: the only difference between the modes.
SSE_SINK: Final = {
    "server/delivery/sse.py:SseSink.show",
    "server/delivery/sse.py:_write_chunk",
    "protocol/codec.py:encode_all_sse",
}
CHAT_SINK: Final = {
    "server/delivery/sse.py:SseSink.show",
    "server/delivery/sse.py:_write_chunk",
    "wires/chat/encode.py:ChatEncoder.encode",
}
MESSAGES_SINK: Final = {
    "server/delivery/sse.py:SseSink.show",
    "server/delivery/sse.py:_write_chunk",
    "wires/messages/encode.py:MessagesEncoder.encode",
}
WEBSOCKET_SINK: Final = {
    "server/delivery/websocket.py:_LaneSink.show",
    "server/delivery/websocket.py:_Socket.write",
    "server/delivery/websocket.py:_Socket._is_gone",
    "server/delivery/frames.py:encode_frame",
    "server/delivery/frames.py:text_header",
    "protocol/codec.py:encode_event",
}
# What `include` hides of the items of some tools is hidden where events are encoded.
HIDES: Final = {"protocol/includes.py:Hidden.events", "protocol/includes.py:Hidden._event"}
SSE_HIDES: Final = HIDES | {"wires/responses/door.py:_encode_shown"}
NULL_SINK: Final = {"engine/run/sinks.py:_NullSink.show"}
# An answer that is not streamed has no log: its end is stored as a whole.
LOG: Final = (
    "store/",
    "engine/keep/",
    "protocol/machines/log.py",
    "protocol/events.py:sequence_of",
)


class Calls:
    """Counts the calls of our functions, and how often our coroutines are woken."""

    def __init__(self) -> None:
        self.by_name: Counter[str] = Counter()
        self.wake_ups = 0

    @contextmanager
    def counted(self) -> Iterator[None]:
        sys.setprofile(self._note)
        try:
            yield
        finally:
            sys.setprofile(None)

    def _note(self, frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event != "call" or not _is_ours(code.co_filename):
            return
        self.by_name[f"{code.co_filename[len(_OURS) + 1 :]}:{code.co_qualname}"] += 1
        caller = frame.f_back
        if code.co_flags & _COROUTINE:
            _COROUTINES.add(f"{code.co_filename[len(_OURS) + 1 :]}:{code.co_qualname}")
        if code.co_flags & _COROUTINE and not (
            caller is not None and _is_ours(caller.f_code.co_filename)
        ):
            self.wake_ups += 1


def _is_ours(path: str) -> bool:
    return path.startswith(_OURS) and not path.startswith(_TESTING)


_MODELS: Final[Json] = {"data": [{"id": "m"}]}


class Dialect(NamedTuple):
    """How a server of a wire streams a text: a beginning, pieces, and an end."""

    backend: Callable[[str], Backend]
    begin: Sequence[Json]
    piece: Callable[[str], Json]
    end: Sequence[Json]
    models: Json = _MODELS


def _chat_event(finish_reason: str | None = None, **delta: Any) -> Json:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}]}


def _gemini_event(text: str, **fields: str) -> Json:
    content = {"role": "model", "parts": [{"text": text}]}
    return {"candidates": [{"content": content, "index": 0, **fields}], "modelVersion": "m"}


def _responses_event(kind: str, **fields: Any) -> Json:
    return {"type": f"response.{kind}", "output_index": 0, "item_id": "msg_1", **fields}


def _block_event(kind: str, **fields: Any) -> Json:
    return {"type": f"content_block_{kind}", "index": 0, **fields}


_MESSAGE: Final = {"type": "message", "id": "msg_1", "role": "assistant", "content": []}
_DIALECTS: Final = {
    "chat": Dialect(
        lambda url: ChatBackend(url, profile="vllm"),
        (),
        lambda text: _chat_event(content=text),
        (_chat_event("stop"),),
    ),
    "messages": Dialect(
        lambda url: HttpBackend(url, MessagesWire(root="")),
        (
            {"type": "message_start", "message": {"id": "msg_1", "usage": {"input_tokens": 1}}},
            _block_event("start", content_block={"type": "text", "text": ""}),
        ),
        lambda text: _block_event("delta", delta={"type": "text_delta", "text": text}),
        (
            _block_event("stop"),
            {"type": "message_delta", "delta": {"stop_reason": "end_turn"}},
            {"type": "message_stop"},
        ),
    ),
    "responses": Dialect(
        lambda url: HttpBackend(url, ResponsesWire(PROFILES["vllm"])),
        (
            {"type": "response.created", "response": {"id": "r", "output": []}},
            {"type": "response.output_item.added", "output_index": 0, "item": _MESSAGE},
        ),
        lambda text: _responses_event("output_text.delta", content_index=0, delta=text),
        (
            {
                "type": "response.completed",
                "response": {"id": "r", "status": "completed", "output": []},
            },
        ),
    ),
    "gemini": Dialect(
        lambda url: HttpBackend(url, GeminiWire(GEMINI["gemini"])),
        (),
        _gemini_event,
        (_gemini_event("", finishReason="STOP"),),
        {"models": [{"name": "models/m"}]},
    ),
}


class Upstream:
    """Streams a JSON string, a letter to a read; each is taken in before the next is sent."""

    def __init__(self, tokens: int, dialect: Dialect) -> None:
        self._tokens = tokens
        self._dialect = dialect

    async def __call__(self, request: Request, connection: Connection) -> None:
        dialect = self._dialect
        if request.method == "GET":
            await connection.write(reply(json.dumps(dialect.models).encode()))
            return
        await connection.write(head("text/event-stream"))
        if b"test__look" in request.body and b'"role":"tool"' not in request.body:
            call = {"index": 0, "id": "c", "function": {"name": "test__look", "arguments": "{}"}}
            events = [_chat_event(tool_calls=[call]), _chat_event("tool_calls")]
            await connection.write(chunk(_write(events) + b"data: [DONE]\n\n") + chunk(b""))
            return
        if dialect.begin:
            await connection.write(chunk(_write(dialect.begin)))
        for text in ('"', *("x" * self._tokens), '"'):
            await connection.write(chunk(_write([dialect.piece(text)])))
            for _pass in range(_PASSES):
                await asyncio.sleep(0)
        end = _write(dialect.end) + (b"data: [DONE]\n\n" if dialect is _DIALECTS["chat"] else b"")
        await connection.write(chunk(end) + chunk(b""))


def _write(events: Sequence[Json]) -> bytes:
    """Return the events as they are sent; those that have a type have a line for it."""
    lines = []
    for event in events:
        name = f"event: {event['type']}\n" if "type" in event else ""
        lines.append(f"{name}data: {json.dumps(event, separators=(',', ':'))}\n\n")
    return "".join(lines).encode()


async def _sse(gateway: Gateway, **body: Any) -> str:
    answer = await ask(gateway, stream=True, **body)
    sys.setprofile(None)  # to read the answer is not the gateway's work
    return terminal(events_of(answer.body)).output_text


async def _sse_with_tool(gateway: Gateway) -> str:
    return await _sse(gateway, tools=[TOOL])


async def _sse_with_hosted_tool(gateway: Gateway) -> str:
    return await _sse(gateway, tools=[HOSTED])


async def _sse_with_file_search(gateway: Gateway) -> str:
    return await _sse(gateway, tools=[SEARCH])


async def _sse_with_code(gateway: Gateway) -> str:
    return await _sse(gateway, tools=[CODE, SHELL])


async def _websocket_with_search_and_code(gateway: Gateway) -> str:
    return await _websocket(gateway, tools=[SEARCH, CODE, TOOL])


async def _sse_with_both(gateway: Gateway) -> str:
    return await _sse(gateway, tools=[HOSTED, TOOL])


async def _sse_with_format(gateway: Gateway) -> str:
    return await _sse(gateway, text=FORMAT)


async def _chat_door(gateway: Gateway, **body: Any) -> str:
    settings = {"model": "test/m", "stream": True, "store": True, **body}
    asked: dict[str, Any] = {"messages": [{"role": "user", "content": "x"}]}
    answer = await request(gateway, "POST", "/chat/completions", asked | settings)
    sys.setprofile(None)  # to read the answer is not the gateway's work
    chunks = [json.loads(line[6:]) for line in answer.body.decode().split("\n\n")[:-2]]
    return "".join(one["choices"][0]["delta"].get("content", "") for one in chunks)


async def _chat_door_with_tool(gateway: Gateway) -> str:
    return await _chat_door(gateway, tools=[{"type": "function", "function": {"name": "look"}}])


async def _messages_door(gateway: Gateway, **body: Any) -> str:
    settings = {"model": "test/m", "max_tokens": 99, "stream": True, "store": True, **body}
    asked: dict[str, Any] = {"messages": [{"role": "user", "content": "x"}]}
    answer = await request(gateway, "POST", "/messages", asked | settings)
    sys.setprofile(None)  # to read the answer is not the gateway's work
    frames = [
        json.loads(one.partition("data: ")[2]) for one in answer.body.decode().split("\n\n")[:-1]
    ]
    return "".join(frame.get("delta", {}).get("text", "") for frame in frames)


async def _messages_door_with_tool(gateway: Gateway) -> str:
    tool = {"name": "look", "input_schema": {"type": "object"}}
    return await _messages_door(gateway, tools=[tool])


async def _websocket(gateway: Gateway, **body: Any) -> str:
    async with talk(gateway.base_url) as socket:
        last = await socket.turn(input="x", model="test/m", **body)
    text: str = last["response"]["output"][-1]["content"][0]["text"]
    return text


async def _websocket_with_hosted_tool(gateway: Gateway) -> str:
    return await _websocket(gateway, tools=[HOSTED])


async def _websocket_with_tool(gateway: Gateway) -> str:
    return await _websocket(gateway, tools=[TOOL])


async def _background(gateway: Gateway, **body: Any) -> str:
    begun = (await ask(gateway, background=True, **body)).json
    while True:
        answer = (await request(gateway, "GET", f"/responses/{begun['id']}")).json
        if answer["status"] not in ("queued", "in_progress"):
            break
        await asyncio.sleep(0.2)  # few and far between: what it does is not a token's
    text: str = answer["output"][-1]["content"][0]["text"]
    return text


async def _background_with_hosted_tool(gateway: Gateway) -> str:
    return await _background(gateway, tools=[HOSTED])


async def _whole(gateway: Gateway) -> str:
    answer = (await ask(gateway, stream=False)).json
    text: str = answer["output"][-1]["content"][0]["text"]
    return text


Turn = Callable[[Gateway], Awaitable[str]]


@asynccontextmanager
async def _upstream(tokens: int, wire: str) -> AsyncIterator[Backend]:
    """Run a server of this wire; yield what asks it."""
    if wire == "host":
        with tempfile.TemporaryDirectory() as folder:
            async with serve_editor(Path(folder) / "editor.json") as editor:
                editor.models = [MODELS[0] | {"id": "m"}]
                letters = ('"', *("x" * tokens), '"')
                editor.play([step for one in letters for step in (part(one), _PASSES)])
                yield HostBackend(editor.path, limits=Limits(connect=60))
        return
    dialect = _DIALECTS[wire]
    async with raw_server(Upstream(tokens, dialect)) as server:
        yield dialect.backend(server.url + "/v1")


async def _calls(turn: Turn, tokens: int, wire: str) -> Calls:
    calls, service = Calls(), make_service()
    tools: list[ToolRunner] = [ScriptedTool(), CodeInterpreter(service), HostedShell(service)]
    store = service.store
    await fill(store, {"file-1": "words"}, owner="local")
    async with (
        _upstream(tokens, wire) as backend,
        serve_gateway(
            {"test": backend},
            default_model="test/m",
            tools=tools,
            store=store,
            containers=service,
            index=FileIndex(store),
        ) as gateway,
    ):
        with calls.counted():
            text = await turn(gateway)
    assert text == f'"{"x" * tokens}"'
    return calls


async def per_token(turn: Turn, wire: str = "chat") -> tuple[set[str], float]:
    """Return the functions that a token needs, and how many wake-ups."""
    await _calls(turn, _FEW, wire)  # what is only done once in a process
    few, many = await _calls(turn, _FEW, wire), await _calls(turn, _MANY, wire)
    more = _MANY - _FEW
    often = {n for n, count in many.by_name.items() if count - few.by_name[n] >= more / 2}
    return often, (many.wake_ups - few.wake_ups) / more


@pytest.mark.parametrize(
    ("turn", "sink"),
    [
        (_sse_with_tool, SSE_SINK),
        (_sse_with_format, SSE_SINK),
        (_sse_with_hosted_tool, SSE_SINK),
        (_sse_with_both, SSE_SINK),
        (_sse_with_file_search, SSE_SINK | SSE_HIDES),
        (_sse_with_code, SSE_SINK | SSE_HIDES),
        (_websocket_with_search_and_code, WEBSOCKET_SINK | HIDES),
        (_websocket_with_hosted_tool, WEBSOCKET_SINK),
        (_background_with_hosted_tool, NULL_SINK),
        (_chat_door, CHAT_SINK),
        (_chat_door_with_tool, CHAT_SINK),
        (_messages_door, MESSAGES_SINK),
        (_messages_door_with_tool, MESSAGES_SINK),
        (_websocket, WEBSOCKET_SINK),
        (_websocket_with_tool, WEBSOCKET_SINK),
        (_background, NULL_SINK),
    ],
)
async def test_a_token_takes_the_same_functions_in_every_mode(turn: Turn, sink: set[str]) -> None:
    plain, _ = await per_token(_sse)
    other, wake_ups = await per_token(turn)

    assert other - sink == plain - SSE_SINK
    assert plain >= SSE_SINK
    assert wake_ups <= _MOST_WAKE_UPS


@pytest.mark.parametrize("wire", [wire for wire in _DIALECTS if wire != "chat"])
@pytest.mark.parametrize(
    ("turn", "sink"),
    [
        (_sse_with_tool, SSE_SINK),
        (_messages_door, MESSAGES_SINK),
        (_websocket, WEBSOCKET_SINK),
        (_background, NULL_SINK),
    ],
)
async def test_a_token_takes_the_same_functions_over_every_wire(
    wire: str, turn: Turn, sink: set[str]
) -> None:
    chat, _ = await per_token(_sse)
    other, wake_ups = await per_token(turn, wire)

    read, chat_read = _reader_in(other, wire), _reader_in(chat, "chat")
    assert other - sink - read == chat - SSE_SINK - chat_read
    assert 0 < len(chat_read) <= _MOST_OF_CHAT_READER
    assert 0 < len(read) <= _MOST_OF_READER
    assert wake_ups <= _MOST_WAKE_UPS


@pytest.mark.parametrize(
    ("turn", "sink"),
    [
        (_sse_with_tool, SSE_SINK),
        (_messages_door, MESSAGES_SINK),
        (_websocket, WEBSOCKET_SINK),
        (_background, NULL_SINK),
    ],
)
async def test_a_token_of_an_editor_takes_the_same_functions(turn: Turn, sink: set[str]) -> None:
    """An editor shares its connection, so a turn waits for its inbox: coroutines are resumed."""
    chat, _ = await per_token(_sse)
    other, wake_ups = await per_token(turn, "host")

    chat_reader = (*_READER, "wires/chat/", "transport/", "backends/http.py")
    host_reader = ("wires/host/", "backends/host", "protocol/halves.py")
    resumed = {name for name in other if name in _COROUTINES}
    ours = {name for name in other - sink - resumed if not name.startswith(host_reader)}
    theirs = {name for name in chat - SSE_SINK - _COROUTINES if not name.startswith(chat_reader)}
    assert ours == theirs
    assert wake_ups <= _MOST_WAKE_UPS_OF_EDITOR


def _reader_in(names: set[str], wire: str) -> set[str]:
    """Return the functions of the wire, and of the decoder of events, which chat needs less of."""
    reader = (f"wires/{wire}/", *_READER)
    sinks = SSE_SINK | CHAT_SINK | MESSAGES_SINK
    return {name for name in names if name.startswith(reader) and name not in sinks}


async def test_an_answer_that_is_not_streamed_leaves_out_the_log_alone() -> None:
    plain, _ = await per_token(_sse)
    other, wake_ups = await per_token(_whole)

    assert other - NULL_SINK <= plain
    left_out = plain - SSE_SINK - other
    assert {name for name in left_out if not name.startswith(LOG)} == set()
    assert any("append" in name for name in left_out)
    assert wake_ups <= _MOST_WAKE_UPS


async def test_a_second_path_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    plain, _ = await per_token(_sse)
    monkeypatch.setattr(Repair, "note_text", property(lambda self: None))
    other, _ = await per_token(_sse_with_tool)

    path = "engine/run/repair.py"
    assert other - plain >= {f"{path}:Repair.see", f"{path}:_Answer.take"}


async def test_a_turn_that_is_woken_for_every_token_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(type(NO_READER), "show", lambda self, events: False)
    _, wake_ups = await per_token(_background)

    assert wake_ups > _MOST_WAKE_UPS

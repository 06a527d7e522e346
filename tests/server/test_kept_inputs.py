"""A context that is sent whole again is answered as if nothing of it had been sent before."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from antiphon.backends.base import Ask
from antiphon.backends.chat import ChatBackend
from antiphon.backends.http import HttpBackend
from antiphon.backends.scripted import ScriptedBackend
from antiphon.engine.prepare.seal import Sealer
from antiphon.engine.prepare.window import reasoning_seal
from antiphon.gateway.assemble import ServerSettings
from antiphon.plans.plan import Plan
from antiphon.protocol.deltas import NativeState
from antiphon.protocol.items import Item
from antiphon.protocol.kept_inputs import KeptInputs
from antiphon.store.sqlite import SqliteStore
from antiphon.testing import Script, ScriptedUpstream
from antiphon.testing.gateway import Gateway, serve_gateway
from antiphon.wires.chat.profiles import GENERIC
from antiphon.wires.chat.wire import ChatWire
from antiphon.wires.gemini.profiles import PROFILES as GEMINI
from antiphon.wires.gemini.wire import GeminiWire
from antiphon.wires.messages.profiles import ANTHROPIC
from antiphon.wires.messages.wire import MessagesWire
from antiphon.wires.responses.profiles import PROFILES as RESPONSES
from antiphon.wires.responses.wire import ResponsesWire
from antiphon.wires.wire import Wire
from tests.asking import ask, request
from tests.server.keyed import make_key

_SEAL: Final = ServerSettings(seal_keys=(bytes(32),))
_KEYED: Final = ServerSettings(require_keys=True)
# What differs from one gateway to another.
_OWN: Final = re.compile(rb'"[a-z]+_[\w-]{20,}"|"[a-z_]+_at":\d+')

Outcome = tuple[int, bytes, str, bytes, bytes]


def _said(text: str, role: str = "user") -> Item:
    kind = "output_text" if role == "assistant" else "input_text"
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}


def _step(number: int) -> list[Item]:
    """Return a thought, a call and what it has found; a sentence after every fourth."""
    name = f"call_{number}"
    thought: Item = {"type": "reasoning", "id": f"rs_{number}", "encrypted_content": "gAAA"}
    thought["summary"] = [{"type": "summary_text", "text": f"I look at {number}."}]
    call = {"type": "function_call", "call_id": name, "name": "look", "arguments": "{}"}
    seen = {"type": "function_call_output", "call_id": name, "output": f"{number} line\n" * 300}
    end = [_said(f"That was {number}.", "assistant")] if number % 4 == 3 else []
    return [thought, call, seen, *end]


def _history(steps: int) -> list[Item]:
    return [_said("Find out why."), *(item for step in range(steps) for item in _step(step))]


_BASE: Final = _history(24)
_OPEN: Final = {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"}
_LATE: Final = {"type": "function_call_output", "call_id": "call_5", "output": "again"}
_STRAY: Final = {"type": "function_call_output", "call_id": "nobody", "output": "x"}
_IMAGE: Final = {"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo="}

_INPUTS: Final[dict[str, list[list[Any]]]] = {
    "another end": [[*_BASE, _said("Go on.")], [*_BASE, _said("Stop.")]],
    "the same again": [[*_BASE, _said("Go on.")]] * 3,
    "a longer one": [_history(steps) for steps in (16, 24, 25, 40)],
    "a shorter one": [_history(steps) for steps in (40, 24, 12, 40)],
    "another middle": [_BASE, [*_BASE[:30], _said("No!"), *_BASE[30:]], _BASE],
    "a turn that goes on": [
        [*_BASE[:-1], *end] for end in ([_OPEN], [_said("a", "assistant")], [_said("b")])
    ],
    "a second result": [[*_BASE, _said("a")], [*_BASE, _LATE, _said("a")], [*_BASE, _said("b")]],
    "a result without a call": [[*_BASE, _STRAY], [*_BASE, _said("a")], [*_BASE, _STRAY]],
    "an early result without a call": [[_BASE[0], _STRAY, *_BASE[1:], _said(end)] for end in "ab"],
    "an image at the end": [
        [*_BASE, {"type": "message", "role": "user", "content": [_IMAGE]}],
        [*_BASE, _said("and now?")],
    ],
    "an invalid item": [
        [*_BASE, {"type": "message", "role": "nobody", "content": "x"}],
        [*_BASE, {"type": "function_call", "call_id": ""}],
        [*_BASE, 7],
        [*_BASE[:20], {"type": "reasoning", "summary": 1}, *_BASE[20:]],
        [*_BASE[:20], {"type": "reasoning", "summary": 1}, *_BASE[20:]],
        [*_BASE, {"type": "compaction_trigger"}, _said("a")],
    ],
    "tools that come with an item": [
        [*_BASE, {"type": "additional_tools", "tools": [{"type": "function", "name": name}]}]
        for name in ("look", "find")
    ],
    "a system message late": [[*_BASE, _said("Rhyme.", "system"), _said(end)] for end in "ab"],
    "a reference that is unknown": [[*_BASE, {"type": "item_reference", "id": "msg_x"}]] * 2,
}


async def _ask(
    gateway: Gateway, upstream: ScriptedUpstream, given: list[Any], **more: Any
) -> Outcome:
    """Return everything that can be seen of a request, but for ids and times."""
    count = len(upstream.requests)
    answer = await ask(gateway, input=given, **more)
    sent = upstream.requests[-1].body if len(upstream.requests) > count else b""
    stored = b""
    if answer.status == 200 and more.get("store"):
        response_id = re.search(rb'"id":"(resp_[^"]+)"', answer.body)
        assert response_id is not None
        path = f"/responses/{response_id[1].decode()}/input_items?limit=100&order=asc"
        stored = (await request(gateway, "GET", path)).body
    degraded = answer.headers.get("x-antiphon-degraded", "")
    return answer.status, _OWN.sub(b"", answer.body), degraded, sent, _OWN.sub(b"", stored)


@pytest.mark.parametrize("more", [{"stream": True, "store": False}, {"store": True}])
@pytest.mark.parametrize("settings", [ServerSettings(), _SEAL], ids=["plain", "sealing"])
@pytest.mark.parametrize("name", _INPUTS)
async def test_what_was_sent_before_changes_nothing(
    name: str, settings: ServerSettings, more: dict[str, Any], tmp_path: Path
) -> None:
    tools = [{"type": "function", "name": "look"}]
    async with ScriptedUpstream(Script(text="Yes.")) as upstream:

        @asynccontextmanager
        async def serve() -> AsyncIterator[Gateway]:
            backend = ChatBackend(upstream.base_url)
            # In this one, inputs that begin alike are stored once.
            store = SqliteStore(tmp_path / "a.db")
            async with serve_gateway(
                backend, default_model="echo", settings=settings, store=store
            ) as gateway:
                yield gateway
            await store.close()

        async with serve() as gateway:
            found = [
                await _ask(gateway, upstream, given, tools=tools, **more) for given in _INPUTS[name]
            ]
        for given, outcome in zip(_INPUTS[name], found, strict=True):
            async with serve() as gateway:
                assert outcome == await _ask(gateway, upstream, given, tools=tools, **more)


class _Recorder:
    """A backend that writes requests in the words of a wire, and answers with an echo."""

    def __init__(self, wire: Wire) -> None:
        self._http = HttpBackend("http://127.0.0.1:9", wire)
        self._echo = ScriptedBackend(models=["m"])
        self.capabilities = self._http.capabilities
        self.patience = None
        self.bodies: list[bytes] = []
        """What the upstream would have been sent."""
        self.models, self.count = self._echo.models, self._echo.count
        self.relay, self.close = self._http.relay, self._http.close

    async def open(self, plan: Plan) -> Ask:
        ask, echo = await self._http.open(plan), await self._echo.open(plan)
        self.bodies.append(bytes(ask.body()))
        return msgspec.structs.replace(echo, degraded=ask.degraded)


_WIRES: Final[dict[str, Wire]] = {
    "chat": ChatWire(GENERIC),
    "late": ChatWire(msgspec.structs.replace(GENERIC, late_system_role="user")),
    "messages": MessagesWire(ANTHROPIC, account="a"),
    "other": MessagesWire(ANTHROPIC, account="b"),
    "gemini": GeminiWire(GEMINI["gemini"], "a"),
    "responses": ResponsesWire(RESPONSES["openai"], account="a"),
    "local": ResponsesWire(RESPONSES["llamacpp"], account="a"),
}
_SIGNED: Final = b'{"type":"thinking","thinking":"Hm.","signature":"s"}'
_LOOK: Final = {"type": "function", "name": "look", "parameters": {"type": "object"}}
_ANY: Final[list[Item]] = [
    {"type": "custom_tool_call", "call_id": "cu", "name": "note", "input": "a"},
    {"type": "custom_tool_call_output", "call_id": "cu", "output": "b"},
    {"type": "function_call", "call_id": "ns", "name": "look", "namespace": "at", "arguments": ""},
    {"type": "function_call_output", "call_id": "ns", "output": [_IMAGE]},
    {"type": "web_search_call", "id": "ws", "action": {"type": "search", "query": "q"}},
    {"type": "google:part", "id": "y", "part": {"executableCode": {"code": "1"}}},
    {"type": "additional_tools", "tools": [{"type": "function", "name": "find"}]},
    {"type": "message", "role": "system", "content": "Rhyme."},
]
_AROUND: Final[list[dict[str, Any]]] = [
    {},
    {"tools": [_LOOK]},
    {"tools": [{"type": "namespace", "name": "at", "description": "d", "tools": [_LOOK]}]},
    {"tools": [{"type": "custom", "name": "look"}, {"type": "custom", "name": "note"}]},
    {"tools": [{"type": "web_search"}], "include": ["reasoning.encrypted_content"]},
    {"instructions": "Be brief.", "truncation": "auto"},
]


def _sealed(name: str, wire: str, account: str) -> Item:
    """Return a thought of a model that only this account of a provider can read."""
    seal = reasoning_seal(Sealer(_SEAL.seal_keys), "local")
    state = NativeState(wire, _SIGNED, account=account)
    item: Item = {"type": "reasoning", "id": name, "summary": []}
    return {**item, "encrypted_content": seal(item, state)}


async def test_a_context_is_written_as_if_it_was_new_whatever_stands_around_it() -> None:
    """Models of several APIs and accounts, with other tools each time."""
    sealed = [_sealed(f"rs_{wire}", wire, "a") for wire in ("messages", "responses", "gemini")]
    given = [*_history(8), *sealed, *_ANY, _said("Go on. " * 2000), _said("And now?")]
    backends = {name: _Recorder(wire) for name, wire in _WIRES.items()}
    async with serve_gateway(backends, default_model="chat/m", settings=_SEAL) as gateway:

        async def outcome(name: str, around: dict[str, Any]) -> tuple[object, ...]:
            answer = await ask(gateway, model=f"{name}/m", input=given, store=False, **around)
            assert answer.status == 200, answer.body
            degraded = answer.headers.get("x-antiphon-degraded")
            return backends[name].bodies[-1], degraded, _OWN.sub(b"", answer.body)

        asked = [(name, around) for around in _AROUND for name in _WIRES]
        found = [await outcome(*one) for one in asked]
        for one, known in zip(asked, found, strict=True):
            gateway.app.inputs = KeptInputs()
            assert known == await outcome(*one), one


async def test_items_without_an_id_have_the_same_one_in_each_response() -> None:
    async with (
        ScriptedUpstream(Script(text="Yes.")) as upstream,
        serve_gateway(ChatBackend(upstream.base_url), default_model="echo") as gateway,
    ):
        ids = list[list[str]]()
        for end in ("a", "b"):
            answer = await ask(gateway, input=[*_BASE, _said(end)])
            path = f"/responses/{answer.json['id']}/input_items?limit=100&order=asc"
            ids.append([item["id"] for item in (await request(gateway, "GET", path)).json["data"]])
    assert len(set(ids[0])) == len(ids[0]) == len(_BASE) + 1
    assert ids[0][0] == ids[1][0]
    assert ids[0][-1] != ids[1][-1]


@pytest.mark.parametrize("never_store", [False, True])
async def test_nothing_is_kept_for_a_key_that_stores_nothing(never_store: bool) -> None:
    async with (
        ScriptedUpstream(Script(text="Yes.")) as upstream,
        serve_gateway(
            ChatBackend(upstream.base_url), default_model="echo", settings=_KEYED
        ) as gateway,
    ):
        headers = await make_key(gateway.store, never_store=never_store)
        answer = await ask(gateway, headers, input=[*_BASE, _said("a")], store=False)
        assert answer.status == 200
        kept = gateway.app.inputs.count
    assert kept == (0 if never_store else 1)

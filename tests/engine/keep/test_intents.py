"""Before a hosted call starts, its intent is durable, in the log or in the journal."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from antiphon.backends.scripted import ScriptedBackend, Step
from antiphon.protocol.citations import WebSource
from antiphon.protocol.deltas import CallMade, Stopped, TextGrew
from antiphon.protocol.errors import StoreUnavailable
from antiphon.protocol.items import Item
from antiphon.protocol.response import Response
from antiphon.store.base import Batch, Intent
from antiphon.store.memory import MemoryStore
from antiphon.store.sqlite import SqliteStore
from antiphon.testing.gateway import serve_gateway
from antiphon.testing.tools import ScriptedTool
from antiphon.tools.base import (
    HostedCall,
    HostedFunction,
    Outcome,
    Progress,
    Start,
    ToolRequest,
    ToolSession,
)
from tests.asking import ask, ask_stream, terminal

MCP = {"type": "mcp", "server_label": "test"}
OWNER = "local"


def caller() -> ScriptedBackend:
    """Return a model that makes two calls, then answers."""
    calls: list[Step] = [[CallMade("test__look", "{}", name) for name in ("a", "b")]]
    return ScriptedBackend([[*calls, Stopped("stop")], [TextGrew("ok"), Stopped("stop")]])


class Watched(MemoryStore):
    """Notes what was intended."""

    def __init__(self) -> None:
        super().__init__()
        self.intended: list[Intent] = []
        self.forgotten: list[str] = []
        self.is_broken = False
        intend, forget = self.tool_calls.intend, self.tool_calls.forget

        async def note(owner: str, name: str, intents: Sequence[Intent], now: int) -> None:
            if self.is_broken:
                raise StoreUnavailable("the disk is full")
            self.intended += intents
            await intend(owner, name, intents, now)

        async def note_forgotten(owner: str, name: str) -> None:
            self.forgotten.append(name)
            await forget(owner, name)

        self.tool_calls.intend = note  # type: ignore[method-assign, assignment]
        self.tool_calls.forget = note_forgotten  # type: ignore[method-assign, assignment]


@pytest.mark.parametrize(
    ("body", "rows", "is_forgotten"),
    [
        ({"stream": True}, 0, False),
        ({"stream": False}, 2, False),
        ({"stream": True, "store": False}, 2, True),
        ({"stream": False, "store": False}, 2, True),
    ],
)
async def test_turns_without_a_log_have_rows_in_the_journal(
    body: dict[str, Any], rows: int, *, is_forgotten: bool
) -> None:
    store = Watched()
    at_start: list[int] = []

    def script(call: HostedCall) -> list[str]:
        at_start.append(len(store.intended))
        return ["done"]

    async with serve_gateway(caller(), store=store, tools=[ScriptedTool(script)]) as gateway:
        answer = await ask(gateway, tools=[MCP], **body)
    assert answer.status == 200
    assert at_start == [rows, rows]  # before the first of them starts
    assert len(store.intended) == rows
    assert bool(store.forgotten) is is_forgotten
    assert {intent.kind for intent in store.intended} <= {"mcp"}
    assert len({intent.call for intent in store.intended}) == rows


class Noting(MemoryStore):
    """Notes which batches of a log were stored, a few passes of the event loop after each came."""

    def __init__(self) -> None:
        super().__init__()
        self.stored: list[bytes] = []

    async def append(self, owner: str, response_id: str, batch: Batch, **more: Any) -> bool:
        for _ in range(20):
            await asyncio.sleep(0)
        self.stored.append(batch.body)
        return await super().append(owner, response_id, batch, **more)


async def test_no_call_of_any_round_starts_before_the_log_has_it() -> None:
    store = Noting()
    rounds: list[list[Step]] = [
        [CallMade("test__look", "{}", name), Stopped("stop")] for name in ("a", "b", "c")
    ]
    model = ScriptedBackend([*rounds, [TextGrew("ok"), Stopped("stop")]])
    opened: list[int] = []

    def script(call: HostedCall) -> list[str]:
        log = b"".join(store.stored)
        opened.append(log.count(b"response.mcp_call.in_progress"))
        return ["done"]

    async with serve_gateway(model, store=store, tools=[ScriptedTool(script)]) as gateway:
        events = await ask_stream(gateway, tools=[MCP])
    assert terminal(events).status == "completed"
    assert opened == [1, 2, 3]


async def test_calls_that_only_read_have_no_intent() -> None:
    store = Watched()
    tool = ScriptedTool(has_effects=False)
    async with serve_gateway(caller(), store=store, tools=[tool]) as gateway:
        await ask(gateway, tools=[MCP])
    assert store.intended == []
    assert len(tool.calls) == 2


async def test_nothing_starts_whose_intent_cannot_be_stored() -> None:
    store, tool = Watched(), ScriptedTool()
    store.is_broken = True
    async with serve_gateway(caller(), store=store, tools=[tool]) as gateway:
        answer = await ask(gateway, tools=[MCP])
    assert tool.calls == []
    assert answer.json.get("status") == "failed" or answer.status == 503


async def test_a_response_without_a_log_reports_that_calls_may_have_run(tmp_path: Path) -> None:
    url = tmp_path / "store.db"
    first = SqliteStore(url)
    begun = Response(id="resp_1", status="in_progress", created_at=int(time.time()))
    await first.begin(OWNER, begun, [])
    await first.tool_calls.intend(OWNER, "resp_1", [Intent("a", "mcp", b"1")], 1)
    await first.close()
    store = SqliteStore(url)
    async with serve_gateway(ScriptedBackend(), store=store) as gateway:
        await gateway.app.engine.recovery.run()
        ended = await store.get(OWNER, "resp_1")
    await store.close()
    assert ended is not None
    assert ended.status == "failed"
    assert "1 hosted calls (mcp) may have run before the restart" in str(ended.antiphon)


# Approved calls, and what looks at the text.


class Approving(ScriptedTool):
    """Runs a call that was approved before the model is asked."""

    def __init__(self, request_id: str) -> None:
        super().__init__()
        self._request_id = request_id
        self.claims: list[bool] = []

    async def begin(self, request: ToolRequest) -> ToolSession:
        session = await super().begin(request)
        self.claims.append(await request.approvals.claim(self._request_id))
        if self.claims[-1]:
            call = HostedCall(
                function=self.functions[0],
                arguments='{"approved":1}',
                call_id="approved",
                approval_request_id=self._request_id,
            )
            session.approved = [call]
        return session


async def test_an_approved_call_runs_before_the_model_is_asked_and_once() -> None:
    backend = ScriptedBackend(lambda plan: [TextGrew("ok"), Stopped("stop")])
    tool = Approving("mcpr_1")
    async with serve_gateway(backend, tools=[tool]) as gateway:
        first = terminal(await ask_stream(gateway, tools=[MCP]))
        second = terminal(await ask_stream(gateway, tools=[MCP]))
    assert [item["type"] for item in first.output] == ["mcp_call", "message"]
    assert [item["type"] for item in second.output] == ["message"]
    assert tool.claims == [True, False]
    assert [item["type"] for item in backend.plans[0].items[-2:]] == [
        "function_call",
        "function_call_output",
    ]


async def test_a_request_that_is_refused_gives_its_approval_back() -> None:
    tool = Approving("mcpr_1")
    backend = ScriptedBackend(lambda plan: [TextGrew("ok"), Stopped("stop")])
    async with serve_gateway(backend, tools=[tool]) as gateway:
        calls = gateway.store.tool_calls
        wrong = {"tools": [MCP, {"type": "unheard_of"}]}
        refused = await ask(gateway, {"x-antiphon-strict": "1"}, **wrong)
        assert refused.status == 400, refused.json
        assert await calls.claim_approval(OWNER, "mcpr_1", "resp_other", 1)


class Filtering(ToolSession):
    """Shows a source, and expects it to be cited."""

    cites = True

    def __init__(self, request: ToolRequest) -> None:
        self._sources = request.sources

    async def prepare(self) -> AsyncIterator[Any]:
        yield HostedFunction(kind="mcp", namespace="test", name="look")

    def decide(self, call: HostedCall) -> Start:
        item: Item = {"type": "web_search_call", "action": {"type": "search", "query": "q"}}
        return Start(item=item, has_effects=False)

    async def run(self, call: HostedCall, start: Start) -> AsyncIterator[Progress | Outcome]:
        yield Progress("response.web_search_call.searching")
        mark = self._sources.show(WebSource("https://a.example", "A", "point"))
        yield Outcome(item=start.item | {"status": "completed"}, result=f"found {mark}")


@pytest.mark.parametrize("pieces", [["Rain【1】."], ["Ra", "in【", "1", "】", "."], ["Rain.【"]])
async def test_a_filter_sees_the_text_before_it_is_forwarded(pieces: list[str]) -> None:
    class Searching(ScriptedTool):
        async def begin(self, request: ToolRequest) -> ToolSession:
            return Filtering(request)

    first: list[Step] = [TextGrew("So【"), CallMade("test__look", "{}", "c"), Stopped("stop")]
    second: list[Step] = [*map(TextGrew, pieces), Stopped("stop")]
    backend = ScriptedBackend([first, second])
    async with serve_gateway(backend, tools=[Searching()]) as gateway:
        response = terminal(await ask_stream(gateway, tools=[MCP]))
    kinds = [item["type"] for item in response.output]
    assert kinds == ["message", "web_search_call", "message"]
    shown = "".join(pieces).replace("【1】", "")
    assert response.output[-1]["content"][0]["text"] == shown
    # The model is shown what it wrote.
    assert backend.plans[1].items[1]["content"] == "So【"

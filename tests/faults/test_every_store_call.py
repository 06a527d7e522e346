"""A store that fails at any single call loses nothing that was acknowledged, and frees everything.

Each scenario is run again and again: first its first call to the store fails, then its second,
until a run meets no fault. This is how SQLite tests its own handling of memory that is not there.
After each fault the store works again. Then what was acknowledged to a client is there; every
response has ended; no conversation is locked and no idempotency key is taken; the next turn works.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

import aiohttp
import msgspec
import pytest

from antiphon.backends.scripted import ScriptedBackend, Step
from antiphon.engine.keep import turn_log
from antiphon.gateway import upkeep
from antiphon.plans.plan import Plan
from antiphon.protocol.codec import decode_event
from antiphon.protocol.deltas import CallMade, NativeState, Stopped, TextGrew
from antiphon.protocol.errors import TurnLost
from antiphon.protocol.events import Event
from antiphon.protocol.machines.referee import judge_stream
from antiphon.protocol.native_state import state_of
from antiphon.protocol.response import Response
from antiphon.protocol.sse import SseDecoder
from antiphon.store import MemoryStore, SqliteStore
from antiphon.store.base import Store
from antiphon.store.postgres import PostgresStore
from antiphon.testing.gateway import Gateway, serve_gateway
from tests.asking import Answer, ask, request
from tests.faults.faulty_store import Fault, FaultyStore
from tests.postgres import fresh_database
from tests.talking import talk

Json = dict[str, Any]

LIMIT: Final = 60.0
"""Seconds in which everything must be well again, on however slow a machine."""
MOST_CALLS: Final = 400
"""More than a run needs. The upkeep calls the store as long as a run takes, so it is not few."""
DONE: Final = frozenset({"completed", "failed", "incomplete", "cancelled"})
OWNER: Final = "local"


class Scene:
    """A gateway whose store fails once, and what it acknowledged to its clients."""

    def __init__(self, gateway: Gateway, store: FaultyStore, backend: ScriptedBackend) -> None:
        self.gateway = gateway
        self.store = store
        self.backend = backend
        self.completed: dict[str, str] = {}
        """Texts of the responses that were sent to a client as complete, by id."""
        self.accepted: set[str] = set()
        """Ids of background responses that were accepted."""
        self.shown: dict[str, list[Json]] = {}
        """Events that a client was shown, by the id of their response."""
        self.made: set[str] = set()
        """Ids of conversations that were returned under a key."""
        self.number = 0

    def note(self, answer: Answer) -> Answer:
        """Take note of what an answer promises."""
        assert answer.status in (200, 409, 503), answer.body
        if answer.status == 200 and answer.json.get("object") == "response":
            self._note_response(answer.json)
        elif answer.status == 503:
            assert answer.error["code"] == "store_unavailable", answer.body
        return answer

    def note_events(self, events: list[Json]) -> None:
        """Take note of a stream, which must be whole and right."""
        assert judge_stream([_decode(event) for event in events]) == []
        response = events[-1]["response"]
        self.shown[response["id"]] = events
        self._note_response(response)

    def _note_response(self, response: Json) -> None:
        if response["status"] == "completed":
            self.completed[response["id"]] = response["output"][-1]["content"][0]["text"]
        if response.get("background"):
            self.accepted.add(response["id"])

    async def ask(self, headers: Json | None = None, /, **body: Any) -> Answer:
        """Ask for a response."""
        return self.note(await ask(self.gateway, headers, **body))

    async def request(self, method: str, path: str, body: object = None) -> Answer:
        """Ask for anything."""
        return self.note(await request(self.gateway, method, path, body))

    async def stream(self, **body: Any) -> list[Json]:
        """Ask for a stream; return its events, none if it was refused or broken off."""
        answer = await _stream(self.gateway, {"stream": True, **body})
        if isinstance(answer, Answer):
            self.note(answer)
            return []
        if answer and answer[-1]["type"].removeprefix("response.") in DONE:
            self.note_events(answer)
        return answer


Act = Callable[[Scene], Awaitable[Any]]
Check = Callable[[Scene, Any], Awaitable[None]]


class Scenario(msgspec.Struct, frozen=True):
    """What is prepared, what is done while the store fails, and what must hold afterwards."""

    prepare: Act
    act: Callable[[Scene, Any], Awaitable[None]]
    check: Check


async def _nothing(_: Scene) -> None:
    """Prepare nothing."""


async def _no_more(_: Scene, __: object) -> None:
    """Check nothing beyond what always holds."""


# The scenarios.


async def _stored_turn(scene: Scene, _: object) -> None:
    await scene.ask(input="hello")


async def _streamed_turn(scene: Scene, _: object) -> None:
    await scene.stream(input="hello")


async def _background_turn(scene: Scene, _: object) -> None:
    await scene.ask(input="hello", background=True)
    await _background_is_idle(scene)


async def _background_stream(scene: Scene, _: object) -> None:
    events = await scene.stream(input="hello", background=True)
    if events:
        scene.accepted.add(events[0]["response"]["id"])
    await _background_is_idle(scene)


async def _background_is_idle(scene: Scene) -> None:
    """Wait until all that was accepted has run, while the store may still fail."""
    background = scene.gateway.app.engine.background

    async def is_idle() -> bool:
        return background.count == 0

    await _until(is_idle)


async def _first_turn(scene: Scene) -> str:
    answer = await ask(scene.gateway, input="first")
    assert answer.status == 200, answer.body
    name: str = answer.json["id"]
    return name


async def _continued_turn(scene: Scene, first: str) -> None:
    await scene.ask(input="second", previous_response_id=first)


async def _conversation(scene: Scene) -> str:
    answer = await request(scene.gateway, "POST", "/conversations", {})
    assert answer.status == 200, answer.body
    name: str = answer.json["id"]
    return name


async def _conversation_turn(scene: Scene, name: str) -> None:
    await scene.ask(input="hello", conversation=name)


async def _conversation_stream(scene: Scene, name: str) -> None:
    await scene.stream(input="hello", conversation=name)


async def _conversation_unstored(scene: Scene, name: str) -> None:
    answer = await ask(scene.gateway, input="hello", conversation=name, store=False)
    assert answer.status in (200, 503), answer.body


async def _conversation_is_free(scene: Scene, name: str) -> None:
    """What was complete is in the conversation, once; and it can be written to."""
    added = {"items": [{"role": "user", "content": "by hand"}]}

    async def is_free() -> bool:
        answer = await request(scene.gateway, "POST", f"/conversations/{name}/items", added)
        assert answer.status in (200, 409), answer.body
        return answer.status == 200

    await _until(is_free)
    page = await request(scene.gateway, "GET", f"/conversations/{name}/items?order=asc")
    texts = [item["content"][0]["text"] for item in page.json["data"]]
    assert texts in (["by hand"], ["hello", "hello", "by hand"])
    if scene.completed:
        assert len(texts) == 3


async def _websocket_turns(scene: Scene, _: object) -> None:
    async with talk(scene.gateway.base_url) as socket:
        previous: Json = {}
        for text in ("one", "two"):
            await socket.ask(input=text, **previous)
            events = await socket.events()
            if events[-1]["type"] == "error":
                assert events[-1]["error"]["code"] == "store_unavailable", events[-1]
                previous = {}
                continue
            scene.note_events(events)
            response = events[-1]["response"]
            is_whole = response["status"] == "completed"
            previous = {"previous_response_id": response["id"]} if is_whole else {}
        scene.store.heal()
        await socket.ask(input="three", **previous)
        events = await socket.events()
        assert events[-1]["type"] == "response.completed", events[-1]


async def _running(scene: Scene) -> str:
    answer = await ask(scene.gateway, input="wait", background=True)
    assert answer.status == 200, answer.body
    name: str = answer.json["id"]

    async def runs() -> bool:
        found = await request(scene.gateway, "GET", f"/responses/{name}")
        return bool(found.json["status"] == "in_progress")

    await _until(runs)
    return name


async def _cancel(scene: Scene, name: str) -> None:
    scene.accepted.add(name)
    await scene.request("POST", f"/responses/{name}/cancel")
    if scene.store.hit is None:
        await _background_is_idle(scene)


async def _is_cancelled(scene: Scene, name: str) -> None:
    answer = await request(scene.gateway, "POST", f"/responses/{name}/cancel")
    assert answer.status == 200, answer.body
    # Cancelled, or failed because the log could not be written.
    assert answer.json["status"] in ("cancelled", "failed")


async def _delete(scene: Scene, name: str) -> None:
    await scene.request("DELETE", f"/responses/{name}")


async def _is_deleted(scene: Scene, name: str) -> None:
    again = await request(scene.gateway, "DELETE", f"/responses/{name}")
    assert again.status in (200, 404), again.body
    found = await request(scene.gateway, "GET", f"/responses/{name}")
    assert found.status == 404


async def _delete_running(scene: Scene, name: str) -> None:
    await scene.request("DELETE", f"/responses/{name}")


async def _compact(scene: Scene, first: str) -> None:
    body = {"model": "scripted", "input": "hello", "previous_response_id": first}
    await scene.request("POST", "/responses/compact", body)


async def _compacting_turn(scene: Scene, first: str) -> None:
    rule = {"type": "compaction", "compact_threshold": 1000}
    await scene.ask(input="hello", previous_response_id=first, context_management=[rule])


async def _idempotent_turn(scene: Scene, _: object) -> None:
    key = {"Idempotency-Key": f"key-{scene.number}"}
    await scene.ask(key, input="hello")


async def _idempotent_background(scene: Scene, _: object) -> None:
    key = {"Idempotency-Key": f"key-{scene.number}"}
    await scene.ask(key, input="hello", background=True)
    await _background_is_idle(scene)


async def _key_gives_one_answer(scene: Scene, _: object) -> None:
    """The key is not taken, and leads to what was acknowledged under it, if anything was."""
    key = {"Idempotency-Key": f"key-{scene.number}"}
    is_background = bool(scene.accepted)
    body = {"input": "hello", "background": True} if is_background else {"input": "hello"}
    known = [*scene.accepted, *scene.completed]

    async def is_free() -> bool:
        answer = await ask(scene.gateway, key, **body)
        if answer.status == 200 and known:
            assert answer.json["id"] in known
        assert answer.status in (200, 409, 422), answer.body
        return answer.status in (200, 422)  # the other body was never acknowledged

    await _until(is_free)


async def _conversation_under_a_key(scene: Scene, _: object) -> None:
    await _make_conversation(scene)


async def _make_conversation(scene: Scene) -> Answer:
    key, body = {"Idempotency-Key": f"key-{scene.number}"}, {"metadata": {"a": "b"}}
    answer = await request(scene.gateway, "POST", "/conversations", body, key)
    assert answer.status in (200, 503), answer.body
    if answer.status == 200:
        scene.made.add(answer.json["id"])
    return answer


async def _key_gives_one_conversation(scene: Scene, _: object) -> None:
    assert (await _make_conversation(scene)).status == 200
    assert len(scene.made) == 1


async def _items_under_a_key(scene: Scene, name: str) -> None:
    await _add_items(scene, name)


async def _add_items(scene: Scene, name: str) -> Answer:
    key = {"Idempotency-Key": f"key-{scene.number}"}
    body = {"items": [{"role": "user", "content": "by hand"}]}
    answer = await request(scene.gateway, "POST", f"/conversations/{name}/items", body, key)
    assert answer.status in (200, 503), answer.body
    return answer


async def _items_are_there_once(scene: Scene, name: str) -> None:
    assert (await _add_items(scene, name)).status == 200
    page = await request(scene.gateway, "GET", f"/conversations/{name}/items")
    assert len(page.json["data"]) == 1


async def _chat_calls(scene: Scene, _: object) -> None:
    """A chat client calls a tool; its answers do not depend on the store."""
    await _chat(scene, {"role": "user", "content": "call"})
    await _chat(scene, *_chat_history())


async def _native_state_is_there(scene: Scene, _: object) -> None:
    async def is_there() -> bool:
        await _chat(scene, *_chat_history())
        states = map(state_of, scene.backend.plans[-1].items)
        return any(state is not None and state.data == b"state" for state in states)

    await _until(is_there)


async def _chat(scene: Scene, *messages: Json) -> None:
    tool = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
    body = {"messages": messages, "tools": [tool]}
    answer = await request(scene.gateway, "POST", "/chat/completions", body)
    assert answer.status == 200, answer.body


def _chat_history() -> list[Json]:
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    return [
        {"role": "user", "content": "call"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "seen"},
        {"role": "user", "content": "next"},
    ]


SCENARIOS: Final = {
    "stored turn": Scenario(_nothing, _stored_turn, _no_more),
    "streamed turn": Scenario(_nothing, _streamed_turn, _no_more),
    "continued turn": Scenario(_first_turn, _continued_turn, _no_more),
    "background turn": Scenario(_nothing, _background_turn, _no_more),
    "background stream": Scenario(_nothing, _background_stream, _no_more),
    "conversation turn": Scenario(_conversation, _conversation_turn, _conversation_is_free),
    "conversation stream": Scenario(_conversation, _conversation_stream, _conversation_is_free),
    "conversation, not stored": Scenario(
        _conversation, _conversation_unstored, _conversation_is_free
    ),
    "conversation under a key": Scenario(
        _nothing, _conversation_under_a_key, _key_gives_one_conversation
    ),
    "items under a key": Scenario(_conversation, _items_under_a_key, _items_are_there_once),
    "websocket turns": Scenario(_nothing, _websocket_turns, _no_more),
    "cancel": Scenario(_running, _cancel, _is_cancelled),
    "delete": Scenario(_first_turn, _delete, _is_deleted),
    "delete while it runs": Scenario(_running, _delete_running, _is_deleted),
    "compact": Scenario(_first_turn, _compact, _no_more),
    "compacting turn": Scenario(_first_turn, _compacting_turn, _no_more),
    "chat call": Scenario(_nothing, _chat_calls, _native_state_is_there),
    "idempotent turn": Scenario(_nothing, _idempotent_turn, _key_gives_one_answer),
    "idempotent background turn": Scenario(_nothing, _idempotent_background, _key_gives_one_answer),
}


# The sweep.


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the gateway look after its store all the time, instead of once a second."""
    monkeypatch.setattr(upkeep, "_LOOK_SECONDS", 0.01)


@pytest.mark.parametrize("fault", list(Fault), ids=lambda fault: fault.value)
@pytest.mark.parametrize("kind", ["memory", "sqlite", "postgres"])
@pytest.mark.parametrize("name", SCENARIOS)
async def test_a_fault_at_any_call_loses_nothing_and_leaves_nothing_stuck(
    name: str, kind: str, fault: Fault, tmp_path: Path
) -> None:
    await _sweep(SCENARIOS[name], kind, fault, tmp_path)


@pytest.mark.parametrize("fault", list(Fault), ids=lambda fault: fault.value)
@pytest.mark.parametrize("kind", ["memory", "sqlite", "postgres"])
@pytest.mark.parametrize("name", ["streamed turn", "background stream", "conversation stream"])
async def test_a_fault_while_the_end_of_a_long_answer_is_stored_loses_nothing(
    name: str, kind: str, fault: Fault, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turn_log, "_LONG", 1)  # every answer is long
    await _sweep(SCENARIOS[name], kind, fault, tmp_path)


async def _sweep(scenario: Scenario, kind: str, fault: Fault, tmp_path: Path) -> None:
    hits: list[str] = []
    async with (
        _place(kind, tmp_path) as place,
        _gateway(place) as (gateway, store, backend),
    ):
        for number in range(1, MOST_CALLS):
            async with asyncio.timeout(LIMIT):
                hit = await _run(scenario, Scene(gateway, store, backend), number, fault)
            if hit is None:
                break
            hits.append(hit)
        else:
            raise AssertionError(f"no run of {MOST_CALLS} was without a fault")
    assert hits


# What a gateway asks by itself. That a claim got no answer is for the store to settle.


async def _orphan(scene: Scene, other: Store) -> str:
    """Leave a turn of a process that is gone."""
    response = Response(id="resp_orphan", model="scripted", created_at=int(time.time()))
    await other.begin(OWNER, response, [])
    await other.close()
    return response.id


async def _cancelled_elsewhere(scene: Scene, other: Store) -> str:
    """Ask another process to cancel a turn that runs here."""
    name = await _running(scene)
    await other.ask_cancel(OWNER, name)
    await other.close()
    return name


async def _outdated(scene: Scene, other: Store) -> str:
    """Leave a response that is older than anything is kept."""
    response = Response(id="resp_old", model="scripted", created_at=1)
    await other.begin(OWNER, response, [])
    with suppress(TurnLost):  # a sweep in doubt may remove it before it has ended
        await other.finish(OWNER, msgspec.structs.replace(response, status="completed"))
    await other.close()
    return response.id


UPKEEP: Final = {
    "claim_orphans, lost": ("claim_orphans", Fault.LOST, _orphan, "failed"),
    "asked_cancels, lost": ("asked_cancels", Fault.LOST, _cancelled_elsewhere, "cancelled"),
    "asked_cancels, in doubt": ("asked_cancels", Fault.IN_DOUBT, _cancelled_elsewhere, "cancelled"),
    "sweep, lost": ("sweep", Fault.LOST, _outdated, None),
    "sweep, in doubt": ("sweep", Fault.IN_DOUBT, _outdated, None),
}


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
@pytest.mark.parametrize("name", UPKEEP)
async def test_a_fault_in_what_a_gateway_does_by_itself_is_made_up_for(
    name: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "_SWEEP_SECONDS", 0.01)
    call, fault, leave, status = UPKEEP[name]
    async with (
        _place(kind, tmp_path) as place,
        _gateway(place) as (gateway, store, backend),
        asyncio.timeout(LIMIT),
    ):
        scene = Scene(gateway, store, backend)
        store.fail_upkeep(call, fault)
        response_id = await leave(scene, place())

        before = store.upkeep_hits

        async def has_failed() -> bool:
            return store.upkeep_hits > before + 1  # one may have begun earlier

        async def is_done() -> bool:
            found = await request(gateway, "GET", f"/responses/{response_id}")
            return found.status == 404 if status is None else found.json["status"] == status

        await _until(has_failed)
        store.heal()
        await _until(is_done)
        await _all_is_well(scene)


async def _run(scenario: Scenario, scene: Scene, number: int, fault: Fault) -> str | None:
    """Run the scenario with this call failing; return the name of that call, None if none did."""
    scene.number = number
    prepared = await scenario.prepare(scene)
    scene.store.fail_at(number, fault)
    await scenario.act(scene, prepared)
    hit = scene.store.hit
    scene.store.heal()
    await scenario.check(scene, prepared)
    await _all_is_well(scene)
    return hit


async def _all_is_well(scene: Scene) -> None:
    """Compare what was acknowledged with what is there now."""
    gateway, store = scene.gateway, scene.store
    for response_id, text in scene.completed.items():
        found = await request(gateway, "GET", f"/responses/{response_id}")
        assert found.status == 200, f"{response_id} was sent as completed and is lost"
        assert found.json["status"] == "completed"
        assert found.json["output"][-1]["content"][0]["text"] == text
    for owner, response_id in set(store.begun):
        await _until(lambda name=response_id: _has_ended(scene, name))  # type: ignore[misc]
        assert owner == OWNER
    for response_id in scene.accepted:
        found = await request(gateway, "GET", f"/responses/{response_id}")
        assert found.status == 200, f"{response_id} was accepted and is lost"
    for response_id, events in scene.shown.items():
        await _is_replayed(scene, response_id, events)
    previous = next(iter(scene.completed), None)
    after = await ask(gateway, input="next", previous_response_id=previous)
    assert after.status == 200 and after.json["status"] == "completed", after.body
    ready = await request(gateway, "GET", "/../readyz")
    assert ready.status == 200, ready.body


async def _has_ended(scene: Scene, response_id: str) -> bool:
    found = await request(scene.gateway, "GET", f"/responses/{response_id}")
    assert found.status in (200, 404), found.body
    return found.status == 404 or found.json["status"] in DONE


async def _is_replayed(scene: Scene, response_id: str, events: list[Json]) -> None:
    """What a client was shown before the end is what it is shown again, in the same order."""
    again = await _stream(scene.gateway, None, f"/responses/{response_id}?stream=true")
    assert isinstance(again, list), again
    before = [event for event in events if event["type"].removeprefix("response.") not in DONE]
    before = [event for event in before if event["type"] != "error"]
    assert again[: len(before)] == before


async def _until(question: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(LIMIT):
        while not await question():  # noqa: ASYNC110 # another task's work, seen from outside
            await asyncio.sleep(0.01)


async def _stream(
    gateway: Gateway, body: Json | None, path: str = "/responses"
) -> list[Json] | Answer:
    """Return the events of a stream, also of one that was broken off; or the refusal."""
    url = gateway.base_url + path
    data = b""
    async with (
        aiohttp.ClientSession() as session,
        session.request("POST" if body else "GET", url, json=body) as answer,
    ):
        if answer.status != 200:
            return Answer(answer.status, answer.headers, await answer.read())
        try:
            async for piece in answer.content.iter_any():
                data += piece
        except aiohttp.ClientError:
            pass  # cut: what came before it was shown
    decoder = SseDecoder()
    frames = [frame.data for frame in decoder.feed(data)]
    return [msgspec.json.decode(frame) for frame in frames if frame != b"[DONE]"]


def _decode(event: Json) -> Event:
    return decode_event(msgspec.json.encode(event))


def _script(plan: Plan) -> list[Step]:
    """Echo in two pieces; never end the answer to `wait`, and call a tool at `call`."""
    text = str(plan.items[-1]["content"][-1]["text"])
    if text == "call":
        state = NativeState("messages", b"state")
        return [state, CallMade("look", "{}", call_id="c1"), Stopped("stop")]
    if text == "wait":
        return [TextGrew("..."), asyncio.Event(), Stopped("stop")]
    half = len(text) // 2
    return [TextGrew(text[:half]), TextGrew(text[half:]), Stopped("stop")]


Place = Callable[[], Store]
"""Opens a store, each time another one on the same data; of the memory there is one."""


@asynccontextmanager
async def _place(kind: str, folder: Path) -> AsyncIterator[Place]:
    if kind == "postgres":
        async with fresh_database() as url:
            yield partial(PostgresStore, url)
    else:
        yield partial(SqliteStore, folder / "a.db") if kind == "sqlite" else MemoryStore


@asynccontextmanager
async def _gateway(place: Place) -> AsyncIterator[tuple[Gateway, FaultyStore, ScriptedBackend]]:
    async with AsyncExitStack() as stack:
        inner = place()
        stack.push_async_callback(inner.close)
        store, backend = FaultyStore(inner), ScriptedBackend(_script)
        gateway = await stack.enter_async_context(serve_gateway(backend, store=store.as_store))
        yield gateway, store, backend

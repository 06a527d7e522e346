"""What becomes of turns whose process died: a store that is closed under them stands for that."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from antiphon.accounts.principal import Principal
from antiphon.backends.scripted import Script, ScriptedBackend
from antiphon.engine.keep.follow import events_of as unpacked_events
from antiphon.engine.keep.recovery import Recovery, keep_request
from antiphon.gateway.assemble import ServerSettings
from antiphon.plans.plan import Plan
from antiphon.protocol.deltas import CallGrew, CallOpened, Delta, ReasoningGrew, TextGrew
from antiphon.protocol.errors import StoreUnavailable
from antiphon.protocol.events import Event, event_type, sequence_of
from antiphon.protocol.items import Item, text_of
from antiphon.protocol.machines.builder import ResponseBuilder
from antiphon.protocol.machines.log import pack_events, packed_at
from antiphon.protocol.machines.rebuild import rebuild
from antiphon.protocol.machines.referee import judge_stream
from antiphon.protocol.response import Response
from antiphon.protocol.token_counts import TokenCounts
from antiphon.server.limits import ServerLimits
from antiphon.store.base import Batch, Conversation, Log, Orphan
from antiphon.store.base.ledger import Payer, Reservation, Settlement
from antiphon.store.sqlite import SqliteStore
from antiphon.testing.gateway import Gateway, serve_gateway
from tests.asking import ask, events_of, request, terminal
from tests.building import counting_mint

OWNER = "local"
NOW = int(time.time())
MIB = 1024 * 1024
HELLO: Item = {
    "type": "message",
    "id": "msg_in",
    "role": "user",
    "content": [{"type": "input_text", "text": "hello out there"}],
}


def batch_of(events: Sequence[Event]) -> Batch:
    return Batch(sequence_of(events[0]), sequence_of(events[-1]), pack_events(list(events)))


async def leave_running(path: Path, *deltas: Delta, **fields: Any) -> str:
    """Begin a streamed turn, say this, and die."""
    fields = {"created_at": NOW} | fields
    response = Response(id="resp_left", model="scripted", **fields)
    builder = ResponseBuilder(response, counting_mint())
    store = SqliteStore(path)
    await store.begin(OWNER, response, [HELLO], batch=batch_of(builder.start()))
    for delta in deltas:
        await store.append(OWNER, response.id, batch_of(builder.feed(delta)))
    await store.close()
    return response.id


async def leave_queued(path: Path, **body: Any) -> str:
    """Queue a background turn, which has locked its conversation if it has one, and die."""
    body = {"input": "hello out there", "background": True} | body
    response = Response(id="resp_left", model="scripted", created_at=NOW, background=True)
    builder = ResponseBuilder(response, counting_mint())
    store = SqliteStore(path)
    if "conversation" in body:
        await store.conversations.lock(OWNER, str(body["conversation"]), response.id)
    await store.begin(
        OWNER,
        msgspec.structs.replace(response, status="queued"),
        [HELLO],
        batch=batch_of(builder.start(is_queued=True)),
        request=keep_request(msgspec.json.encode(body), Principal(OWNER), is_strict=False),
    )
    await store.close()
    return response.id


async def log_of(gateway: Gateway, response_id: str) -> list[Event]:
    answer = await request(gateway, "GET", f"/responses/{response_id}?stream=true")
    assert answer.status == 200, answer.body
    events = events_of(answer.body)
    assert judge_stream(events) == []
    return events


@pytest.mark.parametrize(
    "deltas",
    [
        [],
        [TextGrew("So "), TextGrew("far")],
        [ReasoningGrew("hm"), TextGrew("So far")],
        [TextGrew("So far"), CallOpened(0, "f"), CallGrew(0, '{"a"')],
    ],
)
async def test_what_had_begun_ends_as_failed_with_all_it_said(
    tmp_path: Path, deltas: list[Delta]
) -> None:
    response_id = await leave_running(tmp_path / "a.db", *deltas)
    store = SqliteStore(tmp_path / "a.db")
    backend = ScriptedBackend()
    async with serve_gateway(backend, store=store) as gateway:
        events = await log_of(gateway, response_id)
        stored = (await request(gateway, "GET", f"/responses/{response_id}")).json
        refused = await ask(gateway, input="on", previous_response_id=response_id)
    await store.close()

    assert stored["status"] == "failed"
    assert stored["error"]["code"] == "server_restarted"
    assert stored["usage"]["input_tokens"] > 0
    assert stored["output"] == terminal(events).output
    said = "".join(text_of(item.get("content")) for item in stored["output"])
    assert said.endswith("".join(d.text for d in deltas if isinstance(d, TextGrew)))
    assert backend.plans == []
    assert refused.status == 400


async def test_the_end_that_recovery_writes_has_the_time_of_the_recovery(tmp_path: Path) -> None:
    long_ago = NOW - 60
    response_id = await leave_running(tmp_path / "a.db", TextGrew("So far"), created_at=long_ago)
    store = SqliteStore(tmp_path / "a.db")
    async with serve_gateway(ScriptedBackend(), store=store) as gateway:
        await log_of(gateway, response_id)
    log = await store.read_log(OWNER, response_id)
    await store.close()

    assert log is not None
    assert packed_at(log.batches[-1].body) >= 60_000


async def test_a_turn_without_a_log_ends_as_failed_too(tmp_path: Path) -> None:
    first = SqliteStore(tmp_path / "a.db")
    await first.begin(OWNER, Response(id="resp_left", model="scripted", created_at=NOW), [HELLO])
    await first.close()
    store = SqliteStore(tmp_path / "a.db")
    async with serve_gateway(ScriptedBackend(), store=store) as gateway:
        stored = (await request(gateway, "GET", "/responses/resp_left")).json
        events = await log_of(gateway, "resp_left")
    await store.close()

    assert stored["error"]["code"] == "server_restarted"
    assert terminal(events).status == "failed"


async def test_what_was_queued_is_run_by_whoever_comes_next(tmp_path: Path) -> None:
    response_id = await leave_queued(tmp_path / "a.db", instructions="be kind")
    store = SqliteStore(tmp_path / "a.db")
    backend = ScriptedBackend()
    async with serve_gateway(backend, store=store) as gateway:
        events = await log_of(gateway, response_id)
        inputs = (await request(gateway, "GET", f"/responses/{response_id}/input_items")).json
    await store.close()

    assert [event_type(event) for event in events[:3]] == [
        "response.created",
        "response.queued",
        "response.in_progress",
    ]
    assert terminal(events).status == "completed"
    assert terminal(events).output_text == "hello out there"
    assert [plan.instructions for plan in backend.plans] == ["be kind"]
    assert [item["id"] for item in inputs["data"]] == ["msg_in"]


async def test_what_cannot_be_run_any_more_says_why(tmp_path: Path) -> None:
    response_id = await leave_queued(tmp_path / "a.db", model="gone")
    store = SqliteStore(tmp_path / "a.db")
    async with serve_gateway(ScriptedBackend(), store=store) as gateway:
        events = await log_of(gateway, response_id)
    await store.close()

    error = terminal(events).error
    assert error is not None and error.code == "model_not_found"


@pytest.mark.parametrize("is_queued", [True, False])
async def test_what_was_to_be_cancelled_is_not_run(tmp_path: Path, is_queued: bool) -> None:
    path = tmp_path / "a.db"
    other = SqliteStore(path)
    if is_queued:
        response_id = await leave_queued(path)
    else:
        response_id = await leave_running(path, TextGrew("So far"), background=True)
    await other.ask_cancel(OWNER, response_id)
    await other.close()
    store = SqliteStore(path)
    backend = ScriptedBackend()
    async with serve_gateway(backend, store=store) as gateway:
        events = await log_of(gateway, response_id)
    await store.close()

    assert terminal(events).status == "cancelled"
    assert backend.plans == []


async def test_a_process_that_lives_takes_over_from_one_that_dies(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "a.db")
    async with serve_gateway(ScriptedBackend(), store=store) as gateway:
        response_id = await leave_queued(tmp_path / "a.db")
        async with asyncio.timeout(60):
            events = await log_of(gateway, response_id)
    await store.close()

    assert terminal(events).status == "completed"


async def test_a_cancel_reaches_the_process_that_runs_the_turn(tmp_path: Path) -> None:
    stores = [SqliteStore(tmp_path / "a.db") for _ in range(2)]
    said = asyncio.Event()

    def speak(_: Plan) -> Script:
        yield TextGrew("So far")
        said.set()
        yield asyncio.Event()

    backend = ScriptedBackend(speak)
    async with (
        serve_gateway(backend, store=stores[0]) as one,
        serve_gateway(ScriptedBackend(), store=stores[1]) as other,
    ):
        queued = (await ask(one, input="hi", background=True)).json
        async with asyncio.timeout(60):
            await said.wait()
            cancelled = await request(other, "POST", f"/responses/{queued['id']}/cancel")
            here, there = await log_of(one, queued["id"]), await log_of(other, queued["id"])
    for store in stores:
        await store.close()

    assert cancelled.json["status"] == "cancelled"
    assert here == there
    assert backend.stopped_early == 1


async def test_a_stream_is_followed_from_another_process(tmp_path: Path) -> None:
    stores = [SqliteStore(tmp_path / "a.db") for _ in range(2)]
    async with (
        serve_gateway(ScriptedBackend(), store=stores[0]) as one,
        serve_gateway(ScriptedBackend(), store=stores[1]) as other,
    ):
        queued = (await ask(one, input="one two three", background=True)).json
        there, here = await asyncio.gather(log_of(other, queued["id"]), log_of(one, queued["id"]))
    for store in stores:
        await store.close()

    assert here == there
    assert terminal(here).output_text == "one two three"


async def test_a_dead_turn_does_not_keep_its_conversation(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    first = SqliteStore(path)
    await first.conversations.create(OWNER, Conversation("conv_1", NOW), [])
    assert await first.conversations.lock(OWNER, "conv_1", "resp_left") == []
    await first.begin(OWNER, Response(id="resp_left", model="scripted", created_at=NOW), [HELLO])
    await first.close()
    store = SqliteStore(path)
    async with serve_gateway(ScriptedBackend(), store=store) as gateway:
        answer = await ask(gateway, input="hi", conversation="conv_1")
        items = await store.conversations.items(OWNER, "conv_1")
    await store.close()

    assert answer.status == 200
    assert answer.json["conversation"] == {"id": "conv_1"}
    assert items is not None
    assert [text_of(item["content"]) for item in items] == ["hi", "hi"]


async def try_in_vain(recovery: Recovery) -> None:
    """Wait until a queued turn was tried, and could not be run yet."""
    async with asyncio.timeout(60):
        while True:
            try:
                await recovery.run()
            except StoreUnavailable:
                return
            await asyncio.sleep(0.001)  # it is being tried at this moment


async def test_a_queued_turn_that_waits_for_memory_keeps_its_conversation(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    store = SqliteStore(path)
    long = HELLO | {"content": [{"type": "input_text", "text": "x" * MIB}]}
    await store.conversations.create(OWNER, Conversation("conv_1", NOW), [long])
    settings = ServerSettings(limits=ServerLimits(memory_bytes=10 * MIB))
    async with serve_gateway(ScriptedBackend(), store=store, settings=settings) as gateway:
        hold = gateway.app.engine.budget.hold("somebody", 7 * MIB)
        response_id = await leave_queued(path, conversation="conv_1")
        await try_in_vain(gateway.app.engine.recovery)
        between = await ask(gateway, input="hi", conversation="conv_1")
        hold.release()
        async with asyncio.timeout(60):
            events = await log_of(gateway, response_id)
        after = await ask(gateway, input="hi", conversation="conv_1")
    await store.close()

    assert (between.status, between.error["code"]) == (409, "conversation_locked")
    assert terminal(events).status == "completed"
    assert after.status == 200


async def test_a_log_that_cannot_be_read_still_comes_to_an_end(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    response = Response(id="resp_left", model="scripted", created_at=NOW)
    first = SqliteStore(path)
    events = ResponseBuilder(response, counting_mint()).start()
    await first.begin(OWNER, response, [HELLO], batch=batch_of(events))
    await first.append(OWNER, "resp_left", Batch(2, 2, b"[99, []]"))
    await first.close()
    store = SqliteStore(path)
    async with serve_gateway(ScriptedBackend(), store=store) as gateway:
        stored = (await request(gateway, "GET", "/responses/resp_left")).json
    await store.close()

    assert (stored["status"], stored["error"]["code"]) == ("failed", "server_restarted")


async def test_a_background_turn_that_had_begun_is_not_run_again(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    response_id = await leave_queued(path)
    first = SqliteStore(path)
    (orphan,) = await first.claim_orphans(10)
    builder = rebuild(orphan.response, events_of_log(orphan), counting_mint())
    events = builder.go_on() + builder.feed(TextGrew("So far"))
    await first.append(OWNER, response_id, batch_of(events), status="in_progress")
    await first.close()
    store = SqliteStore(path)
    backend = ScriptedBackend()
    async with serve_gateway(backend, store=store) as gateway:
        log = await log_of(gateway, response_id)
    await store.close()

    assert backend.plans == []
    assert terminal(log).status == "failed"
    assert terminal(log).output_text == "So far"


def events_of_log(orphan: Orphan) -> list[Event]:
    log = Log(orphan.response, orphan.batches, is_kept=True)
    return list(unpacked_events(log))


async def test_the_charges_of_a_dead_turn_are_settled_with_its_end(tmp_path: Path) -> None:
    response_id = await leave_running(tmp_path / "a.db", TextGrew("half an "))
    dead = SqliteStore(tmp_path / "a.db")
    payer = Payer(OWNER, "key_1")
    held = TokenCounts(fresh=100, output=2048)
    for number, name in enumerate((response_id, response_id, "resp_unstored")):
        wanted = Reservation(
            response_id=name, number=number, payer=payer, model="m", held=held, held_cost=7
        )
        settled = [
            Settlement(
                response_id=response_id,
                number=0,
                outcome="completed",
                basis="reported",
                used=TokenCounts(fresh=90, output=10),
                cost=5,
            )
        ]
        await dead.ledger.reserve(wanted, settled if number == 1 else ())
    await dead.close()

    store = SqliteStore(tmp_path / "a.db")
    async with serve_gateway(ScriptedBackend(), store=store) as gateway:
        async with asyncio.timeout(60):
            while any(one.state == "held" for one in await store.ledger.charges()):
                await gateway.app.engine.recovery.run()
        ended = (await request(gateway, "GET", f"/responses/{response_id}")).json
        charges = await store.ledger.charges(response_id=response_id)
        (alone,) = await store.ledger.charges(response_id="resp_unstored")
        problems = await store.ledger.check()
    await store.close()

    assert [(one.basis, one.used, one.cost) for one in charges[::-1]] == [
        ("reported", TokenCounts(fresh=90, output=10), 5),
        ("assumed", held, 7),
    ]
    assert (alone.basis, alone.used) == ("assumed", held)
    assert (ended["status"], ended["antiphon"]["usage"]) == ("failed", "estimated")
    assert ended["usage"]["input_tokens"] == 190
    assert ended["usage"]["output_tokens"] == 2058
    assert problems == []

"""Background responses: what their page promises beyond one request."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from pathlib import Path
from typing import Any

from antiphon.backends.scripted import Script, ScriptedBackend
from antiphon.gateway.assemble import ServerSettings
from antiphon.plans.plan import Plan
from antiphon.protocol.deltas import Stopped, TextGrew
from antiphon.protocol.events import OutputTextDelta
from antiphon.server.limits import ServerLimits
from antiphon.store.sqlite import SqliteStore
from antiphon.testing import Script as UpstreamScript
from antiphon.testing import Stall
from antiphon.testing.gateway import serve_gateway
from tests.asking import ask, events_of, request, terminal
from tests.faults.house import open_house

STOP = Stopped("stop")


async def test_what_still_waits_when_the_server_goes_is_run_by_the_next(tmp_path: Path) -> None:
    first = SqliteStore(tmp_path / "a.db")
    limits = ServerLimits(background_turns=1, drain_seconds=0.01)
    blocked = ScriptedBackend([[asyncio.Event(), STOP]])
    settings = ServerSettings(limits=limits)
    async with serve_gateway(blocked, store=first, settings=settings) as gateway:
        await ask(gateway, input="hi", background=True)
        waiting = await ask(gateway, input="later", background=True)
        await gateway.app.drain()
        left = await request(gateway, "GET", f"/responses/{waiting.json['id']}")
    await first.close()
    second = SqliteStore(tmp_path / "a.db")
    async with serve_gateway(ScriptedBackend(), store=second) as gateway:
        answer = await request(gateway, "GET", f"/responses/{waiting.json['id']}?stream=true")
    await second.close()

    assert left.json["status"] == "queued"
    assert terminal(events_of(answer.body)).output_text == "later"


class _SlowStore(SqliteStore):
    """A store whose next turn is not stored before `go_on`."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.is_asked, self.go_on = asyncio.Event(), asyncio.Event()

    async def begin(self, *values: Any, **named: Any) -> None:
        self.is_asked.set()
        await self.go_on.wait()
        await super().begin(*values, **named)


async def test_what_is_being_queued_when_the_server_goes_is_run_by_the_next(
    tmp_path: Path,
) -> None:
    first = _SlowStore(tmp_path / "a.db")
    async with serve_gateway(ScriptedBackend(), store=first) as gateway:
        asking = asyncio.create_task(ask(gateway, input="later", background=True))
        await first.is_asked.wait()
        draining = asyncio.create_task(gateway.app.drain())
        await asyncio.sleep(0)
        first.go_on.set()
        await draining
        queued = await asking
    await first.close()
    second = SqliteStore(tmp_path / "a.db")
    async with serve_gateway(ScriptedBackend(), store=second) as gateway:
        answer = await request(gateway, "GET", f"/responses/{queued.json['id']}?stream=true")
    await second.close()
    assert queued.json["status"] == "queued"
    assert terminal(events_of(answer.body)).output_text == "later"


async def test_a_background_response_holds_its_conversation_until_its_end() -> None:
    go_on = asyncio.Event()
    backend = ScriptedBackend([[go_on, TextGrew("a"), STOP], [TextGrew("b"), STOP]])
    async with serve_gateway(backend) as gateway:
        conversation = (await request(gateway, "POST", "/conversations")).json["id"]
        queued = await ask(gateway, input="one", background=True, conversation=conversation)
        refused = await ask(gateway, input="two", conversation=conversation)
        go_on.set()
        await request(gateway, "GET", f"/responses/{queued.json['id']}?stream=true")
        after = await ask(gateway, input="two", conversation=conversation)

    assert (refused.status, refused.error["code"]) == (409, "conversation_locked")
    assert after.status == 200


async def test_background_turns_do_not_count_as_turns() -> None:
    began = asyncio.Event()

    def script(plan: Plan) -> Script:
        if began.is_set():
            return [TextGrew("here"), STOP]
        began.set()
        return [asyncio.Event(), STOP]

    settings = ServerSettings(limits=ServerLimits(turns=1))
    async with serve_gateway(ScriptedBackend(script), settings=settings) as gateway:
        queued = await ask(gateway, input="one", background=True)
        await began.wait()
        other = await ask(gateway, input="two")
        await request(gateway, "POST", f"/responses/{queued.json['id']}/cancel")

    assert other.status == 200


async def test_an_incomplete_background_response_can_be_continued() -> None:
    backend = ScriptedBackend([[TextGrew("a"), Stopped("length")], [TextGrew("b"), STOP]])
    async with serve_gateway(backend) as gateway:
        queued = await ask(gateway, input="one", background=True)
        await request(gateway, "GET", f"/responses/{queued.json['id']}?stream=true")
        after = await ask(gateway, input="two", previous_response_id=queued.json["id"])

    assert after.status == 200


async def test_a_turn_without_a_model_is_remembered_and_goes_on() -> None:
    backend = ScriptedBackend([[TextGrew("b"), STOP]])
    async with serve_gateway(backend) as gateway:
        warm = (await ask(gateway, input="one", generate=False)).json
        after = await ask(gateway, input="two", previous_response_id=warm["id"])

    assert (warm["status"], warm["output"]) == ("completed", [])
    assert warm["usage"]["total_tokens"] == 0
    assert [len(plan.items) for plan in backend.plans] == [2]
    assert after.status == 200


async def test_a_cancelled_turn_adds_nothing_to_its_conversation() -> None:
    backend = ScriptedBackend([[TextGrew("a"), asyncio.Event(), STOP]])
    async with serve_gateway(backend) as gateway:
        conversation = (await request(gateway, "POST", "/conversations")).json["id"]
        queued = await ask(gateway, input="one", background=True, conversation=conversation)
        cancelled = await request(gateway, "POST", f"/responses/{queued.json['id']}/cancel")
        items = await request(gateway, "GET", f"/conversations/{conversation}/items")
        added = await request(
            gateway,
            "POST",
            f"/conversations/{conversation}/items",
            {"items": [{"role": "user", "content": "by hand"}]},
        )

    assert cancelled.json["status"] == "cancelled"
    assert items.json["data"] == []
    assert added.status == 200


async def test_a_background_answer_is_taken_from_the_upstream_as_it_comes() -> None:
    script = UpstreamScript(text="so far and no further", faults=[Stall(after=2)])
    async with open_house(script) as house:
        queued = await ask(house.gateway, input="hi", background=True)
        received = await house.upstream.received()
        engine = house.gateway.app.engine
        follower = engine.follow("local", queued.json["id"])
        async with asyncio.timeout(30), aclosing(follower) as batches:
            async for batch in batches:
                if any(isinstance(event, OutputTextDelta) for event in batch):
                    break
        path = f"/responses/{queued.json['id']}/cancel"
        cancelled = await request(house.gateway, "POST", path)

    assert received.json["stream"] is True
    assert cancelled.json["status"] == "cancelled"
    assert cancelled.json["output"][0]["content"][0]["text"].startswith("so")
    assert cancelled.json["usage"]["output_tokens"] > 0


async def test_the_queue_is_bounded_also_when_all_come_at_once() -> None:
    backend = ScriptedBackend(lambda plan: [asyncio.Event(), STOP])
    limits = ServerLimits(background_turns=1, background_queue=1)
    async with serve_gateway(backend, settings=ServerSettings(limits=limits)) as gateway:
        asked = (ask(gateway, input="hi", background=True) for _ in range(12))
        answers = await asyncio.gather(*asked)
        metrics = await request(gateway, "GET", "/../metrics")

    assert sorted(answer.status for answer in answers) == [200] * 2 + [429] * 10
    assert {answer.error["type"] for answer in answers if answer.status == 429} == {
        "rate_limit_error"
    }
    assert b"antiphon_background_turns 2.0" in metrics.body


async def test_a_request_that_is_refused_does_not_keep_its_conversation() -> None:
    async with serve_gateway(ScriptedBackend()) as gateway:
        conversation = (await request(gateway, "POST", "/conversations")).json["id"]
        missing = [{"type": "item_reference", "id": "msg_none"}]
        refused = await ask(gateway, input=missing, conversation=conversation)
        after = await ask(gateway, input="hi", conversation=conversation)

    assert (refused.status, refused.error["code"]) == (404, "item_not_found")
    assert after.status == 200

"""Background responses over a real socket: queued, followed, cancelled, bounded."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from antiphon.backends.scripted import ScriptedBackend
from antiphon.gateway.assemble import ServerSettings
from antiphon.protocol.codec import decode_event
from antiphon.protocol.deltas import Stopped, TextGrew
from antiphon.protocol.errors import BackendError
from antiphon.protocol.events import (
    Event,
    OutputTextDelta,
    ResponseCreated,
    event_type,
    sequence_of,
)
from antiphon.protocol.machines.referee import judge_stream
from antiphon.server.auth import new_key
from antiphon.server.limits import ServerLimits
from antiphon.store.memory import MemoryStore
from antiphon.testing.gateway import Gateway, serve_gateway
from tests.asking import Answer, ask, events_of, request, terminal

STOP = Stopped("stop")


async def follow(gateway: Gateway, response_id: str, after: int | None = None) -> list[Event]:
    """Return the events of a response until its end, judged if they are all there."""
    more = "" if after is None else f"&starting_after={after}"
    answer = await request(gateway, "GET", f"/responses/{response_id}?stream=true{more}")
    assert answer.status == 200, answer.body
    events = events_of(answer.body)
    if after is None:
        assert judge_stream(events) == []
    return events


async def ended(gateway: Gateway, response_id: str) -> dict[str, Any]:
    """Wait for the end of a response and return it as GET shows it."""
    await follow(gateway, response_id)
    answer = await request(gateway, "GET", f"/responses/{response_id}")
    stored: dict[str, Any] = answer.json
    return stored


def text_of(response: dict[str, Any]) -> str:
    return "".join(part["text"] for item in response["output"] for part in item["content"])


def id_in(frame: bytes) -> str:
    """Return the response's id from the first event of a stream."""
    created = decode_event(frame.partition(b"data: ")[2])
    assert isinstance(created, ResponseCreated)
    return created.response.id


@asynccontextmanager
async def reading(gateway: Gateway, path: str) -> AsyncIterator[aiohttp.StreamReader]:
    """Read a stream while it goes on."""
    async with aiohttp.ClientSession() as session, session.get(gateway.base_url + path) as answer:
        assert answer.status == 200
        yield answer.content


async def test_a_background_response_is_queued_then_done() -> None:
    async with serve_gateway(ScriptedBackend()) as gateway:
        queued = await ask(gateway, input="Good morning", background=True)
        events = await follow(gateway, queued.json["id"])
        stored = await request(gateway, "GET", f"/responses/{queued.json['id']}")

    assert queued.status == 200
    assert queued.json["status"] == "queued"
    assert queued.json["background"] is True
    assert [event_type(event) for event in events[:3]] == [
        "response.created",
        "response.queued",
        "response.in_progress",
    ]
    assert stored.json["status"] == "completed"
    assert text_of(stored.json) == "Good morning"
    assert terminal(events).output == stored.json["output"]


async def test_a_streamed_background_response_tells_the_same_as_its_replay() -> None:
    async with serve_gateway(ScriptedBackend()) as gateway:
        live = await ask(gateway, input="one two three", background=True, stream=True)
        events = events_of(live.body)
        again = await follow(gateway, terminal(events).id)

    assert live.headers["content-type"].startswith("text/event-stream")
    assert again == events
    assert judge_stream(events) == []


async def test_a_background_response_goes_on_when_its_client_leaves() -> None:
    go_on = asyncio.Event()
    backend = ScriptedBackend([[TextGrew("Still "), go_on, TextGrew("here."), STOP]])
    async with serve_gateway(backend) as gateway:
        body = {"input": "hi", "background": True, "stream": True}
        async with (
            aiohttp.ClientSession() as session,
            session.post(gateway.base_url + "/responses", json=body) as answer,
        ):
            first = await answer.content.readuntil(b"\n\n")
        response_id = id_in(first)
        go_on.set()
        stored = await ended(gateway, response_id)

    assert stored["status"] == "completed"
    assert text_of(stored) == "Still here."
    assert backend.stopped_early == 0


@pytest.mark.parametrize("after", [0, 3, 5])
async def test_a_stream_can_be_followed_from_any_event_on(after: int) -> None:
    async with serve_gateway(ScriptedBackend()) as gateway:
        queued = await ask(gateway, input="one two three", background=True)
        whole = await follow(gateway, queued.json["id"])
        rest = await follow(gateway, queued.json["id"], after)

    assert rest == [event for event in whole if sequence_of(event) > after]


async def test_a_late_reader_joins_the_live_stream() -> None:
    go_on, said = asyncio.Event(), [TextGrew("a"), TextGrew("b")]
    backend = ScriptedBackend([[*said, go_on, TextGrew("c"), STOP]])
    async with serve_gateway(backend) as gateway:
        queued = await ask(gateway, input="hi", background=True)
        async with reading(gateway, f"/responses/{queued.json['id']}?stream=true") as stream:
            data = b""
            while b'"delta":"b"' not in data:
                data += await stream.readuntil(b"\n\n")
            joined = asyncio.create_task(follow(gateway, queued.json["id"]))
            go_on.set()
            data += await stream.read()
        late = await joined

    assert events_of(data) == late
    assert [event.delta for event in late if isinstance(event, OutputTextDelta)] == ["a", "b", "c"]


async def test_following_from_the_end_says_nothing_more() -> None:
    async with serve_gateway(ScriptedBackend()) as gateway:
        queued = await ask(gateway, input="hi", background=True)
        whole = await follow(gateway, queued.json["id"])
        assert await follow(gateway, queued.json["id"], sequence_of(whole[-1])) == []


@pytest.mark.parametrize("word", ["-1", "x", "1.5", "9" * 30])
async def test_a_place_that_is_no_number_is_refused(word: str) -> None:
    async with serve_gateway(ScriptedBackend()) as gateway:
        done = await ask(gateway, input="hi")
        path = f"/responses/{done.json['id']}?stream=true&starting_after={word}"
        answer = await request(gateway, "GET", path)

    assert answer.status == 400
    assert answer.error["param"] == "starting_after"


async def test_a_response_that_was_not_streamed_can_be_followed_too() -> None:
    async with serve_gateway(ScriptedBackend()) as gateway:
        done = await ask(gateway, input="Good morning")
        events = await follow(gateway, done.json["id"])

    assert terminal(events).output == done.json["output"]
    assert terminal(events).usage is not None


async def test_cancelling_stops_the_model_and_keeps_what_it_said() -> None:
    backend = ScriptedBackend([[TextGrew("So far "), asyncio.Event(), STOP]])
    async with serve_gateway(backend) as gateway:
        queued = await ask(gateway, input="hi", background=True)
        response_id = queued.json["id"]
        async with reading(gateway, f"/responses/{response_id}?stream=true") as stream:
            while b"So far" not in await stream.readuntil(b"\n\n"):
                pass
            cancelled = await request(gateway, "POST", f"/responses/{response_id}/cancel")
        again = await request(gateway, "POST", f"/responses/{response_id}/cancel")
        events = await follow(gateway, response_id)

    assert cancelled.status == 200
    assert cancelled.json["status"] == "cancelled"
    assert cancelled.json["incomplete_details"] is None
    assert text_of(cancelled.json) == "So far "
    assert cancelled.json["usage"]["output_tokens"] > 0
    assert again.json == cancelled.json
    assert backend.stopped_early == 1
    assert event_type(events[-1]) == "response.incomplete"
    assert terminal(events).status == "cancelled"
    assert terminal(events).incomplete_details is None


async def test_a_response_that_still_waits_can_be_cancelled() -> None:
    backend = ScriptedBackend([[asyncio.Event(), STOP]])
    settings = ServerSettings(limits=ServerLimits(background_turns=1))
    async with serve_gateway(backend, settings=settings) as gateway:
        first = await ask(gateway, input="hi", background=True)
        second = await ask(gateway, input="hi", background=True)
        cancelled = await request(gateway, "POST", f"/responses/{second.json['id']}/cancel")
        await request(gateway, "POST", f"/responses/{first.json['id']}/cancel")
        events = await follow(gateway, second.json["id"])

    assert cancelled.json["status"] == "cancelled"
    assert len(backend.plans) == 1
    assert [event_type(event) for event in events] == [
        "response.created",
        "response.queued",
        "response.incomplete",
    ]


async def test_a_finished_response_is_cancelled_into_itself() -> None:
    async with serve_gateway(ScriptedBackend()) as gateway:
        done = await ask(gateway, input="hi")
        answer = await request(gateway, "POST", f"/responses/{done.json['id']}/cancel")
        missing = await request(gateway, "POST", "/responses/resp_none/cancel")

    assert answer.status == 200
    assert answer.json == done.json
    assert missing.status == 404


async def test_a_foreground_response_cannot_be_cancelled() -> None:
    backend = ScriptedBackend([[TextGrew("a"), go_on := asyncio.Event(), STOP]])
    async with serve_gateway(backend) as gateway:
        body = {"input": "hi", "stream": True}
        async with (
            aiohttp.ClientSession() as session,
            session.post(gateway.base_url + "/responses", json=body) as answer,
        ):
            response_id = id_in(await answer.content.readuntil(b"\n\n"))
            refused = await request(gateway, "POST", f"/responses/{response_id}/cancel")
            go_on.set()
            await answer.read()

    assert refused.status == 400
    assert refused.error["code"] == "response_not_cancellable"


async def test_a_full_queue_is_told_with_a_time_to_come_back() -> None:
    backend = ScriptedBackend(lambda plan: [asyncio.Event(), STOP])
    limits = ServerLimits(background_turns=1, background_queue=1)
    async with serve_gateway(backend, settings=ServerSettings(limits=limits)) as gateway:
        kept = [await ask(gateway, input="hi", background=True) for _ in range(2)]
        refused = await ask(gateway, input="hi", background=True)
        for answer in kept:
            await request(gateway, "POST", f"/responses/{answer.json['id']}/cancel")
        after = await ask(gateway, input="hi", background=True)
        await request(gateway, "POST", f"/responses/{after.json['id']}/cancel")

    assert [answer.status for answer in kept] == [200, 200]
    assert refused.status == 429
    assert int(refused.headers["Retry-After"]) >= 1
    assert after.status == 200


async def test_one_owner_leaves_room_in_the_background_for_others() -> None:
    backend = ScriptedBackend(lambda plan: [asyncio.Event(), STOP])
    limits = ServerLimits(background_turns=1, background_queue=4)
    settings = ServerSettings(limits=limits, require_keys=True)
    store = MemoryStore()
    headers = {}
    for owner in ("noisy", "quiet"):
        key, record = new_key(owner, 0)
        await store.add_key(record)
        headers[owner] = {"Authorization": f"Bearer {key}"}
    async with serve_gateway(backend, settings=settings, store=store) as gateway:
        asked = [
            await ask(gateway, headers[owner], input="hi", background=True)
            for owner in ("noisy", "noisy", "noisy", "noisy", "noisy", "quiet")
        ]
        for answer, owner in zip(asked, [*["noisy"] * 5, "quiet"], strict=True):
            if answer.status == 200:
                path = f"/responses/{answer.json['id']}/cancel"
                await request(gateway, "POST", path, headers=headers[owner])

    assert [answer.status for answer in asked] == [200, 200, 200, 200, 429, 200]
    assert "of yours" in asked[4].error["message"]


async def test_a_fault_before_the_first_word_ends_the_response() -> None:
    backend = ScriptedBackend([[BackendError("no such luck", code="upstream_error")]])
    async with serve_gateway(backend) as gateway:
        queued = await ask(gateway, input="hi", background=True)
        stored = await ended(gateway, queued.json["id"])

    assert queued.status == 200
    assert stored["status"] == "failed"
    assert stored["error"] == {"code": "upstream_error", "message": "no such luck"}


async def refused(gateway: Gateway, **body: Any) -> Answer:
    answer = await ask(gateway, **body)
    assert answer.status == 400
    return answer


async def test_what_is_wrong_with_a_request_is_told_at_once() -> None:
    async with serve_gateway(ScriptedBackend()) as gateway:
        unstored = await refused(gateway, input="hi", background=True, store=False)
        gone = await refused(gateway, input="hi", background=True, previous_response_id="resp_x")

    assert unstored.error["param"] == "store"
    assert gone.error["code"] == "previous_response_not_found"


async def test_a_background_response_can_be_continued_when_it_has_ended() -> None:
    go_on = asyncio.Event()
    backend = ScriptedBackend([[go_on, TextGrew("one"), STOP], [TextGrew("two"), STOP]])
    async with serve_gateway(backend) as gateway:
        queued = await ask(gateway, input="hi", background=True)
        early = await ask(gateway, input="on", previous_response_id=queued.json["id"])
        go_on.set()
        await ended(gateway, queued.json["id"])
        answer = await ask(gateway, input="on", previous_response_id=queued.json["id"])

    assert early.status == 400
    assert answer.json["status"] == "completed"
    assert len(backend.plans[1].items) == 3


async def test_a_response_that_is_deleted_stops_its_model() -> None:
    go_on = asyncio.Event()
    backend = ScriptedBackend([[TextGrew("a"), go_on, TextGrew("b"), asyncio.Event(), STOP]])
    async with serve_gateway(backend) as gateway:
        queued = await ask(gateway, input="hi", background=True)
        async with reading(gateway, f"/responses/{queued.json['id']}?stream=true") as stream:
            while b'"delta":"a"' not in await stream.readuntil(b"\n\n"):
                pass
            deleted = await request(gateway, "DELETE", f"/responses/{queued.json['id']}")
            go_on.set()
            await backend.stopped.wait()
        missing = await request(gateway, "GET", f"/responses/{queued.json['id']}")

    assert deleted.json["deleted"] is True
    assert missing.status == 404


async def test_what_is_cut_off_by_the_end_of_the_server_is_told_as_failed() -> None:
    backend = ScriptedBackend([[TextGrew("a"), asyncio.Event(), STOP]])
    settings = ServerSettings(limits=ServerLimits(drain_seconds=0.01))
    async with serve_gateway(backend, settings=settings) as gateway:
        queued = await ask(gateway, input="hi", background=True)
        async with reading(gateway, f"/responses/{queued.json['id']}?stream=true") as stream:
            while b'"delta":"a"' not in await stream.readuntil(b"\n\n"):
                pass
            await gateway.app.drain()
        stored = await gateway.store.get("local", queued.json["id"])
        late = await ask(gateway, input="hi", background=True)

    assert stored is not None
    assert stored.status == "failed"
    assert stored.error is not None and stored.error.code == "server_overloaded"
    assert late.status == 503


@pytest.mark.parametrize(
    ("query", "param"),
    [("stream=yes", "stream"), ("stream=", "stream"), ("starting_after=3", "starting_after")],
)
async def test_a_query_that_makes_no_sense_is_refused(query: str, param: str) -> None:
    async with serve_gateway(ScriptedBackend()) as gateway:
        done = await ask(gateway, input="hi")
        answer = await request(gateway, "GET", f"/responses/{done.json['id']}?{query}")
        plain = await request(gateway, "GET", f"/responses/{done.json['id']}?stream=false")

    assert (answer.status, answer.error["param"]) == (400, param)
    assert plain.json == done.json

"""WebSocket mode: many turns over one connection, each of them as over HTTP."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

import aiohttp
import msgspec
import pytest

from antiphon.backends.base import Ask, ModelInfo, Relayed
from antiphon.backends.scripted import ScriptedBackend, Step, echo
from antiphon.gateway.assemble import ServerSettings
from antiphon.plans.capabilities import Capabilities
from antiphon.plans.plan import Plan
from antiphon.protocol.codec import decode_event
from antiphon.protocol.deltas import ReasoningGrew, Stopped, TextGrew
from antiphon.protocol.errors import BackendError, ContextOverflow, StoreUnavailable
from antiphon.protocol.machines.referee import judge_stream
from antiphon.server.auth import new_key
from antiphon.server.delivery.websocket import _Socket
from antiphon.server.limits import ServerLimits
from antiphon.store.base import Admit, History
from antiphon.store.memory import MemoryStore
from antiphon.testing.gateway import Gateway, serve_gateway
from antiphon.transport.http import Sending
from tests import clock
from tests.asking import events_of, request
from tests.faults.house import settled, until
from tests.talking import PATIENCE, Talk, kinds, said, talk

STOP = Stopped("stop")
UPGRADE = {
    "Upgrade": "websocket",
    "Connection": "Upgrade",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
}


def limited(**limits: Any) -> ServerSettings:
    return ServerSettings(limits=ServerLimits(**limits))


def heard(backend: ScriptedBackend) -> list[str]:
    """Return what the messages said that the model was shown last."""
    return [item["content"][0]["text"] for item in backend.plans[-1].items]


def held(hold: asyncio.Event) -> ScriptedBackend:
    """Return a model that echoes, and waits before it says so to "wait"."""

    def script(plan: Plan) -> list[Step]:
        steps = list(echo(plan))
        return [TextGrew("..."), hold, STOP] if heard(backend)[-1] == "wait" else steps

    backend = ScriptedBackend(script)
    return backend


# Turns.


async def test_a_turn_tells_the_events_of_a_stream() -> None:
    async with serve_gateway(ScriptedBackend()) as gateway, talk(gateway.base_url) as socket:
        await socket.ask(input="Good morning")
        events = await socket.events()
        stored = await request(gateway, "GET", f"/responses/{events[-1]['response']['id']}")

    judge_stream([decode_event(msgspec.json.encode(event)) for event in events])
    assert said(events[-1]) == "Good morning"
    assert all("stream_id" not in event for event in events)
    assert stored.json["output"] == events[-1]["response"]["output"]


async def test_requests_are_answered_one_after_the_other_in_their_order() -> None:
    async with serve_gateway(ScriptedBackend()) as gateway, talk(gateway.base_url) as socket:
        for text in ("one", "two", "three"):
            await socket.ask(input=text)
        turns = [await socket.events() for _ in range(3)]

    assert [said(events[-1]) for events in turns] == ["one", "two", "three"]
    assert all(kinds(events)[0] == "created" for events in turns)


async def test_a_body_may_stand_under_response() -> None:
    async with serve_gateway(ScriptedBackend()) as gateway, talk(gateway.base_url) as socket:
        await socket.send({"type": "response.create", "response": {"model": "echo", "input": "hi"}})
        events = await socket.events()

    assert said(events[-1]) == "hi"


async def test_stream_is_taken_for_granted() -> None:
    async with serve_gateway(ScriptedBackend()) as gateway, talk(gateway.base_url) as socket:
        last = await socket.turn(input="hi", stream=False, background=False)

    assert last["type"] == "response.completed"


async def test_a_frame_in_pieces_and_larger_than_what_is_read_at_once_is_understood() -> None:
    settings = limited(parse_on_loop_bytes=100)
    text = "x" * 100_000
    async with (
        serve_gateway(ScriptedBackend(), settings=settings) as gateway,
        talk(gateway.base_url) as socket,
    ):
        assert said(await socket.turn(input=text)) == text


async def test_the_dialect_is_that_of_the_connection() -> None:
    backend = ScriptedBackend([[ReasoningGrew("hm"), TextGrew("Yes."), STOP]] * 2)
    async with serve_gateway(backend) as gateway:
        async with talk(gateway.base_url) as socket:
            await socket.ask(input="?")
            openai = kinds(await socket.events())
        headers = {"x-antiphon-dialect": "open-responses", "OpenAI-Beta": "responses_websockets"}
        async with talk(gateway.base_url, headers) as socket:
            await socket.ask(input="?")
            other = kinds(await socket.events())

    assert "reasoning_text.delta" in openai
    assert "reasoning.delta" in other


async def test_a_strict_connection_refuses_what_cannot_be_honoured() -> None:
    async with (
        serve_gateway(ScriptedBackend()) as gateway,
        talk(gateway.base_url, {"x-antiphon-strict": "1"}) as socket,
    ):
        await socket.ask(input="hi", tools=[{"type": "web_search"}])
        assert (await socket.error())["code"] == "unsupported_parameter"
        assert said(await socket.turn(input="hi", stream_id="lane")) == "hi"


# What a socket remembers.


async def test_a_turn_that_is_not_stored_goes_on_where_it_was_had() -> None:
    backend = ScriptedBackend()
    async with serve_gateway(backend) as gateway, talk(gateway.base_url) as socket:
        last = await socket.turn(input="one", store=False)
        for text in ("two", "three"):
            previous = last["response"]["id"]
            last = await socket.turn(input=text, store=False, previous_response_id=previous)

    assert heard(backend) == ["one", "one", "two", "two", "three"]
    assert last["response"]["previous_response_id"] == previous


async def test_another_socket_does_not_know_it_and_goes_on_after_saying_so() -> None:
    async with serve_gateway(ScriptedBackend()) as gateway:
        async with talk(gateway.base_url) as socket:
            first = (await socket.turn(input="one", store=False))["response"]["id"]
        async with talk(gateway.base_url) as socket:
            missed = await socket.turn(input="two", store=False, previous_response_id=first)
            after = await socket.turn(input="two", store=False)

    assert missed == {
        "type": "error",
        "status": 400,
        "error": {
            "type": "invalid_request_error",
            "code": "previous_response_not_found",
            "message": f"Previous response with id '{first}' not found.",
            "param": "previous_response_id",
        },
    }
    assert said(after) == "two"


async def test_a_stored_response_is_found_from_any_socket() -> None:
    backend = ScriptedBackend()
    async with serve_gateway(backend) as gateway:
        async with talk(gateway.base_url) as socket:
            first = (await socket.turn(input="one"))["response"]["id"]
        async with talk(gateway.base_url) as socket:
            await socket.turn(input="two", previous_response_id=first)

        assert gateway.app.socket_cache.used == 0
    assert heard(backend) == ["one", "one", "two"]


async def test_a_stored_turn_on_one_that_is_not_goes_on_where_both_were_had() -> None:
    backend = ScriptedBackend()
    async with serve_gateway(backend) as gateway, talk(gateway.base_url) as socket:
        first = (await socket.turn(input="one", store=False))["response"]["id"]
        second = await socket.turn(input="two", previous_response_id=first)
        await socket.turn(input="three", previous_response_id=second["response"]["id"])

    assert heard(backend) == ["one", "one", "two", "two", "three"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"input": [{"type": "function_call_output", "call_id": "call_none", "output": "x"}]},
        {"input": "two", "temperature": 9},
        {"input": "two", "background": True},
        {"input": "refuse"},
        {"input": "break off"},
    ],
)
async def test_a_continuation_that_fails_makes_the_socket_forget(wrong: dict[str, Any]) -> None:
    def script(plan: Plan) -> list[Step]:
        fault = BackendError("no", code="upstream_refused")
        steps: dict[str, list[Step]] = {"refuse": [fault], "break off": [TextGrew("So"), fault]}
        return steps.get(heard(backend)[-1], [TextGrew("Yes."), STOP])

    backend = ScriptedBackend(script)
    async with serve_gateway(backend) as gateway, talk(gateway.base_url) as socket:
        first = (await socket.turn(input="one", store=False))["response"]["id"]
        failed = await socket.turn(store=False, previous_response_id=first, **wrong)
        missed = await socket.turn(input="three", store=False, previous_response_id=first)

    assert failed["type"] in ("error", "response.failed")
    assert missed["error"]["code"] == "previous_response_not_found"


async def test_a_failed_turn_cannot_be_gone_on_from() -> None:
    backend = ScriptedBackend([[TextGrew("So"), BackendError("no")]])
    async with serve_gateway(backend) as gateway, talk(gateway.base_url) as socket:
        failed = (await socket.turn(input="one", store=False))["response"]["id"]
        missed = await socket.turn(input="two", store=False, previous_response_id=failed)

    assert missed["error"]["code"] == "previous_response_not_found"


async def test_what_a_socket_remembers_is_gone_with_it() -> None:
    async with serve_gateway(ScriptedBackend()) as gateway:
        async with talk(gateway.base_url) as socket:
            await socket.turn(input="one", store=False)
            assert gateway.app.socket_cache.used > 0
        await gone(gateway)

        assert gateway.app.socket_cache.used == 0


async def gone(gateway: Gateway) -> None:
    """Wait until the gateway has no socket left."""
    await until(lambda: not len(gateway.app.sockets))


def transport_of(socket: Talk) -> asyncio.Transport:
    """Return the client's transport, to do with it what a broken network does."""
    connection = socket.wire._response.connection
    assert connection is not None and connection.transport is not None
    return connection.transport


# Lanes.


async def test_lanes_run_beside_each_other_and_mark_their_events() -> None:
    hold = asyncio.Event()
    async with serve_gateway(held(hold)) as gateway, talk(gateway.base_url) as socket:
        await socket.ask(input="wait", stream_id="slow")
        assert (await socket.event())["stream_id"] == "slow"
        await socket.ask(input="quick", stream_id="fast")
        events = await socket.events()
        hold.set()
        rest = await socket.events()

    assert events[-1]["stream_id"] == "fast"
    assert said(events[-1]) == "quick"
    assert {event["stream_id"] for event in rest} == {"slow"}
    assert rest[-1]["type"] == "response.completed"


async def test_a_lane_can_fork_from_another() -> None:
    backend = ScriptedBackend()
    async with serve_gateway(backend) as gateway, talk(gateway.base_url) as socket:
        first = (await socket.turn(input="one", store=False))["response"]["id"]
        for lane in ("a", "b"):
            last = await socket.turn(
                input=lane, store=False, previous_response_id=first, stream_id=lane
            )
            assert last["stream_id"] == lane
            assert heard(backend) == ["one", "one", lane]


async def test_an_error_names_its_lane() -> None:
    async with serve_gateway(ScriptedBackend()) as gateway, talk(gateway.base_url) as socket:
        last = await socket.turn(input="x", stream_id='a"b', model="unknown-model")

    assert last["stream_id"] == 'a"b'
    assert last["error"]["code"] == "model_not_found"


async def test_there_is_a_limit_to_lanes_and_to_what_waits() -> None:
    hold = asyncio.Event()
    settings = limited(websocket_lanes=2, websocket_queue=2, body_bytes=1000)
    async with (
        serve_gateway(held(hold), settings=settings) as gateway,
        talk(gateway.base_url) as socket,
    ):
        for lane in ("a", "b"):
            await socket.ask(input="wait", stream_id=lane)
            await socket.began(lane)
        for body in ({"stream_id": "c"}, {"stream_id": "a"}, {"stream_id": "b"}):
            await socket.ask(input="x" * 300, **body)
        await socket.ask(input="y", stream_id="a")
        codes: list[tuple[str, str]] = []
        while len(codes) < 2:
            event = await socket.event()
            if event["type"] == "error":
                codes.append((event["stream_id"], event["error"]["code"]))
        hold.set()
        ends: list[str] = []
        while len(ends) < 4:
            ends.append((await socket.events())[-1]["type"])

    assert codes == [("c", "too_many_streams"), ("a", "websocket_queue_full")]
    assert ends == ["response.completed"] * 4


async def test_there_is_a_limit_to_the_bytes_that_wait() -> None:
    hold = asyncio.Event()
    async with (
        serve_gateway(held(hold), settings=limited(body_bytes=1000)) as gateway,
        talk(gateway.base_url) as socket,
    ):
        await socket.ask(input="wait")
        await socket.began()
        await socket.ask(input="x" * 600)
        await socket.ask(input="y" * 600)
        last = (await socket.events())[-1]
        hold.set()

    assert (last["status"], last["error"]["code"]) == (429, "websocket_queue_full")


async def test_what_has_been_answered_does_not_count_as_waiting() -> None:
    hold = asyncio.Event()
    async with (
        serve_gateway(held(hold), settings=limited(body_bytes=1000)) as gateway,
        talk(gateway.base_url) as socket,
    ):
        await socket.turn(input="x" * 600)
        await socket.ask(input="wait")
        await socket.began()
        await socket.ask(input="small")
        await socket.ask(input="y" * 600)
        hold.set()
        ends = [(await socket.events())[-1]["type"] for _ in range(3)]

    assert ends == ["response.completed"] * 3


# What is refused.


@pytest.mark.parametrize(
    ("frame", "status", "code"),
    [
        ("{", 400, "invalid_json"),
        ("[]", 400, "invalid_type"),
        ('{"a":' + "[" * 100_000, 400, "too_deep"),
        ('{"input": "x"}', 400, "unknown_event_type"),
        ('{"type": "response.cancel"}', 400, "unknown_event_type"),
        (
            '{"type": "response.steer", "previous_response_id": "resp_1"}',
            400,
            "steer_not_supported",
        ),
        ('{"type": "response.create", "stream_id": ""}', 400, "invalid_value"),
        ('{"type": "response.create", "stream_id": 7}', 400, "invalid_type"),
        ('{"type": "response.create", "input": "a", "input": "b"}', 400, "duplicate_field"),
        ('{"type": "response.create", "background": true}', 400, "unsupported_parameter"),
        ('{"type": "response.create"}', 400, "missing_required_parameter"),
    ],
)
async def test_a_frame_that_is_refused_does_not_end_the_socket(
    frame: str, status: int, code: str
) -> None:
    async with serve_gateway(ScriptedBackend()) as gateway, talk(gateway.base_url) as socket:
        await socket.wire.send_str(frame)
        refused = await socket.event()
        after = await socket.turn(input="hi")

    assert (refused["type"], refused["status"], refused["error"]["code"]) == ("error", status, code)
    assert said(after) == "hi"


async def test_frames_are_text() -> None:
    async with serve_gateway(ScriptedBackend()) as gateway, talk(gateway.base_url) as socket:
        await socket.wire.send_bytes(b'{"type": "response.create"}')
        assert (await socket.error())["code"] == "binary_frame"
        assert said(await socket.turn(input="hi")) == "hi"


async def test_a_frame_that_is_too_large_is_told_before_the_socket_closes() -> None:
    async with (
        serve_gateway(ScriptedBackend(), settings=limited(body_bytes=1000)) as gateway,
        talk(gateway.base_url) as socket,
    ):
        await socket.ask(input="x" * 1000)
        assert (await socket.error())["code"] == "request_too_large"
        assert await socket.closed() == 1009


async def test_a_fault_in_mid_turn_is_told_once() -> None:
    fault = BackendError("the model broke", code="upstream_closed")
    backend = ScriptedBackend([[TextGrew("So"), fault]])
    async with serve_gateway(backend) as gateway, talk(gateway.base_url) as socket:
        await socket.ask(input="x")
        events = await socket.events()

    assert kinds(events)[-1] == "failed"
    assert "error" not in kinds(events)
    assert events[-1]["response"]["error"]["code"] == "upstream_closed"
    assert said(events[-1]) == "So"


async def test_a_fault_leaves_no_gap_in_the_numbers_and_the_log_is_what_was_sent() -> None:
    backend = ScriptedBackend([[TextGrew("So"), BackendError("the model broke")]])
    async with serve_gateway(backend) as gateway, talk(gateway.base_url) as socket:
        await socket.ask(input="x")
        sent = await socket.events()
        path = f"/responses/{sent[-1]['response']['id']}?stream=true"
        replayed = await request(gateway, "GET", path)

    assert [event["sequence_number"] for event in sent] == list(range(len(sent)))
    assert events_of(replayed.body) == [decode_event(msgspec.json.encode(event)) for event in sent]


async def test_a_store_that_fails_at_the_end_leaves_no_gap_in_the_numbers() -> None:
    class Full(MemoryStore):
        async def finish(self, *given: Any, **known: Any) -> None:
            raise StoreUnavailable("the disk is full")

    backend = ScriptedBackend([[TextGrew("So"), STOP]])
    async with serve_gateway(backend, store=Full()) as gateway, talk(gateway.base_url) as socket:
        await socket.ask(input="x")
        events = await socket.events()

    assert events[-1]["response"]["error"]["code"] == "store_unavailable"
    assert [event["sequence_number"] for event in events] == list(range(len(events)))


async def test_an_overflow_is_a_failed_response_as_codex_knows_it() -> None:
    backend = ScriptedBackend([[ContextOverflow("too long")]])
    async with serve_gateway(backend) as gateway, talk(gateway.base_url) as socket:
        await socket.ask(input="x")
        events = await socket.events()

    assert kinds(events) == ["created", "in_progress", "failed"]
    assert events[-1]["response"]["error"]["code"] == "context_length_exceeded"


class BrokenBackend:
    """A model whose code has a bug."""

    capabilities = Capabilities()
    patience = None

    async def open(self, plan: Plan) -> Ask:
        raise ZeroDivisionError

    async def count(self, plan: Plan) -> int | None:
        return None

    def relay(
        self, path: str, body: bytes, *, is_streamed: bool, sending: Sending
    ) -> AbstractAsyncContextManager[Relayed]:
        raise ZeroDivisionError

    async def models(self) -> Sequence[ModelInfo]:
        return [ModelInfo("echo")]

    async def close(self) -> None:
        pass


async def test_our_own_bug_is_an_error_and_the_socket_goes_on() -> None:
    async with serve_gateway(BrokenBackend()) as gateway, talk(gateway.base_url) as socket:
        for _ in range(2):
            last = await socket.turn(input="x")
            error = last.get("error") or last["response"]["error"]
            assert "our fault" in error["message"]


async def test_a_connection_that_breaks_behind_us_is_not_taken_for_the_clients() -> None:
    class Lost(MemoryStore):
        async def history(
            self, owner: str, response_id: str, *, admit: Admit | None = None
        ) -> History | None:
            raise ConnectionResetError

    async with (
        serve_gateway(ScriptedBackend(), store=Lost()) as gateway,
        talk(gateway.base_url) as socket,
    ):
        last = await socket.turn(input="x", previous_response_id="resp_1")

    assert (last["status"], last["error"]["type"]) == (500, "server_error")


async def test_a_full_server_refuses_the_turn_and_not_the_socket() -> None:
    hold = asyncio.Event()
    async with (
        serve_gateway(held(hold), settings=limited(turns=1)) as gateway,
        talk(gateway.base_url) as busy,
        talk(gateway.base_url) as socket,
    ):
        await busy.ask(input="wait")
        await busy.began()
        refused = await socket.turn(input="hi")
        hold.set()
        await busy.events()
        after = await socket.turn(input="hi")

    assert (refused["status"], refused["error"]["code"]) == (503, "server_overloaded")
    assert said(after) == "hi"


# Who may open one.


async def test_a_plain_get_is_told_what_this_is() -> None:
    async with serve_gateway(ScriptedBackend()) as gateway:
        answer = await request(gateway, "GET", "/responses")

    assert (answer.status, answer.error["code"]) == (426, "upgrade_required")


@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        ({"Sec-WebSocket-Key": "short"}, 400, "invalid_handshake"),
        ({"Sec-WebSocket-Version": "3"}, 400, "invalid_handshake"),
        ({"Sec-WebSocket-Protocol": "key.sk-secret"}, 400, "unsupported_subprotocol"),
        ({"Origin": "http://evil.example"}, 403, "forbidden"),
        ({"Host": "evil.example"}, 403, "forbidden"),
        ({"x-antiphon-dialect": "latin"}, 400, "invalid_request"),
    ],
)
async def test_a_handshake_is_checked_like_a_request(
    headers: dict[str, str], status: int, code: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with serve_gateway(ScriptedBackend()) as gateway:
        answer = await request(gateway, "GET", "/responses", headers=UPGRADE | headers)

    assert (answer.status, answer.error["code"]) == (status, code)
    assert "sk-secret" not in caplog.text


async def test_a_key_is_asked_for_and_names_the_owner() -> None:
    settings = ServerSettings(require_keys=True)
    async with serve_gateway(ScriptedBackend(), settings=settings) as gateway:
        key, record = new_key("ada", 0)
        await gateway.store.add_key(record)
        refused = await request(gateway, "GET", "/responses", headers=UPGRADE)
        async with talk(gateway.base_url, {"Authorization": f"Bearer {key}"}) as socket:
            last = await socket.turn(input="hi")
        stored = await gateway.store.get("ada", last["response"]["id"])

    assert refused.status == 401
    assert stored is not None


async def test_a_key_that_is_revoked_is_of_no_use_on_an_open_socket() -> None:
    async with serve_gateway(ScriptedBackend()) as gateway:
        key, record = new_key("ada", 0)
        await gateway.store.add_key(record)
        async with talk(gateway.base_url, {"Authorization": f"Bearer {key}"}) as socket:
            await socket.turn(input="hi")
            await gateway.store.revoke_key(record.id, 1)
            gateway.app._auth._seen.clear()
            refused = await socket.turn(input="hi")

    assert (refused["status"], refused["error"]["code"]) == (401, "invalid_api_key")


async def test_there_is_a_limit_to_sockets() -> None:
    settings = limited(websockets=1)
    async with serve_gateway(ScriptedBackend(), settings=settings) as gateway:
        async with talk(gateway.base_url):
            answer = await request(gateway, "GET", "/responses", headers=UPGRADE)
        await gone(gateway)
        async with talk(gateway.base_url) as socket:
            assert said(await socket.turn(input="hi")) == "hi"

    assert (answer.status, answer.error["code"]) == (503, "server_overloaded")


# How it ends.


@pytest.mark.parametrize("is_polite", [True, False])
async def test_a_client_who_leaves_stops_the_model(is_polite: bool) -> None:
    backend = ScriptedBackend([[TextGrew("So"), asyncio.Event()]] * 2)
    async with serve_gateway(backend) as gateway, talk(gateway.base_url) as socket:
        ids = []
        for lane in ("a", "b"):
            await socket.ask(input="x", stream_id=lane)
            ids.append(await socket.began(lane))
        if is_polite:
            await socket.wire.close()
        else:
            transport_of(socket).abort()
        await gone(gateway)
        statuses = [await gateway.store.get("local", response_id) for response_id in ids]

    assert backend.stopped_early == 2
    assert [response and response.status for response in statuses] == ["cancelled"] * 2


async def test_after_its_time_a_socket_ends_with_an_error() -> None:
    async with (
        serve_gateway(ScriptedBackend(), settings=limited(websocket_seconds=0.05)) as gateway,
        talk(gateway.base_url) as socket,
    ):
        error = await socket.error()
        code = await socket.closed()

    assert error["code"] == "websocket_connection_limit_reached"
    assert code == 1001


async def test_after_its_time_a_socket_lets_the_running_turn_end() -> None:
    hold = asyncio.Event()
    settings = limited(websocket_seconds=100)
    async with (
        serve_gateway(held(hold), settings=settings) as gateway,
        talk(gateway.base_url) as socket,
    ):
        await socket.ask(input="wait", stream_id="a")
        await socket.ask(input="too late", stream_id="a")
        await socket.began("a")
        clock.skip(100)
        while (event := await socket.event())["type"] != "error":
            pass
        await socket.ask(input="later still", stream_id="b")
        again = await socket.event()
        hold.set()
        last = (await socket.events())[-1]
        error = await socket.error()
        code = await socket.closed()

    assert (event["stream_id"], again["stream_id"]) == ("a", "b")
    limit = "websocket_connection_limit_reached"
    assert [event["error"]["code"], again["error"]["code"], error["code"]] == [limit] * 3
    assert last["type"] == "response.completed"
    assert code == 1001


async def test_after_its_time_a_turn_that_does_not_end_is_ended() -> None:
    settings = limited(websocket_seconds=100, drain_seconds=0.05)
    async with (
        serve_gateway(held(asyncio.Event()), settings=settings) as gateway,
        talk(gateway.base_url) as socket,
    ):
        await socket.ask(input="wait")
        while (await socket.event())["type"] != "response.output_text.delta":
            pass
        clock.skip(100)
        last = (await socket.events())[-1]
        error = await socket.error()
        code = await socket.closed()

    assert last["response"]["error"]["code"] == error["code"]
    assert said(last) == "..."
    assert code == 1001


async def test_a_server_that_goes_away_closes_sockets_after_their_turns() -> None:
    hold = asyncio.Event()
    async with (
        serve_gateway(held(hold)) as gateway,
        talk(gateway.base_url) as busy,
        talk(gateway.base_url) as idle,
    ):
        await busy.ask(input="wait")
        await busy.began()
        draining = asyncio.create_task(gateway.app.drain())
        assert await idle.closed() == 1012
        refused = await request(gateway, "GET", "/responses", headers=UPGRADE)
        hold.set()
        last = (await busy.events())[-1]
        assert await busy.closed() == 1012
        await draining

    assert last["type"] == "response.completed"
    assert (refused.status, refused.error["code"]) == (503, "server_overloaded")


async def test_a_server_in_a_hurry_ends_the_turn_with_a_last_event() -> None:
    settings = limited(drain_seconds=0.05)
    async with (
        serve_gateway(held(asyncio.Event()), settings=settings) as gateway,
        talk(gateway.base_url) as socket,
    ):
        await socket.ask(input="wait")
        await socket.began()
        draining = asyncio.create_task(gateway.app.drain())
        last = (await socket.events())[-1]
        assert await socket.closed() == 1012
        await draining

    assert last["type"] == "response.failed"
    assert last["response"]["error"]["code"] == "server_overloaded"


async def test_a_peer_who_answers_no_ping_is_cut_off() -> None:
    settings = limited(websocket_ping_seconds=0.05)
    async with (
        serve_gateway(ScriptedBackend(), settings=settings) as gateway,
        aiohttp.ClientSession() as session,
        session.ws_connect(f"{gateway.base_url}/responses", autoping=False) as wire,
    ):
        pings = [await wire.receive(timeout=PATIENCE) for _ in range(2)]
        end = await wire.receive(timeout=PATIENCE)
        await gone(gateway)

    assert [ping.type for ping in pings] == [aiohttp.WSMsgType.PING] * 2
    assert end.type in (aiohttp.WSMsgType.CLOSED, aiohttp.WSMsgType.ERROR)


async def test_a_peer_who_answers_pings_stays() -> None:
    settings = limited(websocket_ping_seconds=100)
    async with (
        serve_gateway(ScriptedBackend(), settings=settings) as gateway,
        aiohttp.ClientSession() as session,
        session.ws_connect(f"{gateway.base_url}/responses", autoping=False) as wire,
    ):
        for _ in range(4):
            clock.skip(100)
            ping = await wire.receive(timeout=PATIENCE)
            assert ping.type is aiohttp.WSMsgType.PING
            await wire.pong(ping.data)
            await wire.ping()
            answer = await wire.receive(timeout=PATIENCE)  # so our own answer was read, too
            assert answer.type is aiohttp.WSMsgType.PONG
        assert len(gateway.app.sockets) == 1


async def test_a_peer_who_reads_slowly_is_not_taken_for_dead() -> None:
    text = "x" * 65_536

    def script(plan: Plan) -> list[Step]:
        return [*[TextGrew(text)] * 300, STOP]  # more than the buffers of two sockets take

    async with serve_gateway(ScriptedBackend(script)) as gateway, talk(gateway.base_url) as socket:
        await socket.ask(input="x")
        await socket.began()
        transport_of(socket).pause_reading()
        (ours,) = gateway.app.sockets._open
        assert isinstance(ours, _Socket)
        await until(lambda: ours._transport.get_write_buffer_size() > 0)
        for _ in range(5):
            await ours.beat()
        transport_of(socket).resume_reading()
        last = (await socket.events())[-1]

    assert said(last) == text * 300


async def test_a_ping_is_answered() -> None:
    async with (
        serve_gateway(ScriptedBackend()) as gateway,
        aiohttp.ClientSession() as session,
        session.ws_connect(f"{gateway.base_url}/responses", autoping=False) as wire,
    ):
        await wire.ping(b"hello")
        pong = await wire.receive(timeout=PATIENCE)

    assert (pong.type, pong.data) == (aiohttp.WSMsgType.PONG, b"hello")


async def test_a_client_who_does_not_read_holds_the_model_back_and_is_cut() -> None:
    def script(plan: Plan) -> list[Step]:
        return [TextGrew("x" * 65_536)] * 600  # 39 MB

    backend = ScriptedBackend(script)
    settings = limited(write_stall_seconds=2.0, websocket_ping_seconds=0.1)
    async with serve_gateway(backend, settings=settings) as gateway:
        async with talk(gateway.base_url) as socket:
            await socket.ask(input="x")
            response_id = await socket.began()
            transport = transport_of(socket)
            transport.pause_reading()
            async with asyncio.timeout(PATIENCE):
                await backend.stopped.wait()
            await gone(gateway)
            transport.abort()
        kept = await gateway.store.get("local", response_id)

    assert kept is not None
    assert kept.status == "cancelled"


async def test_of_sockets_that_came_and_went_nothing_is_left() -> None:
    hold = asyncio.Event()

    async def visit(number: int) -> None:
        async with talk(gateway.base_url) as socket:
            first = (await socket.turn(input="one", store=False))["response"]["id"]
            for lane in ("a", "b"):
                await socket.ask(
                    input="wait", store=False, previous_response_id=first, stream_id=lane
                )
            await socket.began("b")
            if number % 2:
                transport_of(socket).abort()

    async with serve_gateway(held(hold)) as gateway:
        tasks = asyncio.all_tasks()
        await asyncio.gather(*(visit(number) for number in range(40)))
        await settled(gateway, tasks)

        assert len(gateway.app.sockets) == 0
        assert gateway.app.socket_cache.used == 0


async def test_a_rate_limit_of_the_upstream_says_when_to_come_again() -> None:
    limit = BackendError("slow down", code="rate_limit_exceeded", status=429, retry_after=1.5)
    async with serve_gateway(ScriptedBackend([[limit]])) as gateway, talk(gateway.base_url) as told:
        last = await told.turn(input="hello")

    assert last["type"] == "response.failed"
    error = last["response"]["error"]
    assert error["code"] == "rate_limit_exceeded"
    assert error["message"].endswith("try again in 1.5s.")

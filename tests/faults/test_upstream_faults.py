"""Upstreams that break, stall, lie or talk garbage: what the caller gets, and what is kept."""

from __future__ import annotations

import asyncio
import socket
import sys
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from antiphon.backends.chat import ChatBackend
from antiphon.protocol.events import ErrorEvent, Event, ResponseFailed, event_type
from antiphon.protocol.response import Response
from antiphon.store.sqlite import SqliteStore
from antiphon.testing import (
    Close,
    ContentType,
    Cut,
    Empty,
    Endless,
    ErrorChunk,
    Fault,
    Garbage,
    Html,
    NoDone,
    Reset,
    Script,
    ScriptedUpstream,
    Split,
    Stall,
    Status,
)
from antiphon.testing.gateway import serve_gateway
from antiphon.transport.http import Limits
from tests import clock
from tests.asking import ask, ask_stream, request, terminal
from tests.faults.house import (
    EVENTS,
    PATIENCE,
    chat_chunk,
    frames,
    open_house,
    open_raw_house,
    send_events,
    stored,
)
from tests.faults.listening import listen
from tests.faults.process import serve_process
from tests.transport.raw import Connection, Request, chunk, raw_server, reply

TEXT = "one two three four five"
PREFIX = "one two"
AFTER = 3  # the chunk with the role, and two words

both_ways = pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])


def failure(events: list[Event]) -> Response:
    """Return the failed response that a stream ends in, behind exactly one error."""
    assert [event_type(event) for event in events].count("error") == 1
    error, last = events[-2:]
    assert isinstance(error, ErrorEvent)
    assert isinstance(last, ResponseFailed)
    assert last.response.error is not None
    assert last.response.error.code == error.code
    return last.response


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        (Reset(AFTER), "upstream_closed"),
        (Cut(AFTER), "upstream_closed"),
        (Close(AFTER), "upstream_closed"),
        (Garbage(AFTER), "upstream_invalid_response"),
        (ErrorChunk(AFTER), "upstream_error"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Fault) else "",
)
async def test_a_break_in_mid_stream_keeps_the_prefix_and_ends_in_one_failure(
    fault: Fault, code: str, tmp_path: Path
) -> None:
    store = SqliteStore(tmp_path / "antiphon.db")
    script = Script(text=TEXT, faults=[Stall(AFTER), fault])
    async with open_house(script, store=store) as house:
        async with listen(house.gateway.base_url) as listener:
            await listener.until_text(PREFIX)
            house.upstream.release()
            async with asyncio.timeout(PATIENCE):
                response = failure(await listener.rest())
        kept = await stored(house.gateway, response.id, "failed")
    await store.close()

    assert response.error is not None
    assert response.error.code == code
    assert response.output_text == PREFIX
    assert response.usage is not None
    assert kept.output == response.output
    assert kept.usage == response.usage
    assert len(house.upstream.requests) == 1


async def test_a_stall_in_mid_stream_ends_at_the_idle_limit() -> None:
    script = Script(text=TEXT, faults=[Stall(AFTER)])
    async with open_house(script, limits=Limits(idle=100)) as house:
        async with listen(house.gateway.base_url) as listener:
            await listener.until_text(PREFIX)
            clock.skip(100)
            response = failure(await listener.rest())
        received = house.upstream.requests[0]
        async with asyncio.timeout(PATIENCE):
            await received.client_left.wait()

    assert response.error is not None
    assert response.error.code == "upstream_timeout"
    assert response.output_text == PREFIX


async def test_a_drip_that_never_pauses_long_ends_at_the_wall() -> None:
    script = Script(text="drip", faults=[Endless(2)], delay=0.02)
    limits = Limits(idle=200, wall=100)
    async with (
        open_house(script, limits=limits) as house,
        listen(house.gateway.base_url) as listener,
    ):
        while not listener.text:
            await listener.read()
        clock.skip(100)
        response = failure(await listener.rest())

    assert response.error is not None
    assert response.error.code == "upstream_timeout"
    assert response.output_text.startswith("drip")


async def test_one_byte_at_a_time_for_ever_ends_at_the_wall() -> None:
    script = Script(text=TEXT, faults=[Split((1,))], delay=0.05)
    async with open_house(script, limits=Limits(first_byte=1.0, idle=1.0, wall=1.0)) as house:
        answer = await ask(house.gateway, stream=True)

    assert (answer.status, answer.error["code"]) == (504, "upstream_timeout")


@both_ways
async def test_an_upstream_that_never_begins_is_a_504(stream: bool) -> None:
    async def say_nothing(connection: Connection) -> None:
        clock.skip(100)
        await connection.until_closed()
        house.server.closed.set()

    limits = Limits(first_byte=100, idle=100)
    async with open_raw_house(say_nothing, limits=limits) as house:
        answer = await ask(house.gateway, stream=stream)
        async with asyncio.timeout(PATIENCE):
            await house.server.closed.wait()

    assert (answer.status, answer.error["code"]) == (504, "upstream_timeout")


async def test_a_head_without_a_first_word_is_a_504() -> None:
    limits = Limits(first_byte=0.3)
    async with open_house(Script(text=TEXT, faults=[Stall(0)]), limits=limits) as house:
        answer = await ask(house.gateway, stream=True)

    assert (answer.status, answer.error["code"]) == (504, "upstream_timeout")


@pytest.mark.parametrize("after", [1, 2, 4])
async def test_a_clean_end_without_the_end_mark_is_a_failure(after: int) -> None:
    async with open_house(Script(text="a b c", faults=[Close(after)])) as house:
        answer = await ask(house.gateway, stream=True)

    assert b"response.completed" not in answer.body
    if after == 1:
        assert (answer.status, answer.error["code"]) == (502, "upstream_closed")
    else:
        assert b'"code":"upstream_closed"' in answer.body


async def test_a_finish_reason_is_end_mark_enough() -> None:
    async with open_house(Script(text=TEXT, faults=[NoDone()])) as house:
        response = terminal(await ask_stream(house.gateway))

    assert (response.status, response.output_text) == ("completed", TEXT)


async def test_an_upstream_that_keeps_the_line_open_after_its_last_word_is_not_waited_for() -> None:
    async def linger(connection: Connection) -> None:
        await connection.write(EVENTS + chunk(frames(chat_chunk({"content": "hi"}, "stop"))))
        await connection.until_closed()

    async with open_raw_house(linger) as house, asyncio.timeout(PATIENCE):
        response = terminal(await ask_stream(house.gateway))

    assert (response.status, response.output_text) == ("completed", "hi")


@both_ways
@pytest.mark.parametrize(
    "fault",
    [Html(), Empty(), ContentType("text/plain"), ContentType("application/octet-stream")],
    ids=["html", "empty", "text", "bytes"],
)
async def test_a_200_that_is_no_answer_is_a_502_before_any_event(
    fault: Fault, stream: bool
) -> None:
    async with open_house(Script(text=TEXT, faults=[fault])) as house:
        answer = await ask(house.gateway, stream=stream)

    assert (answer.status, answer.error["code"]) == (502, "upstream_invalid_response")
    assert len(house.upstream.requests) == 1


@pytest.mark.parametrize(
    "body",
    [b"null", b"[]", b"{}", b'"x"', b"<html>", b'{"choices":[]}', b'{"choices":null}', b"[" * 9999],
)
async def test_a_whole_answer_that_is_none_is_a_502(body: bytes) -> None:
    async def answer_oddly(connection: Connection) -> None:
        await connection.write(reply(body))

    async with open_raw_house(answer_oddly) as house:
        answer = await ask(house.gateway)

    assert (answer.status, answer.error["code"]) == (502, "upstream_invalid_response")


@pytest.mark.parametrize("fault", [Reset(), Cut(), Close()], ids=["reset", "cut", "close"])
async def test_a_whole_answer_that_breaks_in_the_middle_is_a_502(fault: Fault) -> None:
    async with open_house(Script(text=TEXT, faults=[fault])) as house:
        answer = await ask(house.gateway)

    assert answer.status == 502
    assert answer.error["code"] in ("upstream_closed", "upstream_invalid_response")


async def test_what_is_not_http_is_a_502() -> None:
    async def babble(connection: Connection) -> None:
        await connection.write(b"SSH-2.0-OpenSSH_9.6\r\n\r\n")
        await connection.until_closed()

    async with open_raw_house(babble) as house:
        answer = await ask(house.gateway)

    assert (answer.status, answer.error["code"]) == (502, "upstream_invalid_response")


async def test_an_upstream_that_is_not_there_is_a_502() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]

    async def go_on(_: float) -> None:
        """Wait for nothing before another attempt."""

    backend = ChatBackend(f"http://127.0.0.1:{port}/v1", sleep=go_on)
    async with serve_gateway(backend, default_model="m") as gateway:
        answer = await ask(gateway)
        ready = await request(gateway, "GET", "/../healthz")

    assert (answer.status, answer.error["code"]) == (502, "upstream_unreachable")
    assert ready.status == 200


async def test_a_redirect_is_not_followed_with_our_key() -> None:
    async def collect(_: Request, connection: Connection) -> None:
        await connection.write(reply(b"{}"))

    async with raw_server(collect) as elsewhere:
        moved = Status(307, headers={"Location": f"{elsewhere.url}/v1/chat/completions"})
        async with open_house(Script(faults=[moved])) as house:
            answer = await ask(house.gateway)

    assert (answer.status, answer.error["code"]) == (502, "upstream_invalid_response")
    assert elsewhere.connections == 0


@pytest.mark.parametrize(
    ("data", "status", "code"),
    [
        (b'{"error":{"message":"no","code":"content_policy"}}', 400, "content_policy"),
        (b"<html>Bad Gateway", 400, "upstream_refused"),
        (b"", 400, "upstream_refused"),
        (b"\xff\xfe", 400, "upstream_refused"),
        (b"[" * 5000, 400, "upstream_refused"),
    ],
)
async def test_a_refusal_in_any_words_is_told_in_ours(data: bytes, status: int, code: str) -> None:
    async with open_house(Script(faults=[Status(400, body=data)])) as house:
        answer = await ask(house.gateway)

    assert (answer.status, answer.error["code"]) == (status, code)


@pytest.mark.parametrize(
    "odd",
    [
        {"content": 7},
        {"content": {"a": 1}},
        {"tool_calls": "x"},
        {"tool_calls": [{"index": "0", "function": {"name": 1, "arguments": 2}}]},
        {"reasoning_content": ["x"]},
        {"annotations": 5},
    ],
)
async def test_fields_of_the_wrong_type_never_become_our_fault(odd: dict[str, Any]) -> None:
    pieces = frames(chat_chunk({"content": "so far"}), chat_chunk(odd), chat_chunk({}, "stop"))
    async with open_raw_house(send_events(pieces)) as house:
        response = terminal(await ask_stream(house.gateway))

    assert response.output_text == "so far"
    if response.error is not None:
        assert response.error.code == "upstream_invalid_response"


async def test_a_models_list_that_fails_does_not_stop_a_turn() -> None:
    async with open_house(Script(text=TEXT), models_answer=Status(500)) as house:
        response = terminal(await ask_stream(house.gateway, model="echo"))
        listing = await request(house.gateway, "GET", "/models")

    assert response.output_text == TEXT
    assert listing.status == 502


@pytest.mark.skipif(sys.platform != "linux", reason="prlimit is Linux's")
async def test_without_a_file_descriptor_left_the_gateway_takes_the_blame(tmp_path: Path) -> None:
    def script(body: dict[str, Any]) -> Script:
        is_held = "hold" in str(body["messages"])
        return Script(text="hi", faults=[Stall(after=1)] if is_held else [])

    async with (
        ScriptedUpstream(script) as upstream,
        serve_process(tmp_path, upstream.base_url) as process,
        aiohttp.ClientSession() as session,
    ):

        async def post(text: str) -> tuple[int, Any]:
            body = {"input": text, "store": False}
            async with session.post(f"{process.base_url}/responses", json=body) as answer:
                return answer.status, await answer.json()

        # Every connection to the upstream that the gateway kept is busy.
        held = [asyncio.create_task(post("hold")) for _ in range(4)]
        await upstream.received(4)
        # The client's connection opens while that is still possible.
        async with session.get(f"{process.base_url}/responses/resp_none") as answer:
            await answer.read()
        process.limit_open_files()
        status, body = await post("hello")
        process.allow_open_files()
        upstream.release()
        later, _ = await post("hello")
        await asyncio.gather(*held)

    assert (status, body["error"]["code"]) == (503, "out_of_file_descriptors")
    assert later == 200

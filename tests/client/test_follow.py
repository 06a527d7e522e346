"""Following a stored response: every event once, however often the connection is lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from antiphon.backends.scripted import ScriptedBackend, Step
from antiphon.client import AsyncClient, Client, errors
from antiphon.client.settings import Timeouts
from antiphon.protocol.codec import DONE, encode_sse
from antiphon.protocol.deltas import Stopped, TextGrew
from antiphon.protocol.events import Event, OutputTextDelta, sequence_of
from antiphon.protocol.response import Response
from antiphon.testing import serve_gateway
from tests.asking import ask, request, terminal
from tests.building import COUNTED, STOP, build
from tests.client.calling import KINDS, calling
from tests.client.native import Answer, NativeServer, error, events, native, whole
from tests.transport.raw import Request

STREAM: list[Event] = build([TextGrew("Hel"), TextGrew("lo"), COUNTED, STOP])
LAST = len(STREAM) - 1
DONE_RESPONSE = terminal(STREAM)


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def part(stream: Sequence[Event], **settings: Any) -> Answer:
    """Return an answer that ends without a terminal event and without an end mark."""
    return Answer(pieces=[encode_sse(event, "openai") for event in stream], **settings)


def number_in(request: Request) -> int | None:
    """Return the `starting_after` of a request."""
    found = parse_qs(urlsplit(request.path).query).get("starting_after")
    return None if found is None else int(found[0])


def asked_after(server: NativeServer) -> list[int | None]:
    """Return the `starting_after` of each request for events."""
    return [number_in(request) for request in server.requests if "stream=true" in request.path]


def losing(seen_before: int, then: Any) -> Callable[[Request], Answer]:
    """Return a server that has so many events for a first request, and the rest for others."""

    def answer(request: Request) -> Answer:
        after = number_in(request)
        if after is None:
            return part(STREAM[:seen_before], then=then)
        return events(STREAM[after + 1 :])

    return answer


@pytest.mark.parametrize("then", ["end", "reset"])
@pytest.mark.parametrize("seen_before", range(1, LAST + 1))
async def test_a_connection_lost_after_any_event_loses_and_repeats_none(
    kind: str, then: str, seen_before: int
) -> None:
    async with (
        native(losing(seen_before, then)) as server,
        calling(kind, server.base_url) as caller,
    ):
        seen = await caller.replay("resp_1")

    assert seen.error is None
    assert seen.events == STREAM
    assert seen.response is not None and seen.response.output_text == "Hello"
    assert asked_after(server) == [None, seen_before - 1]


@pytest.mark.parametrize("seen_before", [1, LAST // 2, LAST])
async def test_a_connection_that_stalls_loses_and_repeats_none(kind: str, seen_before: int) -> None:
    """However many connections a slow machine needs: the time also limits its first head."""
    options: Any = {"timeouts": Timeouts(idle=2.0)}
    async with (
        native(losing(seen_before, "stall")) as server,
        calling(kind, server.base_url, **options) as caller,
    ):
        seen = await caller.replay("resp_1")

    assert seen.error is None
    assert seen.events == STREAM
    assert seen.response is not None and seen.response.output_text == "Hello"
    first, *_, last = asked_after(server)
    assert first is None and last is not None


async def test_a_server_that_repeats_what_was_seen_is_not_repeated(kind: str) -> None:
    answers = [part(STREAM[:4]), events(STREAM)]
    async with native(*answers) as server, calling(kind, server.base_url) as caller:
        seen = await caller.replay("resp_1")
    assert seen.events == STREAM


async def test_events_begin_after_the_number_that_was_asked_for(kind: str) -> None:
    async with native(events(STREAM[5:])) as server, calling(kind, server.base_url) as caller:
        seen = await caller.replay("resp_1", starting_after=4)
    assert seen.events == STREAM[5:]
    assert asked_after(server) == [4]
    assert seen.response is not None and seen.response.output_text == "Hello"


async def test_every_connection_asks_for_what_is_included(kind: str) -> None:
    wanted = ["web_search_call.action.sources", "file_search_call.results"]
    answers = [part(STREAM[:4]), events(STREAM)]
    async with native(*answers) as server, calling(kind, server.base_url) as caller:
        await caller.replay("resp_1", include=wanted)
    queries = [parse_qs(urlsplit(one.path).query) for one in server.requests]
    assert len(queries) == 2
    assert [query["include[]"] for query in queries] == [wanted, wanted]


@pytest.mark.parametrize("after", [None, 4, LAST - 1])
async def test_the_text_is_what_the_events_hold_and_not_more(after: int | None) -> None:
    rest = STREAM[0 if after is None else after + 1 :]
    async with (
        native(events(rest)) as server,
        AsyncClient(base_url=server.base_url) as client,
        client.follow("resp_1", starting_after=after) as stream,
    ):
        text = "".join([piece async for piece in stream.text()])
    assert text == "".join(event.delta for event in rest if isinstance(event, OutputTextDelta))


async def test_whoever_saw_the_last_event_gets_none_and_the_response(kind: str) -> None:
    nothing = Answer(pieces=[DONE])
    answers = [nothing, whole(DONE_RESPONSE)]
    async with native(*answers) as server, calling(kind, server.base_url) as caller:
        seen = await caller.replay("resp_1", starting_after=LAST)
    assert (seen.error, seen.events, seen.response) == (None, [], DONE_RESPONSE)


async def test_an_empty_stream_of_a_running_response_is_asked_for_again(kind: str) -> None:
    running = whole(Response(id="resp_1", status="in_progress"))
    answers = [Answer(pieces=[DONE]), running, events(STREAM)]
    async with native(*answers) as server, calling(kind, server.base_url) as caller:
        seen = await caller.replay("resp_1")
    assert seen.events == STREAM


async def test_connections_that_bring_nothing_new_are_given_up_in_the_end(kind: str) -> None:
    lost = part(STREAM[:3], then="reset")
    async with native(lost) as server, calling(kind, server.base_url) as caller:
        seen = await caller.replay("resp_1", max_reconnects=4)
    assert isinstance(seen.error, errors.StreamBroken)
    assert seen.events == STREAM[:3]
    assert seen.error.partial is not None
    assert len(server.requests) == 1 + 4


async def test_reconnects_are_counted_from_the_last_new_event(kind: str) -> None:
    answers = [part([event], then="reset") for event in STREAM]
    async with native(*answers) as server, calling(kind, server.base_url) as caller:
        seen = await caller.replay("resp_1", max_reconnects=1)
    assert (seen.error, seen.events) == (None, STREAM)


async def test_a_server_that_is_away_for_a_moment_is_asked_again(kind: str) -> None:
    answers = [part(STREAM[:3], then="reset"), error(503), error(502), events(STREAM[3:])]
    async with native(*answers) as server, calling(kind, server.base_url) as caller:
        seen = await caller.replay("resp_1")
    assert (seen.error, seen.events) == (None, STREAM)


async def test_a_response_that_is_deleted_meanwhile_is_an_error_with_what_came(kind: str) -> None:
    answers = [part(STREAM[:5], then="reset"), error(404, "response_not_found")]
    async with native(*answers) as server, calling(kind, server.base_url) as caller:
        seen = await caller.replay("resp_1")
    assert isinstance(seen.error, errors.ResourceNotFound)
    assert seen.events == STREAM[:5]
    assert seen.error.partial is not None and seen.error.partial.output_text == "Hel"
    assert len(server.requests) == 2


async def test_a_refusal_is_raised_when_the_stream_is_entered(kind: str) -> None:
    async with native(error(404)) as server, calling(kind, server.base_url) as caller:
        seen = await caller.replay("resp_1")
    assert isinstance(seen.error, errors.ResourceNotFound)
    assert len(server.requests) == 1


async def test_a_stream_that_is_closed_between_two_connections_makes_no_other() -> None:
    async def close_meanwhile(wait: float) -> None:
        await stream.close()

    answers = [part(STREAM[:3], then="reset"), events(STREAM[3:])]
    async with (
        native(*answers) as server,
        AsyncClient(base_url=server.base_url, sleep=close_meanwhile) as client,
    ):
        async with client.follow("resp_1") as stream:
            seen = [event async for event in stream]
        assert seen == STREAM[:3]
        assert len(server.requests) == 1


async def test_an_error_event_in_place_of_events_is_raised(kind: str) -> None:
    data = b'event: error\ndata: {"type":"error","message":"too old","code":"gone"}\n\n'
    async with native(Answer(pieces=[data])) as server, calling(kind, server.base_url) as caller:
        seen = await caller.replay("resp_1", max_reconnects=0)
    assert isinstance(seen.error, errors.ClientError)
    assert (seen.error.code, seen.events) == ("gone", [])


async def test_events_without_numbers_are_not_asked_for_again(kind: str) -> None:
    data = b'data: {"type":"response.output_text.delta","delta":"a","output_index":0}\n\n'
    broken = Answer(pieces=[data], then="reset")
    async with native(broken) as server, calling(kind, server.base_url) as caller:
        seen = await caller.replay("resp_1")
    assert isinstance(seen.error, errors.StreamBroken)
    assert (len(seen.events), len(server.requests)) == (1, 1)


async def test_an_answer_that_is_no_stream_is_an_error_that_says_so(kind: str) -> None:
    async with native(whole(DONE_RESPONSE)) as server, calling(kind, server.base_url) as caller:
        seen = await caller.replay("resp_1")
    assert isinstance(seen.error, errors.InvalidAnswer)
    assert "not a stream of events" in seen.error.message


# Against our own gateway.


@asynccontextmanager
async def cutting(
    address: tuple[str, int], every: int, connections: list[int]
) -> AsyncIterator[str]:
    """Yield the base URL of a proxy that resets each connection after so many bytes of answer.

    `connections` gets what each of them carried.
    """

    relays: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        relays[asyncio.create_task(relay(reader, writer))] = writer

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        up_reader, up_writer = await asyncio.open_connection(*address)
        sent = 0
        try:
            up_writer.write(await reader.readuntil(b"\r\n\r\n"))
            while sent < every and (data := await up_reader.read(every - sent)):
                writer.write(data)
                await writer.drain()
                sent += len(data)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the client has closed its side
        finally:
            connections.append(sent)
            up_writer.transport.abort()
            writer.transport.abort()

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    async with server:
        try:
            yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        finally:
            # A relay may not have noticed yet that its client is gone.
            for task, writer in relays.items():
                task.cancel()
                writer.transport.abort()
            await asyncio.gather(*relays, return_exceptions=True)


async def test_a_live_turn_is_followed_over_connections_that_all_break(kind: str) -> None:
    words = [f"word{number} " for number in range(30)]
    halfway = asyncio.Event()
    script: list[Step] = [*map(TextGrew, words[:15]), halfway, *map(TextGrew, words[15:])]
    async with serve_gateway(ScriptedBackend([[*script, Stopped("stop")]])) as gateway:
        made = (await ask(gateway, background=True)).json
        connections: list[int] = []
        async with (
            cutting(gateway.address, 4000, connections) as base_url,
            calling(kind, base_url) as caller,
        ):
            following = asyncio.create_task(caller.replay(made["id"], max_reconnects=100))
            asyncio.get_running_loop().call_later(0.05, halfway.set)
            seen = await following
        stored = (await request(gateway, "GET", f"/responses/{made['id']}")).json

    assert seen.error is None
    assert [sequence_of(event) for event in seen.events] == list(range(len(seen.events)))
    assert seen.response is not None
    assert seen.response.output_text == "".join(words)
    assert len(connections) > 2
    assert stored["status"] == seen.response.status == "completed"


async def test_a_finished_response_is_followed_from_any_event(kind: str) -> None:
    async with serve_gateway(ScriptedBackend()) as gateway, calling(kind, gateway.base_url) as own:
        streamed = await own.follow(model="echo", input="one two three")
        assert streamed.response is not None
        for after in (None, 0, 3, len(streamed.events) - 2, len(streamed.events) - 1):
            seen = await own.replay(streamed.response.id, starting_after=after)
            assert seen.events == streamed.events[0 if after is None else after + 1 :]
            assert seen.response == streamed.response


@pytest.mark.parametrize("count", range(1, len(STREAM) + 1))
async def test_a_stream_that_is_left_knows_the_last_event_it_handed_out(
    kind: str, count: int
) -> None:
    """Also in the middle of events that were read together."""
    whole_batch = Answer(pieces=[b"".join(encode_sse(event, "openai") for event in STREAM)])

    def leave(client: Client) -> int | None:
        with client.stream(model="m", input="hi") as stream:
            assert stream.last_sequence_number is None
            for _, _event in zip(range(count), stream, strict=False):
                pass
        return stream.last_sequence_number

    async def leave_soon(client: AsyncClient) -> int | None:
        async with client.stream(model="m", input="hi") as stream:
            assert stream.last_sequence_number is None
            async for event in stream:
                if event.sequence_number == count - 1:
                    break
        return stream.last_sequence_number

    async with native(whole_batch) as server:
        if kind == "sync":
            with Client(base_url=server.base_url, environ={}) as client:
                assert await asyncio.to_thread(leave, client) == count - 1
        else:
            async with AsyncClient(base_url=server.base_url, environ={}) as own:
                assert await leave_soon(own) == count - 1


async def test_the_number_counts_batches_and_the_rest_that_was_read_for_the_end() -> None:
    def read(client: Client) -> list[int | None]:
        numbers = []
        with client.stream(model="m", input="hi") as stream:
            numbers.append((stream.next_batch(), stream.last_sequence_number)[1])
            stream.final_response()
            numbers.append(stream.last_sequence_number)
        return numbers

    two = [b"".join(encode_sse(it, "openai") for it in half) for half in (STREAM[:4], STREAM[4:])]
    async with native(Answer(pieces=two, then="end")) as server:
        with Client(base_url=server.base_url, environ={}) as client:
            first, last = await asyncio.to_thread(read, client)
    assert first in (3, LAST)
    assert last == LAST


async def test_the_text_of_a_background_stream_goes_on_where_it_was_left() -> None:
    words = [TextGrew(f"{number} ") for number in range(30)]
    pieces: list[str] = []
    async with (
        serve_gateway(ScriptedBackend([[*words, COUNTED, STOP]])) as gateway,
        AsyncClient(base_url=gateway.base_url, environ={}) as client,
    ):
        async with client.stream(model="echo", input="hi", background=True) as stream:
            async for piece in stream.text():
                pieces.append(piece)
                if len(pieces) == 7:
                    break
        assert stream.response is not None
        after = stream.last_sequence_number
        async with client.follow(stream.response.id, starting_after=after) as rest:
            pieces += [piece async for piece in rest.text()]
            response = await rest.final_response()
    assert "".join(pieces) == response.output_text == "".join(word.text for word in words)

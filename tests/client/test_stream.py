"""Streams: other ways to read one, and to leave it."""

from __future__ import annotations

import asyncio
import json

import msgspec
import pytest

from antiphon.client import AsyncClient, errors
from antiphon.client.stream import Outbox
from antiphon.protocol.codec import encode_response, encode_sse
from antiphon.protocol.deltas import TextGrew
from antiphon.protocol.events import OutputTextDelta, ResponseCompleted, UnknownEvent
from tests.asking import terminal
from tests.building import COUNTED, STOP, build
from tests.client.native import Answer, events, native, response, whole

HELLO = (TextGrew("Hel"), TextGrew("lo"), COUNTED, STOP)


def client_of(base_url: str) -> AsyncClient:
    return AsyncClient(base_url=base_url, environ={}, max_retries=0)


async def test_the_text_alone_and_events_in_batches() -> None:
    async with native(response(*HELLO)) as server, client_of(server.base_url) as client:
        async with client.stream(model="m", input="x") as stream:
            assert [piece async for piece in stream.text()] == ["Hel", "lo"]
            assert (await stream.final_response()).output_text == "Hello"
        async with client.stream(model="m", input="x") as stream:
            told = [event async for batch in stream.batches() for event in batch]
            assert stream.deviations == []
    assert told == build(HELLO)


async def test_the_response_so_far_is_at_hand_while_it_grows() -> None:
    async with native(response(*HELLO)) as server, client_of(server.base_url) as client:
        stream = client.stream(model="m", input="x")
        so_far = [stream.response]
        assert stream.skipped_choices == 0
        async with stream:
            async for event in stream:
                if isinstance(event, OutputTextDelta):
                    so_far.append(stream.response)
    first, *later = so_far
    assert first is None
    assert [made and made.output_text[:3] for made in later] == ["Hel", "Hel"]


async def test_who_leaves_at_the_last_event_has_the_whole_response() -> None:
    """Most programs break out of the loop there; the session must go on from it."""
    async with native(response(*HELLO)) as server, client_of(server.base_url) as client:
        async with client.stream(model="m", input="x", session="s") as stream:
            async for event in stream:
                if isinstance(event, ResponseCompleted):
                    break
        final = await stream.final_response()
        thread = client.cache.get("s", "m")
    assert final.output_text == "Hello"
    assert thread is not None and thread.response_id == "resp_1"


async def test_who_leaves_early_has_no_final_response() -> None:
    async with native(response(*HELLO)) as server, client_of(server.base_url) as client:
        async with client.stream(model="m", input="x") as stream:
            pass
        with pytest.raises(errors.StreamBroken, match="closed before its end"):
            await stream.final_response()


async def test_a_stream_that_was_never_entered_says_so() -> None:
    async with client_of("http://127.0.0.1:1/v1") as client:
        stream = client.stream(model="m", input="x")
        with pytest.raises(RuntimeError, match="enter the stream first"):
            await stream.final_response()
        await stream.close()


async def test_an_event_after_the_end_is_no_harm() -> None:
    told = build(HELLO)
    async with (
        native(events([*told, told[-1]])) as server,
        client_of(server.base_url) as client,
        client.stream(model="m", input="x") as stream,
    ):
        final = await stream.final_response()
    assert final == terminal(told)


async def test_a_last_event_that_is_torn_is_a_cut() -> None:
    pieces = [encode_sse(event) for event in build(HELLO)]
    pieces[-1] = pieces[-1][:80]
    async with (
        native(Answer(pieces=pieces)) as server,
        client_of(server.base_url) as client,
        client.stream(model="m", input="x") as stream,
    ):
        with pytest.raises(errors.StreamBroken) as caught:
            await stream.final_response()
    assert caught.value.partial is not None
    assert caught.value.partial.output_text == "Hello"


@pytest.mark.parametrize("is_streamed", [False, True])
async def test_a_whole_answer_that_is_cut_is_no_answer(is_streamed: bool) -> None:
    half = encode_response(terminal(build(HELLO)))[:100]
    cut = Answer(pieces=[half], content_type="application/json", then="reset")
    async with native(cut) as server, client_of(server.base_url) as client:
        with pytest.raises(errors.StreamBroken):
            if is_streamed:
                async with client.stream(model="m", input="x"):
                    pass
            else:
                await client.create(model="m", input="x")


async def test_a_refusal_whose_reason_is_cut_is_still_that_refusal() -> None:
    cut = Answer(pieces=[b"{"], status=401, content_type="application/json", then="reset")
    async with native(cut) as server, client_of(server.base_url) as client:
        with pytest.raises(errors.AuthFailed, match="it gave no reason"):
            await client.create(model="m", input="x")


async def test_a_conversation_that_is_gone_is_named() -> None:
    gone = Answer(
        pieces=[b'{"error":{"message":"Conversation not found"}}'],
        status=404,
        content_type="application/json",
    )
    async with native(gone) as server, client_of(server.base_url) as client:
        with pytest.raises(errors.ThreadGone) as caught:
            await client.create(model="m", input="x", conversation={"id": "conv_1"})
    assert caught.value.thread == "conv_1"


async def test_what_a_server_keeps_must_be_a_response() -> None:
    odd = Answer(pieces=[b"{}"], content_type="application/json")
    async with native(odd) as server, client_of(server.base_url) as client:
        with pytest.raises(errors.InvalidAnswer, match="no response"):
            await client.retrieve("resp_1")
    async with client_of("http://127.0.0.1:1/v1") as client:
        with pytest.raises(errors.ServerUnreachable):
            await client.models()


HALF, OTHER_HALF = "\ud83d", "\ude00"


def grown(number: int, delta: str) -> bytes:
    """Return a delta as Python servers write it: half a character is an escape."""
    text = json.dumps({**GROWN, "sequence_number": number, "delta": delta})
    return f"event: response.output_text.delta\ndata: {text}\n\n".encode()


GROWN = {
    "type": "response.output_text.delta",
    "item_id": "msg_0",
    "output_index": 0,
    "content_index": 0,
    "logprobs": [],
}


async def test_the_text_has_whole_characters_and_nothing_twice() -> None:
    told = build([TextGrew("a\N{GRINNING FACE}b"), COUNTED, STOP])
    pieces = [encode_sse(event) for event in told]
    number = next(n for n, event in enumerate(told) if isinstance(event, OutputTextDelta))
    resent = [grown(number, "a"), grown(number, "a")]
    cut = [grown(number + 1, HALF), grown(number + 2, OTHER_HALF + "b")]
    answer = Answer(pieces=[*pieces[:number], *resent, *cut, *pieces[-1:]])
    async with (
        native(answer) as server,
        client_of(server.base_url) as client,
        client.stream(model="m", input="x") as stream,
    ):
        assert [piece async for piece in stream.text()] == ["a", "\N{GRINNING FACE}b"]


async def test_the_text_of_an_answer_in_one_piece_is_all_of_it() -> None:
    async with (
        native(whole(terminal(build(HELLO)))) as server,
        client_of(server.base_url) as client,
        client.stream(model="m", input="x") as stream,
    ):
        assert [piece async for piece in stream.text()] == ["Hello"]


async def test_who_stops_in_the_middle_and_goes_on_misses_nothing() -> None:
    at_once = Answer(pieces=[b"".join(response(*HELLO).pieces)])
    async with (
        native(at_once) as server,
        client_of(server.base_url) as client,
        client.stream(model="m", input="x") as stream,
    ):
        told = []
        async for event in stream:
            told.append(event)
            break
        async for event in stream:
            told.append(event)
            break
        told += await stream.next_batch()
        told += [event async for event in stream]
    assert told == build(HELLO)


async def test_a_stream_is_entered_once() -> None:
    async with native(response(*HELLO)) as server, client_of(server.base_url) as client:
        stream = client.stream(model="m", input="x")
        async with stream:
            await stream.final_response()
        with pytest.raises(RuntimeError, match="entered once"):
            await stream.__aenter__()
    assert len(server.requests) == 1


async def test_a_broken_stream_says_so_as_often_as_it_is_asked() -> None:
    cut = Answer(pieces=response(*HELLO).pieces[:4], then="reset")
    async with (
        native(cut) as server,
        client_of(server.base_url) as client,
        client.stream(model="m", input="x") as stream,
    ):
        with pytest.raises(errors.StreamBroken) as first:
            await stream.final_response()
        with pytest.raises(errors.StreamBroken) as again:
            await stream.next_batch()
    assert again.value is first.value


async def test_a_key_in_an_error_event_stays_out_of_the_error() -> None:
    told = b'data: {"type":"error","code":"bad","message":"sk-very-secret is bad"}\n\n'
    answer = Answer(pieces=[encode_sse(build(HELLO)[0]), told])
    async with (
        native(answer) as server,
        AsyncClient(base_url=server.base_url, environ={}, api_key="sk-very-secret") as client,
        client.stream(model="m", input="x") as stream,
    ):
        with pytest.raises(errors.StreamBroken, match=r"\*\*\* is bad") as caught:
            await stream.final_response()
    assert "sk-very-secret" not in repr(caught.value)


async def test_the_end_is_the_end_though_something_follows_on_an_open_line() -> None:
    told = build(HELLO)
    last = encode_sse(told[-1]) + b'data: {"type":"acme:afterword"}\n\n'
    answer = Answer(pieces=[*(encode_sse(event) for event in told[:-1]), last], then="stall")
    async with (
        native(answer) as server,
        client_of(server.base_url) as client,
        client.stream(model="m", input="x") as stream,
    ):
        assert (await asyncio.wait_for(stream.final_response(), 60)).output_text == "Hello"


async def test_streams_made_first_and_run_later_know_what_came_between() -> None:
    async with native(response(*HELLO)) as server, client_of(server.base_url) as client:
        first = client.stream(model="m", input="one", session="s")
        second = client.stream(model="m", input="two", session="s")
        for stream in (first, second):
            async with stream:
                await stream.final_response()
    assert "previous_response_id" not in server.body(0)
    assert server.body(1)["previous_response_id"] == "resp_1"


async def test_output_that_was_seen_is_not_produced_twice() -> None:
    """Also where the caller asked for an answer in one piece and did not see it."""
    begun = Answer(pieces=response(*HELLO).pieces[:5])
    half = encode_response(terminal(build(HELLO)))[:100]
    cut = Answer(pieces=[half], content_type="application/json", then="reset")
    for answer in (begun, cut):
        async with (
            native(answer) as server,
            AsyncClient(base_url=server.base_url, environ={}, max_retries=3) as client,
        ):
            with pytest.raises(errors.StreamBroken):
                await client.create(model="m", input="x")
        assert len(server.requests) == 1


async def test_a_response_that_still_runs_keeps_what_it_has_said() -> None:
    running = terminal(build(HELLO))
    running.status = "in_progress"
    async with native(whole(running)) as server, client_of(server.base_url) as client:
        made = await client.create(model="m", input="x", background=True)
    assert (made.status, made.output_text) == ("in_progress", "Hello")


@pytest.mark.parametrize("is_streamed", [False, True])
async def test_an_error_under_a_200_is_that_error(is_streamed: bool) -> None:
    body = b'{"error":{"message":"slow down","code":"rate_limit_exceeded"}}'
    odd = Answer(pieces=[body], content_type="application/json")
    async with native(odd) as server, client_of(server.base_url) as client:
        with pytest.raises(errors.RateLimited, match="slow down"):
            if is_streamed:
                async with client.stream(model="m", input="x"):
                    pass
            else:
                await client.create(model="m", input="x")


async def test_pages_without_cursors_are_followed_by_their_last_item() -> None:
    def page(*ids: str, has_more: bool) -> Answer:
        data = [{"id": one, "type": "message"} for one in ids]
        body = msgspec.json.encode({"data": data, "has_more": has_more})
        return Answer(pieces=[body], content_type="application/json")

    pages = (page("a", "b", has_more=True), page("c", has_more=False))
    async with native(*pages) as server, client_of(server.base_url) as client:
        items = [item["id"] async for item in client.iterate_input_items("resp_1")]
    assert items == ["a", "b", "c"]
    assert "after=b" in server.requests[1].path


async def test_events_under_the_type_of_any_text_are_events() -> None:
    odd = response(*HELLO, content_type="text/plain")
    async with (
        native(odd) as server,
        client_of(server.base_url) as client,
        client.stream(model="m", input="x") as stream,
    ):
        assert (await stream.final_response()).output_text == "Hello"


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ('{"error":{"message":"no money","code":"insufficient_quota"}}', errors.QuotaExceeded),
        ('{"type":"error","code":"rate_limit_exceeded","message":"slow"}', errors.RateLimited),
        ('{"type":"error","error":{"code":500,"message":"broken"}}', errors.ServerFailed),
    ],
)
async def test_a_stream_that_begins_with_an_error_is_that_error(
    told: str, expected: type[errors.ClientError]
) -> None:
    answer = Answer(pieces=[f"data: {told}\n\n".encode()])
    async with native(answer) as server, client_of(server.base_url) as client:
        with pytest.raises(expected):
            async with client.stream(model="m", input="x"):
                pass


def test_an_event_without_a_number_does_not_hide_the_last_one_that_has_one() -> None:
    numbered = build([TextGrew("one"), COUNTED, STOP])[:2]
    outbox = Outbox()
    assert outbox.last_number is None
    outbox.put(list(numbered))
    assert list(outbox.rest) == numbered
    outbox.put([UnknownEvent("keepalive", {})])
    assert len(list(outbox.rest)) == 1
    assert outbox.last_number == 1

"""Streams: other ways to read one, and to leave it."""

from __future__ import annotations

import pytest

from antiphon.client import AsyncClient, errors
from antiphon.protocol.codec import encode_response, encode_sse
from antiphon.protocol.deltas import TextGrew
from antiphon.protocol.events import OutputTextDelta, ResponseCompleted
from tests.asking import terminal
from tests.building import COUNTED, STOP, build
from tests.client.native import Answer, events, native, response

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

"""An answer as a loop over its parts: how it is read, left and stopped."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

from antiphon.client import errors
from antiphon.host import AnswerStream, Message, RespondOptions, TextPart
from antiphon.host.answer import Batches, CancelGuard
from antiphon.host.errors import StreamCut, TurnCancelled
from antiphon.protocol.codec import encode_sse
from antiphon.protocol.deltas import TextGrew
from antiphon.wires.host.parts import ResponsePart
from tests.building import COUNTED, STOP, build
from tests.client.native import Answer, NativeServer, native, response
from tests.host.providing import Shown, provider

HELLO = [Message.user("Hello there")]
WHOLE = response(TextGrew("one "), TextGrew("two "), TextGrew("three"), COUNTED, STOP)
BEGUN = [encode_sse(event) for event in build([TextGrew("Hel"), TextGrew("lo"), STOP])[:6]]
STALLED = Answer(pieces=BEGUN, then="stall")
LIMIT = 30


def text_of(parts: list[ResponsePart]) -> str:
    return "".join(part.value for part in parts if isinstance(part, TextPart))


async def hung_up(server: NativeServer) -> None:
    await asyncio.wait_for(server.raw.closed.wait(), LIMIT)


async def test_a_loop_over_an_answer_gets_every_part_and_then_the_outcome() -> None:
    async with native(WHOLE) as server, provider(server.base_url) as host:
        answer = host.stream("m", HELLO, RespondOptions(session="c"))
        assert server.requests == []
        parts = [part async for part in answer]
    assert text_of(parts) == "one two three"
    assert answer.outcome.response.output_text == "one two three"
    assert host.usage.totals("c").input == 3


async def test_a_loop_and_a_callback_see_the_same_parts() -> None:
    async with native(WHOLE) as server, provider(server.base_url) as host:
        shown = Shown()
        outcome = await host.respond("m", HELLO, progress=shown)
        parts = [part async for part in host.stream("m", HELLO)]
    assert parts == shown.parts
    assert outcome.status == "completed"


async def test_leaving_the_loop_hangs_up_and_counts_what_came() -> None:
    async with native(STALLED) as server, provider(server.base_url) as host:
        async for part in host.stream("m", HELLO, RespondOptions(session="c")):
            assert part == TextPart("Hel")
            break
        await hung_up(server)
        assert host.usage.totals("c").estimated_turns == 1
    ended = host.usage.of("resp_1")
    assert ended is not None and ended.status == "abandoned"


async def test_an_error_in_the_body_of_a_with_hangs_up_at_once() -> None:
    async with native(STALLED) as server, provider(server.base_url) as host:
        with pytest.raises(ZeroDivisionError):
            async with host.stream("m", HELLO, RespondOptions(session="c")) as answer:
                async for _ in answer:
                    raise ZeroDivisionError
        assert host.usage.totals("c").turns == 1
        await hung_up(server)


async def test_a_stalled_answer_is_stopped_by_its_cancel_event() -> None:
    cancel = asyncio.Event()
    parts = []
    async with native(STALLED) as server, provider(server.base_url) as host:
        with pytest.raises(TurnCancelled) as caught:
            async for part in host.stream("m", HELLO, cancel=cancel):
                parts.append(part)
                asyncio.get_running_loop().call_soon(cancel.set)
        await hung_up(server)
    assert text_of(parts).startswith("Hel")
    assert caught.value.partial is not None
    assert caught.value.partial.output_text.startswith("Hel")
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_cancel_event_that_is_set_sends_nothing() -> None:
    cancel = asyncio.Event()
    cancel.set()
    async with native(WHOLE) as server, provider(server.base_url) as host:
        with pytest.raises(TurnCancelled):
            [part async for part in host.stream("m", HELLO, cancel=cancel)]
    assert server.requests == []


async def test_a_broken_answer_raises_after_its_parts() -> None:
    parts = []
    broken = Answer(pieces=BEGUN, then="reset")
    async with native(broken) as server, provider(server.base_url) as host:
        with pytest.raises((errors.StreamBroken, StreamCut)):
            async for part in host.stream("m", HELLO):
                parts.append(part)
    assert text_of(parts) == "Hello"


async def test_an_answer_is_read_once_and_has_no_outcome_before_its_end() -> None:
    async with native(WHOLE) as server, provider(server.base_url) as host:
        answer = host.stream("m", HELLO)
        with pytest.raises(RuntimeError, match="not ended"):
            _ = answer.outcome
        assert [part async for part in answer]
        with pytest.raises(RuntimeError, match="read once"):
            [part async for part in answer]
        await answer.close()


async def test_an_answer_that_was_closed_before_it_began_is_never_sent() -> None:
    async with native(WHOLE) as server, provider(server.base_url) as host:
        async with host.stream("m", HELLO) as answer:
            pass
        with pytest.raises(RuntimeError):
            [part async for part in answer]
    assert server.requests == []


async def test_an_answer_that_is_dropped_is_closed_by_the_collector() -> None:
    async with native(STALLED) as server, provider(server.base_url) as host:
        parts = host.stream("m", HELLO).__aiter__()
        await anext(parts)
        del parts
        gc.collect()
        await hung_up(server)


# Callbacks.


async def test_an_asynchronous_callback_is_awaited_for_every_part_in_order() -> None:
    seen: list[str] = []

    async def progress(part: ResponsePart) -> None:
        await asyncio.sleep(0)
        assert isinstance(part, TextPart)
        seen.append(part.value)

    async with native(WHOLE) as server, provider(server.base_url) as host:
        outcome = await host.respond("m", HELLO, progress=progress)
    assert "".join(seen) == outcome.response.output_text == "one two three"


async def test_an_asynchronous_callback_that_raises_stops_the_turn() -> None:
    async def progress(part: ResponsePart) -> None:
        raise ZeroDivisionError

    async with native(STALLED) as server, provider(server.base_url) as host:
        with pytest.raises(ZeroDivisionError):
            await host.respond("m", HELLO, RespondOptions(session="c"), progress)
        await hung_up(server)
    assert host.usage.totals("c").turns == 1


async def test_a_callback_that_waits_for_ever_is_stopped_by_the_cancel_event() -> None:
    cancel, waits = asyncio.Event(), asyncio.Event()

    async def progress(part: ResponsePart) -> None:
        waits.set()
        await asyncio.Event().wait()

    async with native(STALLED) as server, provider(server.base_url) as host:
        asking = asyncio.create_task(host.respond("m", HELLO, progress=progress, cancel=cancel))
        await waits.wait()
        cancel.set()
        with pytest.raises(TurnCancelled) as cancelled:
            await asking
        await hung_up(server)
    partial = cancelled.value.partial
    assert partial is not None and partial.output_text.startswith("Hel")


# The guard by itself.


async def test_a_guard_leaves_a_real_cancellation_alone() -> None:
    cancel, waits = asyncio.Event(), asyncio.Event()
    guard = CancelGuard(cancel)

    async def work() -> None:
        waits.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(guard.wait(work()))
    await waits.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await guard.close()


async def test_a_guard_does_not_interrupt_what_it_does_not_wait_for() -> None:
    cancel = asyncio.Event()
    guard = CancelGuard(cancel)
    await guard.wait(asyncio.sleep(0))
    cancel.set()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    with pytest.raises(TurnCancelled):
        await guard.wait(asyncio.sleep(0))
    await guard.close()


async def test_without_an_event_a_guard_only_waits() -> None:
    guard = CancelGuard(None)
    assert await guard.wait(asyncio.sleep(0, "done")) == "done"
    await guard.close()


async def test_batches_are_what_one_read_brought() -> None:
    async def read(answer: AnswerStream) -> Batches:
        yield [TextPart("a"), TextPart("b")]
        yield [TextPart("c")]

    batches: Any = [batch async for batch in AnswerStream(read).batches()]
    assert batches == [[TextPart("a"), TextPart("b")], [TextPart("c")]]

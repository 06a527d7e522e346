"""The provider without an event loop: the same parts, counts and errors.

The servers of a test live in its event loop, so the provider is used in a thread.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any, TypeVar

import pytest

from antiphon.backends.scripted import ScriptedBackend
from antiphon.client import AsyncClient, Client
from antiphon.host import (
    RESPONSES_FOR_ALL,
    Message,
    Provider,
    ProviderSettings,
    RespondOptions,
    SyncAnswerStream,
    SyncProvider,
    TextPart,
)
from antiphon.host.errors import TurnCancelled
from antiphon.host.usage import Update
from antiphon.protocol.codec import encode_sse
from antiphon.protocol.deltas import TextGrew
from antiphon.testing import serve_gateway
from antiphon.wires.host.parts import ResponsePart
from tests.building import COUNTED, STOP, build
from tests.client.native import Answer, native, response
from tests.host.providing import Shown, provider

HELLO = [Message.user("Hello there")]
WHOLE = response(TextGrew("one "), TextGrew("two "), TextGrew("three"), COUNTED, STOP)
BEGUN = [encode_sse(event) for event in build([TextGrew("Hel"), TextGrew("lo"), STOP])[:6]]
STALLED = Answer(pieces=BEGUN, then="stall")
SETTINGS = ProviderSettings(gate=RESPONSES_FOR_ALL)
LIMIT = 30

_T = TypeVar("_T")


async def with_provider(base_url: str, use: Callable[[SyncProvider], _T]) -> _T:
    """Use a synchronous provider in a thread, as a program without an event loop would."""

    def work() -> _T:
        client = Client(base_url=base_url, environ={}, max_retries=0)
        with client, SyncProvider(client, SETTINGS, environ={}) as host:
            return use(host)

    return await asyncio.wait_for(asyncio.to_thread(work), 4 * LIMIT)


async def test_a_plain_loop_gets_what_the_asynchronous_one_gets() -> None:
    async with native(WHOLE) as server, provider(server.base_url) as host:
        expected = [part async for part in host.stream("m", HELLO)]

        def use(host: SyncProvider) -> list[ResponsePart]:
            answer = host.stream("m", HELLO, RespondOptions(session="c"))
            parts = list(answer)
            assert answer.outcome.response.output_text == "one two three"
            assert host.usage.totals("c").input == 3
            return parts

        assert await with_provider(server.base_url, use) == expected


async def test_a_callback_is_called_in_the_callers_thread() -> None:
    threads = set()
    shown = Shown()

    def use(host: SyncProvider) -> str:
        def progress(part: ResponsePart) -> None:
            threads.add(threading.get_ident())
            shown(part)

        outcome = host.respond("m", HELLO, progress=progress)
        assert threads == {threading.get_ident()}
        return outcome.response.output_text

    async with native(WHOLE) as server:
        assert await with_provider(server.base_url, use) == shown.text == "one two three"


async def test_an_asynchronous_callback_is_refused_instead_of_being_lost() -> None:
    async def progress(part: ResponsePart) -> None:
        raise AssertionError

    def use(host: SyncProvider) -> None:
        with pytest.raises(TypeError, match=r"antiphon\.host\.Provider"):
            host.respond("m", HELLO, progress=progress)

    async with native(WHOLE) as server:
        await with_provider(server.base_url, use)


async def test_an_asynchronous_usage_listener_is_awaited_without_an_event_loop() -> None:
    heard: list[str] = []

    async def listen(update: Update) -> None:
        await asyncio.sleep(0)
        heard.append(type(update).__name__)

    def use(host: SyncProvider) -> None:
        host.usage.add_listener(listen)
        host.respond("m", HELLO)
        assert heard == ["TurnStarted", "TurnEnded"]

    async with native(WHOLE) as server:
        await with_provider(server.base_url, use)


async def test_leaving_the_loop_hangs_up_and_counts_what_came() -> None:
    def use(host: SyncProvider) -> int:
        for part in host.stream("m", HELLO, RespondOptions(session="c")):
            assert part == TextPart("Hel")
            break
        return host.usage.totals("c").estimated_turns

    async with native(STALLED) as server:
        assert await with_provider(server.base_url, use) == 1
        await asyncio.wait_for(server.raw.closed.wait(), LIMIT)


async def test_closing_from_another_thread_stops_a_stalled_answer() -> None:
    def use(host: SyncProvider) -> None:
        answer = host.stream("m", HELLO)
        closing: list[threading.Thread] = []
        with pytest.raises(TurnCancelled) as caught:
            for _ in answer:
                if not closing:
                    closing.append(threading.Thread(target=answer.close))
                    closing[0].start()
        closing[0].join(LIMIT)
        assert caught.value.partial is not None

    async with native(STALLED) as server:
        await with_provider(server.base_url, use)
        await asyncio.wait_for(server.raw.closed.wait(), LIMIT)


@pytest.mark.parametrize("way", ["respond", "stream"])
async def test_an_event_set_in_another_thread_stops_a_stalled_answer(way: str) -> None:
    def use(host: SyncProvider) -> None:
        cancel = threading.Event()
        setters: list[threading.Thread] = []

        def progress(part: ResponsePart) -> None:
            if not setters:
                setters.append(threading.Thread(target=cancel.set))
                setters[0].start()

        with pytest.raises(TurnCancelled) as caught:
            if way == "respond":
                host.respond("m", HELLO, RespondOptions(session="c"), progress, cancel)
            else:
                for part in host.stream("m", HELLO, RespondOptions(session="c"), cancel):
                    progress(part)
        setters[0].join(LIMIT)
        assert caught.value.partial is not None
        assert host.usage.totals("c").estimated_turns == 1

    async with native(STALLED) as server:
        await with_provider(server.base_url, use)
        await asyncio.wait_for(server.raw.closed.wait(), LIMIT)


async def test_an_answer_that_is_cancelled_beforehand_is_not_asked_for() -> None:
    def use(host: SyncProvider) -> None:
        cancel = threading.Event()
        cancel.set()
        with pytest.raises(TurnCancelled):
            host.respond("m", HELLO, cancel=cancel)

    async with native(WHOLE) as server:
        await with_provider(server.base_url, use)
    assert server.requests == []


async def test_an_event_that_is_never_set_changes_nothing() -> None:
    def use(host: SyncProvider) -> str:
        return host.respond("m", HELLO, cancel=threading.Event()).response.output_text

    async with native(WHOLE) as server:
        assert await with_provider(server.base_url, use) == "one two three"


async def test_closing_the_iterator_of_a_stream_hangs_up() -> None:
    def use(host: SyncProvider) -> None:
        parts = iter(host.stream("m", HELLO))
        assert next(parts) == TextPart("Hel")
        parts.close()

    async with native(STALLED) as server:
        await with_provider(server.base_url, use)
        await asyncio.wait_for(server.raw.closed.wait(), LIMIT)


INTERRUPTED = """
import sys
from antiphon.client import Client
from antiphon.host import RESPONSES_FOR_ALL, Message, ProviderSettings, SyncProvider

with (
    Client(base_url=sys.argv[1], environ={}, max_retries=0) as client,
    SyncProvider(client, ProviderSettings(gate=RESPONSES_FOR_ALL), environ={}) as provider,
):
    try:
        provider.respond(
            "m", [Message.user("Hello")], progress=lambda part: print("part", flush=True)
        )
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    sys.stdin.read()  # the connection must be closed although the client is not
"""


async def test_ctrl_c_hangs_up_and_leaves_the_client_usable() -> None:
    async with native(STALLED) as server:
        program = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", INTERRUPTED, server.base_url),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        try:
            assert program.stdin is not None
            assert program.stdout is not None
            for _ in "Hel", "lo":
                assert await asyncio.wait_for(program.stdout.readline(), 4 * LIMIT) == b"part\n"
            program.send_signal(signal.SIGINT)
            line = await asyncio.wait_for(program.stdout.readline(), LIMIT)
            assert line == b"interrupted\n"
            await asyncio.wait_for(server.raw.closed.wait(), LIMIT)
            program.stdin.close()
            assert await asyncio.wait_for(program.wait(), LIMIT) == 0
        finally:
            if program.returncode is None:
                program.kill()
                await program.wait()


async def test_a_task_that_ctrl_c_left_behind_ends_without_an_error() -> None:
    """Its caller has gone and retrieves nothing, so an error would be printed."""

    def use(host: SyncProvider) -> BaseException | None:
        answer = host.stream("m", HELLO)
        parts = iter(answer)
        assert [next(parts), next(parts)] == [TextPart("Hel"), TextPart("lo")]
        return host._client.run(leave(answer))

    async def leave(answer: SyncAnswerStream) -> BaseException | None:
        assert answer._batches is not None
        task = asyncio.create_task(answer._following(answer._batches))
        while answer._answer.guard._waiting is not task:  # noqa: ASYNC110  there is no event for it
            await asyncio.sleep(0)
        task.cancel()  # as the portal does when the caller is interrupted
        answer._cancel.set()  # as `close` does right after it
        await asyncio.wait({task})
        return task.exception()

    async with native(STALLED) as server:
        assert await with_provider(server.base_url, use) is None


def test_a_provider_with_the_other_kind_of_client_says_which_it_needs() -> None:
    sync: Any = Client(base_url="http://127.0.0.1:1/v1", environ={})
    other: Any = AsyncClient(base_url="http://127.0.0.1:1/v1", environ={})
    with sync:
        with pytest.raises(TypeError, match="with a Client it is SyncProvider"):
            Provider(sync)
        with pytest.raises(TypeError, match="with an AsyncClient it is Provider"):
            SyncProvider(other)


async def test_an_answer_that_never_began_can_be_closed() -> None:
    def use(host: SyncProvider) -> None:
        with host.stream("m", HELLO) as answer:
            pass
        with pytest.raises(RuntimeError):
            list(answer)

    async with native(WHOLE) as server:
        await with_provider(server.base_url, use)
    assert server.requests == []


async def test_models_and_tokens_are_there_without_an_event_loop() -> None:
    def use(host: SyncProvider) -> Any:
        assert host.count_tokens("echo", "eight words are here and they are counted") > 5
        assert host.tokens.count_text("x", "echo") == 1
        return [model.id for model in host.models(silent=False)]

    async with serve_gateway(ScriptedBackend(models=["echo"])) as gateway:
        assert await with_provider(gateway.base_url, use) == ["echo"]


async def test_a_provider_can_be_closed_after_its_client() -> None:
    def work() -> None:
        client = Client(base_url="http://127.0.0.1:1/v1", environ={})
        host = SyncProvider(client, SETTINGS, environ={})
        answer = host.stream("m", HELLO)
        client.close()
        answer.close()
        host.close()

    await asyncio.to_thread(work)

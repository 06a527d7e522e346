"""The connection to an editor: one for all, bounded, cancelled, opened again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from antiphon.backends import host_link
from antiphon.backends.host import HostBackend
from antiphon.plans.plan import Plan
from antiphon.protocol.deltas import Delta, Stopped, TextGrew
from antiphon.protocol.errors import BackendError, NotBuilt
from antiphon.transport.http import Limits, Sending
from antiphon.wires.host.answers import read_answer
from tests.faults.house import PATIENCE
from tests.host_upstream import CUT, EditorDouble, Json, Raw, Refuse, Step, part, serve_editor, text
from tests.playing import Collected, play_into, said

HELLO = {"type": "message", "role": "user", "content": "Hi."}
LONG = "x" * 64 * 1024
MARK = {"type": "data", "mime": "stateful_marker", "data": "A" * 128 * 1024}
LONG_MARK = MARK | {"data": "A" * 1024 * 1024}
MANY = 100


def plan(**fields: Any) -> Plan:
    return Plan(**{"model": "gpt-5", "items": [HELLO], **fields})


@asynccontextmanager
async def editing(
    tmp_path: Path, **settings: Any
) -> AsyncIterator[tuple[EditorDouble, HostBackend]]:
    async with asyncio.timeout(2 * PATIENCE), serve_editor(tmp_path / "editor.json") as editor:
        given: Any = {"limits": Limits(connect=PATIENCE)} | settings
        backend = HostBackend(editor.path, **given)
        try:
            yield editor, backend
        finally:
            await backend.close()


async def failure(backend: HostBackend) -> BackendError:
    with pytest.raises(BackendError) as caught:
        await said(backend, plan())
    return caught.value


def words(deltas: Sequence[Delta]) -> str:
    return "".join(one.text for one in deltas if isinstance(one, TextGrew))


class SlowSink(Collected):
    """A sink that takes one batch, and then nothing until it may go on."""

    def __init__(self, may_go_on: asyncio.Event) -> None:
        super().__init__()
        self._may_go_on = may_go_on

    def push(self, batch: Sequence[Delta]) -> bool:
        super().push(batch)
        return False

    async def drained(self) -> None:
        await self._may_go_on.wait()


def long_answer(mark: Json = MARK) -> list[Step]:
    """Return an answer of 20 MB, of which a third is text: a text has a limit of its own."""
    return [[part(LONG), mark] for _ in range(MANY)]


async def until_blocked(editor: EditorDouble) -> int:
    """Wait until the editor can write no more; return how many bytes it has written."""
    before = -1
    while editor.sent_bytes != before:
        before = editor.sent_bytes
        for _ in range(1000):  # a piece would be read in a few turns of the loop
            await asyncio.sleep(0)
    return before


# Readers that are slow.


async def test_an_editor_waits_for_a_slow_reader_and_nothing_is_lost(tmp_path: Path) -> None:
    async with editing(tmp_path) as (editor, backend):
        may_go_on = asyncio.Event()
        sink = SlowSink(may_go_on)
        editor.play(long_answer(LONG_MARK))
        reading = asyncio.create_task(play_into(sink, backend, plan()))
        await sink.has_more.wait()
        sent = await until_blocked(editor)
        may_go_on.set()
        await reading

    assert sent < 60_000_000  # of 110 MB; a part of that is in the buffers of the system
    assert words(sink.deltas) == LONG * MANY
    assert sink.deltas[-1] == Stopped("stop")


async def test_a_reader_that_holds_up_others_loses_its_answer(tmp_path: Path) -> None:
    async with editing(tmp_path, stall=0.2) as (editor, backend):
        sink = SlowSink(asyncio.Event())
        held = asyncio.Event()
        editor.play(long_answer(), [part("Two."), held])
        slow = asyncio.create_task(play_into(sink, backend, plan()))
        await sink.has_more.wait()
        fast = asyncio.create_task(said(backend, plan()))
        await editor.cancels.acquire()
        held.set()
        assert words(await fast) == "Two."
        slow.cancel()

    assert len(editor.requests) == 2


async def test_the_error_of_a_slow_reader_comes_after_what_it_has_read(tmp_path: Path) -> None:
    async with editing(tmp_path, stall=0.2) as (editor, backend):
        may_go_on = asyncio.Event()
        sink = SlowSink(may_go_on)
        editor.play(long_answer(), text("Two."))
        slow = asyncio.create_task(play_into(sink, backend, plan()))
        await sink.has_more.wait()
        assert words(await said(backend, plan())) == "Two."
        may_go_on.set()
        with pytest.raises(BackendError) as caught:
            await slow

    assert (caught.value.code, caught.value.status) == ("reader_too_slow", 408)
    assert 0 < len(words(sink.deltas)) < MANY * len(LONG)


async def test_a_slow_reader_alone_may_take_its_time(tmp_path: Path) -> None:
    async with editing(tmp_path, stall=0.02) as (editor, backend):
        may_go_on = asyncio.Event()
        sink = SlowSink(may_go_on)
        editor.play(long_answer())
        reading = asyncio.create_task(play_into(sink, backend, plan()))
        await sink.has_more.wait()
        await asyncio.sleep(0.3)  # the time that it takes is what is tested
        may_go_on.set()
        await reading

    assert words(sink.deltas) == LONG * MANY


# Seats and ends.


async def test_a_request_waits_for_a_seat_that_a_cancelled_one_had(tmp_path: Path) -> None:
    async with editing(tmp_path) as (editor, backend):
        editor.max_requests = 1
        sink = Collected()
        editor.play([part("One"), asyncio.Event()], text("Two."))
        first = asyncio.create_task(play_into(sink, backend, plan()))
        await sink.has_more.wait()
        second = asyncio.create_task(said(backend, plan()))
        await asyncio.sleep(0)
        assert len(editor.requests) == 1
        first.cancel()
        assert words(await second) == "Two."
        assert words(await said(backend, plan())) == "Hi."

    assert editor.cancelled == [1]


async def test_a_request_that_waits_for_a_seat_can_be_cancelled(tmp_path: Path) -> None:
    async with editing(tmp_path) as (editor, backend):
        editor.max_requests = 1
        sink = Collected()
        held = asyncio.Event()
        editor.play([part("One"), held])
        first = asyncio.create_task(play_into(sink, backend, plan()))
        await sink.has_more.wait()
        second = asyncio.create_task(said(backend, plan()))
        await asyncio.sleep(0)
        second.cancel()
        held.set()
        await first
        assert words(await said(backend, plan())) == "Hi."

    assert editor.cancelled == []


async def test_closing_ends_what_runs(tmp_path: Path) -> None:
    async with editing(tmp_path) as (editor, backend):
        sink = Collected()
        editor.play([part("One"), asyncio.Event()])
        running = asyncio.create_task(play_into(sink, backend, plan()))
        await sink.has_more.wait()
        await backend.close()
        with pytest.raises(BackendError) as caught:
            await running

    assert caught.value.code == "upstream_closed"
    assert words(sink.deltas) == "One"


async def test_all_answers_of_a_connection_that_ends_fail_with_what_came(tmp_path: Path) -> None:
    async with editing(tmp_path) as (editor, backend):
        sinks = [Collected() for _ in range(5)]
        all_run = asyncio.Event()
        held: list[list[Step]] = [[part(f"{n}"), asyncio.Event()] for n in range(4)]
        editor.play(*held, [part("4"), all_run, CUT])
        runs = [asyncio.create_task(play_into(sink, backend, plan())) for sink in sinks]
        for sink in sinks:
            await sink.has_more.wait()
        all_run.set()
        errors = await asyncio.gather(*runs, return_exceptions=True)

    assert [getattr(error, "code", None) for error in errors] == ["upstream_closed"] * 5
    assert sorted(words(sink.deltas) for sink in sinks) == ["0", "1", "2", "3", "4"]


async def test_a_bug_in_reading_ends_the_requests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A planted one: without a reader, they would wait for ever."""

    def read_with_bug(line: bytes) -> Any:
        if b"Boom" in line:
            raise ZeroDivisionError
        return read_answer(line)

    monkeypatch.setattr(host_link, "read_answer", read_with_bug)
    async with editing(tmp_path) as (editor, backend):
        editor.play([part("Boom"), asyncio.Event()], text("Again."))
        error = await failure(backend)
        assert words(await said(backend, plan())) == "Again."

    assert error.code == "upstream_closed"


async def test_late_parts_of_a_cancelled_request_are_not_those_of_another(tmp_path: Path) -> None:
    late = b'{"type":"parts","id":1,"parts":[{"type":"text","value":"late"}]}\n'
    async with editing(tmp_path) as (editor, backend):
        sink = Collected()
        editor.play([part("One"), asyncio.Event()], [Raw(late), part("Two."), Raw(late)])
        first = asyncio.create_task(play_into(sink, backend, plan()))
        await sink.has_more.wait()
        first.cancel()
        await editor.cancels.acquire()
        deltas = await said(backend, plan())

    assert words(deltas) == "Two."


# Opening.


async def test_a_failed_opening_is_tried_again(tmp_path: Path) -> None:
    async with editing(tmp_path) as (editor, backend):
        editor.path.unlink()
        assert (await failure(backend)).code == "upstream_unreachable"
        editor.write_file()
        assert words(await said(backend, plan())) == "Hi."


@pytest.mark.parametrize(
    ("greeting", "code"),
    [
        ([Raw(b"SSH-2.0-OpenSSH_9.9\r\n")], "upstream_invalid_response"),
        ([Raw(b'{"type":"counted","id":1,"tokens":[]}\n')], "upstream_invalid_response"),
        (
            [
                Raw(
                    b'{"type":"welcome","version":2,"name":"","software":"","max_line_bytes":1,'
                    b'"max_requests":1}\n'
                )
            ],
            "upstream_invalid_response",
        ),
        ([Refuse("unsupported_version")], "upstream_refused"),
        ([Refuse("no_consent")], "upstream_auth"),
        ([CUT], "upstream_closed"),
    ],
)
async def test_an_editor_that_greets_in_another_way(
    tmp_path: Path, greeting: list[Step], code: str
) -> None:
    async with editing(tmp_path) as (editor, backend):
        editor.greeting = greeting
        found = await failure(backend)

    assert found.code == code or (code == "upstream_closed" and found.status == 503)


# Lists and counts.


async def test_models_have_what_the_editor_states(tmp_path: Path) -> None:
    async with editing(tmp_path) as (_, backend):
        first, second = await backend.models()

    assert (first.id, first.display_name, first.max_input_tokens) == ("gpt-5", "GPT-5", 100_000)
    assert first.context_length == 100_000  # not what the bundled table knows of the name
    assert first.modalities == ("text", "image") and first.supports_tools is True
    assert (second.modalities, second.supports_tools, second.context_length) == (None, None, None)


@pytest.mark.parametrize("models", [None, [{"name": "without id"}]])
async def test_a_list_that_is_none_is_an_error(tmp_path: Path, models: Any) -> None:
    async with editing(tmp_path) as (editor, backend):
        editor.models = models
        with pytest.raises(BackendError) as caught:
            await backend.models()
        editor.models = []
        assert await backend.models() == []

    assert caught.value.code == "upstream_invalid_response"


async def test_a_model_has_no_limits_that_cannot_be_some(tmp_path: Path) -> None:
    limits = {"context_window": 10**30, "max_input_tokens": -5, "max_output_tokens": 0}
    async with editing(tmp_path) as (editor, backend):
        editor.models = [{"id": "m", "name": "", "family": ""} | limits]
        editor.models += [{"id": "", "name": "without id", "family": ""}]
        (model,) = await backend.models()

    assert (model.id, model.context_length) == ("m", None)
    assert (model.max_input_tokens, model.max_output_tokens) == (None, None)


@pytest.mark.parametrize("tokens", [-1, 10**30])
async def test_a_count_that_cannot_be_one_is_an_error(tmp_path: Path, tokens: int) -> None:
    async with editing(tmp_path) as (editor, backend):
        editor.tokens = tokens
        with pytest.raises(BackendError) as caught:
            await backend.count(plan())

    assert caught.value.code == "upstream_invalid_response"


async def test_tokens_are_the_sum_over_the_messages(tmp_path: Path) -> None:
    async with editing(tmp_path) as (editor, backend):
        tokens = await backend.count(plan(instructions="Be brief."))

    (asked,) = editor.counts
    assert len(asked["contents"]) == 2 and asked["model"] == "gpt-5"
    assert tokens is not None and tokens > 0


async def test_other_paths_are_not_answered(tmp_path: Path) -> None:
    with pytest.raises(NotBuilt):
        HostBackend(tmp_path / "editor.json").relay(
            "/embeddings", b"{}", is_streamed=False, sending=Sending()
        )


async def test_requests_that_fail_together_have_errors_of_their_own(tmp_path: Path) -> None:
    async with editing(tmp_path) as (editor, backend):
        editor.path.unlink()
        unopened = await asyncio.gather(*(failure(backend) for _ in range(3)))
        editor.write_file()
        nonsense: list[Step] = [Raw(b"nonsense\n")]
        editor.play([asyncio.Event()], [asyncio.Event()], nonsense)
        broken = await asyncio.gather(*(failure(backend) for _ in range(3)))

    assert {error.code for error in unopened} == {"upstream_unreachable"}
    assert {error.status for error in unopened} == {503}
    assert {error.code for error in broken} == {"upstream_invalid_response"}
    assert len({id(error) for error in [*unopened, *broken]}) == 6

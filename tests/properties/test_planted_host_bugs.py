"""Planted bugs in the wire of an editor and its connection: the tests notice each of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from antiphon.backends import host_inbox, host_link
from antiphon.protocol.deltas import Stopped
from antiphon.protocol.errors import BackendError
from antiphon.wires.host import answers, history, stream, thoughts
from antiphon.wires.host.messages import ModelsChanged
from tests.backends import test_host
from tests.host_upstream import CUT, Raw, part, text
from tests.playing import Collected, play_into, said
from tests.wires.host import test_request, test_stream

Patch = pytest.MonkeyPatch


# In the wire.


def lose_state_of_thoughts(patch: Patch) -> None:
    patch.setattr(stream.HostStream, "_end_thought", lambda self: setattr(self, "_thought", None))


def end_cut_answers_cleanly(patch: Patch) -> None:
    patch.setattr(stream.HostStream, "end", lambda self, error: [Stopped("stop")])


def drop_unknown_parts(patch: Patch) -> None:
    plain = answers._read_parts

    def read(request_id: Any, line: bytes) -> Any:
        found = plain(request_id, line)
        if isinstance(found, answers.Unreadable):
            return found
        known = [one for one in found.parts if not isinstance(one, str)]
        return answers.LooseParts(request_id, known)

    patch.setattr(answers, "_read_parts", read)


def round_numbers(patch: Patch) -> None:
    patch.setattr(history, "_decode_object", msgspec.json.Decoder(dict[str, Any]).decode)


def order_results_by_arrival(patch: Patch) -> None:
    plain = history._MessageWriter._add

    def add(self: Any, role: Any, parts: Any) -> None:
        plain(self, role, [*reversed(parts)] if parts and "Result" in str(parts[0]) else parts)

    patch.setattr(history._MessageWriter, "_add", add)


def give_thoughts_to_any_model(patch: Patch) -> None:
    plain = thoughts._decode
    patch.setattr(thoughts, "_decode", lambda data: msgspec.structs.replace(plain(data), model="m"))


WIRE_BUGS: list[tuple[Callable[[Patch], None], Callable[[], None]]] = [
    (lose_state_of_thoughts, test_stream.test_state_of_a_thought_follows_its_last_piece),
    (end_cut_answers_cleanly, test_stream.test_an_answer_that_is_cut_keeps_what_came),
    (drop_unknown_parts, test_stream.test_an_unknown_part_is_named_and_the_others_are_read),
    (round_numbers, test_request.test_arguments_keep_their_values_and_broken_ones_are_quoted),
    (
        order_results_by_arrival,
        test_request.test_an_answer_is_one_message_in_its_order_and_results_follow,
    ),
    (
        give_thoughts_to_any_model,
        test_request.test_a_thought_goes_back_as_it_came_to_its_own_model_only,
    ),
]


@pytest.mark.parametrize(
    ("plant", "check"), WIRE_BUGS, ids=[plant.__name__ for plant, _ in WIRE_BUGS]
)
def test_a_bug_in_the_wire_is_noticed(
    plant: Callable[[Patch], None], check: Callable[[], None], monkeypatch: Patch
) -> None:
    check()
    plant(monkeypatch)

    with pytest.raises(AssertionError):
        check()


# In the connection.


def never_stop_reading(patch: Patch) -> None:
    patch.setattr(host_inbox.Inbox, "is_full", False)


def never_cancel(patch: Patch) -> None:
    patch.setattr(host_link.HostLink, "_cancel", lambda self, inbox: None)


def skip_lines_that_are_no_message(patch: Patch) -> None:
    plain = host_link._message_of

    def read(line: Any) -> Any:
        message = plain(line)
        return ModelsChanged() if isinstance(message, answers.Unreadable) else message

    patch.setattr(host_link, "_message_of", read)


def fail_before_what_came(patch: Patch) -> None:
    plain = host_inbox.Inbox.fail

    def fail(self: Any, fault: BackendError) -> None:
        self._waiting.clear()
        plain(self, fault)

    patch.setattr(host_inbox.Inbox, "fail", fail)


def never_send_again(patch: Patch) -> None:
    unused = property(lambda self: False, lambda self, value: None)
    patch.setattr(host_link.HostLink, "is_used", unused, raising=False)


async def check_cancel(tmp_path: Path) -> None:
    async with test_host.editing(tmp_path) as (editor, backend):
        sink = Collected()
        editor.play([part("One"), asyncio.Event()])
        running = asyncio.create_task(play_into(sink, backend, test_host.plan()))
        await sink.has_more.wait()
        running.cancel()
        await said(backend, test_host.plan())  # the editor reads the cancellation before this
        assert editor.cancelled == [1]


async def check_garbage(tmp_path: Path) -> None:
    async with test_host.editing(tmp_path) as (editor, backend):
        editor.play([part("Half"), Raw(b"nonsense\n"), part(" and half")])
        results = await asyncio.gather(said(backend, test_host.plan()), return_exceptions=True)
        assert isinstance(results[0], BackendError)


async def check_order(tmp_path: Path) -> None:
    async with test_host.editing(tmp_path) as (editor, backend):
        # All in one piece, so that text and end are read together.
        lines = b'{"type":"parts","id":1,"parts":[{"type":"text","value":"Half"}]}\nnonsense\n'
        editor.play([Raw(lines)])
        sink = Collected()
        await asyncio.gather(play_into(sink, backend, test_host.plan()), return_exceptions=True)
        assert test_host.words(sink.deltas) == "Half"


async def check_again(tmp_path: Path) -> None:
    async with test_host.editing(tmp_path) as (editor, backend):
        await said(backend, test_host.plan())
        editor.play([CUT], text("Now."))
        found = await asyncio.gather(said(backend, test_host.plan()), return_exceptions=True)
        assert not isinstance(found[0], BackendError)


LINK_BUGS: list[tuple[Callable[[Patch], None], Callable[[Path], Awaitable[None]]]] = [
    (
        never_stop_reading,
        test_host.test_an_editor_waits_for_a_slow_reader_and_nothing_is_lost,
    ),
    (never_cancel, check_cancel),
    (skip_lines_that_are_no_message, check_garbage),
    (fail_before_what_came, check_order),
    (never_send_again, check_again),
]


@pytest.mark.parametrize(
    ("plant", "check"), LINK_BUGS, ids=[plant.__name__ for plant, _ in LINK_BUGS]
)
async def test_a_bug_in_the_connection_is_noticed(
    plant: Callable[[Patch], None],
    check: Callable[[Path], Awaitable[None]],
    monkeypatch: Patch,
    tmp_path: Path,
) -> None:
    await check(tmp_path)
    plant(monkeypatch)

    with pytest.raises(AssertionError):
        await check(tmp_path)

"""Planted bugs in the Messages reader and writer: the tests notice each of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from antiphon.protocol.deltas import NativeState, TextGrew
from antiphon.protocol.items import Item
from antiphon.protocol.native_state import native_of
from antiphon.wires.messages import blocks, conversation, runs, stream, usage
from tests.wires.messages import answers, test_cache, test_conversation, test_stream

Patch = pytest.MonkeyPatch


def lose_signatures(patch: Patch) -> None:
    plain = blocks.ThinkingBlock.grow

    def grow(self: Any, growth: Any, data: bytes) -> Any:
        return plain(self, msgspec.structs.replace(growth, signature=None), data)

    patch.setattr(blocks.ThinkingBlock, "grow", grow)


def add_usage(patch: Patch) -> None:
    plain = usage.SpentReader.take

    def take(self: Any, report: dict[str, Any]) -> bool:
        before = dict(self._counts)
        changed = plain(self, report)
        self._counts = {name: count + before.get(name, 0) for name, count in self._counts.items()}
        return changed

    patch.setattr(usage.SpentReader, "take", take)


def ignore_errors(patch: Patch) -> None:
    patch.setattr(
        stream.MessagesStream, "_take_event", _skipping(stream.MessagesStream._take_event)
    )


def _skipping(plain: Callable[..., None]) -> Callable[..., None]:
    def take(self: Any, data: bytes) -> None:
        if b'"type":"error"' not in data:
            plain(self, data)

    return take


def end_cut_streams_cleanly(patch: Patch) -> None:
    patch.setattr(stream.MessagesStream, "end", lambda self, error=None: self._give())


def accept_any_start(patch: Patch) -> None:
    patch.setattr(stream.MessagesStream, "_start", lambda self, message: None)


def guess_at_texts(patch: Patch) -> None:
    """Take everything up to the last quote for text, without a look at what comes after."""

    def read(self: Any, lines: bytes) -> list[str] | None:
        found = lines.partition(b'"text":"')[2].rpartition(b'"')[0]
        return [found.decode()] if found and self._head else None

    patch.setattr(runs.DeltaRun, "read", read)


def order_results_by_arrival(patch: Patch) -> None:
    plain = conversation._Writer._act

    def act(self: Any, turn: Any) -> None:
        plain(self, turn)
        if turn.calls:
            self.messages[-1]["content"].reverse()

    patch.setattr(conversation._Writer, "_act", act)


def write_thinking_anew(patch: Patch) -> None:
    def native(item: Item, wire: str, account: str) -> NativeState | None:
        state = native_of(item, wire, account)
        if state is None:
            return None
        data = msgspec.json.encode(msgspec.json.decode(state.data))
        return msgspec.structs.replace(state, data=data)

    patch.setattr(conversation, "native_of", native)


def check_thinking() -> None:
    seen = test_stream.read([answers.stream(answers.TWINS["thinking"])])[1]
    assert any(isinstance(one, NativeState) for one in seen)


def check_error() -> None:
    test_stream.test_an_error_in_the_stream_keeps_what_came_before_it("overloaded_error", 503)


def check_text() -> None:
    whole = answers.TWINS["text"]
    pieces = [piece + b"\n\n" for piece in answers.stream(whole).split(b"\n\n") if piece]
    seen = test_stream.read(pieces)[1]
    said = "".join(one.text for one in seen if isinstance(one, TextGrew))
    assert said == whole["content"][0]["text"]


BUGS: list[tuple[Callable[[Patch], None], Callable[[], None]]] = [
    (lose_signatures, check_thinking),
    (add_usage, test_stream.test_later_totals_replace_earlier_ones),
    (ignore_errors, check_error),
    (end_cut_streams_cleanly, test_stream.test_a_cut_stream_is_a_fault_after_its_text),
    (accept_any_start, test_stream.test_a_second_message_in_one_stream_is_a_fault),
    (guess_at_texts, check_text),
    (
        order_results_by_arrival,
        test_conversation.test_results_come_first_in_one_message_in_the_order_of_their_calls,
    ),
    (write_thinking_anew, test_conversation.test_thinking_goes_back_byte_for_byte_before_its_call),
]


@pytest.mark.parametrize(("plant", "check"), BUGS, ids=[plant.__name__ for plant, _ in BUGS])
def test_a_planted_bug_is_noticed(
    plant: Callable[[Patch], None], check: Callable[[], None], monkeypatch: Patch
) -> None:
    check()
    plant(monkeypatch)

    with pytest.raises(AssertionError):
        check()


def test_the_limit_of_breakpoints_is_noticed(monkeypatch: Patch) -> None:
    monkeypatch.setattr("antiphon.wires.messages.cache.MAX_BREAKPOINTS", 6)

    with pytest.raises(AssertionError):
        test_cache.test_of_too_many_the_last_four_are_kept()

"""Fragments of calls find their call."""

from __future__ import annotations

import pytest

from antiphon.protocol.deltas import CallGrew, CallOpened
from antiphon.protocol.errors import BackendError
from antiphon.wires.chat.calls import CallReader

Fragment = tuple[int | None, str | None, str | None, str]


def calls(*fragments: Fragment) -> list[tuple[str, str | None, str]]:
    """Return name, id and arguments of each call that the fragments make."""
    reader = CallReader()
    made: dict[int, tuple[str, str | None, str]] = {}
    for fragment in fragments:
        for delta in reader.take(*fragment):
            if isinstance(delta, CallOpened):
                assert delta.key not in made
                made[delta.key] = (delta.name, delta.call_id, "")
            elif isinstance(delta, CallGrew):
                name, call_id, arguments = made[delta.key]
                made[delta.key] = (name, call_id, arguments + delta.arguments)
    reader.check_named()
    return list(made.values())


def test_an_index_leads_to_its_call() -> None:
    assert calls(
        (0, "a", "f", ""), (1, "b", "g", "{"), (0, None, None, "{}"), (1, None, None, "}")
    ) == [("f", "a", "{}"), ("g", "b", "{}")]


def test_id_and_name_in_every_chunk_are_one_call() -> None:
    assert calls((0, "a", "f", ""), (0, "a", "f", '{"x"'), (0, "a", "f", ":1}")) == [
        ("f", "a", '{"x":1}')
    ]


def test_a_new_id_in_every_chunk_is_one_call_if_the_name_comes_once() -> None:
    assert calls((0, "a", "f", "{"), (0, "b", None, "}")) == [("f", "a", "{}")]


def test_another_id_and_name_at_the_same_index_is_another_call() -> None:
    assert calls((0, "a", "f", "{}"), (0, "b", "f", "{}")) == [("f", "a", "{}"), ("f", "b", "{}")]


def test_without_ids_a_whole_call_is_followed_by_another() -> None:
    assert calls((None, None, "f", "{}"), (None, None, "f", "{}")) == [
        ("f", None, "{}"),
        ("f", None, "{}"),
    ]


def test_without_ids_a_repeated_name_goes_on_with_a_call_that_is_not_whole() -> None:
    assert calls((None, None, "f", ""), (None, None, "f", '{"x"'), (None, None, "f", ":1}")) == [
        ("f", None, '{"x":1}')
    ]


def test_a_name_said_again_after_the_arguments_opens_nothing() -> None:
    assert calls((0, "a", "f", "{}"), (0, None, "f", "")) == [("f", "a", "{}")]


def test_a_whole_call_said_twice_is_one() -> None:
    assert calls((0, "a", "f", '{"x":1}'), (0, "a", "f", '{"x":1}')) == [("f", "a", '{"x":1}')]


def test_two_whole_calls_under_one_id_are_two_calls() -> None:
    one, two = ("f", "a", '{"x":1}'), ("f", "a", '{"x":2}')
    assert calls((0, *one[1::-1], one[2]), (0, *two[1::-1], two[2])) == [one, two]
    assert calls((None, *one[1::-1], one[2]), (None, *two[1::-1], two[2])) == [one, two]
    assert calls((0, *one[1::-1], one[2]), (1, *two[1::-1], two[2])) == [one, two]


def test_another_name_under_one_id_is_another_call() -> None:
    assert calls((0, "a", "f", "{}"), (0, "a", "g", "{}")) == [("f", "a", "{}"), ("g", "a", "{}")]


def test_a_whole_call_said_twice_in_other_words_is_one() -> None:
    assert calls((0, "a", "f", '{"x":1}'), (0, "a", "f", '{ "x" : 1 }')) == [("f", "a", '{"x":1}')]


def test_arguments_wait_for_the_name() -> None:
    assert calls((0, "a", None, '{"x"'), (0, None, None, ":1"), (0, None, "f", "}")) == [
        ("f", "a", '{"x":1}')
    ]


def test_an_empty_fragment_is_nothing() -> None:
    assert calls((0, None, None, ""), (None, None, None, "")) == []


def test_a_call_that_never_gets_a_name_is_a_fault() -> None:
    with pytest.raises(BackendError, match="without a name"):
        calls((0, "a", None, "{}"))


def test_calls_without_end_are_a_fault() -> None:
    with pytest.raises(BackendError, match="more than 1024"):
        calls(*((n, f"c{n}", "f", "{}") for n in range(1025)))


def test_it_knows_a_call_that_is_cut() -> None:
    reader = CallReader()
    reader.take(0, "a", "f", "{")
    assert reader.is_cut
    reader.take(0, None, None, "}")
    assert not reader.is_cut

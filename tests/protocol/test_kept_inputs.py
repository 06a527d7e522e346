"""Inputs that were read before: the same values, the same errors, and nothing of others."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any, Final

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.protocol.body import decode_body
from antiphon.protocol.checked_json import MAX_NODES
from antiphon.protocol.errors import InvalidRequest
from antiphon.protocol.items import Item
from antiphon.protocol.kept_inputs import InputList, KeptInputs, OwnInputs

_COMPACT: Final = (",", ":")
_PYTHON: Final = (", ", ": ")


def _item(number: int, size: int = 3000) -> Item:
    text = f'{number} \u00e9\\"\n[x], ' + "line " * (size // 5)
    return {"type": "message", "role": "user", "content": text, "n": [number, {"a": None}]}


def _items(count: int, size: int = 3000) -> list[Item]:
    return [_item(number, size) for number in range(count)]


def _encode(value: object, separators: tuple[str, str] | None = _COMPACT) -> bytes:
    indent = 1 if separators is None else None
    return json.dumps(value, separators=separators, indent=indent).encode()


def _thread_of(data: bytes, inputs: OwnInputs) -> Any:
    body = decode_body(data, inputs)
    assert isinstance(body, dict)
    return body["input"].thread


def _outcome(data: bytes, inputs: OwnInputs | None) -> object:
    try:
        return decode_body(data, inputs)
    except InvalidRequest as error:
        return (error.code, error.message)


def test_an_input_that_was_read_before_has_the_same_items() -> None:
    inputs = KeptInputs().of("alice")
    first = _thread_of(_encode({"input": _items(40), "model": "m"}), inputs)
    second = _thread_of(_encode({"input": [*_items(39), _item(77)], "model": "m"}), inputs)

    assert 30 < first.lasting == second.lasting < 40
    assert all(one is two for one, two in zip(first[: first.lasting], second, strict=False))
    assert list(second) == [*_items(39), _item(77)]


def test_a_longer_input_knows_what_was_learned_of_the_shorter() -> None:
    inputs = KeptInputs().of("alice")
    first = _thread_of(_encode({"input": _items(40)}), inputs)
    first.learn("key", "learned")
    second = _thread_of(_encode({"input": _items(60)}), inputs)

    assert second.lasting > first.lasting
    assert second.recall("key") == "learned"


def test_an_input_that_differs_in_its_middle_knows_nothing_of_the_other() -> None:
    inputs = KeptInputs().of("alice")
    first = _thread_of(_encode({"input": _items(40)}), inputs)
    first.learn("key", "learned")
    items = _items(40)
    items[20] = _item(99)
    second = _thread_of(_encode({"input": items}), inputs)

    assert list(second) == items
    assert second[0] is first[0]
    assert second.recall("key") is None


def test_nothing_of_one_owner_is_found_for_another() -> None:
    kept = KeptInputs()
    data = _encode({"input": _items(40)})
    first = _thread_of(data, kept.of("alice"))
    first.learn("key", "learned")
    second = _thread_of(data, kept.of("bob"))

    assert list(second) == list(first)
    assert second.recall("key") is None
    assert not any(one is two for one, two in zip(first, second, strict=True))


def test_only_as_much_is_kept_as_there_is_room_for() -> None:
    inputs = KeptInputs(room=2_700_000).of("alice")
    for name in ("a", "b", "c"):
        data = _encode({"input": [{"name": name}, *_items(40)]})
        _thread_of(data, inputs).learn("key", name)
    found = [
        _thread_of(_encode({"input": [{"name": name}, *_items(40)]}), inputs).recall("key")
        for name in ("c", "b", "a")
    ]

    assert found == ["c", "b", None]


def test_what_is_larger_than_the_room_is_not_kept() -> None:
    inputs = KeptInputs(room=100_000).of("alice")
    data = _encode({"input": _items(40)})
    _thread_of(data, inputs).learn("key", "learned")

    assert _thread_of(data, inputs).recall("key") is None


@pytest.mark.parametrize("value", ["{}", "[[]]", '{"a":0}', "1.5", '"ab"', '{"a":[{}]}'])
def test_many_small_values_take_no_more_than_the_room(value: str) -> None:
    room = 5_000_000
    inputs = KeptInputs(room)
    body = b'{"input":[%b{}]}' % (b'{"n":[%b]},' % ",".join([value] * 400).encode() * 30)

    tracemalloc.start()
    try:
        for owner in range(24):
            decode_body(body.replace(b'"n"', b'"n%d"' % owner), inputs.of("alice"))
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert inputs.count
    assert taken < room


@pytest.mark.parametrize("mark", ["\U0001f600", "\u2019", "\u00e9", "\u4e2d" * 400])
@pytest.mark.parametrize("is_escaped", [False, True])
def test_texts_beyond_ascii_take_no_more_than_the_room(mark: str, is_escaped: bool) -> None:
    """One character makes a text four times as wide; to encode it leaves its UTF-8 with it."""
    room = 5_000_000
    inputs = KeptInputs(room)

    tracemalloc.start()
    try:
        for number in range(24):
            items = [{"n": number, "text": "word " * 600 + mark} for _ in range(60)]
            body = json.dumps({"input": items}, ensure_ascii=is_escaped).encode()
            thread = _thread_of(body, inputs.of("alice"))
            thread.learn("key", [msgspec.json.encode(item) for item in thread])
            del items, body, thread
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert inputs.count
    assert taken < room


def test_a_short_input_stays_a_list() -> None:
    inputs = KeptInputs().of("alice")
    for body in ({"input": _items(2), "pad": "x" * 99_000}, {"input": _items(9, 100)}):
        found = decode_body(_encode(body), inputs)
        assert found == body
        assert isinstance(found, dict)
        assert not isinstance(found["input"], InputList)


_LONG: Final = _encode(_items(40))
_FORMS: Final = [
    b'{"input":%b}',
    b'{"metadata":{"input":%b},"input":null}',
    b'{"input":null,"metadata":{"input":%b}}',
    b'{"metadata":{"input":%b}}',
    b'{"x\\"input":%b}',
    b'{"inp\\u0075t":%b}',
    b'{"metadata":["input",%b],"input":"x"}',
    b'{"input":%b,"input":null}',
    b'{"input":null,"input":%b}',
    b'{"input":%b,"inp\\u0075t":null}',
    b'{"input":%b,"input":[{"a":1}]}',
    b'{"input":%b,"a":1,"a":2}',
    b'{"a":1,"input":%b,"a":2}',
    b'["input",%b]',
    b'{"input":%b',
    b'{"input":%b}}',
    b'{"input" : %b , "tools": [ ]}',
]


@pytest.mark.parametrize("form", _FORMS)
@pytest.mark.parametrize(
    "end", [b"", b",{}", b",", b", ", b",1", b',{"a":1,"a":2}', b",{]", b',{"\\ud800":1}', b",[]"]
)
def test_a_known_input_changes_nothing_of_what_is_read(form: bytes, end: bytes) -> None:
    inputs = KeptInputs().of("alice")
    decode_body(_encode({"input": _items(40)}), inputs)
    data = form % (_LONG[:-1] + end + b"]")
    for _ in range(2):
        assert _outcome(data, inputs) == _outcome(data, None)


def test_known_items_count_as_values() -> None:
    inputs = KeptInputs().of("alice")
    many: Item = {"n": list(range(MAX_NODES - 3500))}
    items = [many, *_items(40)]
    decode_body(_encode({"input": items}), inputs)
    for extra in (3000, 4000):
        data = _encode({"input": items, "extra": list(range(extra))})
        assert _outcome(data, inputs) == _outcome(data, None)


_EDIT: Final = st.tuples(
    st.sampled_from(["add", "change", "cut", "insert"]), st.integers(0, 40), st.integers(0, 12_000)
)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(_EDIT, min_size=1, max_size=6),
    st.sampled_from([_COMPACT, _PYTHON, None]),
    st.booleans(),
)
def test_every_body_is_read_as_without_known_inputs(
    edits: list[tuple[str, int, int]], separators: tuple[str, str] | None, is_first: bool
) -> None:
    inputs, items = KeptInputs().of("alice"), _items(20)
    for number, (edit, place, size) in enumerate(edits, 100):
        place = min(place, len(items))
        match edit:
            case "add":
                items = [*items, _item(number, size)]
            case "change":
                items = [*items[:place], _item(number, size), *items[place + 1 :]]
            case "cut":
                items = items[: max(place, 1)]
            case _:
                items = [*items[:place], _item(number, size), *items[place:]]
        body = {"input": items, "model": "m"} if is_first else {"model": "m", "input": items}
        data = _encode(body, separators)
        assert decode_body(data, inputs) == decode_body(data) == body

"""Long JSON in pieces: the same values and bytes as in one call, in many calls."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable
from types import FrameType
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from antiphon.protocol.body import decode_body
from antiphon.protocol.checked_json import MAX_DEPTH, MAX_ESCAPES, MAX_NODES
from antiphon.protocol.errors import InvalidRequest
from antiphon.protocol.pieces import (
    PIECE,
    PieceDecoder,
    count_byte,
    encode_each,
    encode_long,
    text_size,
)

LONG = 5 * PIECE

# What a piece must not be cut through, repeated until it is long.
UNITS = [
    "a",
    "漢",
    "\U0001f600",
    "aé漢\U0001f600",
    "\n",
    'say "so"\\n',
    "\\",
    "\\\\\\",
    "\x00\x1f/",
    "u00e9 \\u00e9",
    "abcdefg\U0001f600",
]


def long_text(unit: str) -> str:
    return unit * (LONG // len(unit) + 1)


def decode(data: bytes) -> object:
    return PieceDecoder().decode(data, MAX_DEPTH)


def c_calls(work: Callable[[], object]) -> Counter[str]:
    """Count the calls of C functions that this takes, by their names."""
    names: Counter[str] = Counter()

    def note(_: FrameType, event: str, arg: object) -> None:
        if event == "c_call":
            names[getattr(arg, "__name__", "")] += 1

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(before)
    return names


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("is_ascii", [True, False])
def test_a_long_text_is_decoded_to_the_same_value(unit: str, is_ascii: bool) -> None:
    value = {"a": [1, {"b": long_text(unit), "c": None}], "d": "short"}
    data = json.dumps(value, ensure_ascii=is_ascii).encode()

    assert decode(data) == value


@given(
    unit=st.text(min_size=1, max_size=12),
    shift=st.integers(0, 20),
    is_ascii=st.booleans(),
)
@example(unit="\\\U0001f600", shift=1, is_ascii=True)
def test_a_long_text_is_the_same_wherever_it_is_cut(unit: str, shift: int, is_ascii: bool) -> None:
    value = "x" * shift + unit * (2 * PIECE // len(unit))
    try:
        data = json.dumps(value, ensure_ascii=is_ascii).encode()
        expected = msgspec.json.decode(data)
    except (UnicodeEncodeError, msgspec.DecodeError):
        return  # half a surrogate pair

    assert decode(data) == expected
    assert encode_long(value) == msgspec.json.encode(value)


@pytest.mark.parametrize("unit", UNITS)
def test_a_long_text_is_encoded_to_the_same_bytes(unit: str) -> None:
    value = {"a": [1, {"b": long_text(unit), "c": None}, []], "d": [long_text(unit)], "é": {}}

    assert encode_long(value) == msgspec.json.encode(value)


@pytest.mark.parametrize(
    "other",
    [
        {"role": "user", "content": "word " * PIECE},
        {"content": None, "calls": [{"id": "a", "n": 1}]},
        {},
    ],
)
def test_many_objects_are_encoded_to_the_same_bytes(other: dict[str, Any]) -> None:
    objects = [{"role": "user", "content": f"é {number}"} for number in range(200)]
    objects[100:100] = [other]

    assert encode_each(objects) == [msgspec.json.encode(one) for one in objects]


def test_no_call_encodes_more_than_a_piece_of_an_object() -> None:
    objects = [{"content": "short"}, {"content": "x" * (4 * PIECE)}]

    assert c_calls(lambda: encode_each(objects))["encode"] >= 5


@pytest.mark.parametrize("unit", [unit for unit in UNITS if set(unit) != {"\\"}])
def test_no_call_decodes_or_encodes_more_than_a_piece(unit: str) -> None:
    text = long_text(unit)
    data = msgspec.json.encode(text)
    pieces = len(data) // (PIECE + 4096)

    assert c_calls(lambda: decode(data))["decode"] >= pieces
    assert c_calls(lambda: encode_long([text]))["encode"] >= len(text) // PIECE


def test_a_long_list_is_decoded_in_steps() -> None:
    data = msgspec.json.encode([{"role": "user", "content": "word " * 20}] * 20_000)

    assert decode(data) == msgspec.json.decode(data)
    assert c_calls(lambda: decode(data))["decode"] >= len(data) // PIECE


@pytest.mark.parametrize(
    ("begin", "middle", "end"),
    [
        (b'"', b"a", b""),
        (b'"', b"a", b'\\"'),
        (b'"', b'a" "', b'"'),
        (b'{"a":"', b"a", b'\xff"}'),
        (b'{"a":"', b"a", b'\\x"}'),
        (b'{"a":"\\ud83d', b"a", b'"}'),
        (b'{"a":"', b"\\ud83d", b'"}'),
        (b'{"a":"', b"a", b'"'),
        (b'["', b"a", b'",]'),
        (b"1", b"1", b"x"),
    ],
)
def test_a_long_text_that_is_malformed_is_refused(begin: bytes, middle: bytes, end: bytes) -> None:
    data = begin + middle * (LONG // len(middle)) + end
    with pytest.raises((msgspec.DecodeError, UnicodeDecodeError)):
        msgspec.json.decode(data)

    with pytest.raises(InvalidRequest) as caught:
        decode_body(data)
    assert caught.value.code == "invalid_json"


FILL = "a" * LONG


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (f'{{"a":"{FILL}","b":1,"b":2}}', "duplicate_field"),
        (f'{{"a":{{"b":"{FILL}","b":1}}}}', "duplicate_field"),
        (f'{{"a": [{{"b": "{FILL}", "\\u0062": 1}}]}}', "duplicate_field"),
        (f'{{"a":["{FILL}",{{"b":1,"b":1}}]}}', "duplicate_field"),
        ("[" * MAX_DEPTH + f'"{FILL}"' + "]" * MAX_DEPTH, "too_deep"),
        ('{"a":' * MAX_DEPTH + f'"{FILL}"' + "}" * MAX_DEPTH, "too_deep"),
        (f'["{FILL}",' + "1," * MAX_NODES + "1]", "too_many_values"),
        (f'["{FILL}",18446744073709551616]', "invalid_value"),
        ('["' + "\\n" * (MAX_ESCAPES + 1) + '"]', "too_many_values"),
    ],
)
def test_what_a_long_body_must_not_hold_is_refused(data: str, code: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        decode_body(data.encode())
    assert caught.value.code == code


@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": ")])
def test_a_long_body_is_read_as_it_is(separators: tuple[str, str]) -> None:
    inner = [{"text": FILL, "n": [1, {"x": {}}]}, "a:", '"a":', "\\"] + [{"a": 1}] * 30_000
    value = {"a": inner, "b": {"": {"": FILL}}}
    data = json.dumps(value, separators=separators).encode()

    assert decode_body(data) == value
    assert decode_body(b"\n " + data + b" \r\n") == value


def test_a_text_as_deep_as_allowed_is_read() -> None:
    depth = MAX_DEPTH - 1
    value = decode_body(b"[" * depth + b'"%b"' % FILL.encode() + b"]" * depth)
    for _ in range(depth):
        assert isinstance(value, list)
        (value,) = value

    assert value == FILL


def test_bytes_and_characters_are_counted_whole() -> None:
    data = b"a," * PIECE

    assert count_byte(data, b",") == PIECE
    assert count_byte(memoryview(data)[:10], b",") == 5
    assert text_size({"a": ["bc", {"d": "é"}], "n": 1, "x": None}) == 3

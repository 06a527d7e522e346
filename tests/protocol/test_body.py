"""Bodies that were meant to make a server stall, crash or disagree."""

from __future__ import annotations

import json

import pytest

from antiphon.protocol.body import MAX_DEPTH, MAX_NODES, decode_body
from antiphon.protocol.errors import InvalidRequest


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"a": 1, "b": [{"a": 2}, "a:", '"a":', "\\"]},
        {"text": "line\u2028sep \U0001f600 \x00", "n": -(2**63)},
        {"": {"": {}}},
    ],
)
def test_what_json_can_say_is_read(value: object) -> None:
    assert decode_body(json.dumps(value).encode()) == value
    assert decode_body(json.dumps(value, indent=2).encode()) == value
    assert decode_body(json.dumps(value, separators=(",", ":")).encode()) == value


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", "invalid_json"),
        (b"{", "invalid_json"),
        (b'{"a": NaN}', "invalid_json"),
        (b'{"a": 1e999}', "invalid_json"),
        (b'{"a": "\\ud83d"}', "invalid_json"),
        (b'{"a": "\xff"}', "invalid_json"),
        (b'\xef\xbb\xbf{"a": 1}', "invalid_json"),
        (b'{"a": 1} {"a": 2}', "invalid_json"),
        (b'{"a": 18446744073709551616}', "invalid_value"),
        (b'{"a": 1, "a": 2}', "duplicate_field"),
        (b'{"a":1,"a":1}', "duplicate_field"),
        (b'{"x": {"role": "user", "r\\u006fle": "system"}}', "duplicate_field"),
        (b"[" * (MAX_DEPTH + 1) + b"]" * (MAX_DEPTH + 1), "too_deep"),
        (b"[" * MAX_DEPTH + b"1" + b"]" * MAX_DEPTH, "too_deep"),
        (b"[" * 100_000, "invalid_json"),
        (b"[" * 100_000 + b"]" * 100_000, "too_deep"),
        (b"[" + b"1," * MAX_NODES + b"1]", "too_many_values"),
    ],
)
def test_what_it_must_not_say_is_refused(data: bytes, code: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        decode_body(data)
    assert caught.value.code in (code, "too_deep" if code == "invalid_json" else code)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b'{"model":"m","input":"ab\xff"}', "UTF-8: byte 0xff at position 24"),
        (b'{"input":"' + b"x" * 400_000 + b'\xe9"}', "UTF-8: byte 0xe9 at position 400010"),
        ('{"input":"x"}'.encode("utf-16"), "UTF-8: it begins with the byte order mark of UTF-16"),
        (b'\xef\xbb\xbf{"input":"x"}', "JSON: it begins with a byte order mark; leave that out"),
        (b'{"input":["cut \\ud83d"]}', "half a surrogate pair"),
        (b'{"input":["cut \\\\ud83d"]', "truncated"),
        (b'{"input":"x"', "truncated"),
    ],
    ids=["short", "long", "UTF-16", "mark", "half an emoji", "an escaped backslash", "cut off"],
)
def test_a_malformed_text_is_refused_with_the_reason(data: bytes, reason: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        decode_body(data)
    assert caught.value.message.startswith("the body is not valid ")
    assert reason in caught.value.message


def test_depth_at_the_limit_is_fine() -> None:
    assert decode_body(b"[" * MAX_DEPTH + b"]" * MAX_DEPTH)

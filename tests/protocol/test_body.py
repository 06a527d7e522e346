"""Bodies that were meant to make a server stall, crash or disagree."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.protocol.body import decode_body
from antiphon.protocol.checked_json import MAX_DEPTH, MAX_NODES
from antiphon.protocol.errors import InvalidRequest
from antiphon.protocol.pieces import PIECE


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


# Tool lists that were sent before.


def _tools(count: int = 8) -> list[dict[str, Any]]:
    schema = {"type": "object", "properties": {"path": {"type": "string"}}}
    about = "Reads a file of the workspace. " * 8
    return [
        {"type": "function", "name": f"read_{index}", "description": about, "parameters": schema}
        for index in range(count)
    ]


def _styles(value: object) -> list[bytes]:
    return [
        json.dumps(value).encode(),
        json.dumps(value, indent=2).encode(),
        json.dumps(value, separators=(",", ":")).encode(),
    ]


def _code_of(data: bytes) -> str | None:
    with pytest.raises(InvalidRequest) as caught:
        decode_body(data)
    return caught.value.code


def test_a_body_with_tools_is_read_the_same_each_time() -> None:
    value = {"model": "m", "tools": _tools(), "input": [{"role": "user", "content": "[x]"}]}
    for data in _styles(value):
        assert decode_body(data) == value
        assert decode_body(data) == value


def test_a_tool_list_sent_again_is_not_decoded_again() -> None:
    tools = json.dumps(_tools()).encode()
    first, second = (
        decode_body(b'{"tools": %b, "input": "%b"}' % (tools, text)) for text in (b"a", b"b")
    )
    assert isinstance(first, dict)
    assert isinstance(second, dict)
    assert first["tools"] is second["tools"]
    assert (first["input"], second["input"]) == ("a", "b")


@pytest.mark.parametrize("is_first", [True, False])
def test_a_tool_list_sent_again_with_a_long_context_is_not_decoded_again(is_first: bool) -> None:
    tools = json.dumps(_tools()).encode()
    said = json.dumps([{"role": "user", "content": "x" * 1000}] * (2 * PIECE // 1000)).encode()
    parts = [b'"tools":' + tools, b'"input":' + said]
    data = b"{%b}" % b",".join(parts if is_first else reversed(parts))
    first, second = decode_body(data), decode_body(data)
    assert isinstance(first, dict)
    assert isinstance(second, dict)
    assert first == json.loads(data)
    assert second == first
    assert second["tools"] is first["tools"]


@pytest.mark.parametrize("order", [("input", "tools"), ("tools", "input")])
def test_the_same_tools_inside_an_item_stay_there(order: tuple[str, str]) -> None:
    item = {"type": "additional_tools", "tools": _tools()}
    value = {"input": [item], "tools": _tools()}
    for data in _styles({name: value[name] for name in order}):
        for _ in range(2):
            assert decode_body(data) == value


@pytest.mark.parametrize("count", [1, 20])
def test_lists_that_begin_like_the_tools_stay_where_they_are(count: int) -> None:
    other = {"type": "additional_tools", "tools": [*_tools(), {"type": "function", "name": "x"}]}
    value = {"input": [other] * count, "tools": [*_tools(), {"type": "function", "name": "y"}]}
    data = json.dumps(value).encode()
    for _ in range(2):
        assert decode_body(data) == value


def test_text_that_looks_like_the_tools_stays_text() -> None:
    numbers = list(range(1000))
    value = {"input": json.dumps(numbers), "tools": numbers}
    for data in _styles(value):
        assert decode_body(data) == value


def test_tools_named_twice_are_refused_each_time() -> None:
    tools = json.dumps(_tools()).encode()
    data = b'{"tools": %b, "input": "x", "tools": %b}' % (tools, tools)
    inner = tools.replace(b'"name"', b'"name": "other", "name"', 1)
    for _ in range(2):
        assert _code_of(data) == "duplicate_field"
        assert _code_of(b'{"tools": %b}' % inner) == "duplicate_field"


@pytest.mark.parametrize(
    "form",
    [
        b'{"metadata":{"tools":%b},"tools":null}',
        b'{"tools":null,"metadata":{"tools":%b}}',
        b'{"metadata":{"tools":%b},"\\u0074ools":null}',
        b'{"metadata":{"tools":%b}}',
        b'{"metadata":["tools",%b],"tools":null}',
        b'{"metadata":["tools",%b],"\\u0074ools":null}',
        b'{"x\\"tools":%b}',
    ],
)
def test_a_kept_tool_list_in_another_field_stays_there(form: bytes) -> None:
    tools = json.dumps(_tools(), separators=(",", ":")).encode()
    decode_body(b'{"tools":%b}' % tools)
    data = form % tools
    assert decode_body(data) == json.loads(data)


@pytest.mark.parametrize("again", [b'"tools":null', b'"\\u0074ools":null', b'"input":"y"'])
def test_a_field_named_twice_beside_a_kept_tool_list_is_refused(again: bytes) -> None:
    tools = json.dumps(_tools(), separators=(",", ":")).encode()
    decode_body(b'{"tools":%b}' % tools)
    assert _code_of(b'{"input":"x","tools":%b,%b}' % (tools, again)) == "duplicate_field"


def test_the_rest_of_a_body_with_a_kept_tool_list_is_checked() -> None:
    tools = json.dumps(_tools(), separators=(",", ":")).encode()
    decode_body(b'{"tools":%b}' % tools)
    deep = b"[" * MAX_DEPTH + b"]" * MAX_DEPTH
    assert _code_of(b'{"tools":%b,"input":%b}' % (tools, deep)) == "too_deep"
    many = b"[%b]" % b",".join([b"0"] * (MAX_NODES - 10))
    assert _code_of(b'{"tools":%b,"input":%b}' % (tools, many)) == "too_many_values"
    assert _code_of(b'{"tools":%b,"input":"x"' % tools) == "invalid_json"


def test_only_the_tool_lists_that_were_sent_last_are_kept() -> None:
    lists = [[*_tools(), {"type": "function", "name": f"f{number}"}] for number in range(40)]
    bodies = [json.dumps({"tools": one}, separators=(",", ":")).encode() for one in lists]
    first, *_, last = [decode_body(data) for data in bodies]
    assert isinstance(first, dict)
    assert isinstance(last, dict)
    again, latest = decode_body(bodies[0]), decode_body(bodies[-1])
    assert isinstance(again, dict)
    assert isinstance(latest, dict)
    assert latest["tools"] is last["tools"]
    assert again["tools"] is not first["tools"]
    assert again == first


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b'"\xff"', "UTF-8: byte 0xff at position "),
        (b'"\\ud83d"', "surrogate"),
        (b"01", "invalid number (byte 80)"),
    ],
)
def test_a_fault_inside_the_tools_is_located_in_the_body(text: bytes, reason: str) -> None:
    tools = json.dumps(_tools()).encode()
    data = b'{"input": "x", "tools": %b}' % tools.replace(b'"Reads', text + b', "a": "Reads', 1)
    with pytest.raises(InvalidRequest) as caught:
        decode_body(data)
    assert reason in caught.value.message
    if b"\xff" in text:
        assert caught.value.message.endswith(f"position {data.index(text) + 1}")


def test_values_in_the_tools_and_beside_them_are_counted_together() -> None:
    half = b"0," * (MAX_NODES // 2)
    tools = b"[" + half[: 60 * 1024] + b"0]"
    rest = b"[" + b"0," * (MAX_NODES - 10 * 1024) + b"0]"
    assert decode_body(b'{"input": [1], "tools": %b}' % tools)
    assert _code_of(b'{"input": %b, "tools": %b}' % (rest, tools)) == "too_many_values"


def test_tools_nested_too_deep_are_refused() -> None:
    padding = json.dumps("x" * 2000).encode()
    for levels, is_fine in ((MAX_DEPTH - 2, True), (MAX_DEPTH - 1, False)):
        deep = b"[" * levels + b"]" * levels
        data = b'{"tools": [%b, %b]}' % (padding, deep)
        if is_fine:
            assert decode_body(data)
        else:
            assert _code_of(data) == "too_deep"


LONG = "x" * PIECE
FORMS = [{"separators": (",", ":")}, {}, {"indent": 2}, {"ensure_ascii": False, "indent": 1}]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"input": LONG}, {"input": LONG}),
        ({"input": LONG}, {"input": LONG[:-1] + "y"}),
        ({"input": LONG}, {"input": "short"}),
        ({"input": "short"}, {"input": LONG}),
        ({"note": f'", "b": 1, "c": "{LONG}'}, {"note": LONG}),
        ({"input": [{"id": 1}]}, {"input": [LONG, {"id": 2}]}),
    ],
)
def test_a_field_named_twice_in_a_long_body_is_refused(
    form: dict[str, Any], before: dict[str, Any], after: dict[str, Any]
) -> None:
    first = json.dumps({"model": "m", **before}, **form).rstrip("}\n ")
    for rest in ({**after, "b": 1, "c": "é"}, {"b": 1, **after}, after):
        second = json.dumps(rest, **form).lstrip("{\n ")
        with pytest.raises(InvalidRequest) as caught:
            decode_body(f"{first}, {second}".encode())
        assert caught.value.code == "duplicate_field"


@pytest.mark.parametrize("form", FORMS)
def test_a_field_named_twice_deep_in_a_long_body_is_refused(form: dict[str, Any]) -> None:
    body = json.dumps({"input": [LONG, {"role": "user", "rule": "user"}, LONG]}, **form)
    decode_body(body.encode())
    with pytest.raises(InvalidRequest) as caught:
        decode_body(body.replace("rule", "role").encode())
    assert caught.value.code == "duplicate_field"


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text('a" :,{}\\é', max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab", max_size=2), inner),
    max_leaves=12,
)


@given(
    pairs=st.lists(st.tuples(st.text('ab": \\', max_size=2), VALUES), min_size=1, max_size=5),
    form=st.sampled_from(FORMS),
    pad=st.booleans(),
)
def test_only_what_names_a_field_twice_is_refused(
    pairs: list[tuple[str, Any]], form: dict[str, Any], *, pad: bool
) -> None:
    pairs += [("long", LONG)] if pad else []
    fields = [f"{json.dumps(name)}: {json.dumps(value, **form)}" for name, value in pairs]
    text = "{" + " ,\n".join(fields) + "}"
    names = [name for name, _ in pairs]
    if len({*names}) == len(names):
        assert decode_body(text.encode()) == dict(pairs)
        return
    with pytest.raises(InvalidRequest) as caught:
        decode_body(text.encode())
    assert caught.value.code == "duplicate_field"

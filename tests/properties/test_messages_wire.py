"""The Messages wire for any conversation: prefixes, round trips, accepted bodies, any model."""

from __future__ import annotations

import string
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from antiphon.plans.plan import NO_TOOLS, Plan
from antiphon.protocol.deltas import NativeState
from antiphon.protocol.items import Item
from antiphon.protocol.native_state import NATIVE
from antiphon.wires.messages import conversation as module
from antiphon.wires.messages.ask import read_ask
from antiphon.wires.messages.cache import MAX_BREAKPOINTS
from antiphon.wires.messages.conversation import write_conversation
from antiphon.wires.messages.ids import call_id_of
from antiphon.wires.messages.profiles import ANTHROPIC
from antiphon.wires.messages.request import Terms, encode_body, write_request
from antiphon.wires.messages.traits import traits_of
from tests.wires.messages.accepting import accepted

MODEL = "claude-opus-5"
_words = st.text(string.ascii_letters + 'äé—👋"\\ \n', min_size=1, max_size=12).filter(
    lambda text: text == text.strip()
)
_json = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | _words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_words, inner, max_size=3),
    max_leaves=5,
)
_ids = st.from_regex(r"[a-zA-Z0-9_.:-]{1,12}", fullmatch=True)
_cache = st.sampled_from([None, {"type": "ephemeral"}, {"type": "ephemeral", "ttl": "1h"}])


def _part(kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": kind, **{name: value for name, value in fields.items() if value is not None}}


_texts = st.builds(
    lambda text, cache: _part("input_text", text=text, cache_control=cache), _words, _cache
)
_images = st.sampled_from(
    [
        _part("input_image", image_url="data:image/png;base64,aGk=", detail="auto"),
        _part("input_image", image_url="https://a.example/x.webp", detail="auto"),
        _part("input_image", file_id="file_1", detail="auto"),
    ]
)
_files = st.sampled_from(
    [
        _part("input_file", filename="a.pdf", file_data="data:application/pdf;base64,aGk="),
        _part("input_file", filename="a.txt", file_data="data:text/plain;base64,aGk="),
        _part("input_file", filename="b.pdf", file_url="https://a.example/b.pdf", context="Old."),
        _part("input_file", filename="c.pdf", file_id="file_2", citations={"enabled": True}),
    ]
)
_found = {"source": "S", "title": "T", "content": [{"type": "text", "text": "one"}]}
_results = st.just(_part("input_text", text="T (S)\none", search_result=_found))
_parts = st.lists(_texts | _images | _files | _results, min_size=1, max_size=3)


def _message(role: str, parts: list[dict[str, Any]]) -> Item:
    return {"type": "message", "role": role, "content": parts}


def _said(text: str) -> Item:
    return _message("assistant", [{"type": "output_text", "text": text}])


def _thought(data: str) -> Item:
    block = msgspec.json.encode({"type": "redacted_thinking", "data": data})
    return {
        "type": "reasoning",
        "summary": [],
        NATIVE: NativeState("messages", block, account="me"),
    }


def _opaque(number: int) -> list[Item]:
    call = {"type": "anthropic:server_tool_use", "id": f"s{number}", "name": "web_search"}
    found = {"type": "anthropic:web_search_tool_result", "tool_use_id": f"s{number}"}
    return [{**call, "input": {"query": "x"}}, {**found, "content": []}]


def _output(call_id: str, output: Any, is_error: bool) -> Item:
    item: Item = {"type": "function_call_output", "call_id": call_id, "output": output}
    if not is_error:
        return item
    said = f"Error: {output}"
    return item | {"output": said, "status": "incomplete"}


@st.composite
def conversations(draw: st.DrawFn, *, thinks: bool = True) -> list[list[Item]]:
    """Draw the turns of a conversation that Messages can express, each a list of items."""
    turns: list[list[Item]] = []
    used: set[str] = set()
    for number in range(draw(st.integers(1, 4))):
        asked = [_message("user", draw(_parts))]
        if number and draw(st.booleans()):
            asked.append(_message("system", [draw(_texts)]))
        answer: list[Item] = [_thought(draw(_words))] if thinks and draw(st.booleans()) else []
        answer += _opaque(number) if draw(st.booleans()) else []
        answer.append(_said(draw(_words)))
        calls = [one for one in draw(st.lists(_ids, max_size=3, unique=True)) if one not in used]
        used.update(calls)
        ids = [call_id_of(one) for one in calls]
        for call_id in ids:
            arguments = msgspec.json.encode(draw(st.dictionaries(_words, _json, max_size=2)))
            name = {"name": "look", "arguments": arguments.decode()}
            answer.append({"type": "function_call", "call_id": call_id, **name})
        results = [_output(one, draw(_words), draw(st.booleans())) for one in ids]
        if results:
            answer += [*results, _said(draw(_words))]
        turns.append([*asked, *answer])
    return turns


def _flat(items: list[Item], *, mid_system: bool) -> list[bytes]:
    """Return every block with its role, as bytes."""
    written = write_conversation(items, NO_TOOLS, account="me", mid_system=mid_system)
    return [
        one["role"].encode() + b" " + msgspec.json.encode(block)
        for one in written.messages
        for block in one["content"]
    ]


def check_prefix(turns: list[list[Item]], *, mid_system: bool) -> None:
    items: list[Item] = []
    before: list[bytes] = []
    for turn in turns:
        items += turn
        # The next request begins with the next question; the last answer is written as it is.
        question = _message("user", [_part("input_text", text="?")])
        blocks = _flat([*items, question], mid_system=mid_system)[:-1]
        assert blocks[: len(before)] == before
        before = blocks


@given(conversations(), st.booleans())
def test_a_conversation_begins_with_the_bytes_of_the_turn_before(
    turns: list[list[Item]], mid_system: bool
) -> None:
    check_prefix(turns, mid_system=mid_system)


def test_a_writer_that_looks_ahead_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = module.write_conversation

    def hoist(items: Any, *rest: Any, **named: Any) -> Any:
        late = [item for item in items if item.get("role") == "system"]
        others = [item for item in items if item.get("role") != "system"]
        return plain([*others[:1], *late, *others[1:]], *rest, **named)

    monkeypatch.setitem(globals(), "write_conversation", hoist)
    late = _message("system", [_part("input_text", text="Now rhyme.")])
    turns = [[_message("user", [_part("input_text", text="a")]), _said("b")], [late, _said("c")]]

    with pytest.raises(AssertionError):
        check_prefix(turns, mid_system=True)


@given(conversations(thinks=False))
def test_what_messages_can_express_comes_back_as_it_was(turns: list[list[Item]]) -> None:
    items = [item for turn in turns for item in turn]
    assume(msgspec.json.encode(items).count(b'"cache_control"') <= MAX_BREAKPOINTS)
    plan = Plan(model=MODEL, items=items)
    body = write_request(plan, traits_of(MODEL), Terms(profile=ANTHROPIC, account="me"))

    read = read_ask(msgspec.json.decode(encode_body(body.body, is_large=False)))

    assert _merged(read.items) == _merged(items)


def _merged(items: Sequence[Item]) -> list[Item]:
    """Return the items with neighbours of one role joined: Messages does not tell them apart."""
    merged: list[Item] = []
    for item in items:
        last = merged[-1] if merged else {}
        if item["type"] == "message" == last.get("type") and item["role"] == last["role"]:
            merged[-1] = {**last, "content": [*last["content"], *item["content"]]}
        else:
            merged.append(item)
    return merged


@settings(max_examples=25)  # the types are slow
@given(
    conversations(),
    st.sampled_from(["claude-opus-5", "claude-sonnet-4-5", "claude-fable-5", "qwen-3"]),
    st.sampled_from([None, "none", "minimal", "low", "medium", "high", "xhigh", "max"]),
    st.booleans(),
)
def test_the_types_of_the_vendor_accept_every_body(
    turns: list[list[Item]], model: str, effort: str | None, is_cached: bool
) -> None:
    items = [item for turn in turns for item in turn]
    plan = Plan(model=model, items=items, reasoning_effort=effort)
    terms = Terms(profile=ANTHROPIC, account="me", is_cached=is_cached)

    body = write_request(plan, traits_of(model), terms).body
    sent = msgspec.json.decode(encode_body(body, is_large=False))

    accepted(sent)
    assert msgspec.json.encode(sent).count(b'"cache_control"') <= MAX_BREAKPOINTS
    _check_rules(sent["messages"])


def _check_rules(messages: list[dict[str, Any]]) -> None:
    """Check what the API demands and its types do not say."""
    assert messages[0]["role"] == "user"
    waiting: list[str] = []
    for before, one in zip([{}, *messages], messages, strict=False):
        assert one["role"] != before.get("role")
        assert one["content"]
        results = [
            block["tool_use_id"] for block in one["content"] if block["type"] == "tool_result"
        ]
        assert results == waiting
        kinds = [block["type"] == "tool_result" for block in one["content"]]
        assert kinds == sorted(kinds, reverse=True)
        waiting = [block["id"] for block in one["content"] if block["type"] == "tool_use"]
        texts = (block["text"] for block in one["content"] if block["type"] == "text")
        assert all(text.strip() for text in texts)
    assert not waiting


@given(st.binary(min_size=1, max_size=60))
def test_signed_bytes_are_never_written_anew(data: bytes) -> None:
    signature = data.hex()
    block = b'{ "type":"thinking", "thinking":"\\u00e4", "signature":"%b" }' % signature.encode()
    state = NativeState("messages", block, account="me")
    items: list[Item] = [
        _message("user", [_part("input_text", text="a")]),
        {"type": "reasoning", "summary": [], NATIVE: state},
        _said("b"),
        _message("user", [_part("input_text", text="c")]),
    ]
    plan = Plan(model=MODEL, items=items)

    body = write_request(plan, traits_of(MODEL), Terms(profile=ANTHROPIC, account="me")).body

    assert block in encode_body(body, is_large=False)
    assert block in encode_body(body, is_large=True)

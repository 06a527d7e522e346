"""A thread that grows is said to a model in the same words as if it were said anew."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from antiphon.plans.plan import Plan
from antiphon.plans.toolbox import gather_tools
from antiphon.protocol.items import Item
from antiphon.protocol.long_body import PIECE, LongBody
from antiphon.protocol.thread import Thread
from antiphon.protocol.tools import Tool
from antiphon.wires import plain
from antiphon.wires import settled as settled_turns
from antiphon.wires.chat import messages
from antiphon.wires.chat.profiles import GENERIC, PROFILES, Profile
from antiphon.wires.chat.request import encode_request, write_request
from tests.tool_histories import make_history

WEIGHT: Final = 1 << 20
LATE_USER: Final = msgspec.structs.replace(GENERIC, name="late", late_system_role="user")
APART: Final = msgspec.structs.replace(
    GENERIC, name="apart", merges_system=False, reasoning_replay="reasoning_content"
)
ANY_PROFILE: Final = (GENERIC, LATE_USER, APART, *PROFILES.values())


def message(role: str, text: str = "hi", **more: Any) -> Item:
    return {"type": "message", "role": role, "content": text, **more}


def plain_part(text: str) -> list[dict[str, Any]]:
    return [{"type": "output_text", "text": text, "annotations": []}]


def call(call_id: str, arguments: str = "{}", **more: Any) -> Item:
    name = {"name": "f", "arguments": arguments}
    return {"type": "function_call", "call_id": call_id, **name, **more}


def output(call_id: str, text: str = "done") -> Item:
    return {"type": "function_call_output", "call_id": call_id, "output": text}


USER, ANSWER = message("user"), message("assistant", "yes")
TOOLS: Final[tuple[list[Tool], ...]] = (
    [],
    [{"type": "function", "name": "f"}],
    [{"type": "namespace", "name": "n", "tools": [{"type": "function", "name": "f"}]}],
    [{"type": "custom", "name": "x.y"}, {"type": "local_shell"}],
    # Names that others would be given: those get longer ones.
    [{"type": "function", "name": name} for name in ("n__f", "x_y", "local_shell")],
)


def plan_of(items: Sequence[Item], tools: Sequence[Tool] = (), **more: Any) -> Plan:
    toolbox, _ = gather_tools(tools, items)
    return Plan(model="m", items=items, toolbox=toolbox, **more)


def assert_same(thread: Thread, tools: Sequence[Tool], profile: Profile, **more: Any) -> None:
    """Say the thread both ways."""
    body, report = write_request(plan_of(list(thread), tools, **more), profile)
    data, same = encode_request(plan_of(thread, tools, **more), profile)
    assert (bytes(data), same) == (msgspec.json.encode(body), report)


def grown(steps: Sequence[Sequence[Item]], profile: Profile = GENERIC) -> Thread:
    """Return a thread that grew by these steps, each of which was said as it should be."""
    thread = Thread((), WEIGHT)
    for items in steps:
        thread = thread.grow(items)
        assert_same(thread, (), profile)
    return thread


def settled(thread: Thread) -> int:
    """Return how many items of the thread are not said again."""
    known = thread.recall(messages.write_thread)
    return 0 if known is None else int(known.place)


@contextmanager
def patience(turns: int) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(settled_turns, "_PATIENCE", turns)
        yield


# What may stand in a conversation. Few names, so that they meet.

_NAMES: Final = st.sampled_from(["a", "b", "c"])
_TEXT: Final = st.sampled_from(["", "x", "ä\u2028", '{"a":1}', "{", "ä" * 9000])
_PARTS: Final = st.sampled_from(
    [
        [{"type": "input_text", "text": "t", "odd": 1}],
        [{"type": "input_image", "image_url": "http://127.0.0.1/i.png", "detail": "vast"}],
        [{"type": "input_file", "file_id": "f"}, {"type": "input_text", "text": "t"}],
        [],
    ]
)
ITEM: Final = st.one_of(
    st.builds(message, st.sampled_from(["user", "assistant"]), _TEXT),
    st.builds(
        message, st.sampled_from(["system", "developer", "user", "assistant"]), st.one_of(_PARTS)
    ),
    st.builds(message, st.just("user"), _TEXT, odd=st.just(True)),
    st.builds(call, _NAMES, _TEXT),
    st.builds(call, _NAMES, id=_NAMES, namespace=st.sampled_from([None, "n"])),
    st.builds(output, _NAMES, _TEXT),
    st.builds(
        lambda i, c: {
            "type": "local_shell_call",
            "id": i,
            "call_id": c,
            "action": {"type": "exec", "command": ["ls"]},
        },
        _NAMES,
        _NAMES,
    ),
    st.builds(lambda i: {"type": "local_shell_call_output", "id": i, "output": "o"}, _NAMES),
    st.builds(
        lambda c: {"type": "custom_tool_call", "call_id": c, "name": "x.y", "input": "i"}, _NAMES
    ),
    st.builds(lambda c: {"type": "custom_tool_call_output", "call_id": c, "output": "o"}, _NAMES),
    st.builds(lambda c: {"type": "tool_search_call", "call_id": c, "arguments": {}}, _NAMES),
    st.sampled_from(
        [
            {"type": "tool_search_call", "id": "a", "arguments": {}},
            {"type": "tool_search_output", "tools": [{"type": "function", "name": "g"}]},
            {"type": "additional_tools", "tools": [{"type": "function", "name": "x_y"}]},
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "s"}]},
            {"type": "reasoning", "summary": [], "encrypted_content": "sealed"},
            {"type": "web_search_call", "id": "w"},
            {"type": "mcp_call", "id": "a", "server_label": "n", "name": "f", "output": "o"},
            {"type": "image_generation_call", "id": "b", "status": "completed", "result": "AA"},
            {"type": "mcp_approval_request", "id": "a", "server_label": "n", "name": "f"},
            {"type": "mcp_approval_response", "approval_request_id": "a", "approve": True},
        ]
    ),
)
# Tools and profile mostly stay what they are: only then is there something to go on from.
_STEPS: Final = st.lists(
    st.tuples(
        st.integers(0, 7),  # which thread grows
        st.lists(ITEM, min_size=1, max_size=4),
        st.sampled_from([0, 0, 0, 0, 0, 1]),  # whether the tools are others now
        st.sampled_from([0, 0, 0, 0, 0, 1]),
    ),
    min_size=2,
    max_size=8,
)
_PROFILES: Final = (GENERIC, LATE_USER, APART)


@settings(max_examples=500, deadline=None)
@given(
    _STEPS,
    st.sampled_from([0, 1, 3, 32]),
    st.booleans(),
    st.integers(0, len(TOOLS) - 1),
    st.integers(0, len(_PROFILES) - 1),
)
@example([(0, [call("a"), USER, USER], 0, 0), (0, [output("a")], 0, 0)], 1, True, 0, 0)
@example(
    [(0, [call("a", "{}"), call("a", ""), output("a")], 0, 0), (0, [call("a", "")], 0, 0)],
    0,
    True,
    0,
    0,
)
def test_whatever_is_said_in_whatever_steps_and_forks(
    steps: list[tuple[int, list[Item], int, int]],
    turns: int,
    is_line: bool,
    tools: int,
    profile: int,
) -> None:
    threads = [Thread((), WEIGHT)]
    with patience(turns):
        for place, items, more, other in steps:
            parent = threads[-1] if is_line else threads[place % len(threads)]
            threads.append(parent.grow(items))
            tools, profile = (tools + more) % len(TOOLS), (profile + other) % len(_PROFILES)
            assert_same(threads[-1], TOOLS[tools], _PROFILES[profile], instructions="Be brief.")


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**63), st.integers(1, 4))
def test_calls_of_all_families(number: int, size: int) -> None:
    chance = random.Random(number)
    history = make_history(chance.choice)
    profile = chance.choice(ANY_PROFILE)
    thread, rest = Thread((), WEIGHT), list(history.body["input"])
    while rest:
        thread, rest = thread.grow(rest[:size]), rest[size:]
        assert_same(thread, history.body["tools"], profile)


# The cases that explain it.


def test_all_but_the_last_turn_is_settled() -> None:
    thread = grown([[USER, ANSWER, USER], [ANSWER, USER]])

    assert settled(thread) == 5
    assert settled(grown([[USER, ANSWER, USER, ANSWER]])) == 3


def test_a_short_thread_is_not_worth_it() -> None:
    thread = Thread([USER, ANSWER, USER], 100)
    assert_same(thread, (), GENERIC)

    assert settled(thread) == 0


def test_nothing_settles_behind_a_call_that_waits() -> None:
    thread = grown([[USER], [call("a")], [USER, ANSWER, USER]])
    assert settled(thread) == 1

    assert settled(grown([[*thread, output("a"), ANSWER]])) == 6


def test_a_call_that_waits_too_long_is_waited_for_no_more() -> None:
    later = [[USER, ANSWER] for _ in range(40)]
    thread = grown([[USER, call("a")], *later])
    assert settled(thread) == len(thread) - 1

    # Its result, and the call itself, may yet come.
    grown([[USER, call("a")], *later, [output("a")], [USER]])
    grown([[USER, call("a")], *later, [call("a")], [output("a")]])


def test_a_second_result_of_a_settled_call_replaces_the_first() -> None:
    thread = grown([[call("a"), output("a", "one"), USER], [output("a", "two")], [USER]])

    assert settled(thread) == 5


def test_system_texts_that_come_first_stay_in_front() -> None:
    first = [message("system", "one"), message("developer", "two")]
    grown([first, [USER, ANSWER], [message("system", "late")], [USER]], LATE_USER)
    grown([first, [message("system", "three")], [USER]], APART)
    grown([first, [USER], [message("system", "late")], [USER]])


def test_a_result_finds_its_call_by_what_was_said_long_before() -> None:
    shell = {"type": "local_shell_call", "id": "a", "call_id": "b"}
    action = {"action": {"type": "exec", "command": ["ls"]}}
    told = {"type": "local_shell_call_output", "id": "a", "output": "o"}
    # `a` is the name of an item, and later that of a call, which is not meant.
    grown([[shell | action, told, USER], [call("a"), told], [USER]])
    search = {"type": "tool_search_call", "id": "s", "arguments": {}}
    found = {"type": "tool_search_output", "tools": [{"type": "function", "name": "g"}]}
    grown([[search, found, USER], [call("a"), found], [USER]])


def test_a_late_result_belongs_to_its_turn() -> None:
    grown([[call("a")], [USER], [output("a")], [USER], [output("a")]])
    assert settled(grown([[USER, call("a"), USER, call("b"), output("a")]])) == 1
    with patience(0):
        grown([[call("a")], [USER], [output("a")], [USER], [call("a")]])


def test_a_fork_knows_nothing_of_calls_beside_it() -> None:
    shell = {"type": "local_shell_call", "id": "a", "call_id": "b"}
    action = {"action": {"type": "exec", "command": ["ls"]}}
    told = {"type": "local_shell_call_output", "id": "a", "output": "o"}
    root = grown([[USER]])
    branches: list[list[Item]] = [
        [shell | action, told, USER],
        [call("a"), call("b"), told, USER],
    ]
    for items in branches:
        branch = root.grow(items)
        assert_same(branch, (), GENERIC)


def test_other_names_of_the_tools_are_other_words() -> None:
    thread = Thread([USER, call("a", namespace="n"), output("a"), USER], WEIGHT)
    for tools in (*TOOLS, *reversed(TOOLS)):
        thread = thread.grow([ANSWER, USER])
        assert_same(thread, tools, GENERIC)


def test_the_rest_of_the_request_is_the_same_too() -> None:
    schema = {"type": "json_schema", "name": "s", "schema": {"type": "object"}}
    extra = {"model": "x", "messages": [], "stream": 1, "seed": 7, "odd": 1}
    for profile in ANY_PROFILE:
        thread = Thread([USER, ANSWER, USER], WEIGHT)
        assert_same(thread, (), profile, extra=extra, format=schema, temperature=0.5)
        assert_same(Thread((), WEIGHT), (), profile, extra=extra)
        assert_same(Thread([USER], WEIGHT), (), profile, stream=False)


_PLAIN: Final = st.builds(
    message, st.sampled_from(["user", "assistant"]), st.sampled_from([*map(plain_part, ("", "x"))])
) | st.builds(message, st.sampled_from(["user", "assistant"]), st.sampled_from(["", "ä\u2028"]))


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.lists(_PLAIN, min_size=1, max_size=5), min_size=1, max_size=6),
    st.lists(ITEM, max_size=4),
    st.integers(1, 4),
    st.sampled_from(ANY_PROFILE),
)
def test_plain_messages_are_said_as_all_others(
    steps: list[list[Item]], others: list[Item], together: int, profile: Profile
) -> None:
    """In a thread that is read again and in one that grows, before and after other items."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plain, "_TOGETHER", together)
        items = [item for step in steps for item in step]
        assert_same(Thread(items, WEIGHT), (), profile)
        assert_same(Thread([*items, *others, *items], WEIGHT), (), profile)
        assert_same(Thread([*others, *items, *others], WEIGHT), (), profile)
        grown([*steps, others or [USER], *steps], profile)


def test_settled_messages_are_the_same_pieces_in_the_next_request() -> None:
    long = message("user", "word " * 4000)
    thread = Thread([long, ANSWER] * 10, WEIGHT)
    sent, _ = encode_request(plan_of(thread), GENERIC)
    following, _ = encode_request(plan_of(thread.grow([long, ANSWER])), GENERIC)
    assert isinstance(sent, LongBody)
    assert isinstance(following, LongBody)
    assert [*map(id, sent.lasting[:-1])] == [*map(id, following.lasting[: len(sent.lasting) - 1])]
    assert all(PIECE <= len(piece) < 2 * PIECE for piece in following.lasting[:-1])


def test_what_is_settled_is_not_looked_at_again() -> None:
    thread = grown([[USER, ANSWER, USER]])
    copy = Thread([{}, {}, {}, ANSWER], WEIGHT, thread.known)
    data, _ = encode_request(plan_of(copy), GENERIC)

    assert msgspec.json.decode(bytes(data))["messages"] == [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "yes"},
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "yes"},
    ]

"""Tool lists and histories, made up: what a caller may offer, and what was called and came back.

A `History` is a request body together with what must be found in it again: each call and what
was answered to it. Names are chosen to collide, to be too long and to hold characters that no
backend takes. `read_back` sends a history down as a chat request and reads the calls of every
assistant message as if a model had just streamed them.

There is one maker, and two ways to choose for it: `quick_histories` draws a seed, so that there
can be ten thousand in a test; `histories` draws every choice, so that what fails gets small.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from hypothesis import strategies as st

from antiphon.plans.plan import Plan, make_plan
from antiphon.plans.tool_gate import gate_for
from antiphon.protocol.deltas import Delta
from antiphon.protocol.families import FAMILIES, Kind
from antiphon.protocol.items import Item
from antiphon.protocol.request import read_request
from antiphon.protocol.tools import Tool
from antiphon.wires.chat.profiles import GENERIC
from antiphon.wires.chat.request import write_request
from antiphon.wires.chat.stream import ChatStream
from antiphon.wires.lift import CallLifter
from tests.building import assessed, build

__all__ = [
    "History",
    "Known",
    "cut",
    "histories",
    "make_history",
    "messages_of",
    "plan_of",
    "quick_histories",
    "read_back",
    "wire",
]

_T = TypeVar("_T")

_NAMES: Final = (
    *("f", "go", "b", "a__b", "a_b", "b__b", "_", "shell", "apply_patch", "tool_search"),
    *("local_shell", "x.y", "x_y", "größe", "gr_e", "名前", "two words", "a/b", "n" * 64),
    *("n" * 65, "n" * 65 + ".", "m." * 40, "-", "mcp__x__go"),
)
_SPACES: Final = (None, None, None, "a", "a_", "a.", "mcp.x", "mcp__x__", "名", "s" * 64)
_FUNCTIONS: Final[tuple[Kind, ...]] = ("function", "function", "function", "custom", "custom")
_OTHERS: Final[tuple[Kind, ...]] = (
    *("shell", "local_shell", "apply_patch", "tool_search", "computer"),
)


class Known(NamedTuple):
    """A tool as the caller knows it. `place` is where it is offered, if it is."""

    kind: Kind
    namespace: str | None
    name: str
    place: str


class History(NamedTuple):
    """A request body, the calls in its input and, by call_id, a word of what came back."""

    body: dict[str, Any]
    tools: list[Known]
    calls: list[Item]
    answers: dict[str, str]


_PLACES: Final = ("tools", "tools", "tools", "carried", "found", "gone")

_TEXTS: Final = (
    *(
        "",
        "ls",
        "a b",
        "ä",
        "\U0001f600",
        "\u2028",
        "\u0085",
        "\x00",
        "\r\n",
        "\n\n",
        '"',
        "\\",
        "\\n",
    ),
    *("data: ", "[DONE]", "{", "}", '{"input": "x"}', '"quoted"', '{"input":', "null", '["a"]'),
    *(
        "*** Begin Patch\n",
        "<tool_call>",
        "</think>",
        "\ufeff",
        "\u200b",
        "a" * 200,
        "'",
        "`",
        "\t",
    ),
)
_OBJECTS: Final[list[dict[str, Any]]] = [
    *({}, {"a": 1}, {"b": None, "a": [1.5, True]}, {"a": {"b": {"c": []}}}, {"": ""}),
    *({"input": text} for text in _TEXTS),
    *({text: text, "n": -(2**60)} for text in _TEXTS),
]
_ARGUMENTS: Final = [
    *(json.dumps(value, ensure_ascii=False) for value in _OBJECTS),
    *(json.dumps(value, indent=1) for value in _OBJECTS),
]
_COUNTS: Final = (None, 0, 5000)


class Choose(Protocol):
    """Takes one of several."""

    def __call__(self, options: Sequence[_T], /) -> _T:
        """Return one of the options."""


def quick_histories() -> st.SearchStrategy[History]:
    """A history for every number."""
    return st.integers(0, 2**63).map(lambda number: make_history(random.Random(number).choice))


@st.composite
def histories(draw: st.DrawFn) -> History:
    """A history of which every choice is drawn."""

    def choose(options: Sequence[_T], /) -> _T:
        return draw(st.sampled_from(options))

    return make_history(choose)


def make_history(choose: Choose) -> History:
    """Return a request with tools of all families and a conversation in which they were called."""
    drawn = [_tool(choose) for _ in range(choose(range(1, 8)))]
    tools = list({known[:3]: known for known in drawn}.values())
    if any(known.place == "found" for known in tools) and not _has_search(tools):
        tools = [*(known for known in tools if known.kind != "tool_search"), _SEARCH]
    items: list[Item] = []
    if carried := _written(known for known in tools if known.place == "carried"):
        items.append({"type": "additional_tools", "role": "developer", "tools": carried})
    found = _written((known for known in tools if known.place == "found"), defer_loading=True)
    if found:
        items += _search_for(found)
    calls: list[Item] = []
    answers: dict[str, str] = {}
    for _ in range(choose(range(1, 4))):
        items += _round(choose, tools, calls, answers)
    offered = _written(known for known in tools if known.place == "tools")
    return History({"input": items, "tools": [*offered, *found]}, tools, calls, answers)


def _tool(choose: Choose) -> Known:
    kind = choose((*_FUNCTIONS, *_FUNCTIONS, *_OTHERS))
    if kind in _OTHERS:
        return Known(kind, None, kind, choose(("tools", "tools", "carried", "gone")))
    return Known(kind, choose(_SPACES), choose(_NAMES), choose(_PLACES))


def _payload(kind: Kind, choose: Choose) -> Any:  # Any: as its kind has it
    texts = [choose(_TEXTS) for _ in range(choose((1, 2)))]
    match kind:
        case "function":
            return choose(_ARGUMENTS)
        case "custom":
            return "".join(texts)
        case "shell":
            limits = {"timeout_ms": choose(_COUNTS), "max_output_length": choose(_COUNTS)}
            return {"commands": texts, **limits}
        case "local_shell":
            more: tuple[dict[str, Any], ...] = ({}, {"working_directory": "/ä"}, {"user": "me"})
            env = choose(({}, {"A": "", "B": "\n"}))
            return {"type": "exec", "command": texts, "env": env, **choose(more)}
        case "apply_patch":
            patches = [
                {"type": choose(("create_file", "update_file")), "path": "a b", "diff": texts[0]},
                {"type": "delete_file", "path": "ä/b.py"},
            ]
            return choose(patches)
        case "tool_search":
            return choose(_OBJECTS)
        case "computer":
            actions = [
                {"type": "click", "button": "left", "x": 1, "y": 2},
                {"type": "type", "text": texts[0]},
                {"type": "screenshot"},
                {"type": "drag", "path": [{"x": 1, "y": 2}, {"x": 3, "y": 4}]},
            ]
            return choose(actions)


_SEARCH: Final = Known("tool_search", None, "tool_search", "tools")


def _has_search(tools: Sequence[Known]) -> bool:
    return any(k.kind == "tool_search" and k.place in ("tools", "carried") for k in tools)


def _search_for(found: list[Tool]) -> list[Item]:
    call = {"type": "tool_search_call", "call_id": "searched", "arguments": {"paths": ["x"]}}
    return [call, {"type": "tool_search_output", "call_id": "searched", "tools": found}]


def _written(tools: Any, **fields: Any) -> list[Tool]:  # Any: an iterable; fields of a tool
    """Return the tools as a caller writes them: those of a namespace under it."""
    written: list[Tool] = []
    spaces: dict[str, Tool] = {}
    for known in tools:
        tool: Tool = {"type": known.kind}
        if known.kind in _FUNCTIONS:
            tool |= {"name": known.name, "description": None, **fields}
        if known.kind == "tool_search":
            tool["execution"] = "client"
        if known.namespace is None:
            written.append(tool)
            continue
        if known.namespace not in spaces:
            spaces[known.namespace] = {"type": "namespace", "name": known.namespace, "tools": []}
            written.append(spaces[known.namespace])
        spaces[known.namespace]["tools"].append(tool)
    return written


def _round(
    choose: Choose, tools: list[Known], calls: list[Item], answers: dict[str, str]
) -> list[Item]:
    """What was said, some calls side by side, and what came back, in any order."""
    shape = choose(range(16))
    said: list[Item] = [{"type": "message", "role": "user", "content": "go on"}] * (shape & 1)
    said += [{"type": "message", "role": "assistant", "content": "I call"}] * (shape >> 1 & 1)
    outputs: list[Item] = []
    for known in [choose(tools) for _ in range(choose((1, 1, 2, 3)))]:
        call_id = f"call_{len(calls)}"
        call = _call(known, call_id, _payload(known.kind, choose))
        said.append(call)
        calls.append(call)
        answers[call_id] = f"came_of_{call_id}_"
        forms = _outputs(known.kind, call, answers[call_id])
        outputs.append(forms[len(calls) % len(forms)])
    said += [{"type": "message", "role": "user", "content": "quick!"}] * (shape >> 2 & 1)
    return [*said, *(reversed(outputs) if shape >> 3 else outputs)]


def _call(known: Known, call_id: str, payload: Any) -> Item:  # Any: as its kind has it
    family = FAMILIES[known.kind]
    call: Item = {
        "type": family.call,
        "id": f"id_{call_id}",
        "call_id": call_id,
        family.payload: payload,
    }
    if known.kind in _FUNCTIONS:
        call["name"] = known.name
        if known.namespace is not None:
            call["namespace"] = known.namespace
    if known.kind == "tool_search":
        call["execution"] = "client"
    if known.kind == "computer":
        call["pending_safety_checks"] = []
    return call


def _outputs(kind: Kind, call: Item, word: str) -> list[Item]:
    """Return the forms in which what came of a call may be said."""
    base = {"type": FAMILIES[kind].output, "call_id": call["call_id"]}
    text = {"type": "input_text", "text": word}
    image = {"type": "input_image", "image_url": "data:image/png;base64,AA=="}
    match kind:
        case "function" | "custom":
            return [base | {"output": word}, base | {"output": [text, image]}]
        case "shell":
            ended = {"type": "exit", "exit_code": 0}
            return [base | {"output": [{"stdout": word, "stderr": "", "outcome": ended}]}]
        case "local_shell":
            by_id = {"type": base["type"], "id": call["id"], "output": word}
            return [base | {"output": word}, by_id, by_id | {"call_id": None}]
        case "apply_patch":
            return [base | {"status": "completed", "output": word}]
        case "tool_search":
            # What was found is a tool of its own, which nothing else is named like.
            return [base | {"tools": [{"type": "function", "name": word}]}]
        case "computer":
            shot = {"type": "computer_screenshot", "image_url": "data:image/png;base64,AA=="}
            return [base | {"output": shot}]


def plan_of(body: dict[str, Any]) -> Plan:
    """Return what the model would be asked."""
    request = read_request(body)
    return make_plan(request, assessed(request, request.items), request.items, "m")


def wire(calls: Sequence[dict[str, Any]], sizes: Sequence[int], *, are_mixed: bool) -> bytes:
    """Return an answer with these calls as chunks; `sizes` say how their arguments are cut."""
    told: list[list[dict[str, Any]]] = []
    for index, call in enumerate(calls):
        function = call["function"]
        opened = {"name": function["name"], "arguments": ""}
        pieces: list[dict[str, Any]] = [{"index": index, "id": call["id"], "function": opened}]
        rest, turn = function["arguments"], index
        while rest:
            size = sizes[turn % len(sizes)] if turn < index + 30 else len(rest)
            pieces.append({"index": index, "function": {"arguments": rest[:size]}})
            rest, turn = rest[size:], turn + 1
        told.append(pieces)
    if are_mixed:
        longest = max(map(len, told), default=0)
        order = [pieces[n] for n in range(longest) for pieces in told if n < len(pieces)]
    else:
        order = [piece for pieces in told for piece in pieces]
    chunks = [{"choices": [{"index": 0, "delta": {"tool_calls": [piece]}}]} for piece in order]
    end = {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}
    lines = [f"data: {json.dumps(chunk)}\n\n" for chunk in [*chunks, end]]
    return "".join([*lines, "data: [DONE]\n\n"]).encode()


def cut(data: bytes, places: Sequence[int]) -> list[bytes]:
    """Return the bytes in pieces."""
    edges = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    return [data[a:b] for a, b in pairwise(edges)]


def read_back(plan: Plan, pieces: Sequence[bytes]) -> list[Item]:
    """Return the items that become of a chat answer, by the road that every answer takes."""
    reader, lifter, gate = ChatStream(think_tags=False), CallLifter(plan.toolbox), gate_for(plan)
    deltas: list[Delta] = []
    for piece in pieces:
        deltas += lifter.feed(reader.feed(piece))
    deltas += lifter.feed(reader.end())
    admitted = [gate.admit(delta) for delta in deltas]
    events = build(delta for delta in admitted if delta is not None)
    items: list[Item] = events[-1].response.output  # type: ignore[union-attr]  # it is the last
    return items


def messages_of(plan: Plan) -> list[dict[str, Any]]:
    """Return the messages of the chat request."""
    body, _ = write_request(plan, GENERIC)
    messages: list[dict[str, Any]] = body["messages"]
    return messages

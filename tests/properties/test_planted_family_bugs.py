"""Would a bug on the way down to a chat model, or up again, be seen? Each planted one must be.

As in `test_planted_bugs`, every bug is a small change to a module's own source. Its functions
run the changed code where they stand, so that all who use them meet the bug; then some tools and
a history go down and up, and have to come back as they were.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Iterator
from typing import Any, Final

import pytest

from antiphon.plans import aliases, held_calls, toolbox
from antiphon.protocol import families, unwrap
from antiphon.protocol.errors import AntiphonError
from antiphon.protocol.items import Item
from antiphon.wires import lift, lower
from tests.properties.test_families import Split, check_survival
from tests.tool_histories import History, Known

LONG: Final = "n" * 70
TOOLS: Final = [
    Known("function", None, "f", "tools"),
    Known("custom", None, "f", "tools"),
    Known("function", "a", "b", "tools"),
    Known("function", None, "a__b", "tools"),
    Known("function", None, "x.y", "tools"),
    Known("function", None, "x_y", "tools"),
    Known("function", None, LONG, "tools"),
    Known("function", None, LONG + "n", "tools"),
    Known("shell", None, "shell", "tools"),
    Known("local_shell", None, "local_shell", "tools"),
    Known("apply_patch", None, "apply_patch", "tools"),
    Known("tool_search", None, "tool_search", "tools"),
    Known("custom", "late", "c", "found"),
    Known("function", None, "more", "carried"),
    Known("custom", None, "a__b", "gone"),
]
PATCH: Final = {"type": "update_file", "path": "a.py", "diff": "@@\n+x"}
CALLS: Final[list[Item]] = [
    {"type": "function_call", "name": "f", "arguments": '{"a": "b"}'},
    {"type": "custom_tool_call", "name": "f", "input": '{"input": "x"}'},
    {"type": "function_call", "name": "b", "namespace": "a", "arguments": "{}"},
    {"type": "function_call", "name": "a__b", "arguments": '{"c": 1}'},
    {"type": "function_call", "name": "x.y", "arguments": "{}"},
    {"type": "function_call", "name": "x_y", "arguments": "{}"},
    {"type": "function_call", "name": LONG, "arguments": "{}"},
    {"type": "function_call", "name": LONG + "n", "arguments": "{}"},
    {
        "type": "shell_call",
        "action": {"commands": ["ls", "pwd"], "timeout_ms": 0, "max_output_length": None},
    },
    {
        "type": "local_shell_call",
        "action": {"type": "exec", "command": ["ls"], "env": {"A": "b"}, "user": "me"},
    },
    {"type": "apply_patch_call", "operation": PATCH},
    {"type": "apply_patch_call", "operation": {"type": "delete_file", "path": "a.py"}},
    {"type": "tool_search_call", "arguments": {"paths": ["late"]}, "execution": "client"},
    {"type": "custom_tool_call", "name": "c", "namespace": "late", "input": "two\nlines"},
    {"type": "function_call", "name": "more", "arguments": "{}"},
    {"type": "custom_tool_call", "name": "a__b", "input": "gone"},
]
SPLITS: Final[list[Split]] = [([1], True, [7, 99]), ([3, 8], False, []), ([1000], True, [])]


def _tool(known: Known) -> dict[str, Any]:
    tool: dict[str, Any] = {"type": known.kind, "name": known.name}
    if known.kind not in ("function", "custom"):
        del tool["name"]
    if known.kind == "tool_search":
        tool["execution"] = "client"
    if known.place == "found":
        tool["defer_loading"] = True
    if known.namespace is None:
        return tool
    return {"type": "namespace", "name": known.namespace, "tools": [tool]}


def _history() -> History:
    """All the calls side by side, and what came of them in the reverse order."""
    found = [_tool(known) for known in TOOLS if known.place == "found"]
    carried = [_tool(known) for known in TOOLS if known.place == "carried"]
    calls = [{**call, "id": f"i{n}", "call_id": f"c{n}"} for n, call in enumerate(CALLS)]
    outputs = [_output(call, found) for call in reversed(calls)]
    items: list[Item] = [{"type": "additional_tools", "tools": carried}, *calls, *outputs]
    tools = [_tool(known) for known in TOOLS if known.place in ("tools", "found")]
    answers = {call["call_id"]: f"came_of_{call['call_id']}_" for call in calls}
    answers["c12"] = "late__c"
    return History({"input": items, "tools": tools}, TOOLS, calls, answers)


def _output(call: Item, found: list[dict[str, Any]]) -> Item:
    word = f"came_of_{call['call_id']}_"
    base = {"call_id": call["call_id"], "output": word}
    match call["type"]:
        case "tool_search_call":
            return {"type": "tool_search_output", "call_id": call["call_id"], "tools": found}
        case "local_shell_call":
            return {"type": "local_shell_call_output", "id": call["id"], "output": word}
        case kind:
            return {"type": f"{kind}_output", **base}


BUGS: Final[dict[str, tuple[types.ModuleType, str, str]]] = {
    "two tools have one name": (
        aliases,
        'if is_plain(wished) and wished.strip("_") and wished not in taken:',
        "if is_plain(wished):",
    ),
    "long names are cut and not marked": (
        aliases,
        "alias = wished[: _MAX_ALIAS - len(mark)] + mark",
        "alias = wished[:_MAX_ALIAS]",
    ),
    "names are not cut": (aliases, "wished[: _MAX_ALIAS - len(mark)] + mark", "wished + mark"),
    "foreign characters stay": (aliases, '_FOREIGN.sub("_", f"', '_FOREIGN.sub("\\\\g<0>", f"'),
    "a name that would do is changed": (
        toolbox,
        "return entry.namespace is None and is_plain(entry.name)",
        "return False",
    ),
    "what was found stays hidden": (
        toolbox,
        'is_loaded = item_type(item) != "additional_tools"',
        "is_loaded = False",
    ),
    "tools that items carry are forgotten": (
        toolbox,
        'return item_type(item) in _CARRIERS and isinstance(item.get("tools"), list)',
        'return item_type(item) == "tool_search_output" and isinstance(item.get("tools"), list)',
    ),
    "a tool that is gone takes the name of another": (
        toolbox,
        "return free_alias(kind, namespace, name, self._by_alias)",
        "return free_alias(kind, namespace, name, ())",
    ),
    "the namespace is forgotten": (
        toolbox,
        "entry.kind, entry.name, entry.namespace,",
        "entry.kind, entry.name, None,",
    ),
    "a call keeps the name that the caller knows": (lower, '"name": alias,', '"name": name,'),
    "an input is not wrapped": (
        lower,
        'return _encode({"input": text}) if family.kind == "custom" else text',
        "return text",
    ),
    "a local shell's id is taken for a call_id": (
        lower,
        "return self._call_ids.get(wanted, wanted)",
        "return wanted",
    ),
    "a patch is written in another field": (
        families,
        'payload = {"operation": payload}',
        'payload = {"patch": payload}',
    ),
    "a limit of 0 is taken for none": (
        families,
        'return value is not None and name != "type"',
        'return bool(value) and name != "type"',
    ),
    "the environment is forgotten": (
        families,
        'not (name == "env" and not value)',
        'name != "env"',
    ),
    "what waits is forgotten": (
        held_calls,
        "self._due.extendleft(reversed(_joined(self._behind)))",
        "pass",
    ),
    "what waits comes out backwards": (
        held_calls,
        "self._due.extendleft(reversed(_joined(self._behind)))",
        "self._due.extendleft(_joined(self._behind))",
    ),
    "a held call takes the arguments of all": (
        held_calls,
        "elif isinstance(delta, CallGrew) and delta.key == held.opened.key:",
        "elif isinstance(delta, CallGrew):",
    ),
    "a held call is told before it is whole": (held_calls, "if held.is_whole():", "if True:"),
    "a held call is never told": (
        held_calls,
        "        self._put(self.settle(held, is_cut=is_cut))\n",
        "",
    ),
    "every call is a function": (
        lift,
        'if offer.kind != "function":',
        "if False:",
    ),
    "a function has the name that the model knows": (
        lift,
        "opened.key, offer.name, opened.call_id, offer.kind, offer.namespace, offer.alias",
        "opened.key, opened.name, opened.call_id, offer.kind, offer.namespace, offer.alias",
    ),
    "an input stays wrapped": (lift, "return unwrap_input(text)", "return text"),
    "an input is unwrapped twice": (
        unwrap,
        "return given if isinstance(given, str) else text",
        "return unwrap_input(given) if isinstance(given, str) else text",
    ),
}


def _functions(module: types.ModuleType) -> dict[str, types.FunctionType]:
    """Return the functions and methods that a module defines, by their qualified names."""
    found: dict[str, types.FunctionType] = {}
    for value in vars(module).values():
        members = [*vars(value).values()] if isinstance(value, type) else [value]
        for member in members:
            member = member.fget if isinstance(member, property) else member
            if isinstance(member, types.FunctionType) and member.__module__ == module.__name__:
                found[member.__qualname__] = member
    return found


@pytest.fixture
def planted(request: pytest.FixtureRequest) -> Iterator[None]:
    """A module whose functions run changed code, until the test is over."""
    module, old, new = BUGS[request.param]
    source = inspect.getsource(module)
    assert old in source, "the bug no longer applies: write it anew"
    changed = types.ModuleType(module.__name__)
    exec(source.replace(old, new), changed.__dict__)
    codes = {name: function.__code__ for name, function in _functions(module).items()}
    for name, function in _functions(changed).items():
        _functions(module)[name].__code__ = function.__code__
    yield
    for name, code in codes.items():
        _functions(module)[name].__code__ = code


def _survive() -> None:
    for split in SPLITS:
        check_survival(_history(), split)


def test_the_tools_and_the_history_survive_as_things_are() -> None:
    _survive()


@pytest.mark.parametrize("planted", BUGS, indirect=True)
@pytest.mark.usefixtures("planted")
def test_a_planted_bug_is_caught() -> None:
    with pytest.raises((AssertionError, AntiphonError, LookupError, AttributeError)):
        _survive()

"""Is this JSON a call, and where does it end?

    {"name": …, "arguments": …}            also "tool", "tool_name", "function" for the name
                                           and "parameters", "args", "input" for the arguments
    {"function": {…}}, {"tool_calls": […]} calls inside
    [{…}, {…}]                             a list of calls
    [name(a=1), name(b="x")]               the same, as Python writes it

It is given up at the first key that no call begins with and at a name that was not offered.
The definition of a tool, which some models repeat, is no call.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from antiphon.wires.chat.recover.literals import read_literal
from antiphon.wires.chat.recover.pending_text import Found, Held, NotACall, Steps
from antiphon.wires.chat.recover.values import Names, read_call_arguments, read_keyword_arguments

__all__ = [
    "NAME",
    "SPACE",
    "read_calls",
    "read_list",
    "read_named_list",
    "read_parens",
    "read_value",
]

SPACE: Final = re.compile(r"\s*")
NAME: Final = re.compile(r"[\w.:/-]*")

_NAMES: Final = frozenset({"name", "tool", "tool_name", "function_name", "function"})
_ARGUMENTS: Final = ("arguments", "parameters", "args", "input")
_INSIDE: Final = frozenset({"function", "tool_calls", "tool_call", "function_call"})
_BESIDE: Final = frozenset({"type", "id", "call_id", "tool_call_id", "index", "role", "content"})
_KNOWN: Final = _NAMES | _INSIDE | _BESIDE | frozenset(_ARGUMENTS)
_TYPES: Final = frozenset({"function", "function_call", "tool_call", "tool_use", "tool"})

_MAX_DEPTH: Final = 100
_MAX_NAME: Final = 256
_CLOSERS: Final = {"{": "}", "[": "]", "(": ")"}
_PLAIN: Final = re.compile(r"""[^"'{}\[\]()]*""")
_SCALAR: Final = re.compile(r"""[^\s,"'{}\[\]()<`]*""")
_IN_STRING: Final = {'"': re.compile(r'[^"\\]*'), "'": re.compile(r"[^'\\]*")}


def read_calls(held: Held, names: Names, *, is_tagged: bool = False) -> Steps[list[Found]]:
    """Return the calls in the object or the list that begins here.

    Between tags a name alone is a call. A last brace may be missing, as Llama forgets it.
    """
    if (yield from held.step("{[")) == "{":
        return (yield from _read_object(held, names, is_tagged, 0))
    return (yield from read_list(held, names, is_tagged=is_tagged))


def read_list(held: Held, names: Names, *, is_tagged: bool = False) -> Steps[list[Found]]:
    """Return the calls of a list whose bracket was read."""
    char = yield from held.skip(SPACE)
    if char == "{":
        return (yield from _read_objects(held, names, is_tagged, 0))
    if not char.isidentifier():
        raise NotACall
    name = yield from held.run(NAME, _MAX_NAME)
    return (yield from read_named_list(held, names, name))


def read_named_list(held: Held, names: Names, name: str) -> Steps[list[Found]]:
    """Return the calls of a list as Python writes it; the first name was read."""
    found = [(yield from read_parens(held, names, name))]
    while True:
        yield from held.skip(SPACE)
        if (yield from held.step(",]")) == "]":
            return found
        yield from held.skip(SPACE)
        name = yield from held.run(NAME, _MAX_NAME)
        found.append((yield from read_parens(held, names, name)))


def read_parens(held: Held, names: Names, name: str) -> Steps[Found]:
    """Return the call `name(a=1)`; the name was read."""
    offered = names.find(name) or names.find(name.removesuffix(".call"))
    if offered is None or (yield from held.peek()) != "(":
        raise NotACall
    arguments = read_keyword_arguments((yield from read_value(held))[1:-1])
    if arguments is None:
        raise NotACall
    return Found(offered, arguments)


def read_value(held: Held) -> Steps[str]:
    """Return the text of the value that begins here, of any type."""
    start = held.offset
    char = yield from held.peek()
    if char and char in "\"'":
        yield from _skip_string(held)
    elif char and char in _CLOSERS:
        yield from _skip_nested(held)
    elif not (yield from held.run(_SCALAR)):
        raise NotACall
    return held.since(start)


def _skip_nested(held: Held) -> Steps[None]:
    open_: list[str] = []
    while True:
        char = yield from held.skip(_PLAIN)
        if not char or len(open_) > _MAX_DEPTH:
            raise NotACall
        if char in "\"'":
            yield from _skip_string(held)
            continue
        if char in _CLOSERS:
            open_.append(_CLOSERS[char])
        elif char != open_.pop():
            raise NotACall
        held.at += 1
        if not open_:
            return


def _skip_string(held: Held) -> Steps[None]:
    """Pass over a string; Python has some that begin and end with three quotes."""
    quote = yield from held.step("\"'")
    wanted = 1
    if (yield from held.peek()) == quote:
        held.at += 1
        if (yield from held.peek()) != quote:
            return
        held.at += 1
        wanted = 3
    seen = 0
    while seen < wanted:
        start = held.offset
        char = yield from held.skip(_IN_STRING[quote])
        if not char:
            raise NotACall
        seen = seen if held.offset == start else 0
        held.at += 1
        if char == quote:
            seen += 1
            continue
        seen = 0
        if not (yield from held.peek()):
            raise NotACall
        held.at += 1


class _Said:
    """The fields so far of an object that may be a call."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self._name: str | None = None
        self._arguments: dict[str, str] = {}
        self._is_definition = False
        self.inside: list[Found] = []

    @property
    def is_named(self) -> bool:
        """Return whether a name that was offered has come."""
        return self._name is not None or bool(self.inside)

    def check_key(self, key: str) -> None:
        """Give up at a key that calls do not have, unless a name has been offered already."""
        if key not in _KNOWN and not self.is_named:
            raise NotACall
        self._is_definition |= key in ("description", "strict")

    def take(self, key: str, raw: str) -> None:
        if key in _NAMES:
            self._name = self._names.find_numbered(_text(raw))
            if self._name is None:
                raise NotACall
        elif key == "type" and _text(raw) not in _TYPES:
            raise NotACall
        elif key in _ARGUMENTS:
            self._arguments[key] = raw

    def calls(self, is_tagged: bool) -> list[Found]:
        """Return what the whole object comes to. Raise NotACall if that is no call."""
        if self.inside:
            return self.inside
        if self._name is None or self._is_definition:
            raise NotACall
        key = next((key for key in _ARGUMENTS if key in self._arguments), None)
        if key is None:
            if not is_tagged:
                raise NotACall
            return [Found(self._name, "{}")]
        arguments = read_call_arguments(self._arguments[key], key)
        if arguments is None or (key == "parameters" and _is_schema(arguments)):
            raise NotACall
        return [Found(self._name, arguments)]


def _read_objects(held: Held, names: Names, is_tagged: bool, depth: int) -> Steps[list[Found]]:
    """Return the calls of a list of objects, from the first of them to the bracket."""
    found: list[Found] = []
    while True:
        yield from held.step("{")
        found += yield from _read_object(held, names, is_tagged, depth + 1)
        yield from held.skip(SPACE)
        if (yield from held.step(",]")) == "]":
            return found
        yield from held.skip(SPACE)


def _read_object(held: Held, names: Names, is_tagged: bool, depth: int) -> Steps[list[Found]]:
    """Return the calls of an object whose brace was read."""
    said = _Said(names)
    if depth > 4:
        raise NotACall
    while True:
        char = yield from held.skip(SPACE)
        if not char or char not in "\"'":
            raise NotACall
        yield from _read_field(held, names, said, is_tagged, depth)
        char = yield from held.skip(SPACE)
        if char == ",":
            held.at += 1
            continue
        is_brace_missing = depth == 0 and (char in "<`" if char else not held.is_cut)
        if not is_brace_missing:
            yield from held.step("}")
        return said.calls(is_tagged)


def _read_field(held: Held, names: Names, said: _Said, is_tagged: bool, depth: int) -> Steps[None]:
    key = (yield from _read_short(held))[1:-1]
    said.check_key(key)
    yield from held.skip(SPACE)
    yield from held.step(":")
    char = yield from held.skip(SPACE)
    if key in _INSIDE and char == "{":
        held.at += 1
        said.inside += yield from _read_object(held, names, is_tagged, depth + 1)
    elif key in _INSIDE and char == "[":
        held.at += 1
        yield from held.skip(SPACE)
        said.inside += yield from _read_objects(held, names, is_tagged, depth + 1)
    elif key in _NAMES:
        said.take(key, (yield from _read_short(held)))
    elif key in _BESIDE and not said.is_named:
        # An answer in JSON may begin like this too: do not hold it back until its content ends.
        short = _read_short(held) if char and char in "\"'" else held.run(_SCALAR, _MAX_NAME)
        said.take(key, (yield from short))
    else:
        said.take(key, (yield from read_value(held)))


def _read_short(held: Held) -> Steps[str]:
    """Return a key or a name, in its quotes. Those of calls are short and have no escapes."""
    start = held.offset
    quote = yield from held.step("\"'")
    yield from held.run(_IN_STRING[quote], _MAX_NAME)
    yield from held.step(quote)
    return held.since(start)


def _text(raw: str) -> str:
    """Return the text of a string; a name that is not a string was not offered."""
    try:
        value = read_literal(raw)
    except ValueError:
        raise NotACall from None
    if not isinstance(value, str):
        raise NotACall
    return value.strip()


def _is_schema(arguments: str) -> bool:
    fields = msgspec.json.decode(arguments)
    return fields.get("type") == "object" and isinstance(fields.get("properties"), dict)

"""Where may a call begin, and what form may it have there?

    | character | where           | form                                                    |
    |-----------|-----------------|---------------------------------------------------------|
    | `<`       | anywhere        | tags (`tags`)                                      |
    | `[`       | anywhere        | `[TOOL_CALLS]` and what follows it                      |
    | ``` ` ``` | anywhere        | a code block of JSON, or of tags, with nothing else     |
    | `{`, `[`  | begins a line   | JSON or `[name(a=1)]`, if nothing else follows it       |

Not right after a back quote: that is text about tags. A model that is asked for an example of a
call, in a code block, makes a call: the two cannot be distinguished.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, TypeAlias

from antiphon.wires.chat.recover.json_calls import (
    NAME,
    read_calls,
    read_list,
    read_named_list,
    read_parens,
)
from antiphon.wires.chat.recover.pending_text import Found, Held, NotACall, Steps
from antiphon.wires.chat.recover.tags import is_end_tag, read_tag, read_tagged, read_wrapped
from antiphon.wires.chat.recover.values import Names

__all__ = ["BEGINNINGS", "LOOK_BACK", "Form", "form_at"]

Form: TypeAlias = Callable[[Held, Names], Steps[None]]
"""Reads one form of calls, and keeps what it finds."""

BEGINNINGS: Final = re.compile(r"<(?=[\w/|｜]|\Z)|`|\[(?=[\s\w{]|\Z)|\{(?=[\s\"']|\Z)")
"""The characters that a call may begin with, as far as the one behind them shows it."""
LOOK_BACK: Final = 9
"""How many characters before one of them decide whether it may."""

_LINE_START: Final = re.compile(r"\n[ \t]*\Z")
_SPACE: Final = re.compile(r"\s*")
_BETWEEN: Final = re.compile(r"[\s,;]*")
_TICKS: Final = re.compile(r"`*")
_INFO: Final = re.compile(r"[^\s`{\[<]")
_LETTER: Final = re.compile(r"[A-Z_]")
_MAX_NAME: Final = 256

# What the first line of a code block may be if calls are in it.
_CALL_INFO: Final = frozenset(
    {"tool_call", "tool_calls", "tool_code", "tool", "function", "function_call", "call"}
)
_JSON_INFO: Final = _CALL_INFO | {
    *("", "json", "jsonl", "json5", "jsonc", "python", "py", "xml", "text", "txt", "plaintext"),
}


def form_at(char: str, before: str) -> Form | None:
    """Return the form that may begin with `char`; None if none may.

    `before` is the text before it; only its last characters matter. A line break stands for
    the beginning of the text.
    """
    if char == "`":
        return _read_block
    if before.endswith("`"):
        return None
    if char == "<":
        return read_tagged
    starts_line = _LINE_START.search(before) is not None
    if char == "[":
        return _read_bracket if starts_line else _read_mark
    return _read_bare if starts_line else None


def _read_mark(held: Held, names: Names) -> Steps[None]:
    """Keep the calls behind `[TOOL_CALLS]`."""
    yield from held.step("[")
    yield from held.word(_LETTER, frozenset({"tool_calls"}))
    yield from held.step("]")
    yield from read_wrapped(held, names)


def _read_bracket(held: Held, names: Names) -> Steps[None]:
    """Keep the calls of a list that begins a line, or behind a mark."""
    yield from held.step("[")
    if not (yield from held.peek()).isidentifier():
        yield from _read_rest(held, names, (yield from read_list(held, names)))
        return
    name = yield from held.run(NAME, _MAX_NAME)
    if name == "TOOL_CALLS" and (yield from held.peek()) == "]":
        held.at += 1
        yield from read_wrapped(held, names)
    else:
        yield from _read_rest(held, names, (yield from read_named_list(held, names, name)))


def _read_bare(held: Held, names: Names) -> Steps[None]:
    """Keep JSON without any mark around it."""
    yield from _read_rest(held, names, (yield from read_calls(held, names)))


def _read_rest(held: Held, names: Names, calls: list[Found]) -> Steps[None]:
    """Keep calls without any mark around them, if only more of them follow."""
    while char := (yield from held.skip(_BETWEEN)):
        if char == "<":
            if not is_end_tag((yield from read_tag(held))):
                raise NotACall
        elif char in "{[":
            calls += yield from read_calls(held, names)
        else:
            raise NotACall
    held.keep(*calls)


def _read_block(held: Held, names: Names) -> Steps[None]:
    """Keep the calls of a code block that has nothing but calls."""
    ticks = len((yield from held.run(_TICKS)))
    if ticks < 3:
        raise NotACall
    try:
        info = yield from held.word(_INFO, _JSON_INFO)
        yield from held.skip(_SPACE)
        yield from _read_inside(held, names, info)
    except NotACall:
        raise NotACall(ticks) from None


def _read_inside(held: Held, names: Names, info: str) -> Steps[None]:
    calls: list[Found] = []
    while char := (yield from held.skip(_BETWEEN)):
        if char == "`":
            break
        if char == "<":
            yield from read_tagged(held, names)
            held.is_after_call = True
        elif char in "{[":
            calls += yield from read_calls(held, names, is_tagged=info in _CALL_INFO)
        elif char == "}" and calls:
            held.at += 1
        elif info in _CALL_INFO:
            calls.append((yield from _read_code(held, names)))
        else:
            raise NotACall
    if not calls and not held.has_kept:
        raise NotACall
    if char:
        ticks = yield from held.run(_TICKS)
        if len(ticks) < 3 and not (held.is_ended and held.waits):
            raise NotACall
    held.keep(*calls)


def _read_code(held: Held, names: Names) -> Steps[Found]:
    """Return the call `name(a=1)`, which Gemma likes to print."""
    name = yield from held.run(NAME, _MAX_NAME)
    if name != "print" or names.find(name) is not None:
        return (yield from read_parens(held, names, name))
    yield from held.step("(")
    name = yield from held.run(NAME, _MAX_NAME)
    call = yield from read_parens(held, names, name)
    yield from held.skip(_SPACE)
    yield from held.step(")")
    return call

"""Our members in a user's JSON file with comments.

There are no marks here, because not every such file may have comments and some programs rewrite
theirs: ours is found by its place and its name. It is inserted right after the opening bracket,
and nothing else changes. When it is removed, the text is what it was before if that is known,
otherwise the text without our members and without objects that held nothing else.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from antiphon.cli.connect.jsonc import Node, NotJson, read_jsonc, skip_space
from antiphon.cli.connect.piece import CannotMerge, newline_of

__all__ = ["Addition", "JsonPiece"]

_REST_OF_LINE: Final = re.compile(r"(?:[ \t]*(?://[^\r\n]*|/\*[^\r\n]*?\*/))*(?=[ \t]*\r?\n)")


class Addition(msgspec.Struct, frozen=True):
    """A value of ours at a path of keys."""

    path: tuple[str, ...]
    value: Any
    like: Mapping[str, str] = {}
    """Not empty: the value goes into the list at the path, and is known by these members."""
    prefix: str = ""
    """Not empty: only a text that begins so is ours; any other is left as it is."""


class JsonPiece(msgspec.Struct, frozen=True):
    """Members of ours, each where it belongs."""

    additions: tuple[Addition, ...]
    empty: str = "{}"
    """What a file without anything in it begins with."""
    indent: str = "  "
    is_known_by_first: bool = False
    """Whether the others are ours only beside the first: their names are also the user's."""

    def paste(self) -> str:
        """Return them as a file of their own."""
        return self.merge("")

    def merge(self, text: str) -> str:
        """Return the text with our members in it."""
        for addition in self.additions:
            text = self._add(text, addition)
        return text

    def take_out(self, text: str, befores: Sequence[str] = ()) -> str:
        """Return the text without our members."""
        found = self._found(text)
        if not found.additions:
            return text
        for before in befores:
            if self.has_made(text, before):
                return before
        known = _read(befores[0]) if befores else None
        for addition in reversed(found.additions):
            text = _take_out(text, addition, known)
        return text

    def has_made(self, text: str, before: str) -> bool:
        """Return whether the text is what comes of our members in the one before."""
        try:
            return self._found(text).merge(before) == text
        except CannotMerge:  # it has become something else since
            return False

    def is_blank(self, text: str) -> bool:
        """Return whether there is nothing in it, not even a comment."""
        return text.strip() in ("", self.empty)

    def _found(self, text: str) -> JsonPiece:
        """Return the piece as it is in a text."""
        root = _read(text)
        found = []
        for addition in self.additions:
            node = _find(root, addition)
            if node is not None and _is_ours(node.value, addition):
                found.append(msgspec.structs.replace(addition, value=node.value))
            elif self.is_known_by_first and not found:
                break
        return msgspec.structs.replace(self, additions=tuple(found))

    def _add(self, text: str, addition: Addition) -> str:
        root = _read(text)
        if root is None:
            newline = newline_of(text)
            gap = newline if text and not text.endswith("\n") else ""
            text = f"{text}{gap}{self.empty}{newline}"
            root = _read(text)
        assert root is not None
        style = _Style(newline_of(text), _own_indent(text, root) or self.indent)
        node = _find(root, addition)
        if node is None:
            return _insert(text, root, addition, style)
        if not _is_ours(node.value, addition):
            return text
        wanted = _with_additions(node.value, addition.value)
        if node.value == wanted:
            return text
        rendered = style.render(wanted, _line_indent(text, node.start))
        return text[: node.start] + rendered + text[node.end :]


class _Style(msgspec.Struct, frozen=True):
    """How a text is laid out."""

    newline: str
    unit: str

    def render(self, value: Any, indent: str) -> str:
        """Return a value as JSON whose first line is indented already."""
        text = json.dumps(value, indent=self.unit, ensure_ascii=False)
        return text.replace("\n", self.newline + indent)


def _read(text: str) -> Node | None:
    try:
        return read_jsonc(text)
    except NotJson as error:
        raise CannotMerge(f"it is not JSON: {error}") from None


def _is_ours(value: Any, addition: Addition) -> bool:
    return not addition.prefix or (isinstance(value, str) and value.startswith(addition.prefix))


def _with_additions(value: Any, wanted: Any) -> Any:
    """Return what we want, and what others have added to it, such as a reference to a key."""
    if isinstance(value, dict) and isinstance(wanted, dict):
        return wanted | {key: value[key] for key in value if key not in wanted}
    return wanted


def _find(root: Node | None, addition: Addition) -> Node | None:
    node = _walk(root, addition.path)
    if node is None or not addition.like:
        return node
    if not isinstance(node.value, list):
        raise CannotMerge("it holds no list where ours would go")
    for _, _, child in node.children:
        if isinstance(child.value, dict) and addition.like.items() <= child.value.items():
            return child
    return None


def _walk(node: Node | None, path: Sequence[str]) -> Node | None:
    for key in path:
        node = node.child(key) if node is not None else None
    return node


# Putting in.


def _insert(text: str, root: Node, addition: Addition, style: _Style) -> str:
    """Return the text with the value in it, and with objects for those keys that are missing."""
    keys = list(addition.path)
    value = [addition.value] if addition.like else addition.value
    holder = root
    while keys and (node := holder.child(keys[0])) is not None:
        holder = node
        del keys[0]
    if not keys:
        return _put(text, holder, None, addition.value, style)
    if not isinstance(holder.value, dict):
        what = "it" if holder is root else repr(addition.path[len(addition.path) - len(keys) - 1])
        raise CannotMerge(f"{what} is not an object")
    for key in reversed(keys[1:]):
        value = {key: value}
    return _put(text, holder, keys[0], value, style)


def _put(text: str, holder: Node, key: str | None, value: Any, style: _Style) -> str:
    """Return the text with a child more, the first of its holder."""
    outer = _line_indent(text, holder.start)
    indent = _own_indent(text, holder) or outer + style.unit
    label = "" if key is None else f"{json.dumps(key, ensure_ascii=False)}: "
    child = style.newline + indent + label + style.render(value, indent)
    at = holder.start + 1
    if (rest := _REST_OF_LINE.match(text, at)) is not None:
        at = rest.end()
    if holder.children:
        child += ","
    elif "\n" not in text[at : holder.end]:
        child += style.newline + outer
    return text[:at] + child + text[at:]


def _own_indent(text: str, holder: Node) -> str | None:
    """Return the indent of a holder's children, if the first has a line of its own."""
    if not holder.children:
        return None
    start = holder.children[0][1]
    before = text[text.rfind("\n", 0, start) + 1 : start]
    return before if before and not before.strip() else None


def _line_indent(text: str, at: int) -> str:
    """Return the space at the beginning of the line."""
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return line[: len(line) - len(line.lstrip(" \t"))]


# Taking out.


def _take_out(text: str, addition: Addition, known: Node | None) -> str:
    """Return the text without a value of ours, and without the objects that only held it."""
    root = _read(text)
    path = addition.path if addition.like else addition.path[:-1]
    text = _cut(text, _walk(root, path), _find(root, addition))
    while path and _walk(known, path) is None:
        root = _read(text)
        node = _walk(root, path)
        if node is None or text[node.start : node.end] not in ("{}", "[]"):
            break
        path = path[:-1]
        text = _cut(text, _walk(root, path), node)
    return text


def _cut(text: str, holder: Node | None, node: Node | None) -> str:
    """Return the text without a child, its comma and the space before it."""
    assert holder is not None and node is not None
    at = next(at for at, (_, _, child) in enumerate(holder.children) if child is node)
    start, end = holder.children[at][1], node.end
    comma = skip_space(text, end)
    if text[comma] == ",":
        end = comma + 1
    elif at > 0:
        comma = skip_space(text, holder.children[at - 1][2].end)
        text = text[:comma] + text[comma + 1 :]
        start, end = start - 1, end - 1
    head, tail = text[:start], text[end:]
    tight = head.rstrip(" \t\r\n") + tail
    # Without the line before it, what follows might become part of a comment.
    cut = tight if _values(tight) == _values(head + tail) else head + tail
    opening = holder.start + 1
    closing = skip_space(cut, opening)
    if len(holder.children) == 1 and not cut[opening:closing].strip():
        return cut[:opening] + cut[closing:]
    return cut


def _values(text: str) -> Any:
    try:
        root = read_jsonc(text)
    except NotJson as error:
        return str(error)
    return root.value if root else None

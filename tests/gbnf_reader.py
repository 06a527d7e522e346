"""A reader of llama.cpp's GBNF that shares nothing with what writes it.

It says whether a text belongs to a grammar, and fails on what llama.cpp refuses: left recursion
and loops around nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable

__all__ = ["Gbnf"]

_ESCAPE = re.compile(
    r'\\(?:x([0-9A-F]{2})|u([0-9A-F]{4})|U([0-9A-F]{8})|([nrt"\\\[\]]))|([^\\])', re.DOTALL
)
_PLAIN = {"n": "\n", "r": "\r", "t": "\t"}
Ends = Callable[[str, int], "set[int]"]


class Gbnf:
    """A grammar as functions from a place in the text to the places where it may end."""

    def __init__(self, source: str) -> None:
        self._rules: dict[str, Ends] = {}
        self._known: dict[tuple[str, int], set[int] | None] = {}
        for line in source.strip().split("\n"):
            name, _, body = line.partition(" ::= ")
            assert re.fullmatch("[a-zA-Z0-9-]+", name), name
            assert name not in self._rules
            self._source, self._at = body, 0
            self._rules[name] = self._options()
            assert self._at == len(body), body[self._at :]

    def accepts(self, text: str) -> bool:
        self._known = {}
        return len(text) in self._call("root", text, 0)

    def _call(self, name: str, text: str, at: int) -> set[int]:
        if (name, at) not in self._known:
            self._known[name, at] = None
            self._known[name, at] = self._rules[name](text, at)
        found = self._known[name, at]
        assert found is not None, f"{name} begins with itself"
        return found

    def _space(self) -> None:
        while self._source.startswith(" ", self._at):
            self._at += 1

    def _options(self) -> Ends:
        options = [self._sequence()]
        while self._source.startswith("|", self._at):
            self._at += 1
            options.append(self._sequence())
        return lambda text, at: set().union(*(option(text, at) for option in options))

    def _sequence(self) -> Ends:
        items: list[Ends] = []
        self._space()
        while self._at < len(self._source) and self._source[self._at] not in "|)":
            items.append(self._item())
            self._space()

        def ends(text: str, at: int) -> set[int]:
            places = {at}
            for item in items:
                places = set().union(*(item(text, place) for place in places))
            return places

        return ends

    def _item(self) -> Ends:
        sign = self._source[self._at]
        if sign == '"':
            item = self._text()
        elif sign == "[":
            item = self._class()
        elif sign == ".":
            self._at += 1
            item = lambda text, at: {at + 1} if at < len(text) else set()  # noqa: E731
        elif sign == "(":
            self._at += 1
            item = self._options()
            assert self._source[self._at] == ")"
            self._at += 1
        else:
            match = re.compile("[a-zA-Z0-9-]+").match(self._source, self._at)
            assert match, self._source[self._at :]
            self._at, name = match.end(), match.group()
            item = lambda text, at: self._call(name, text, at)  # noqa: E731
        return self._repeated(item)

    def _repeated(self, item: Ends) -> Ends:
        match = re.compile(r"[*+?]|\{(\d+)(,(\d*))?\}").match(self._source, self._at)
        if match is None:
            return item
        self._at = match.end()
        signs: dict[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}
        low, high = signs.get(match.group(), (0, 0))
        if match[1]:
            low = int(match[1])
            high = low if match[2] is None else int(match[3]) if match[3] else None
            assert max(low, high or 0) < 2000

        def repeated(text: str, at: int) -> set[int]:
            places, out = {at}, {at} if low == 0 else set()
            count = 0
            while places and (high is None or count < high):
                count += 1
                new = set[int]()
                for place in places:
                    ends = item(text, place)
                    assert high is not None or place not in ends, "a loop around nothing"
                    new |= ends
                places = new - (out if count > low else set())
                if count >= low:
                    out |= new
            return out

        return repeated

    def _char(self) -> str:
        match = _ESCAPE.match(self._source, self._at)
        assert match, self._source[self._at :]
        self._at = match.end()
        code = match[1] or match[2] or match[3]
        if code:
            return chr(int(code, 16))
        return _PLAIN.get(match[4], match[4]) if match[4] else match[5]

    def _text(self) -> Ends:
        self._at += 1
        want = ""
        while self._source[self._at] != '"':
            want += self._char()
        self._at += 1
        return lambda text, at: {at + len(want)} if text.startswith(want, at) else set()

    def _class(self) -> Ends:
        self._at += 1
        negated = self._source[self._at] == "^"
        self._at += negated
        ranges: list[tuple[str, str]] = []
        while self._source[self._at] != "]":
            low = high = self._char()
            if self._source[self._at] == "-" and self._source[self._at + 1] != "]":
                self._at += 1
                high = self._char()
            ranges.append((low, high))
        self._at += 1

        def ends(text: str, at: int) -> set[int]:
            if at >= len(text):
                return set()
            inside = any(low <= text[at] <= high for low, high in ranges)
            return {at + 1} if inside != negated else set()

        return ends

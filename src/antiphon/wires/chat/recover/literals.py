"""What value do these characters mean, when a model was careless with its JSON?

Read are the literals of JSON and of Python, mixed as models mix them: either kind of quotes,
raw line breaks in strings, `True` beside `true`, a comma too many. Only literals: no names, no
operators, nothing is ever run. The time is linear in the text, and nesting has a limit.
"""

from __future__ import annotations

import math
import re
from typing import Any, Final

__all__ = ["read_keywords", "read_literal"]

_MAX_DEPTH: Final = 100
# Each character can match in one way only, so a failed match costs linear time. No possessive
# quantifiers: `re` in early releases of Python 3.11 matches them wrongly over groups
# (https://github.com/python/cpython/issues/106052).
_TOKEN: Final = re.compile(
    r"""\s*(?:
      (?P<string>\"{3}[^"\\]*(?:(?:\\.|"(?!""))[^"\\]*)*\"{3}
        |'{3}[^'\\]*(?:(?:\\.|'(?!''))[^'\\]*)*'{3}
        |"[^"\\]*(?:\\.[^"\\]*)*"|'[^'\\]*(?:\\.[^'\\]*)*')
      |(?P<number>[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?(?!\w))
      |(?P<word>[^\W\d]\w*)
      |(?P<mark>[\[\]{}(),:=])
      |(?P<end>\Z))""",
    re.DOTALL | re.VERBOSE,
)
_ESCAPE: Final = re.compile(
    r"\\(?:u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|x([0-9a-fA-F]{2})|(.))", re.DOTALL
)
_ESCAPED: Final = {
    "n": "\n",
    "t": "\t",
    "r": "\r",
    "b": "\b",
    "f": "\f",
    "v": "\v",
    "a": "\a",
    "0": "\0",
    '"': '"',
    "'": "'",
    "\\": "\\",
    "/": "/",
    "\n": "",
}
_WORDS: Final = {
    "true": True,
    "True": True,
    "false": False,
    "False": False,
    "null": None,
    "None": None,
}


def read_literal(text: str) -> Any:
    """Return the value of one literal. Raise ValueError for anything else."""
    tokens = _Tokens(text)
    value = _value(tokens, 0)
    tokens.expect_end()
    return value


def read_keywords(text: str) -> dict[str, Any]:
    """Return the arguments of a call, `a=1, b="x"`. Raise ValueError for any other kind."""
    tokens = _Tokens(text)
    keywords: dict[str, Any] = {}
    while tokens.kind != "end":
        name = tokens.take("word")
        tokens.take_mark("=")
        keywords[name] = _value(tokens, 0)
        if tokens.kind != "end":
            tokens.take_mark(",")
    return keywords


class _Tokens:
    """The tokens of a text, the next one in view."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self.kind = ""
        self.token = ""
        self._step()

    def take(self, kind: str) -> str:
        if self.kind != kind:
            raise ValueError(f"{self.token[:20]!r} is no {kind}")
        token = self.token
        self._step()
        return token

    def take_mark(self, mark: str) -> None:
        if not self.skip_mark(mark):
            raise ValueError(f"{self.token[:20]!r} is not {mark!r}")

    def skip_mark(self, mark: str) -> bool:
        """Return whether the next token is this mark, and take it if so."""
        if self.kind != "mark" or self.token != mark:
            return False
        self._step()
        return True

    def expect_end(self) -> None:
        if self.kind != "end":
            raise ValueError(f"{self.token[:20]!r} follows the value")

    def _step(self) -> None:
        match = _TOKEN.match(self._text, self._at)
        if match is None or match.lastgroup is None:
            raise ValueError("no literal is written like this")
        self._at = match.end()
        self.kind, self.token = match.lastgroup, match[match.lastgroup]


def _value(tokens: _Tokens, depth: int) -> Any:
    if depth > _MAX_DEPTH:
        raise ValueError("too deep")
    match tokens.kind:
        case "string":
            return _unquote(tokens.take("string"))
        case "number":
            return _number(tokens.take("number"))
        case "word":
            return _word(tokens.take("word"))
    if tokens.skip_mark("{"):
        return _object(tokens, depth + 1)
    if tokens.skip_mark("["):
        return _list(tokens, "]", depth + 1)
    tokens.take_mark("(")
    return _list(tokens, ")", depth + 1)


def _object(tokens: _Tokens, depth: int) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    while not tokens.skip_mark("}"):
        key = _unquote(tokens.take("string"))
        tokens.take_mark(":")
        fields[key] = _value(tokens, depth)
        if not tokens.skip_mark(","):
            tokens.take_mark("}")
            break
    return fields


def _list(tokens: _Tokens, end: str, depth: int) -> list[Any]:
    values: list[Any] = []
    while not tokens.skip_mark(end):
        values.append(_value(tokens, depth))
        if not tokens.skip_mark(","):
            tokens.take_mark(end)
            break
    return values


def _number(token: str) -> int | float:
    if token.lstrip("+-").isdecimal():
        return int(token)
    number = float(token)
    if not math.isfinite(number):
        raise ValueError("JSON has no infinity")
    return number


def _word(token: str) -> bool | None:
    if token not in _WORDS:
        raise ValueError(f"{token[:20]!r} is no literal")
    return _WORDS[token]


def _unquote(token: str) -> str:
    quotes = 3 if len(token) >= 6 and token[:3] in ('"""', "'''") else 1
    text = _ESCAPE.sub(_unescape, token[quotes:-quotes])
    # Joins the halves of a character that was written as two escapes.
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _unescape(match: re.Match[str]) -> str:
    code = match[1] or match[2] or match[3]
    if code is None:
        # As Python does: a back slash before any other character is a back slash.
        return _ESCAPED.get(match[4], match[0])
    number = int(code, 16)
    return chr(number) if number <= 0x10FFFF else match[0]

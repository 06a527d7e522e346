"""How is a grammar in Lark's notation read?

The dialect is the one that grammar formats of custom tools have: rules in lower case,
terminals in upper case, `%ignore`, `%import common.X`, and `{m,n}` beside `~m..n`. Priorities,
templates, `%declare`, `%override` and everything that is more than a grammar (JSON schemas,
special tokens, rules with options, patterns that are joined or negated) is refused, with a
message that names the place. Only the notation is read here, not what the grammar means.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from antiphon.wires.chat.grammars.patterns import Alt, Cat, Repeat

__all__ = [
    "COMMON",
    "Lark",
    "LarkError",
    "LarkNode",
    "Name",
    "Regex",
    "Span",
    "Text",
    "parse_lark",
]

MAX_NESTING: Final = 28
_MAX_COUNT: Final = 1_000_000


class LarkError(Exception):
    """The text is not a grammar in this notation; the message names the place and the reason."""


@dataclass(frozen=True, slots=True)
class Name:
    """A rule or, in upper case, a terminal."""

    name: str


@dataclass(frozen=True, slots=True)
class Text:
    """This text, in any case of its letters if `fold`."""

    text: str
    fold: bool


@dataclass(frozen=True, slots=True)
class Regex:
    """What the pattern matches."""

    pattern: str
    flags: str


@dataclass(frozen=True, slots=True)
class Span:
    """One character from `first` to `last`."""

    first: str
    last: str


LarkNode: TypeAlias = Name | Text | Regex | Span | Cat | Alt | Repeat


@dataclass(slots=True)
class Lark:
    """A grammar as it was written; it begins at the rule `start`."""

    rules: dict[str, LarkNode] = field(default_factory=dict)
    terminals: dict[str, LarkNode] = field(default_factory=dict)
    ignored: list[LarkNode] = field(default_factory=list)


# What `%import common.X` brings: the library of the notation, as patterns.
_INT: Final = "[0-9]+"
_EXP: Final = r"[eE][+-]?[0-9]+"
_FLOAT: Final = rf"(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:{_EXP})?|[0-9]+{_EXP}"
COMMON: Final[dict[str, str]] = {
    "DIGIT": "[0-9]",
    "HEXDIGIT": "[0-9A-Fa-f]",
    "INT": _INT,
    "SIGNED_INT": f"[+-]?{_INT}",
    "DECIMAL": r"[0-9]+\.[0-9]*|\.[0-9]+",
    "_EXP": _EXP,
    "FLOAT": _FLOAT,
    "SIGNED_FLOAT": f"[+-]?(?:{_FLOAT})",
    "NUMBER": f"{_INT}|{_FLOAT}",
    "SIGNED_NUMBER": f"[+-]?(?:{_INT}|{_FLOAT})",
    "ESCAPED_STRING": r'"(?:[^"\\]|\\.)*"',
    "LCASE_LETTER": "[a-z]",
    "UCASE_LETTER": "[A-Z]",
    "LETTER": "[A-Za-z]",
    "WORD": "[A-Za-z]+",
    "CNAME": "[A-Z_a-z][0-9A-Z_a-z]*",
    "WS_INLINE": r"[\t ]+",
    "WS": r"[\t\n\f\r ]+",
    "CR": r"\r",
    "LF": r"\n",
    "NEWLINE": r"(?:\r?\n)+",
    "SH_COMMENT": r"#[^\n]*",
    "CPP_COMMENT": r"//[^\n]*",
    "C_COMMENT": r"/\*[^*]*\*+(?:[^*/][^*]*\*+)*/",
    "SQL_COMMENT": r"--[^\n]*",
}


class _Token(NamedTuple):
    kind: str
    text: str
    at: int


_TOKENS: Final = re.compile(
    r"""
      (?P<skip>(?:\#|//)[^\n]*|[ \t]+)
    | (?P<newline>(?:\r?\n)+[ \t]*)
    | (?P<string>"(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2})|[^"\\\x00-\x1f\x7f])*"i?)
    | (?P<regex>/(?:\\.|[^/\\])+/[imslux]*)
    | (?P<rule>!?[_?]?[a-z][_a-z0-9-]*)
    | (?P<terminal>_?[A-Z][_A-Z0-9-]*)
    | (?P<number>[+-]?[0-9]+)
    | (?P<statement>%[a-z]+)
    | (?P<sign>->|\.\.|::|[:|()\[\]{}~.,*+?&])
    """,
    re.VERBOSE | re.DOTALL,
)
_COUNTS: Final[dict[str, tuple[int, int | None]]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}
_ENDS: Final = frozenset(["|", "->", "}", ")", "]"])


def parse_lark(definition: str) -> Lark:
    """Return the grammar, or raise `LarkError`."""
    return _Parser(definition).parse()


def _tokens(definition: str) -> Iterator[_Token]:
    at = 0
    while at < len(definition):
        match = _TOKENS.match(definition, at)
        if match is None:
            raise LarkError(_placed(definition, at, f"cannot be read from {definition[at]!r} on"))
        kind = match.lastgroup or ""
        if kind != "skip":
            yield _Token(kind, match.group(), at)
        at = match.end()
    yield _Token("newline", "\n", at)
    yield _Token("end", "the end", at)


def _placed(definition: str, at: int, why: str) -> str:
    line = definition.count("\n", 0, at) + 1
    column = at - definition.rfind("\n", 0, at)
    return f"line {line}, column {column}: {why}"


class _Parser:
    """Reads one grammar, definition by definition."""

    def __init__(self, definition: str) -> None:
        self._definition = definition
        self._tokens = list(_tokens(definition))
        self._at = 0
        self._grammar = Lark()

    def parse(self) -> Lark:
        while self._skip_newlines().kind != "end":
            token = self._next()
            if token.kind == "rule":
                self._define(self._grammar.rules, token, token.text.lstrip("!?"))
            elif token.kind == "terminal":
                self._define(self._grammar.terminals, token, token.text)
            elif token.kind == "statement":
                self._statement(token)
            else:
                raise self._fault(token, f"a definition cannot begin with {token.text!r}")
        if "start" not in self._grammar.rules:
            raise LarkError("there is no rule named 'start'")
        return self._grammar

    def _fault(self, token: _Token, why: str) -> LarkError:
        return LarkError(_placed(self._definition, token.at, why))

    @property
    def _token(self) -> _Token:
        return self._tokens[self._at]

    def _next(self) -> _Token:
        token = self._token
        self._at = min(self._at + 1, len(self._tokens) - 1)
        return token

    def _take(self, text: str) -> bool:
        if self._token.kind == "sign" and self._token.text == text:
            self._at += 1
            return True
        return False

    def _expect(self, text: str) -> None:
        if not self._take(text):
            raise self._fault(self._token, f"'{text}' should stand here")

    def _skip_newlines(self) -> _Token:
        while self._token.kind == "newline":
            self._at += 1
        return self._token

    def _define(self, table: dict[str, LarkNode], token: _Token, name: str) -> None:
        if self._token.text in (".", "{", "[", "::"):
            raise self._fault(
                self._token, f"'{name}' has a priority, a parameter or an option; give it none"
            )
        if name in table:
            raise self._fault(token, f"'{name}' is defined twice")
        self._expect(":")
        table[name] = self._options(0)

    def _statement(self, token: _Token) -> None:
        if token.text == "%ignore":
            self._grammar.ignored.append(self._options(0))
        elif token.text == "%import":
            self._import()
        else:
            raise self._fault(token, f"'{token.text}' is not supported")

    def _import(self) -> None:
        library = self._next()
        names: list[tuple[str, _Token]] = []
        if library.text == "common" and self._take("."):
            names.append(("", self._next()))
            if self._take("->"):
                names = [(self._next().text, names[0][1])]
        elif library.text == "common" and self._take("("):
            names.append(("", self._next()))
            while self._take(","):
                names.append(("", self._next()))
            self._expect(")")
        else:
            raise self._fault(library, "only '%import common.NAME' is supported")
        for alias, token in names:
            if token.text not in COMMON:
                raise self._fault(token, f"there is no '{token.text}' in 'common'")
            if (name := alias or token.text) in self._grammar.terminals:
                raise self._fault(token, f"'{name}' is defined twice")
            self._grammar.terminals[name] = Regex(COMMON[token.text], "")

    def _options(self, depth: int) -> LarkNode:
        if depth > MAX_NESTING:
            raise self._fault(self._token, "brackets are nested too deep")
        options = [self._option(depth)]
        while self._more():
            options.append(self._option(depth))
        return options[0] if len(options) == 1 else Alt(tuple(options))

    def _more(self) -> bool:
        """Take a `|`, which may stand on the next line."""
        before = self._at
        if self._token.kind == "newline":
            self._at += 1
        if self._take("|"):
            return True
        self._at = before
        return False

    def _option(self, depth: int) -> LarkNode:
        option = self._sequence(depth)
        if self._take("->"):
            self._next()
        return option

    def _sequence(self, depth: int) -> LarkNode:
        parts: list[LarkNode] = []
        while self._token.kind != "newline" and self._token.text not in _ENDS:
            parts.append(self._counted(depth))
        return parts[0] if len(parts) == 1 else Cat(tuple(parts))

    def _counted(self, depth: int) -> LarkNode:
        node = self._atom(depth)
        if self._token.text in _COUNTS:
            low, high = _COUNTS[self._next().text]
        elif self._take("~"):
            low = self._count()
            high = self._count() if self._take("..") else low
        elif self._take("{"):
            low, high = self._braces()
        else:
            return node
        if high is not None and high < low:
            raise self._fault(self._token, "the count runs backwards")
        return Repeat(node, low, high)

    def _braces(self) -> tuple[int, int | None]:
        low = 0 if self._token.text == "," else self._count()
        high: int | None = low
        if self._take(","):
            high = None if self._token.text == "}" else self._count()
        self._expect("}")
        return low, high

    def _count(self) -> int:
        token = self._next()
        if token.kind != "number" or not 0 <= int(token.text[:9]) <= _MAX_COUNT:
            raise self._fault(token, f"a count from 0 to {_MAX_COUNT} should stand here")
        return int(token.text[:9])

    def _atom(self, depth: int) -> LarkNode:
        if self._take("("):
            node = self._options(depth + 1)
            self._expect(")")
            return Cat((node,))  # kept, because each pair of brackets costs the compiler stack
        if self._take("["):
            node = self._options(depth + 1)
            self._expect("]")
            return Repeat(node, 0, 1)
        return self._value()

    def _value(self) -> LarkNode:
        token = self._next()
        if token.kind in ("rule", "terminal"):
            if self._token.text == "::" or (
                self._token.text == "{"
                and self._tokens[self._at + 1].kind != "number"
                and self._tokens[self._at + 1].text != ","
            ):
                raise self._fault(token, "templates and parameters are not supported")
            return Name(token.text)
        if token.kind == "regex":
            pattern, _, flags = token.text[1:].rpartition("/")
            return Regex(pattern, flags)
        if token.kind != "string":
            raise self._fault(token, f"{token.text!r} cannot stand here")
        text, fold = _unquoted(token.text)
        if not self._take(".."):
            return Text(text, fold)
        last = self._next()
        span = Span(text, _unquoted(last.text)[0] if last.kind == "string" else "")
        if fold or len(span.first) != 1 or len(span.last) != 1 or span.first > span.last:
            raise self._fault(token, "a range goes from one character to a later one")
        return span


def _unquoted(text: str) -> tuple[str, bool]:
    fold = text.endswith("i")
    inner = _HEX.sub(_widened, text.removesuffix("i"))
    unquoted: str = json.loads(inner)
    return unquoted, fold


_HEX: Final = re.compile(r"\\(.)", re.DOTALL)


def _widened(match: re.Match[str]) -> str:
    return "\\u00" if match[1] == "x" else match[0]

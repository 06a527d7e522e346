"""Does a text keep to the grammar its tool was given?

`llguidance` decides, over a tokenizer whose tokens are the bytes, so no model is needed. It is
an extra and imported when it is first needed. Definitions come from strangers, so they are
weighed before they are compiled: deep chains of rules would overflow the stack of the process
and long rows of repetitions take memory with the square of their number. A check that takes too
much work ends with a problem, never with a pass.

Compiling lets other threads run; matching does not, so it goes piece by piece and looks at
the clock in between. Both belong `aside`, never on the event loop.
"""

from __future__ import annotations

import asyncio
import functools
import importlib.util
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeVar

from antiphon.protocol.errors import InvalidRequest
from antiphon.wires.chat.grammars.lark import Lark, LarkError, Name, Regex, parse_lark
from antiphon.wires.chat.grammars.patterns import Alt, Cat, Repeat
from antiphon.wires.chat.grammars.repetitions import Nest, repetitions

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLParserLimits, LLTokenizer

__all__ = [
    "HOW_TO",
    "MAX_DEFINITION",
    "MAX_TEXT",
    "GrammarCheck",
    "aside",
    "can_check",
    "grammar_check",
]

_T = TypeVar("_T")
_POOL: Final = ThreadPoolExecutor(1, thread_name_prefix="antiphon-grammar")

HOW_TO: Final = "checking grammars needs `pip install '.[grammar]'` in antiphon's directory"
MAX_DEFINITION: Final = 32 * 1024
MAX_TEXT: Final = 256 * 1024
# How many seconds of work a check may take, and how many more for each byte: a patch takes
# 2 us a byte, a grammar that is ambiguous everywhere takes with the cube of the length.
_SECONDS: Final = 0.5
_BYTE_SECONDS: Final = 10e-6

# Brackets take 2 kB of stack, a rule in a rule 4, and a thread may have only 512 kB (macOS).
_MAX_DEPTH: Final = 240
_NAME_DEPTH: Final = 3
_MAX_NAMES: Final = 2000
# 600 in a row compile in 0.07 s and 13 MB, 6,000 in 7 s and 1 GB.
_MAX_REPETITIONS: Final = 1000
# Two counts in a row of nothing else take up to 0.3 ms a byte, `{1,50}` five times 500 ms.
_FREE_LEVELS: Final = 2
_MAX_PRODUCT: Final = 250
_MAX_CACHED: Final = 16
# The automaton of a cached grammar grows with the texts it has seen; then it is compiled again.
_MAX_SEEN: Final = 64 * 1024
_END: Final = 256
_FIRST_PIECE: Final = 16
_LONGEST_PIECE: Final = 1024
_QUICK: Final = 0.002  # seconds: pieces get longer below it and shorter above
_MAX_OPTIONS: Final = 6
_MAX_SHOWN: Final = 40
_MAX_REASON: Final = 200


async def aside(work: Callable[[], _T]) -> _T:
    """Return the result of this work, done in a thread so that the event loop goes on.

    In one thread of its own: those of the pool that all share are for files, names and stores,
    and several at a time would only take the interpreter from the loop.
    """
    return await asyncio.get_running_loop().run_in_executor(_POOL, work)


def can_check() -> bool:
    """Return whether the library is installed."""
    return importlib.util.find_spec("llguidance") is not None


def grammar_check(format: Mapping[str, Any], param: str) -> GrammarCheck | None:
    """Return the check of a tool's grammar format, or None when the extra is not installed.

    The same definition is compiled once, because clients send theirs with every request.
    """
    definition, syntax = format.get("definition"), format.get("syntax")
    if syntax not in ("lark", "regex"):
        raise InvalidRequest(
            "a grammar's 'syntax' is 'lark' or 'regex'",
            code="invalid_grammar",
            param=f"{param}.syntax",
        )
    if not isinstance(definition, str):
        raise _invalid("a grammar's 'definition' is a string", param)
    if not can_check():
        return None
    try:
        return _compiled(syntax, definition)
    except InvalidRequest as error:
        raise _invalid(error.message, param) from None


def _invalid(why: str, param: str) -> InvalidRequest:
    return InvalidRequest(why, code="invalid_grammar", param=f"{param}.definition")


class GrammarCheck:
    """A compiled grammar. It may be used by several threads at once."""

    def __init__(
        self,
        syntax: Literal["lark", "regex"],
        definition: str,
        *,
        param: str = "format",
        seconds: float = _SECONDS,
    ) -> None:
        try:
            _weigh(syntax, definition)
        except LarkError as error:
            raise _invalid(f"the grammar cannot be used: {error}", param) from None
        from llguidance import LLMatcher

        make = LLMatcher.grammar_from_lark if syntax == "lark" else LLMatcher.grammar_from_regex
        self._grammar = make(definition)
        self._seconds = seconds
        self._lock = threading.Lock()
        self._seen = 0
        self._fresh = self._compile()
        if self._fresh.is_error():
            reason = _reason(self._fresh.get_error(), syntax)
            raise _invalid(f"the grammar cannot be used: {reason}", param)

    def problem(self, text: str) -> str | None:
        """Return None if the grammar produces the text, else a sentence that names the place.

        The sentence is written for the model that wrote the text.
        """
        data = text.encode("utf-8", "surrogatepass")
        if len(data) > MAX_TEXT:
            return f"The text is longer than the {MAX_TEXT} bytes that are checked; shorten it."
        matcher = self._matcher(len(data))
        until = time.thread_time() + self._seconds + len(data) * _BYTE_SECONDS
        read = _consume(matcher, data, until)
        if read is None:
            self._forget()
            return "The text takes too much work to check against the grammar; write a shorter one."
        if read == len(data) and matcher.is_accepting():
            return None
        return _told(matcher, data, read, until)

    def _compile(self) -> LLMatcher:
        from llguidance import LLMatcher

        return LLMatcher(_tokenizer(), self._grammar, log_level=0, limits=_limits())

    def _matcher(self, size: int) -> LLMatcher:
        with self._lock:
            if self._seen + size > _MAX_SEEN and self._seen:
                self._fresh, self._seen = self._compile(), 0
            self._seen += size
            return self._fresh.deep_copy()

    def _forget(self) -> None:
        """Drop an automaton that has grown: one text can make it 50 MB large."""
        fresh = self._compile()
        with self._lock:
            self._fresh, self._seen = fresh, 0


@functools.lru_cache(maxsize=_MAX_CACHED)
def _compiled(syntax: Literal["lark", "regex"], definition: str) -> GrammarCheck:
    return GrammarCheck(syntax, definition)


@functools.cache
def _limits() -> LLParserLimits:
    from llguidance import LLParserLimits

    return LLParserLimits(
        max_items_in_row=1000,
        initial_lexer_fuel=300_000,
        step_lexer_fuel=50_000,
        step_max_items=20_000,
        max_lexer_states=10_000,
        max_grammar_size=50_000,
        precompute_large_lexemes=False,
        verbose_errors=False,
    )


@functools.cache
def _tokenizer() -> LLTokenizer:
    from llguidance import LLTokenizer, TokenizerWrapper

    return LLTokenizer(TokenizerWrapper(_Bytes()), n_vocab=_END + 1, eos_token=_END, slices=[])


class _Bytes:
    """The tokenizer of no model: every byte is a token, and one more ends the text."""

    eos_token_id = _END
    bos_token_id = None
    tokens: Final = [bytes([byte]) for byte in range(_END)] + [b"<|end|>"]
    special_token_ids: Final = [_END]

    def __call__(self, text: bytes | str) -> list[int]:
        return list(text.encode() if isinstance(text, str) else text)


def _weigh(syntax: str, definition: str) -> None:
    """Raise `LarkError` for a definition that is too large, too deep or too repetitive."""
    if len(definition) > MAX_DEFINITION:
        raise LarkError(f"it is longer than {MAX_DEFINITION} characters")
    if not definition.isascii() and any("\ud800" <= char <= "\udfff" for char in definition):
        raise LarkError("it holds half of a surrogate pair")
    if syntax == "lark":
        _Scales(parse_lark(definition)).weigh()
    else:
        _weigh_pattern(definition)


class _Weight(NamedTuple):
    """How many repetitions there are, and how their counts nest."""

    total: int = 0
    nest: Nest = Nest()


def _weigh_pattern(pattern: str, flags: str = "") -> _Weight:
    found = repetitions(pattern)
    if found.is_verbose or "x" in flags:
        raise LarkError("the flag 'x' is not supported")
    if found.is_lazy:
        raise LarkError("lazy repetition ('*?', '+?', '??') is not supported")
    return _checked(_Weight(found.total, found.nest))


def _checked(weight: _Weight) -> _Weight:
    if weight.total > _MAX_REPETITIONS:
        raise LarkError(f"it has more than {_MAX_REPETITIONS} repetitions; write shorter terminals")
    if weight.nest.levels > _FREE_LEVELS and weight.nest.product > _MAX_PRODUCT:
        raise LarkError("it has counts in counts in counts, like '((a{9}){9}){9}'; nest fewer")
    return weight


class _Scales:
    """Follows the names of a grammar as the compiler does, to see how deep it would go."""

    def __init__(self, grammar: Lark) -> None:
        self._grammar = grammar
        self._terminals: dict[str, _Weight] = {}
        self._rules: set[str] = set()

    def weigh(self) -> None:
        if len(self._grammar.rules) + len(self._grammar.terminals) > _MAX_NAMES:
            raise LarkError(f"it has more than {_MAX_NAMES} rules and terminals")
        self._sum([*self._grammar.ignored, self._grammar.rules["start"]], 0, False)

    def _weight(self, node: object, depth: int, in_terminal: bool) -> _Weight:
        """Return the weight of the terminals below, with all they refer to."""
        if depth > _MAX_DEPTH:
            raise LarkError("its rules and brackets are nested too deep")
        match node:
            case Name(name):
                return self._named(name, depth)
            case Regex(pattern, flags):
                return _weigh_pattern(pattern, flags)
            case Cat(parts) | Alt(parts):
                return self._sum(parts, depth + 1, in_terminal)
            case Repeat(inner, low, high):
                total, nest = self._weight(inner, depth + 1, in_terminal)
                # A rule is repeated by the parser, step by step: only terminals multiply.
                most = max(low, high or 1) if in_terminal else 1
                return _checked(_Weight(1 + total, nest.times(most)))
            case _:
                return _Weight()

    def _sum(self, nodes: Sequence[object], depth: int, in_terminal: bool) -> _Weight:
        weights = [self._weight(node, depth, in_terminal) for node in nodes]
        total = sum(weight.total for weight in weights)
        return _checked(_Weight(total, max((weight.nest for weight in weights), default=Nest())))

    def _named(self, name: str, depth: int) -> _Weight:
        if name in self._grammar.rules:
            if name in self._rules:
                return _Weight()
            self._rules.add(name)
            return self._weight(self._grammar.rules[name], depth + _NAME_DEPTH, False)
        if name not in self._terminals:
            # Nothing while it is open: the compiler refuses a terminal that refers to itself.
            self._terminals[name] = _Weight()
            node = self._grammar.terminals.get(name)
            self._terminals[name] = self._weight(node, depth + _NAME_DEPTH, True)
        return self._terminals[name]


def _consume(matcher: LLMatcher, data: bytes, until: float) -> int | None:
    """Return how many bytes can stand there, or None when it takes too much work."""
    before = time.thread_time()
    at, length = 0, _FIRST_PIECE
    while at < len(data):
        piece = data[at : at + length]
        taken = matcher.try_consume_tokens(list(piece))
        now = time.thread_time()
        if matcher.is_error() or now > until:
            return None
        at += taken
        if taken < len(piece):
            return at
        length = min(_LONGEST_PIECE, length * 2) if now - before < _QUICK else length // 2 or 1
        before = now
    return at


def _reason(error: str, syntax: str) -> str:
    """Return the library's own reason in one line, with the place in words."""
    place = re.match(r"(?:at )?(\d+)\((\d+)\): ", error)
    detail = re.search(r"^error: (.*)$", error, re.MULTILINE)
    lines = error[place.end() if place else 0 :].splitlines() or ["it does not compile"]
    reason = detail[1] if detail else re.sub(r'^invalid regex ".*" \(in \w+\): ', "", lines[0])
    where = f"line {place[1]}, column {place[2]}: " if place and syntax == "lark" else ""
    return (where + reason)[:_MAX_REASON]


def _told(matcher: LLMatcher, data: bytes, read: int, until: float) -> str:
    """Describe where the text leaves the grammar, what is there and what could be."""
    before = data[:read].decode("utf-8", "ignore")
    line = before.count("\n") + 1
    column = len(before) - before.rfind("\n")
    rest = data[len(before.encode("utf-8", "surrogatepass")) :].decode("utf-8", "replace")
    options = _options(matcher, until)
    if read == len(data):
        return f"The text ends too early, at line {line}, column {column}: {options}."
    stands = rest.split("\n")[0][:_MAX_SHOWN] or "\n"
    return f"Line {line}, column {column}: {stands!r} cannot stand there; {options}."


def _options(matcher: LLMatcher, until: float) -> str:
    may_end = matcher.is_accepting()
    allowed = _allowed(matcher, until)
    if not allowed:
        return "the text should end there" if may_end else "nothing can follow"
    if len(allowed) > _MAX_OPTIONS:
        return "something else is expected" + (", or the end" if may_end else "")
    texts = [repr(_forced(matcher, byte, until)) for byte in allowed] + ["the end"] * may_end
    return "expected " + " or ".join([", ".join(texts[:-1]), texts[-1]] if texts[1:] else texts)


def _allowed(matcher: LLMatcher, until: float) -> list[int]:
    """Return the bytes that can follow; more than `_MAX_OPTIONS` when the time is up.

    One by one: to list them all at once, the library writes out everything that must follow,
    which for `(a{9999}){9999}` is 100 MB.
    """
    allowed: list[int] = []
    for byte in range(_END):
        if len(allowed) > _MAX_OPTIONS or time.thread_time() > until:
            return list(range(_END))
        if matcher.validate_tokens([byte]):
            allowed.append(byte)
    return allowed


def _forced(matcher: LLMatcher, byte: int, until: float) -> str:
    """Return the option that begins with this byte, as far as only one thing can follow."""
    ahead = matcher.deep_copy()
    forced, allowed = b"", [byte]
    while len(allowed) == 1 and len(forced) < _MAX_SHOWN:
        forced += bytes(allowed)
        ahead.consume_token(allowed[0])
        allowed = [] if ahead.is_accepting() else _allowed(ahead, until)
    return forced.decode("utf-8", "replace")

"""Which parts of an answer's text are calls that the server did not find?

Many models write their calls as text, and servers without a parser for the form pass that on.
A call counts only if its name was offered and its arguments are an object; everything else is
text, to the last character. Rules that a reader must know:

- text that may be a call is held back until it is decided; all other text goes out at once,
  but for white space at its end, which may stand before a call;
- the text is what remains when the calls are taken out. White space around calls waits for the
  text that follows them, and is dropped if none does: nobody wants to see an empty message, or
  the blank lines between a sentence and a call that is not part of it;
- nothing is found in ordinary code blocks, nor in more than `MAX_HELD` characters;
- a call that the end of the text cuts short is text.

The time is linear in the text, whatever its pieces.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from antiphon.protocol.deltas import CallClosed, CallGrew, CallOpened, TextGrew
from antiphon.wires.chat.recover.forms import BEGINNINGS, LOOK_BACK, Form, form_at
from antiphon.wires.chat.recover.pending_text import MAX_HELD, Held, NotACall, Steps
from antiphon.wires.chat.recover.values import Names

__all__ = ["FIRST_KEY", "CallFinder"]

FIRST_KEY: Final = 1 << 20
"""The key of the first call that is found, far from those of calls that a server sends."""

_MAX_SPACE: Final = 4096
_MAX_CALLS: Final = 1024
_MAX_LINE: Final = 64

_Said = TextGrew | CallOpened | CallGrew | CallClosed


class CallFinder:
    """Text in any pieces to text and calls.

        prose --a form may begin--> held --it is a call, or not--> prose
        prose --a code block that has no calls------------------> code --its end--> prose

    `names` are the tools that the model was offered. As a mapping, it gives the JSON Schema of
    each one's parameters, which tells text from numbers where a form has no quotes.
    """

    def __init__(
        self, names: Collection[str], *, first_key: int = FIRST_KEY, max_held: int = MAX_HELD
    ) -> None:
        self._names = Names(names)
        self._first_key = self._next_key = first_key
        self._max_held = max_held
        self._held: Held | None = None
        self._form: Steps[None] | None = None
        self._code: _CodeBlock | None = None
        self._out: list[_Said] = []
        self._text: list[str] = []
        self.before = "\n"
        """The end of the text so far: it decides whether a call may begin here."""
        self.is_idle = True
        """Whether nothing waits: text in which no call can begin may pass by, into `before`."""
        # White space that waits: before the last calls, and since them or since the last text.
        self._gap = ""
        self._space = ""
        self._is_after_call = False

    @property
    def is_deciding(self) -> bool:
        """Return whether what was read last may be the beginning of a call."""
        return self._held is not None

    @property
    def is_holding(self) -> bool:
        """Return whether some of the text waits to be decided."""
        return self._held is not None or bool(self._space)

    def feed(self, text: str) -> list[_Said]:
        """Return what is certain after this piece."""
        at = 0
        while at < len(text):
            if self._held is not None:
                self._held.push(text, at)
                at = self._go_on(self._held)
            elif self._code is not None:
                at = self._pass_code(self._code, text, at)
            else:
                at = self._pass_prose(text, at)
        return self._give()

    def release(self, *, is_cut: bool = False) -> list[_Said]:
        """Return what is held back: the text ends here, or something else comes next.

        `is_cut` says that the model did not end it. A call that is whole is one even so.
        """
        if self.is_idle:
            self.before = "\n"
            return []
        if self._held is not None:
            self._held.is_ended = True
            self._held.is_cut = is_cut
            self._go_on(self._held)
        return self._end()

    def give_up(self) -> list[_Said]:
        """Return what is held back as text: the server has found its calls itself."""
        if self._held is not None:
            self._drop(self._held)
        return self._end()

    # The three states: each returns how far it has read.

    def _pass_prose(self, text: str, begin: int) -> int:
        for match in BEGINNINGS.finditer(text, begin):
            at = match.start()
            before = text[max(begin, at - LOOK_BACK) : at]
            if at - begin < LOOK_BACK:
                before = (self.before + before)[-LOOK_BACK:]
            form = form_at(match[0], before)
            if form is not None and self._next_key - self._first_key < _MAX_CALLS:
                self._say(text[begin:at])
                self._begin(form)
                return at
        self._say(text[begin:])
        return len(text)

    def _pass_code(self, code: _CodeBlock, text: str, begin: int) -> int:
        at = code.find_end(text, begin)
        self._say(text[begin:at])
        if code.is_over:
            self._code = None
        return at

    def _go_on(self, held: Held) -> int:
        assert self._form is not None
        try:
            next(self._form)
        except StopIteration:
            self._drop(held)
        except NotACall as error:
            self._drop(held)
            self._code = _CodeBlock(error.ticks, held.since(0)) if error.ticks else None
        else:
            self._tell_calls(held)
            if not held.room:
                self._drop(held)
        return held.at

    def _begin(self, form: Form) -> None:
        self._held = Held(is_after_call=self._is_after_call, limit=self._max_held)
        self._form = form(self._held, self._names)

    def _drop(self, held: Held) -> None:
        """Tell what was found, and say the rest."""
        self._held = self._form = None
        self._tell_calls(held)
        self._say(held.left())

    # What is said.

    def _say(self, text: str) -> None:
        if not text:
            return
        self.before = (self.before + text[-LOOK_BACK:])[-LOOK_BACK:]
        body = text.rstrip()
        if body:
            self._say_space()
            self._text.append(body)
        self._space += text[len(body) :]
        if len(self._space) > _MAX_SPACE:
            self._say_space()

    def _say_space(self) -> None:
        self._text.append(self._gap + self._space)
        self._gap = self._space = ""
        self._is_after_call = False

    def _tell_calls(self, held: Held) -> None:
        if not held.has_kept:
            return
        if not self._is_after_call:
            self._gap = self._space
        self._space = ""
        self._is_after_call = True
        self.before = "\n"
        self._flush_text()
        for call in held.take_calls():
            key = self._next_key
            self._next_key += 1
            self._out += [CallOpened(key, call.name), CallGrew(key, call.arguments)]
            self._out.append(CallClosed(key))

    def _flush_text(self) -> None:
        if text := "".join(self._text):
            self._out.append(TextGrew(text))
        self._text = []

    def _end(self) -> list[_Said]:
        if self._is_after_call:
            self._gap = self._space = ""
        self._say_space()
        self.before = "\n"
        self._code = None
        return self._give()

    def _give(self) -> list[_Said]:
        self._flush_text()
        out, self._out = self._out, []
        waits = self._held or self._code or self._space or self._gap or self._is_after_call
        self.is_idle = not waits
        return out


class _CodeBlock:
    """An open code block: where does it end?"""

    def __init__(self, ticks: int, opening: str) -> None:
        self.is_over = False
        self._ticks = ticks
        self._is_first_line = True
        self._is_inline = False
        # The line so far, as long as it may be the one that ends the block.
        self._line: str | None = ""
        self.find_end(opening, ticks)

    def find_end(self, text: str, begin: int) -> int:
        """Return the place where the block ends, or the length of the text."""
        while begin < len(text) and not self.is_over:
            end = text.find("\n", begin)
            stop = end + 1 if end >= 0 else len(text)
            begin = self._take_line(text, begin, stop)
        return begin

    def _take_line(self, text: str, begin: int, stop: int) -> int:
        if self._is_first_line:
            begin = self._take_first_line(text, begin, stop)
            self._is_first_line = text[begin - 1 : begin] != "\n"
            return begin
        piece = text[begin:stop]
        if self._line is not None:
            self._line += piece
            bare = self._line.strip()
            if bare.strip("`") or len(self._line) > _MAX_LINE:
                self._line = None
            elif piece.endswith("\n"):
                self.is_over = len(bare) >= self._ticks
        if piece.endswith("\n"):
            self._line = ""
        return stop

    def _take_first_line(self, text: str, begin: int, stop: int) -> int:
        """A line that has the marks at both ends is no block."""
        if not self._is_inline:
            tick = text.find("`", begin, stop)
            if tick < 0:
                return stop
            begin, self._is_inline = tick, True
        while begin < stop and text[begin] == "`":
            begin += 1
        self.is_over = begin < stop
        return begin

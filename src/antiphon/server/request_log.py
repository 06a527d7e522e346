"""One log line for each request, and for each turn over a WebSocket or in the background.

A line holds ids, names, counts and times, never content: no input, no output, no header and no
text of an upstream. An `Entry` is filled in while the request is answered. The entry of the
running task is in a context variable, so that every other log line can carry its request id.
"""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Final, Protocol

import msgspec

from antiphon.engine.run.turn import Turn
from antiphon.engine.run.turn_charges import TurnCharges
from antiphon.protocol.response import Response, Usage

__all__ = [
    "CLIENT_LEFT",
    "NO_WATCHER",
    "Entry",
    "RequestWatcher",
    "current_request_id",
    "log_background",
    "log_request",
    "noting",
    "start_entry",
]

CLIENT_LEFT: Final = 499
"""The status in the log of a request whose client left before any answer, as in nginx."""

_log = logging.getLogger("antiphon.requests")
_current: ContextVar[Entry | None] = ContextVar("antiphon_request", default=None)
_MAX_WORD: Final = 200
_PLAIN: Final = re.compile("[!-~]*")  # what can be printed in ASCII, but no space
# Fields whose values stand without their names in a line for a person.
_FIRST: Final = ("method", "route", "status", "ending")
# Asked every few seconds by health checks.
_PROBES: Final = frozenset({"/healthz", "/health", "/readyz", "/metrics"})


class Entry(msgspec.Struct, omit_defaults=True, kw_only=True):
    """What is known of one request. Fields that are not known are left out of the line."""

    method: str = ""
    route: str = ""
    status: int = 0
    ending: str = ""
    """How the turn ended: the status of its response."""
    error: str = ""
    """The code of the error, if there was one."""
    model: str = ""
    upstream: str = ""
    """The provider that answered, or that failed last."""
    attempts: int | None = None
    """How many requests were sent to providers, if it was more than one."""
    input_tokens: int | None = None
    output_tokens: int | None = None
    basis: str = ""
    """Where the least reliable figure of the tokens comes from."""
    cost_usd: str = ""
    """What it cost, as a decimal number, if that is known."""
    degraded: int | None = None
    """How many things could not be honoured, if any."""
    first_event_ms: float | None = None
    """From the request to the first event of a stream."""
    total_ms: float | None = None
    key: str = ""
    """The id of the API key, never its secret."""
    request: str = ""
    response: str = ""
    started: float = msgspec.field(default_factory=time.monotonic)

    def note_first_event(self) -> None:
        """Note that the first event of a stream is about to be sent."""
        if self.first_event_ms is None:
            self.first_event_ms = _milliseconds_since(self.started)

    def note_turn(self, turn: Turn) -> None:
        """Note which turn answers the request."""
        self.response = turn.response_id
        self.model = turn.model
        self.note_served(turn)

    def note_served(self, turn: Turn) -> None:
        """Note which provider is asked, and how many attempts that took so far."""
        self.upstream = turn.served_by.provider
        self.attempts = turn.attempts if turn.attempts > 1 else None

    def note_end(self, response: Response | None) -> None:
        """Note how the turn ended, if it has ended."""
        if response is None:
            return
        self.response = response.id
        self.model = self.model or response.model
        self.ending = response.status
        if response.error is not None:
            self.error = response.error.code or ""
        self.note_usage(response.usage)
        notes = response.antiphon
        if notes:
            self.degraded = len(notes.degraded) or None
            if notes.cost is not None:
                self.cost_usd = notes.cost.usd

    def note_charges(self, charges: TurnCharges) -> None:
        """Note how exact the tokens are, if any upstream was asked."""
        if charges.count:
            self.basis = charges.basis

    def note_usage(self, usage: Usage | None) -> None:
        """Note the tokens that the model read and wrote."""
        if usage is not None:
            self.input_tokens = usage.input_tokens
            self.output_tokens = usage.output_tokens

    def fields(self) -> dict[str, object]:
        """Return what is known, by name."""
        known: dict[str, object] = msgspec.to_builtins(self)
        del known["started"]
        return known


class _Line:
    """The line of a request for a person to read. Made when it is read: a program reads fields."""

    __slots__ = ("_fields",)

    def __init__(self, fields: dict[str, object]) -> None:
        self._fields = fields

    def __str__(self) -> str:
        rest = self._fields.copy()
        words = [str(rest.pop(name)) for name in _FIRST if name in rest]
        words += [f"{name}={_word(value)}" for name, value in rest.items()]
        return " ".join(words)


def _word(value: object) -> str:
    """Return a value as one word. A caller chose some of them, so nothing may start a new line."""
    text = str(value)[:_MAX_WORD]
    return text if _PLAIN.fullmatch(text) else json.dumps(text)


def _milliseconds_since(started: float) -> float:
    return round((time.monotonic() - started) * 1000, 1)


def start_entry(request_id: str, method: str, route: str = "") -> Entry:
    """Return the entry of a request that begins in the current task."""
    entry = Entry(method=method, route=route, request=request_id)
    _current.set(entry)
    return entry


def current_request_id() -> str:
    """Return the id of the request that the current task works for, or an empty string."""
    entry = _current.get()
    return entry.request if entry is not None else ""


class noting:  # noqa: N801 - a context manager, as those of contextlib
    """Notes the turn that runs inside, and how it ended."""

    __slots__ = ("_entry", "_turn")

    def __init__(self, entry: Entry, turn: Turn) -> None:
        self._entry = entry
        self._turn = turn

    def __enter__(self) -> None:
        self._entry.note_turn(self._turn)

    def __exit__(self, *_: object) -> None:
        self._entry.note_served(self._turn)
        self._entry.note_end(self._turn.ended)
        self._entry.note_charges(self._turn.charges)


def log_request(entry: Entry, level: int | None = None) -> None:
    """Write the line of a request that has ended."""
    if entry.total_ms is None:
        entry.total_ms = _milliseconds_since(entry.started)
    if level is None:
        level = logging.DEBUG if entry.route in _PROBES else logging.INFO
    if _log.isEnabledFor(level):
        fields = entry.fields()
        _log.log(level, _Line(fields), extra={"fields": fields})


class RequestWatcher(Protocol):
    """Learns of every request, and of every turn over a WebSocket or in the background."""

    def begin(self, headers: Mapping[str, str]) -> None:
        """A request begins in the current task."""
        ...

    def end(self, entry: Entry) -> None:
        """It has ended."""
        ...


class _NoWatcher:
    def begin(self, headers: Mapping[str, str]) -> None:
        pass

    def end(self, entry: Entry) -> None:
        pass


NO_WATCHER: Final[RequestWatcher] = _NoWatcher()


def log_background(response: Response, now: int) -> Entry:
    """Write the line of a background turn that has ended; return what it holds."""
    begun = _current.get() or Entry()
    seconds = max(now - response.created_at, 0)
    # Of a turn that another process began, only whole seconds are known.
    is_ours = begun.response == response.id
    entry = Entry(
        method="BACKGROUND",
        route="/v1/responses",
        upstream=begun.upstream,
        key=begun.key,
        request=begun.request,
        total_ms=_milliseconds_since(begun.started) if is_ours else seconds * 1000.0,
    )
    asked = response.antiphon.attempts if response.antiphon else ()
    if asked:
        entry.upstream, entry.attempts = asked[-1].provider, len(asked)
    entry.note_end(response)
    if response.antiphon and response.antiphon.cost is not None:
        entry.basis = response.antiphon.cost.basis
    log_request(entry)
    return entry

"""Which call does a fragment belong to?

Servers agree on nothing here. What is taken, beside the form of OpenAI:

    | fragment                                   | belongs to                                 |
    |--------------------------------------------|--------------------------------------------|
    | an index                                   | the newest call at that index              |
    | … with a name and another id (Gemini: all  | a new call: every whole call may come with |
    |   calls at index 0)                        | index 0                                    |
    | … with a name, and the same id or none     | a new call if the old one is whole JSON or |
    |                                            | of another name; else the name is repeated |
    | no index, an id                            | the call of that id, or a new one as above |
    | no index, no id, a name                    | as above, against the newest call          |
    | no index, no id, no name                   | the newest call                            |

A call opens when its name is known; arguments that came before it wait. A whole call that a
stream sends twice under one id is one call; within one chunk that is reported, because it may
have been meant as two. In an answer that is not streamed every entry is a call. Two calls may
have one id here: the builder gives each its own.
"""

from __future__ import annotations

from typing import Final

from antiphon.protocol.codec import decode_json
from antiphon.protocol.deltas import CallGrew, CallOpened, Reported
from antiphon.protocol.errors import BackendError

__all__ = ["CallReader"]

_MAX_CALLS: Final = 1024
_MAX_SHOWN: Final = 100
_NO_JSON: Final = object()

_Told = CallOpened | CallGrew | Reported


class _Call:
    __slots__ = ("chunk", "id", "is_open", "key", "name", "pieces")

    def __init__(self, key: int) -> None:
        self.key = key
        self.chunk = 0  # the last one that had a piece of it
        self.id: str | None = None
        self.name: str | None = None
        self.pieces: list[str] = []
        self.is_open = False

    @property
    def is_whole(self) -> bool:
        """Return whether the arguments are already a whole JSON value."""
        return decode_json("".join(self.pieces), _NO_JSON) is not _NO_JSON

    def has(self, arguments: str) -> bool:
        """Return whether these very arguments are all there already."""
        value = decode_json("".join(self.pieces), _NO_JSON)
        return value is not _NO_JSON and bool(value == decode_json(arguments, _NO_JSON))


class CallReader:
    """Fragments of tool calls to deltas. Calls are numbered as they appear."""

    def __init__(self) -> None:
        self._calls: list[_Call] = []
        self._by_index: dict[int, _Call] = {}
        self._chunk = 0

    @property
    def is_cut(self) -> bool:
        """Return whether some call has begun its arguments and not ended them."""
        return any(call.pieces and not call.is_whole for call in self._calls)

    def begin_chunk(self) -> None:
        """Note that the fragments that follow came in one chunk."""
        self._chunk += 1

    def take(
        self, index: int | None, call_id: str | None, name: str | None, arguments: str
    ) -> list[_Told]:
        """Return the deltas of a fragment. An empty string counts as absent."""
        call = self._find(index, call_id, name, arguments)
        if call is None:
            if not (call_id or name or arguments):
                return []
            call = self._begin()
        elif name and arguments and call.id == call_id and call.has(arguments):
            return [_repeated(call)] if call.chunk == self._chunk else []
        if index is not None:
            self._by_index[index] = call
        call.chunk = self._chunk
        return _grow(call, call_id, name, arguments)

    def take_whole(self, call_id: str | None, name: str | None, arguments: str) -> list[_Told]:
        """Return the deltas of one call of an answer that is not streamed."""
        if not (call_id or name or arguments):
            return []
        return _grow(self._begin(), call_id, name, arguments)

    def check_named(self) -> None:
        """Raise BackendError if a call never got a name: the caller could not run it."""
        if any(not call.is_open for call in self._calls):
            raise BackendError(
                "the upstream sent a tool call without a name", code="upstream_invalid_response"
            )

    def _find(
        self, index: int | None, call_id: str | None, name: str | None, arguments: str
    ) -> _Call | None:
        if index is not None:
            call = self._by_index.get(index)
        elif call_id:
            call = next((c for c in reversed(self._calls) if c.id == call_id), None)
        else:
            call = self._calls[-1] if self._calls else None
        if call is None or (name and _begins_anew(call, call_id, name, arguments)):
            return None
        return call

    def _begin(self) -> _Call:
        if len(self._calls) >= _MAX_CALLS:
            raise BackendError(
                f"the upstream sent more than {_MAX_CALLS} tool calls",
                code="upstream_invalid_response",
            )
        call = _Call(len(self._calls))
        self._calls.append(call)
        return call


def _begins_anew(call: _Call, call_id: str | None, name: str, arguments: str) -> bool:
    """Return whether a fragment with a name is another call than the one in its place."""
    if call.id and call_id and call.id != call_id:
        return True
    if call.name is None:
        return False
    if call.name != name:
        return True
    is_repeated = call.id is not None and call.id == call_id and call.has(arguments)
    return bool(arguments) and call.is_whole and not is_repeated


def _grow(call: _Call, call_id: str | None, name: str | None, arguments: str) -> list[_Told]:
    call.id = call.id or call_id
    call.name = call.name or name
    if arguments:
        call.pieces.append(arguments)
    if call.is_open:
        return [CallGrew(call.key, arguments)] if arguments else []
    return _open(call)


def _repeated(call: _Call) -> Reported:
    whose = f"call {str(call.id)[:_MAX_SHOWN]} of '{str(call.name)[:_MAX_SHOWN]}'"
    return Reported(f"tool_calls: {whose} came twice in one chunk; it is one call here")


def _open(call: _Call) -> list[_Told]:
    if not call.name:
        return []
    call.is_open = True
    opened = CallOpened(call.key, call.name, call.id)
    arguments = "".join(call.pieces)
    return [opened, CallGrew(call.key, arguments)] if arguments else [opened]

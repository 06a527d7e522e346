"""The body of one call, built from its keywords.

`build_request` decides everything that can be decided without the cache: what is asked
(exactly one of `input`, `messages` and `prompt`), where each parameter goes, and whether the
tools may be sent. What the server already knows is taken out later, by `continuation`.

Before that, all that was given is copied as plain JSON, once: what only looks like a dict, a
list or a number becomes one, and what JSON cannot hold (half a surrogate pair, NaN, bytes, any
other object) is refused by its place. So a body can always be written, and is ours alone.
"""

from __future__ import annotations

import decimal
import enum
import inspect
import math
import operator
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from antiphon.client.errors import AmbiguousInput, BadCall, MissingInput
from antiphon.client.messages import items_from_input, items_from_messages
from antiphon.client.parameters import place_parameters, refuse_unknown
from antiphon.client.settings import WireApi
from antiphon.client.tool_limits import ToolLimits, prepare_tools
from antiphon.protocol.items import Item

__all__ = [
    "Request",
    "build_question",
    "build_request",
    "plain_json",
    "plain_params",
    "read_items",
]

_LIMITS: Final = ToolLimits()
_BYTES: Final = (bytes, bytearray, memoryview)
# msgspec would write them as text.
_OURS: Final = (*_BYTES, decimal.Decimal)
# numpy's: they have a __float__, and are no numbers all the same.
_BOOLS: Final = frozenset({"bool", "bool_"})
_INPUTS: Final = frozenset({"input", "messages", "prompt"})
_NOTHING: Final = "there is nothing to answer: give input, messages or prompt"


class Request(msgspec.Struct, frozen=True):
    """One call, checked. `body` is JSON without `stream`; `items` is its input as items."""

    body: dict[str, Any]
    items: list[Item]
    is_history: bool
    """The input came as `messages`: it is the whole conversation."""
    session: str | None = None
    is_stateful: bool = True


def build_request(
    params: Mapping[str, Any], limits: ToolLimits = _LIMITS, wire: WireApi = "responses"
) -> Request:
    """Return the request that the keywords make. Raise a BadCall that names the problem."""
    params = plain_params(params)
    body = _place(params, limits, wire)
    items = _put_input(body, params)
    return Request(
        body=body,
        items=items,
        is_history=params.get("messages") is not None,
        session=_session(params.get("session")),
        is_stateful=params.get("stateful") is not False,
    )


def build_question(params: Mapping[str, Any], limits: ToolLimits = _LIMITS) -> dict[str, Any]:
    """Return the body of a question about a context, such as its length. Raise BadCall.

    A context may be nothing but what the server keeps, so then there need be no input.
    """
    params = plain_params(params)
    for name in ("session", "stateful"):
        if name in params:
            raise BadCall(
                f"{name} has no meaning here: give messages, previous_response_id or conversation",
                param=name,
            )
    body = _place(params, limits, "responses")
    is_kept = "previous_response_id" in body or "conversation" in body
    if is_kept and "messages" in params:
        raise BadCall(
            "messages are the whole conversation, and the server keeps one; give one of them",
            param="messages",
        )
    if not is_kept or not _INPUTS.isdisjoint(params):
        _put_input(body, params)
    return body


def _place(params: dict[str, Any], limits: ToolLimits, wire: WireApi) -> dict[str, Any]:
    """Return the body that the keywords make, without the input."""
    body = place_parameters(params, wire)
    if "conversation" in body and "previous_response_id" in body:
        raise BadCall(
            "a conversation and previous_response_id cannot both be continued; give one",
            param="previous_response_id",
        )
    if "tools" in body:
        body["tools"] = prepare_tools(body["tools"], limits)
    return body


def _put_input(body: dict[str, Any], params: dict[str, Any]) -> list[Item]:
    """Put what is asked into the body; return it as items."""
    items = read_items(params)
    if isinstance(params.get("prompt"), Mapping):
        body["prompt"] = params["prompt"]
    if items:
        body["input"] = params["input"] if isinstance(params.get("input"), str) else items
    return items


def plain_params(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of the keywords that were given, as plain JSON. Raise BadCall by the place."""
    refuse_unknown(params)
    return {name: plain_json(value, name) for name, value in params.items() if value is not None}


def plain_json(value: Any, where: str) -> Any:
    """Return a copy of a value in the types of JSON. Raise BadCall if it has none."""
    try:
        return _plain(value)
    except _Unwritable as error:
        place = where + "".join(reversed(error.steps))
        raise BadCall(f"{place} cannot be written as JSON: {error}", param=place) from None
    except RecursionError:
        raise BadCall(
            f"{where} cannot be written as JSON: it is nested too deeply, or in itself",
            param=where,
        ) from None


def read_items(params: Mapping[str, Any]) -> list[Item]:
    """Return what is asked, as items: none only where a stored template asks."""
    prompt = params.get("prompt")
    if prompt is not None and not isinstance(prompt, str | Mapping):
        raise BadCall("prompt must be a string, or a stored template as a dict", param="prompt")
    names = [name for name in ("input", "messages") if params.get(name) is not None]
    if isinstance(prompt, str):
        names.append("prompt")
    if len(names) > 1:
        raise AmbiguousInput(names)
    items: list[Item] = []
    if "messages" in names:
        items = items_from_messages(params["messages"])
    elif names:
        items = items_from_input(params[names[0]])
    if not items and not (isinstance(prompt, Mapping) and prompt):
        raise MissingInput(_NOTHING, param="input")
    return items


def _session(given: Any) -> str | None:
    if given is None or (isinstance(given, str) and given):
        return given
    raise BadCall("session must be a string that is not empty", param="session")


class _Unwritable(Exception):
    """A value that JSON cannot hold. `steps` is the path to it, last step first."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.steps: list[str] = []


def _plain(value: Any) -> Any:
    kind = type(value)
    if kind is str:
        return value if value.isascii() else _text(value)
    if kind is dict:
        return _object(value)
    if kind is list or kind is tuple:
        return _list(value)
    if value is None or kind is bool or kind is int:
        return value
    if kind is float:
        return _finite(value)
    return _likeness(value)


def _object(value: Mapping[Any, Any]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for key, inner in value.items():
        try:
            made[_key(key)] = _plain(inner)
        except _Unwritable as error:
            error.steps.append(_step(key))
            raise
    return made


def _list(value: Sequence[Any]) -> list[Any]:
    made: list[Any] = []
    for inner in value:
        try:
            made.append(_plain(inner))
        except _Unwritable as error:
            error.steps.append(f"[{len(made)}]")
            raise
    return made


def _key(key: Any) -> str:
    if isinstance(key, str):
        return key if type(key) is str and key.isascii() else _text(key)
    if isinstance(key, int) and not isinstance(key, bool):
        return str(int(key))
    raise _Unwritable(f"a key is a string, not of type {type(key).__name__}")


def _step(key: Any) -> str:
    return f".{key}" if isinstance(key, str) and key.isidentifier() else f"[{str(key)[:80]!r}]"


def _text(value: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise _Unwritable(
            f"it has half a surrogate pair at {error.start}, which is no character"
        ) from None
    return str.__str__(value)


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise _Unwritable(f"there is no {value} in JSON")
    return float(value)


def _likeness(value: Any) -> Any:
    """Return the JSON value of an object of another type that can be read as one."""
    if isinstance(value, enum.Enum):
        return _plain(value.value)
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, Mapping):
        return _object(value)
    if isinstance(value, (*_BYTES, Iterator)):
        raise _Unwritable(f"it is of type {type(value).__name__}; give text or a list")
    if isinstance(value, Sequence):
        return _list(value)
    number = None if hasattr(value, "__len__") else _number(value)
    return _foreign(value) if number is None else number


def _number(value: Any) -> bool | int | float | None:
    """Return the value of a scalar of any library; None if it is not a scalar."""
    if type(value).__name__ in _BOOLS:
        return bool(value)
    try:
        if hasattr(value, "__index__"):
            return operator.index(value)
        return _finite(float(value)) if hasattr(value, "__float__") else None
    except (TypeError, ValueError, OverflowError):
        return None


def _foreign(value: Any) -> Any:
    """Return what msgspec knows to write: dates, sets, dataclasses and the like."""
    if inspect.isroutine(value):
        raise _Unwritable("it is a function; antiphon.client.function_tool makes a tool of it")
    try:
        built = msgspec.to_builtins(value, str_keys=True, builtin_types=_OURS)
    except TypeError:
        raise _Unwritable(
            f"it is of type {type(value).__name__}; give a dict, a list, text or a number"
        ) from None
    return _plain(built)

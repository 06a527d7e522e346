"""Events and responses to JSON and back, in both dialects.

The machines know one form. What differs on the wire is written down here:

    | what                    | openai (default)                | open-responses             |
    |-------------------------|---------------------------------|----------------------------|
    | raw reasoning events    | response.reasoning_text.*       | response.reasoning.*       |
    | error event             | flat, and nested in `error`     | nested in `error`          |
    | echo of a json_schema   | the schema                      | null (its schema says so)  |
    | echo of other tools     | as sent                         | function tools only        |
    | echo of minimal, max    | as sent                         | null (not in its list)     |

Reading takes every variant. The fast way reads an event of exactly the known fields straight
into its class; whatever has more takes the slow way and keeps the rest in `extra`.

The slow way forgives. One odd field does not make an answer unreadable: what nearly fits is
made to fit (`10.0` is ten tokens, an error that is a string is its message), and what does not
is kept in `extra`, written back as it came, and has its default. What carries the answer itself
has no default, so only this is fatal: a body that is no JSON object, a whole answer that has
neither an id nor output, output that is no list, a lifecycle event without a response, an item
that is no object, a delta or a final text that is no string, an event without a type that is no
error. Entries of output that are no objects are dropped.

A whole answer that leaves out its status has the one that the rest of it shows: an error means
failed, incomplete_details incomplete, output or usage completed.

A check of a server must not forgive it: read strictly, every odd field is fatal.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from functools import cache
from operator import attrgetter
from typing import Any, Final, Literal, TypeVar

import msgspec
from msgspec import UNSET

from antiphon.protocol.errors import BrokenStream
from antiphon.protocol.events import (
    EVENT_CLASSES,
    ErrorEvent,
    Event,
    KnownEvent,
    LifecycleEvent,
    UnknownEvent,
    event_type,
)
from antiphon.protocol.halves import join_all
from antiphon.protocol.items import Item
from antiphon.protocol.response import (
    InputDetails,
    OutputDetails,
    Response,
    Status,
    Usage,
    with_total,
)
from antiphon.protocol.sse import read_data
from antiphon.protocol.tool_list import WrittenTools

__all__ = [
    "DONE",
    "Dialect",
    "decode_event",
    "decode_event_strictly",
    "decode_events",
    "decode_json",
    "decode_response",
    "decode_response_strictly",
    "encode_all_sse",
    "encode_event",
    "encode_item",
    "encode_response",
    "encode_sse",
    "read_event",
    "response_object",
    "with_written_tools",
]

Dialect = Literal["openai", "open-responses"]

DONE: Final = b"data: [DONE]\n\n"
_DONE: Final = b"[DONE]"
_DATA: Final = b"\ndata: "

_encode = msgspec.json.Encoder().encode
_encode_lines = msgspec.json.Encoder().encode_lines
_decode_known: Callable[[bytes | str], KnownEvent] = msgspec.json.Decoder(KnownEvent).decode
_decode_any = msgspec.json.Decoder().decode
_extra_of: Final = attrgetter("extra")

_TO_OPEN: Final = {
    "response.reasoning_text.delta": "response.reasoning.delta",
    "response.reasoning_text.done": "response.reasoning.done",
}
_FROM_ANY: Final = {
    **{new: old for old, new in _TO_OPEN.items()},
    "response.reasoning_summary.delta": "response.reasoning_summary_text.delta",
    "response.reasoning_summary.done": "response.reasoning_summary_text.done",
}
# What no server may leave open, and some do: null stands for the default there.
_NEVER_NULL: Final = frozenset({"id", "object", "created_at", "status", "model", "output"})
_OPEN_EFFORTS: Final = frozenset({None, "none", "low", "medium", "high", "xhigh"})
_EXTRA: Final = "$extra"
_DETAILS: Final[dict[str, type[msgspec.Struct]]] = {
    "input_tokens_details": InputDetails,
    "output_tokens_details": OutputDetails,
}
# What stands for a field that a peer left out or sent as null: the machines forgive its lack.
_ABSENT: Final[dict[str, Any]] = {
    "sequence_number": -1,
    "item_id": "",
    "output_index": -1,
    "content_index": -1,
    "summary_index": -1,
    "annotation_index": -1,
    "partial_image_index": -1,
    "partial_image_b64": "",
    "item": {},
    "part": {},
}
# An item has no stand-in: it is what its event is about.
_FORGIVEN: Final = _ABSENT.keys() - {"item"}
_SAID: Final = ("code", "message", "param")
_OFFENDER: Final = re.compile(r"`\$\.(\w+)")
_Struct = TypeVar("_Struct", bound=msgspec.Struct)
# Events whose struct is what goes over the wire, with what stands before it there: all but those
# that carry a response or an error, and in the other dialect those that have another name there.
_PLAIN: Final[dict[type[Event], bytes]] = {
    cls: b"event: %b\ndata: " % name.encode()
    for name, cls in EVENT_CLASSES.items()
    if "response" not in cls.__struct_fields__ and cls is not ErrorEvent
}
_AS_THEY_ARE: Final[dict[Dialect, dict[type[Event], bytes]]] = {
    "openai": _PLAIN,
    "open-responses": {
        cls: head for cls, head in _PLAIN.items() if cls.__struct_config__.tag not in _TO_OPEN
    },
}


def encode_event(event: Event, dialect: Dialect = "openai") -> bytes:
    """Return the event as one line of JSON."""
    if type(event) in _AS_THEY_ARE[dialect] and event.extra is UNSET:  # type: ignore[union-attr] # known ones
        return _encode(event)
    return _encode_other(event, dialect)


def _encode_other(event: Event, dialect: Dialect) -> bytes:
    """Encode an event that carries a response, an error, or fields that we do not know."""
    if (
        dialect == "openai"
        and isinstance(event, LifecycleEvent)
        and event.extra is UNSET
        and _is_plain(event.response)
    ):
        response = with_written_tools(event.response)
        return _encode(msgspec.structs.replace(event, response=response))
    return _encode(_event_object(event, dialect))


def encode_sse(event: Event, dialect: Dialect = "openai") -> bytes:
    """Return the event as one SSE frame: its name, one line of data, a blank line."""
    head = _AS_THEY_ARE[dialect].get(type(event))
    if head is not None and event.extra is UNSET:  # type: ignore[union-attr] # known ones
        return b"%b%b\n\n" % (head, _encode(event))
    name = event_type(event)
    if dialect != "openai":
        name = _TO_OPEN.get(name, name)
    return b"event: %b\ndata: %b\n\n" % (name.encode(), _encode_other(event, dialect))


def encode_all_sse(events: Sequence[Event], dialect: Dialect = "openai") -> bytes:
    """Return the events as SSE frames, one after the other.

    Most of a stream is the same event again and again, and is written in one go.
    """
    if not events:
        return b""
    first = events[0]
    head = _AS_THEY_ARE[dialect].get(type(first))
    if len(events) == 1 and head is not None and first.extra is UNSET:  # type: ignore[union-attr] # known ones
        return b"%b%b\n\n" % (head, _encode(first))
    if head is None or not _are_alike(events):
        return b"".join([encode_sse(event, dialect) for event in events])
    # JSON has no line ends of its own, so each one here is that between two events.
    lines = _encode_lines(events).replace(b"\n", b"\n\n" + head)
    return head + lines[: -len(head)]


def _are_alike(events: Sequence[Event]) -> bool:
    """Return whether these are events of one class, with nothing extra."""
    if len({*map(type, events)}) > 1:
        return False
    return [*map(_extra_of, events)].count(UNSET) == len(events)


def encode_item(item: Item) -> bytes:
    """Return an item as JSON."""
    return _encode(item)


def encode_response(response: Response, dialect: Dialect = "openai") -> bytes:
    """Return the response as JSON."""
    if dialect == "openai" and _is_plain(response):
        return _encode(with_written_tools(response))
    return _encode(response_object(response, dialect))


def with_written_tools(response: Response) -> Response:
    """Return the response to encode: with the JSON of its tools, if that was written before."""
    if type(response.tools) is not WrittenTools:
        return response
    return msgspec.structs.replace(response, tools=response.tools.json)


def _is_plain(response: Response) -> bool:
    """Return whether the struct is what goes over the wire: it holds no unknown fields."""
    usage = response.usage
    if usage is None or response.extra is not UNSET:
        return response.extra is UNSET
    read, written = usage.input_tokens_details, usage.output_tokens_details
    return usage.extra is read.extra is written.extra is UNSET


def decode_json(data: bytes | str, default: object = None) -> Any:  # Any: what a peer may send
    """Return the value of JSON, or the default if it is not JSON."""
    try:
        return msgspec.json.decode(data)
    except (ValueError, RecursionError):
        return default


def decode_response(data: bytes) -> Response:
    """Read a response of any server. Raise BrokenStream if it is not a response."""
    body = _json_object(data)
    if not _is_response(body):
        raise BrokenStream("response: it has neither an id nor output", code="invalid_event")
    response = _read_response(body, is_strict=False)
    response.usage = response.usage and with_total(response.usage)
    if not isinstance(body.get("status"), str):
        response.status = _status_shown(response)
    return response


def decode_response_strictly(data: bytes) -> Response:
    """Read a response and forgive nothing. Raise BrokenStream at the first odd field."""
    return _read_response(_json_object(data), is_strict=True)


def decode_event(data: bytes | str) -> Event:
    """Read the JSON of one event. Raise BrokenStream if it is not an event at all."""
    try:
        return _decode_known(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return read_event(_json_object(data))


def decode_event_strictly(data: bytes | str) -> Event:
    """Read the JSON of one event and forgive nothing. Raise BrokenStream at any odd field."""
    return read_event(_json_object(data), is_strict=True)


def decode_events(lines: bytes, events: list[Event]) -> bool:
    """Add the events of whole SSE events to `events`; return whether `[DONE]` came after them.

    `lines` are what `SseDecoder.feed_lines` returns. Raise BrokenStream at the first that is
    no event; `events` keeps those before it. Most of a stream is the same event again and
    again, and is read in one go.
    """
    if (run := _decode_run(lines)) is not None:
        events += run
        return False
    for data in read_data(lines):
        if data == _DONE:
            return True
        events.append(decode_event(data))
    return False


def _decode_run(lines: bytes) -> list[KnownEvent] | None:
    """Read events that all have the same name, one line of data and no surprise; else None."""
    end = lines.find(b"\n")
    head = lines[: end + len(_DATA)]
    if not head.startswith(b"event: ") or not head.endswith(_DATA):
        return None
    try:
        # Anything else between two data lines, such as a comment, is not JSON.
        return list(map(_decode_known, lines[len(head) :].split(b"\n\n" + head)))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def read_event(fields: dict[str, Any], *, is_strict: bool = False) -> Event:
    """Read an event from a JSON object, keeping what we do not know."""
    name = fields.get("type")
    if _is_bare_error(fields) and not is_strict:
        name = "error"
    if not isinstance(name, str):
        raise BrokenStream("event has no type", code="invalid_event")
    cls = EVENT_CLASSES.get(_FROM_ANY.get(name, name))
    if cls is None:
        return UnknownEvent(name, fields)
    if cls is ErrorEvent:
        fields = _flat_error(fields)
    given = {key: value for key, value in fields.items() if key != "type"}
    for key in _ABSENT.keys() & set(cls.__struct_encode_fields__):
        if given.get(key) is None:
            given[key] = _ABSENT[key]
    if isinstance(given.get("response"), dict):
        given["response"] = _read_response(given["response"], is_strict=is_strict)
    event: KnownEvent = _fit(given, cls, f"event {name}", is_strict)
    return event


def response_object(response: Response, dialect: Dialect = "openai") -> dict[str, Any]:
    """Return the response as a JSON object in the given dialect."""
    body: dict[str, Any] = msgspec.to_builtins(response)
    extra = body.pop(_EXTRA, {})
    usage = body.get("usage") or {}
    for counts in (usage, *(usage.get(name, {}) for name in _DETAILS)):
        counts |= counts.pop(_EXTRA, {})
    if dialect == "open-responses":
        _speak_open(body)
    body |= extra
    return body


def _event_object(event: Event, dialect: Dialect) -> dict[str, Any]:
    if isinstance(event, UnknownEvent):
        return event.fields | {"type": event.type}
    fields: dict[str, Any] = msgspec.to_builtins(event)
    fields |= fields.pop(_EXTRA, {})
    if isinstance(event, LifecycleEvent):
        fields["response"] = response_object(event.response, dialect)
    if isinstance(event, ErrorEvent):
        _nest_error(fields, dialect)
    if dialect == "open-responses":
        fields["type"] = _TO_OPEN.get(fields["type"], fields["type"])
    return fields


def _nest_error(fields: dict[str, Any], dialect: Dialect) -> None:
    """Add the nested error. VS Code reads the flat fields, the OpenAI SDKs only the nested."""
    kind, detail = fields.pop("kind", "server_error"), fields.pop("detail", fields["message"])
    nested = {"code": fields["code"], "message": detail, "param": fields["param"]}
    if dialect == "open-responses":
        for key in _SAID:
            del fields[key]
    fields["error"] = {"type": kind} | nested


def _speak_open(body: dict[str, Any]) -> None:
    body["tools"] = _functions(body["tools"])
    choice = body["tool_choice"]
    if isinstance(choice, dict) and choice.get("type") == "allowed_tools":
        body["tool_choice"] = choice | {"tools": _functions(choice.get("tools"))}
    text = body.get("text") or {}
    form = text.get("format") or {}
    if form.get("type") == "json_schema":
        body["text"] = text | {"format": form | {"schema": None}}
    reasoning = body.get("reasoning") or {}
    if reasoning.get("effort") not in _OPEN_EFFORTS:
        body["reasoning"] = reasoning | {"effort": None}


def _functions(tools: list[dict[str, Any]] | None) -> list[dict[str, Any]]:
    return [tool for tool in tools or () if tool.get("type") == "function"]


def _is_bare_error(fields: dict[str, Any]) -> bool:
    """Return whether this is an error without an event around it, as many servers send them."""
    if fields.get("object") == "error":
        return True
    error = fields.get("error")
    return not isinstance(fields.get("type"), str) and bool(error) and isinstance(error, str | dict)


def _flat_error(fields: dict[str, Any]) -> dict[str, Any]:
    """Return an error of any form in the flat form."""
    nested = fields.get("error")
    if isinstance(nested, str):
        nested = {"message": nested}
    flat = {key: fields.get(key) for key in _SAID}
    kind = fields.get("type")
    if isinstance(nested, dict):
        fields = {key: value for key, value in fields.items() if key != "error"}
        flat = {key: nested.get(key) if flat[key] is None else flat[key] for key in _SAID}
        kind = nested.get("type")
    detail = _as_text(nested.get("message")) if isinstance(nested, dict) else None
    flat = {key: _as_text(value) for key, value in flat.items()}
    flat["message"] = flat["message"] or ""
    if isinstance(kind, str) and kind != "error":
        flat["kind"] = kind
    if detail and detail != flat["message"]:
        flat["detail"] = detail
    return fields | flat


def _as_text(value: object) -> str | None:
    """Return what should have been a string: a number as it is written, an object as JSON."""
    return value if value is None or isinstance(value, str) else json.dumps(value)


def _is_response(body: dict[str, Any]) -> bool:
    kind = body.get("object")
    if kind == "response" or isinstance(body.get("output"), list):
        return True
    # An id alone will do, but that of a chat completion, which says so, will not.
    return isinstance(body.get("id"), str) and not isinstance(kind, str)


def _status_shown(response: Response) -> Status:
    """Return the status of a whole answer that has none."""
    if response.error is not None:
        return "failed"
    if response.incomplete_details is not None:
        return "incomplete"
    return "completed" if response.output or response.usage is not None else "in_progress"


def _read_response(body: dict[str, Any], *, is_strict: bool) -> Response:
    given = {k: v for k, v in body.items() if v is not None or k not in _NEVER_NULL}
    output = given.get("output", [])
    if not isinstance(output, list):
        raise BrokenStream("response: output is no list", code="invalid_event")
    if is_strict and "id" not in given:
        raise BrokenStream("response: id is missing", code="invalid_event")
    if not is_strict:
        given["output"] = [item for item in output if isinstance(item, dict)]
        given |= {name: mend(given[name]) for name, mend in _MENDERS.items() if name in given}
    if isinstance(given.get("usage"), dict):
        given["usage"] = _read_usage(given["usage"], is_strict)
    return _fit(given, Response, "response", is_strict)


def _fit(fields: dict[str, Any], cls: type[_Struct], what: str, is_strict: bool) -> _Struct:
    """Return these fields as a struct; what does not fit is kept in its `extra`.

    Raise BrokenStream if that is a field that nothing can stand for, or if nothing is forgiven.
    Each round settles one field for good, so there are no more rounds than fields.
    """
    known = set(cls.__struct_encode_fields__) - {_EXTRA}
    kept = {key: value for key, value in fields.items() if key in known}
    extra = {key: value for key, value in fields.items() if key not in known}
    while True:
        try:
            return msgspec.convert(kept | {_EXTRA: extra} if extra else kept, cls)
        except msgspec.ValidationError as error:
            found = _OFFENDER.search(str(error))
            name = found[1] if found else ""
            is_required, kind = _field(cls, name)
            if is_strict or (is_required and name not in _FORGIVEN):
                raise BrokenStream(f"{what}: {error}", code="invalid_event") from None
        value = kept.pop(name)
        try:
            kept[name] = msgspec.convert(value, kind, strict=False)
        except msgspec.ValidationError:
            extra[name] = value
            if is_required:
                kept[name] = _ABSENT[name]


@cache
def _field(cls: type[msgspec.Struct], name: str) -> tuple[bool, Any]:
    """Return whether a field must be there, and its type; "" is one that is not there."""
    for field in msgspec.structs.fields(cls):
        if field.encode_name == name:
            return field.required, field.type
    return True, Any


def _read_failure(error: object) -> object:
    if isinstance(error, str):
        return {"message": error} if error else None
    if not isinstance(error, dict):
        return error
    said = {key: _as_text(error.get(key)) for key in ("code", "message")}
    return {"code": said["code"], "message": said["message"] or ""}


def _read_usage(usage: dict[str, Any], is_strict: bool) -> Usage:
    """Return usage with its unknown fields set apart; a count that is null is not given."""
    given = _without_nulls(usage)
    for name, cls in _DETAILS.items():
        if isinstance(given.get(name), dict):
            given[name] = _fit(_without_nulls(given[name]), cls, name, is_strict)
    return _fit(given, Usage, "usage", is_strict)


def _without_nulls(fields: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if value is not None}


def _read_id(value: object) -> object:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


# What some servers write otherwise than the specification, and what they mean by it.
_MENDERS: Final[dict[str, Callable[[object], object]]] = {
    "id": _read_id,
    "error": _read_failure,
    "incomplete_details": lambda why: {"reason": why} if isinstance(why, str) else why,
    "conversation": lambda name: {"id": name} if isinstance(name, str) else name,
}


def _json_object(data: bytes | str) -> dict[str, Any]:
    try:
        value = _decode_any(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        value = _decode_loosely(data)
    if not isinstance(value, dict):
        raise BrokenStream("not a JSON object", code="invalid_event")
    return value


def _decode_loosely(data: bytes | str) -> object:
    """Read JSON whose strings hold half an emoji: a lone surrogate, which msgspec refuses.

    The half at the end of a delta is kept, because the next one may bring the other half.
    """
    try:
        value = json.loads(data)
        if not isinstance(value, dict) or not isinstance(value.get("delta"), str):
            return join_all(value)
        return join_all(value) | {"delta": value["delta"]}
    except (ValueError, RecursionError) as error:
        raise BrokenStream(f"not JSON: {error}", code="invalid_json") from None

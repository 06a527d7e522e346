"""Events and responses to JSON and back, in both dialects.

The machines know one language. What differs on the wire is written down here:

    | what                    | openai (default)                | open-responses             |
    |-------------------------|---------------------------------|----------------------------|
    | raw reasoning events    | response.reasoning_text.*       | response.reasoning.*       |
    | error event             | flat code, message, param       | nested in `error`          |
    | echo of a json_schema   | the schema                      | null (its schema says so)  |
    | echo of other tools     | as sent                         | function tools only        |
    | echo of minimal, max    | as sent                         | null (not in its list)     |
    | echo of other efforts   | as sent (minimal, max)          | null                       |

Reading takes every variant. The fast way reads an event of exactly the known fields straight
into its class; whatever has more takes the slow way and keeps the rest in `extra`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final, Literal

import msgspec

from antiphon.protocol.errors import BrokenStream
from antiphon.protocol.events import (
    EVENT_CLASSES,
    ErrorEvent,
    Event,
    KnownEvent,
    UnknownEvent,
    event_type,
)
from antiphon.protocol.items import Item
from antiphon.protocol.response import InputDetails, OutputDetails, Response, Usage
from antiphon.protocol.sse import read_data

__all__ = [
    "DONE",
    "Dialect",
    "decode_event",
    "decode_events",
    "decode_response",
    "encode_event",
    "encode_item",
    "encode_response",
    "encode_sse",
    "read_event",
    "response_object",
]

Dialect = Literal["openai", "open-responses"]

DONE: Final = b"data: [DONE]\n\n"
_DONE: Final = b"[DONE]"
_DATA: Final = b"\ndata: "

_encode = msgspec.json.Encoder().encode
_decode_known: Callable[[bytes | str], KnownEvent] = msgspec.json.Decoder(KnownEvent).decode
_decode_any = msgspec.json.Decoder().decode

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
_NEVER_NULL: Final = frozenset({"object", "created_at", "status", "model", "output"})
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
    "item": {},
    "part": {},
}
# Events whose struct is what goes over the wire: all but those that carry a response or an
# error, and in the other dialect those that have another name there.
_PLAIN: Final = frozenset(
    cls
    for cls in EVENT_CLASSES.values()
    if "response" not in cls.__struct_fields__ and cls is not ErrorEvent
)
_AS_THEY_ARE: Final[dict[Dialect, frozenset[type[KnownEvent]]]] = {
    "openai": _PLAIN,
    "open-responses": _PLAIN - {EVENT_CLASSES[name] for name in _TO_OPEN},
}


def encode_event(event: Event, dialect: Dialect = "openai") -> bytes:
    """Return the event as one line of JSON."""
    if type(event) in _AS_THEY_ARE[dialect] and event.extra is msgspec.UNSET:  # type: ignore[union-attr] # known ones
        return _encode(event)
    return _encode(_event_object(event, dialect))


def encode_sse(event: Event, dialect: Dialect = "openai") -> bytes:
    """Return the event as one SSE frame: its name, one line of data, a blank line."""
    name = event_type(event)
    if dialect != "openai":
        name = _TO_OPEN.get(name, name)
    return b"event: %b\ndata: %b\n\n" % (name.encode(), encode_event(event, dialect))


def encode_item(item: Item) -> bytes:
    """Return an item as JSON."""
    return _encode(item)


def encode_response(response: Response, dialect: Dialect = "openai") -> bytes:
    """Return the response as JSON."""
    usage = response.usage
    is_known = usage is None or not _has_extra(usage)
    if dialect == "openai" and response.extra is msgspec.UNSET and is_known:
        return _encode(response)
    return _encode(response_object(response, dialect))


def decode_response(data: bytes) -> Response:
    """Read a response, whatever server wrote it. Raise BrokenStream if it is none."""
    return _read_response(_json_object(data))


def decode_event(data: bytes | str) -> Event:
    """Read the JSON of one event. Raise BrokenStream if it is not an event at all."""
    try:
        return _decode_known(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return read_event(_json_object(data))


def decode_events(lines: bytes, events: list[Event]) -> bool:
    """Add the events of whole SSE events to `events`; say whether `[DONE]` came after them.

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
        # Whatever else stands between two data, be it a comment, is no JSON.
        return list(map(_decode_known, lines[len(head) :].split(b"\n\n" + head)))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def read_event(fields: dict[str, Any]) -> Event:
    """Read an event from a JSON object, keeping what we do not know."""
    name = fields.get("type")
    if not isinstance(name, str):
        raise BrokenStream("event has no type", code="invalid_event")
    cls = EVENT_CLASSES.get(_FROM_ANY.get(name, name))
    if cls is None:
        return UnknownEvent(name, fields)
    if cls is ErrorEvent:
        fields = _flat_error(fields)
    known = set(cls.__struct_encode_fields__) - {_EXTRA}
    kept = {key: value for key, value in fields.items() if key in known}
    extra = {key: value for key, value in fields.items() if key not in known and key != "type"}
    absent = {key: value for key, value in _ABSENT.items() if kept.get(key) is None}
    kept |= {key: value for key, value in absent.items() if key in known}
    try:
        if isinstance(kept.get("response"), dict):
            kept["response"] = _read_response(kept["response"])
        event: KnownEvent = msgspec.convert(kept | {"type": cls.__struct_config__.tag}, cls)
    except msgspec.ValidationError as error:
        raise BrokenStream(f"event {name}: {error}", code="invalid_event") from None
    if not extra:
        return event
    opened: KnownEvent = msgspec.structs.replace(event, extra=extra)
    return opened


def response_object(response: Response, dialect: Dialect = "openai") -> dict[str, Any]:
    """Return the response as a JSON object in the given dialect."""
    body: dict[str, Any] = msgspec.to_builtins(response)
    body |= body.pop(_EXTRA, {})
    usage = body.get("usage") or {}
    for counts in (usage, *(usage.get(name, {}) for name in _DETAILS)):
        counts |= counts.pop(_EXTRA, {})
    if dialect == "open-responses":
        _speak_open(body)
    return body


def _event_object(event: Event, dialect: Dialect) -> dict[str, Any]:
    if isinstance(event, UnknownEvent):
        return event.fields | {"type": event.type}
    fields: dict[str, Any] = msgspec.to_builtins(event)
    fields |= fields.pop(_EXTRA, {})
    if "response" in fields:
        fields["response"] = response_object(event.response, dialect)  # type: ignore[union-attr] # lifecycle events only
    if isinstance(event, ErrorEvent):
        kind = fields.pop("kind", "server_error")
        if dialect == "open-responses":
            nested = {key: fields.pop(key) for key in ("code", "message", "param")}
            fields["error"] = {"type": kind} | nested
    if dialect == "open-responses":
        fields["type"] = _TO_OPEN.get(fields["type"], fields["type"])
    return fields


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


def _flat_error(fields: dict[str, Any]) -> dict[str, Any]:
    """Bring the nested form of an error event to the flat one."""
    nested = fields.get("error")
    if not isinstance(nested, dict):
        return {"message": ""} | fields
    rest = {key: value for key, value in fields.items() if key != "error"}
    flat = {key: nested[key] for key in ("code", "param") if key in nested}
    flat["message"] = nested.get("message") or ""
    if "type" in nested:
        flat["kind"] = nested["type"]
    return flat | rest


def _read_response(body: dict[str, Any]) -> Response:
    given = {k: v for k, v in body.items() if v is not None or k not in _NEVER_NULL}
    if isinstance(given.get("usage"), dict):
        given["usage"] = _usage_fields(given["usage"])
    try:
        return msgspec.convert(_with_extra(given, Response), Response)
    except msgspec.ValidationError as error:
        raise BrokenStream(f"response: {error}", code="invalid_event") from None


def _usage_fields(usage: dict[str, Any]) -> dict[str, Any]:
    """Return usage with its unknown fields set apart; a count that is null is not given."""
    given = {key: value for key, value in usage.items() if value is not None}
    for name, cls in _DETAILS.items():
        if isinstance(given.get(name), dict):
            counts = {key: value for key, value in given[name].items() if value is not None}
            given[name] = _with_extra(counts, cls)
    return _with_extra(given, Usage)


def _with_extra(fields: dict[str, Any], cls: type[msgspec.Struct]) -> dict[str, Any]:
    known = set(cls.__struct_encode_fields__) - {_EXTRA}
    extra = {key: value for key, value in fields.items() if key not in known}
    kept = {key: value for key, value in fields.items() if key in known}
    return kept | {_EXTRA: extra} if extra else kept


def _has_extra(usage: Usage) -> bool:
    counts = (usage, usage.input_tokens_details, usage.output_tokens_details)
    return any(part.extra is not msgspec.UNSET for part in counts)


def _json_object(data: bytes | str) -> dict[str, Any]:
    try:
        value = _decode_any(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        value = _decode_loosely(data)
    if not isinstance(value, dict):
        raise BrokenStream("not a JSON object", code="invalid_event")
    return value


def _decode_loosely(data: bytes | str) -> object:
    """Read JSON whose strings hold half an emoji: a lone surrogate, which msgspec refuses."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise BrokenStream(f"not JSON: {error}", code="invalid_json") from None

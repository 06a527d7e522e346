"""The messages of a chat request as items.

Every message keeps its place. An assistant message becomes its reasoning, its text, then its
calls: the order in which a model produces them. A result is an output of the kind of call that
it answers, found by its id. The old `function_call` has no id: it gets one here, and the next
`function` message of that name answers it.

Sealed reasoning of ours comes back in `reasoning_details` and stands for the plain text beside
it. Unknown fields are kept on the item, so that they are reported further on and never dropped
in silence.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from antiphon.protocol.errors import InvalidRequest
from antiphon.protocol.items import Item, Part
from antiphon.wires.chat.flat import flat_part

__all__ = ["SEAL_FORMAT", "ItemReader"]

SEAL_FORMAT: Final = "antiphon-1"
"""The `format` of an entry of `reasoning_details` that this gateway has sealed."""

Json = dict[str, Any]  # a JSON object: Any is what JSON holds

_ROLES: Final = ("system", "developer", "user", "assistant", "tool", "function")
_ASSISTANT: Final = frozenset(
    {
        "role",
        "content",
        "refusal",
        "annotations",
        "reasoning_content",
        "reasoning",
        "reasoning_details",
        "tool_calls",
        "function_call",
        # What some clients send back of an answer, and means nothing.
        "parsed",
        "id",
    }
)
_RESULT: Final = frozenset({"role", "content", "tool_call_id", "name", "id"})
_SEALED: Final = "reasoning.encrypted"
_TEXTS: Final = ("text", "input_text", "output_text")


class ItemReader:
    """Reads messages one after the other. `items` are theirs, and `origins` whose each is."""

    def __init__(self) -> None:
        self.items: list[Item] = []
        self.origins: list[int] = []
        self._calls: dict[str, str] = {}
        """The type of the output that answers a call, by the id of the call."""
        self._old_calls: list[tuple[str, str]] = []
        """Name and id of old calls without a result."""
        self._index = 0

    def read(self, messages: Sequence[object]) -> None:
        """Read all messages. Raise InvalidRequest for one that cannot be used."""
        for index, message in enumerate(messages):
            self._index = index
            where = f"messages[{index}]"
            if not isinstance(message, dict):
                raise _wrong_type(where, "an object")
            role = message.get("role")
            if role not in _ROLES:
                raise InvalidRequest(
                    f"{where}.role must be one of {', '.join(_ROLES)}",
                    code="missing_required_parameter" if role is None else "invalid_value",
                    param=f"{where}.role",
                )
            self._read_message(message, role, where)

    def _read_message(self, message: Json, role: str, where: str) -> None:
        match role:
            case "assistant":
                self._read_assistant(message, where)
            case "tool":
                self._read_result(message, where)
            case "function":
                self._read_old_result(message, where)
            case _:
                rest = {key: value for key, value in message.items() if value is not None}
                content = _read_content(message.get("content"), f"{where}.content", _input_text)
                self._add({**rest, "type": "message", "role": role, "content": content})

    def _add(self, item: Item) -> None:
        self.items.append(item)
        self.origins.append(self._index)

    # What a model has produced.

    def _read_assistant(self, message: Json, where: str) -> None:
        self._read_reasoning(message, where)
        calls = message.get("tool_calls") or []
        if not isinstance(calls, list):
            raise _wrong_type(f"{where}.tool_calls", "a list")
        old = message.get("function_call")
        parts = _output_parts(message, where)
        unknown = {k: v for k, v in message.items() if v is not None and k not in _ASSISTANT}
        # An empty assistant message is kept: it was the answer. Beside calls it is
        # only a field that had to be there.
        if parts or unknown or not (calls or old):
            self._add({**unknown, "type": "message", "role": "assistant", "content": parts})
        for number, call in enumerate(calls):
            self._read_call(call, f"{where}.tool_calls[{number}]")
        if old:
            self._read_old_call(old, f"{where}.function_call")

    def _read_reasoning(self, message: Json, where: str) -> None:
        details = message.get("reasoning_details") or []
        if not isinstance(details, list):
            raise _wrong_type(f"{where}.reasoning_details", "a list")
        ours = [entry for entry in details if _is_ours(entry)]
        for entry in ours:
            self._add({"type": "reasoning", "summary": [], "encrypted_content": entry["data"]})
        text = message.get("reasoning_content") or message.get("reasoning") or _plain(details)
        if not isinstance(text, str):
            raise _wrong_type(f"{where}.reasoning_content", "a string")
        foreign = [entry for entry in details if not _is_ours(entry) and not _is_plain(entry)]
        if ours and not foreign:
            return
        item: Item = {"type": "reasoning", "summary": []}
        if text and not ours:
            item["content"] = [{"type": "reasoning_text", "text": text}]
        if foreign:  # of another gateway: not for us to read, and reported as not carried
            item["reasoning_details"] = foreign
        if len(item) > 2:
            self._add(item)

    def _read_call(self, call: object, where: str) -> None:
        if not isinstance(call, dict):
            raise _wrong_type(where, "an object")
        call_id = call.get("id")
        if not isinstance(call_id, str) or not call_id:
            raise _missing(f"{where}.id")
        if call.get("type") == "custom":
            custom = _object(call.get("custom"), f"{where}.custom")
            self._calls[call_id] = "custom_tool_call_output"
            given = {"input": "", **custom}
            self._add({**given, "type": "custom_tool_call", "call_id": call_id})
            return
        function = _object(call.get("function"), f"{where}.function")
        self._calls[call_id] = "function_call_output"
        self._add(_function_call(function, call_id))

    def _read_old_call(self, call: object, where: str) -> None:
        function = _object(call, where)
        call_id = f"call_function_{self._index}"
        self._calls[call_id] = "function_call_output"
        self._old_calls.append((str(function.get("name")), call_id))
        self._add(_function_call(function, call_id))

    # What the caller's tools have returned.

    def _read_result(self, message: Json, where: str) -> None:
        call_id = message.get("tool_call_id")
        if not isinstance(call_id, str):
            raise _missing(f"{where}.tool_call_id")
        kind = self._calls.get(call_id)
        if kind is None:
            raise InvalidRequest(
                f"{where}.tool_call_id: no message before it has a tool call '{call_id[:200]}'",
                code="tool_call_not_found",
                param=f"{where}.tool_call_id",
            )
        self._add_output(message, kind, call_id, where)

    def _read_old_result(self, message: Json, where: str) -> None:
        name = message.get("name")
        for number, (called, call_id) in enumerate(self._old_calls):
            if called == name:
                del self._old_calls[number]
                self._add_output(message, "function_call_output", call_id, where)
                return
        raise InvalidRequest(
            f"{where}.name: no message before it calls this function",
            code="tool_call_not_found",
            param=f"{where}.name",
        )

    def _add_output(self, message: Json, kind: str, call_id: str, where: str) -> None:
        content = message.get("content")
        output: str | list[Part] = ""
        if isinstance(content, list):
            output = _read_content(content, f"{where}.content", _input_text)
        elif isinstance(content, str):
            output = content
        elif content is not None:
            raise _wrong_type(f"{where}.content", "a string or a list of parts")
        unknown = {k: v for k, v in message.items() if v is not None and k not in _RESULT}
        self._add({**unknown, "type": kind, "call_id": call_id, "output": output})


def _function_call(function: Json, call_id: str) -> Item:
    arguments = function.get("arguments")
    if isinstance(arguments, dict):  # some clients send them decoded
        arguments = msgspec.json.encode(arguments).decode()
    given = {**function, "arguments": "" if arguments is None else arguments}
    return {**given, "type": "function_call", "call_id": call_id}


def _output_parts(message: Json, where: str) -> list[Part]:
    """Return the text and the refusal of an assistant message as parts."""
    content = message.get("content")
    if content == "":
        content = None  # a field that has to be there
    parts = [] if content is None else _read_content(content, f"{where}.content", _output_text)
    refusal = message.get("refusal")
    if refusal:
        parts.append({"type": "refusal", "refusal": refusal})
    notes = message.get("annotations")
    texts = [part for part in parts if part.get("type") == "output_text"]
    if isinstance(notes, list) and texts:
        texts[0]["annotations"] = [_flat_note(note) for note in notes]
    return parts


def _flat_note(note: Any) -> Any:  # Any: JSON of a caller
    """Return a note on the text as the Responses API has it: its fields beside its type."""
    kind = note.get("type") if isinstance(note, dict) else None
    if not isinstance(kind, str) or not isinstance(note.get(kind), dict):
        return note
    return {"type": kind, **note[kind]}


def _is_ours(detail: object) -> bool:
    return (
        isinstance(detail, dict)
        and detail.get("type") == _SEALED
        and detail.get("format") == SEAL_FORMAT
        and isinstance(detail.get("data"), str)
    )


def _is_plain(detail: object) -> bool:
    """Return whether an entry holds nothing but text that can be read."""
    if not isinstance(detail, dict):
        return False
    has_text = isinstance(detail.get("text") or detail.get("summary"), str)
    return has_text and not detail.get("signature") and not detail.get("data")


def _plain(details: list[Any]) -> str:
    texts = [
        entry.get("text") or entry.get("summary") for entry in details if isinstance(entry, dict)
    ]
    return "".join(text for text in texts if isinstance(text, str))


# Parts of a message.


def _input_text(text: str) -> Part:
    return {"type": "input_text", "text": text}


def _output_text(text: str) -> Part:
    return {"type": "output_text", "text": text, "annotations": []}


def _read_content(content: object, where: str, text: Callable[[str], Part]) -> list[Part]:
    if isinstance(content, str):
        return [text(content)]
    if content is None:
        raise _missing(where)
    if not isinstance(content, list):
        raise _wrong_type(where, "a string or a list of parts")
    return [_read_part(part, f"{where}[{n}]", text) for n, part in enumerate(content)]


def _read_part(part: object, where: str, text: Callable[[str], Part]) -> Part:
    if isinstance(part, str):
        return text(part)
    if not isinstance(part, dict):
        raise _wrong_type(where, "an object")
    rest = {key: value for key, value in part.items() if value is not None}
    if part.get("type") in _TEXTS:
        return {**rest, **text(_string(part, "text", where))}
    flat = flat_part(rest)
    if flat is None:
        inner = f"{where}.{part['type']}"
        raise _missing(inner) if part.get(part["type"]) is None else _wrong_type(inner, "an object")
    return {key: value for key, value in flat.items() if value or key in rest}


def _string(value: Json, field: str, where: str) -> str:
    found = value.get(field)
    if not isinstance(found, str):
        where = f"{where}.{field}"
        raise _missing(where) if found is None else _wrong_type(where, "a string")
    return found


def _object(value: object, where: str) -> Json:
    if not isinstance(value, dict):
        raise _missing(where) if value is None else _wrong_type(where, "an object")
    return value


def _missing(where: str) -> InvalidRequest:
    return InvalidRequest(f"{where} is missing", code="missing_required_parameter", param=where)


def _wrong_type(where: str, what: str) -> InvalidRequest:
    return InvalidRequest(f"{where} must be {what}", code="invalid_type", param=where)

"""Chat-shaped messages as Responses items.

A dict with a `type` is an item already and passes as it is, so both may be mixed. What an
assistant message holds becomes, in this order: a reasoning item (`reasoning_content`, as its
summary, which is the one form that every Responses server takes back), a message, and the
calls. An empty assistant message is left out. Parts are read as the chat door reads them. What
has no form in the Responses API is refused, with its place in the list: the door keeps it to be
reported, but here the author of the call can still correct it. `annotations` and the `name` of a
tool message add nothing to the items and are left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from antiphon.client.errors import BadCall
from antiphon.protocol.call_ids import CallIds
from antiphon.protocol.items import Item, Part, text_of
from antiphon.wires.chat.flat import flat_part

__all__ = ["items_from_input", "items_from_messages"]

_ROLES: Final = frozenset({"system", "developer", "user", "assistant", "tool", "function"})
_KNOWN: Final = {
    "assistant": frozenset(
        {
            "role",
            "content",
            "refusal",
            "tool_calls",
            "function_call",
            "reasoning_content",
            "reasoning",
            "annotations",
            "phase",
        }
    ),
    "tool": frozenset({"role", "content", "tool_call_id", "name"}),
    "function": frozenset({"role", "content", "name"}),
}
_SAID: Final = frozenset({"role", "content"})
_NO_FORM: Final = {
    "input_audio": "the Responses API takes no audio",
    "audio": "the Responses API takes no audio",
}


def items_from_input(given: str | Sequence[Mapping[str, Any]]) -> list[Item]:
    """Return an `input` as items: a string is a message of the user."""
    if isinstance(given, str):
        return [_message("user", [{"type": "input_text", "text": given}])] if given else []
    return [_item(entry, f"input[{index}]") for index, entry in enumerate(_list(given, "input"))]


def items_from_messages(messages: Sequence[Mapping[str, Any]]) -> list[Item]:
    """Return chat messages as items. Raise BadCall, with the place, for what has no form."""
    writer = _ItemWriter()
    for index, message in enumerate(_list(messages, "messages")):
        writer.write(message, f"messages[{index}]")
    return writer.items


class _ItemWriter:
    """Turns messages into items; it remembers what kind of call an id belongs to."""

    def __init__(self) -> None:
        self.items: list[Item] = []
        self._custom: set[str] = set()
        self._ids = CallIds()
        self._unnamed: dict[str, str] = {}
        """Calls without an id, as they were before tools: the function's name to our id."""

    def write(self, message: Any, where: str) -> None:
        if not isinstance(message, Mapping):
            raise BadCall(f"{where} must be a dict", param=where)
        if message.get("type") is not None:
            self.items.append(dict(message))
            return
        role = message.get("role")
        if role not in _ROLES:
            raise BadCall(f"{where}.role must be one of {', '.join(sorted(_ROLES))}", param=where)
        _refuse_fields(message, _KNOWN.get(role, _SAID), where)
        if role == "assistant":
            self._write_assistant(message, where)
        elif role == "tool":
            self._write_output(_string(message, "tool_call_id", where), message, where)
        elif role == "function":
            self._write_output(self._call_of(message, where), message, where)
        else:
            self.items.append(_message(role, _parts(message.get("content"), "input_text", where)))

    def _write_assistant(self, message: Mapping[str, Any], where: str) -> None:
        thought = message.get("reasoning_content") or message.get("reasoning")
        if thought is not None and not isinstance(thought, str):
            raise BadCall(f"{where}.reasoning_content must be a string", param=where)
        if thought:
            summary = [{"type": "summary_text", "text": thought}]
            self.items.append({"type": "reasoning", "summary": summary})
        parts = _parts(message.get("content") or [], "output_text", where)
        if refusal := message.get("refusal"):
            parts.append({"type": "refusal", "refusal": refusal})
        if text_of(parts) or any(part.get("type") != "output_text" for part in parts):
            phase = message.get("phase")
            self.items.append(
                _message("assistant", parts) | ({"phase": phase} if phase is not None else {})
            )
        for index, call in enumerate(message.get("tool_calls") or ()):
            self._write_call(call, f"{where}.tool_calls[{index}]")
        if call := message.get("function_call"):
            self._write_unnamed(call, where)

    def _write_call(self, call: Any, where: str) -> None:
        kind = call.get("type", "function") if isinstance(call, Mapping) else None
        inner = call.get(kind) if isinstance(kind, str) else None
        if kind not in ("function", "custom") or not isinstance(inner, Mapping):
            raise BadCall(f"{where} must be a call of a function or of a custom tool", param=where)
        call_id = _string(call, "id", where)
        self._ids.add(call_id)
        if kind == "custom":
            self._custom.add(call_id)
            self.items.append(
                {
                    "type": "custom_tool_call",
                    "call_id": call_id,
                    "name": _string(inner, "name", f"{where}.custom"),
                    "input": _string(inner, "input", f"{where}.custom", or_empty=True),
                }
            )
            return
        self.items.append(_function_call(call_id, inner, f"{where}.function"))

    def _write_unnamed(self, call: Any, where: str) -> None:
        if not isinstance(call, Mapping):
            raise BadCall(f"{where}.function_call must be a dict", param=where)
        # By its place, so that the same history gives the same id on every turn.
        call_id = self._ids.claim(f"call_{len(self.items)}")
        item = _function_call(call_id, call, f"{where}.function_call")
        self._unnamed[item["name"]] = call_id
        self.items.append(item)

    def _call_of(self, message: Mapping[str, Any], where: str) -> str:
        name = _string(message, "name", where)
        if name not in self._unnamed:
            raise BadCall(f"{where} answers no function_call of {name!r} before it", param=where)
        return self._unnamed.pop(name)

    def _write_output(self, call_id: str, message: Mapping[str, Any], where: str) -> None:
        kind = "custom_tool_call_output" if call_id in self._custom else "function_call_output"
        parts = _parts(message.get("content"), "input_text", where)
        is_text = all(part.get("type") == "input_text" for part in parts)
        output = text_of(parts) if is_text else parts
        self.items.append({"type": kind, "call_id": call_id, "output": output})


def _item(entry: Any, where: str) -> Item:
    if not isinstance(entry, Mapping):
        raise BadCall(f"{where} must be a dict", param=where)
    if entry.get("type") is not None or "role" not in entry:
        return dict(entry)
    if entry["role"] in ("tool", "function") or entry.get("tool_calls"):
        raise BadCall(f"{where} is a chat message; give messages instead of input", param=where)
    return {"type": "message", **{k: v for k, v in entry.items() if k != "type"}}


def _message(role: str, content: list[Part]) -> Item:
    return {"type": "message", "role": role, "content": content}


def _function_call(call_id: str, call: Mapping[str, Any], where: str) -> Item:
    return {
        "type": "function_call",
        "call_id": call_id,
        "name": _string(call, "name", where),
        "arguments": _string(call, "arguments", where, or_empty=True),
    }


def _parts(content: Any, text_type: str, where: str) -> list[Part]:
    """Return a content field as Responses parts; text gets the type that fits its role."""
    if isinstance(content, str):
        return [{"type": text_type, "text": content}]
    if not isinstance(content, Sequence):
        raise BadCall(f"{where}.content must be a string or a list of parts", param=where)
    return [_part(part, text_type, f"{where}.content[{n}]") for n, part in enumerate(content)]


def _part(part: Any, text_type: str, where: str) -> Part:
    kind = part.get("type") if isinstance(part, Mapping) else None
    if not isinstance(kind, str):
        raise BadCall(f"{where} must be a dict with a type", param=where)
    if kind in _NO_FORM:
        raise BadCall(f"{where} ({kind}): {_NO_FORM[kind]}", param=where)
    if kind == "text":
        return {**part, "type": text_type}
    flat = flat_part(part)
    if flat is None or (kind.endswith("_url") and not isinstance(flat.get(kind), str)):
        needed = "url" if kind.endswith("_url") else "a dict"
        raise BadCall(f"{where}.{kind} must hold {needed}", param=where)
    return flat


def _refuse_fields(message: Mapping[str, Any], known: frozenset[str], where: str) -> None:
    for name, value in message.items():
        if value is not None and name not in known:
            raise BadCall(
                f"{where}.{name} has no place in the Responses API; leave it out or put it into "
                "the content",
                param=where,
            )


def _string(fields: Mapping[str, Any], name: str, where: str, *, or_empty: bool = False) -> str:
    value = fields.get(name)
    if not isinstance(value, str) or not (value or or_empty):
        raise BadCall(f"{where}.{name} must be a string", param=where)
    return value


def _list(given: Any, name: str) -> Sequence[Any]:
    if isinstance(given, str | Mapping) or not isinstance(given, Sequence):
        raise BadCall(f"{name} must be a list, not a {type(given).__name__}", param=name)
    return given

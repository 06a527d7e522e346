"""Items as typed values, for those who would rather not read dicts.

Items stay dicts on the wire and in a response, so that what we do not know survives. These values
are a view of them: `fields` is the item itself. An item of a type that has no class here is an
`OtherItem`. The arguments of a call are parsed when they are asked for, because a model may have
written anything.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

import msgspec

from antiphon.client.errors import InvalidArguments
from antiphon.client.history import repair_text
from antiphon.client.request import plain_json
from antiphon.protocol.items import Item, item_type, text_of
from antiphon.protocol.machines.partial_items import string_of
from antiphon.protocol.response import Response

__all__ = [
    "CallOutputItem",
    "CustomCallItem",
    "FunctionCallItem",
    "MessageItem",
    "OtherItem",
    "ReasoningItem",
    "TypedItem",
    "fit_arguments",
    "typed_item",
    "typed_items",
]

_T = TypeVar("_T")


class _ItemView(msgspec.Struct, frozen=True):
    fields: Item

    @property
    def id(self) -> str:
        """The id of the item, empty if it has none."""
        return string_of(self.fields, "id")

    @property
    def type(self) -> str:
        """The type of the item on the wire."""
        return item_type(self.fields)

    @property
    def status(self) -> str:
        """How far the item came: completed, incomplete or in_progress; empty if it has none."""
        return string_of(self.fields, "status")


class MessageItem(_ItemView, frozen=True):
    """A message of the user, the model or the system."""

    @property
    def role(self) -> str:
        """Whose message it is."""
        return string_of(self.fields, "role")

    @property
    def text(self) -> str:
        """The text of all its parts, refusals included."""
        return text_of(self.fields.get("content"))


class ReasoningItem(_ItemView, frozen=True):
    """What the model thought, as far as the server shows it."""

    @property
    def text(self) -> str:
        """The thought itself, else its summary."""
        return text_of(self.fields.get("content")) or self.summary

    @property
    def summary(self) -> str:
        """The summary of the thought."""
        return text_of(self.fields.get("summary"))


class _CallView(_ItemView, frozen=True):
    @property
    def call_id(self) -> str:
        """What the output of the call has to name."""
        return string_of(self.fields, "call_id")

    @property
    def name(self) -> str:
        """The tool that is called."""
        return string_of(self.fields, "name")


class FunctionCallItem(_CallView, frozen=True):
    """A call of a function."""

    @property
    def arguments_json(self) -> str:
        """The arguments as the model wrote them."""
        return string_of(self.fields, "arguments")

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments by name. Raise InvalidArguments if they are no JSON object."""
        try:
            value = msgspec.json.decode(self.arguments_json or "{}")
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
            raise InvalidArguments(f"the arguments are no JSON: {error}") from None
        if not isinstance(value, dict):
            raise InvalidArguments("the arguments must be a JSON object")
        return value

    def arguments_as(self, kind: type[_T]) -> _T:
        """Return the arguments as a dataclass, TypedDict or Struct. Raise InvalidArguments."""
        return fit_arguments(self.arguments, kind)

    def output(self, value: object) -> Item:
        """Return the item that answers the call: text as it is, anything else as JSON."""
        return _output(self, "function_call_output", value)


class CustomCallItem(_CallView, frozen=True):
    """A call of a custom tool, whose input is text."""

    @property
    def input(self) -> str:
        """What the model gives to the tool."""
        return string_of(self.fields, "input")

    def output(self, value: object) -> Item:
        """Return the item that answers the call: text as it is, anything else as JSON."""
        return _output(self, "custom_tool_call_output", value)


class CallOutputItem(_ItemView, frozen=True):
    """What a tool gave back."""

    @property
    def call_id(self) -> str:
        """The call that it answers."""
        return string_of(self.fields, "call_id")

    @property
    def text(self) -> str:
        """The output, or the text of its parts."""
        return text_of(self.fields.get("output"))


class OtherItem(_ItemView, frozen=True):
    """An item of any other type."""


TypedItem = (
    MessageItem | ReasoningItem | FunctionCallItem | CustomCallItem | CallOutputItem | OtherItem
)

_CLASSES: dict[str, type[TypedItem]] = {
    "message": MessageItem,
    "reasoning": ReasoningItem,
    "function_call": FunctionCallItem,
    "custom_tool_call": CustomCallItem,
    "function_call_output": CallOutputItem,
    "custom_tool_call_output": CallOutputItem,
}


def typed_item(item: Item) -> TypedItem:
    """Return an item as a typed value."""
    return _CLASSES.get(item_type(item), OtherItem)(item)


def typed_items(source: Response | Iterable[Item]) -> list[TypedItem]:
    """Return the output of a response, or other items, as typed values."""
    items = source.output if isinstance(source, Response) else source
    return [typed_item(item) for item in items]


def fit_arguments(arguments: dict[str, Any], kind: type[_T]) -> _T:
    """Return the arguments of a call as a type. Raise InvalidArguments if they do not fit.

    In JSON Schema 1.0 is an integer, and some models write integers like that.
    """
    try:
        return msgspec.convert(arguments, kind)
    except msgspec.ValidationError as error:
        problem = str(error).replace("`", "")
    try:
        return msgspec.convert(_whole_numbers(arguments), kind)
    except msgspec.ValidationError:
        raise InvalidArguments(f"the arguments do not fit: {problem}") from None


def _whole_numbers(value: Any) -> Any:
    """Return the value with 1 for 1.0, wherever that stands in it."""
    if isinstance(value, dict):
        return {key: _whole_numbers(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_whole_numbers(inner) for inner in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _output(call: _CallView, kind: str, value: object) -> Item:
    if isinstance(value, str):
        text = repair_text(value)
    else:
        text = msgspec.json.encode(plain_json(value, f"what {call.name} returned")).decode()
    return {"type": kind, "call_id": call.call_id, "output": text}

"""A conversation as messages of a chat application: each call answered right after it. Pure.

- An answer of the model is one message with its parts in their order; the results of its calls
  are in the message of the user that follows, in the order of the calls.
- System and developer messages keep their places, with the role `system`. An editor that has no
  such role writes them as it can.
- Thoughts go back to the model that made them (`thoughts`). Others are reported.
- An image that a model made is a part of the message in which it made it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from antiphon.plans.plan import Plan
from antiphon.protocol.items import Item, item_type, text_of
from antiphon.protocol.native_state import note_foreign, state_of
from antiphon.wires.host.part_writer import PartWriter, image_of
from antiphon.wires.host.parts import (
    DataPart,
    Message,
    Part,
    Role,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from antiphon.wires.host.thoughts import WIRE, thinking_of
from antiphon.wires.lower import Lowering
from antiphon.wires.turns import Arranger, Call, Entry, Said, Turn

__all__ = ["write_history"]

_IMAGE: Final = "image_generation_call"
_SYSTEM: Final = frozenset({"system", "developer"})
_NO_OUTPUT: Final = TextPart("(no output was provided for this call)")

_decode_object: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def write_history(plan: Plan, account: str) -> tuple[list[Message], list[str]]:
    """Return the items as messages, and a report of what could not be sent."""
    lowering = Lowering(plan.toolbox)
    lowered = [item if _is_image(item) else lowering.lower(item) for item in plan.items]
    arranger = Arranger(lowered, _IMAGE.__eq__)
    writer = _MessageWriter(plan.model, account)
    for turn in arranger.turns:
        if isinstance(turn, Said):
            writer.say(turn)
        elif not turn.is_empty:
            writer.act(turn)
    foreign = note_foreign(plan.items, WIRE, account)
    return writer.messages, [*arranger.report(), *writer.report(), *foreign]


def _is_image(item: Item) -> bool:
    """Return whether the item is an image that an editor takes."""
    return item_type(item) == _IMAGE and _image(item) is not None


def _image(item: Item) -> DataPart | None:
    form, data = item.get("output_format") or "png", item.get("result")
    return image_of(f"data:image/{form};base64,{data}") if data and isinstance(data, str) else None


class _MessageWriter:
    """Turns to messages."""

    def __init__(self, model: str, account: str) -> None:
        self.messages: list[Message] = []
        self._model = model
        self._account = account
        self._report: list[str] = []
        self._parts = PartWriter(self._report)
        self._unused: list[int] = []
        self._sealed: list[int] = []

    def report(self) -> list[str]:
        """Return what could not be sent."""
        return [
            *self._report,
            *_noted(self._unused, "this model does not take it back"),
            *_noted(self._sealed, "encrypted_content of another server"),
        ]

    # Who is not the model.

    def say(self, said: Said) -> None:
        item, where = said.item, f"input[{said.index}]"
        if item.get("type") == "function_call_output":
            label = TextPart(f"Output of a tool call ({item['call_id']}):")
            parts = self._parts.write(item.get("output"), f"{where}.output")
            self._add(Role.USER, [label, *parts])
            return
        role = Role.SYSTEM if item.get("role") in _SYSTEM else Role.USER
        self._add(role, self._parts.write(item.get("content"), f"{where}.content"))

    # The model.

    def act(self, turn: Turn) -> None:
        calls = {call.index: call for call in turn.calls}
        parts: list[Part] = []
        for index, item in sorted(_entries(turn), key=lambda entry: entry[0]):
            if index in calls:
                parts.append(self._call(calls[index]))
            else:
                parts += self._own_parts(index, item)
        self._add(Role.ASSISTANT, parts)
        self._add(Role.USER, [self._result(call) for call in calls.values()])

    def _own_parts(self, index: int, item: Item) -> Sequence[Part]:
        match item_type(item):
            case "reasoning":
                return self._think(index, item)
            case "message":
                return self._parts.write(item.get("content"), f"input[{index}].content")
        image = _image(item)
        return [] if image is None else [image]

    def _think(self, index: int, item: Item) -> Sequence[Part]:
        thought = thinking_of(item, self._model, self._account)
        if thought is not None:
            return [thought]
        if text_of(item.get("content")) or text_of(item.get("summary")):
            self._unused.append(index)
        elif item.get("encrypted_content") and state_of(item) is None:
            self._sealed.append(index)
        return []

    def _call(self, call: Call) -> ToolCallPart:
        """Return a call of an earlier turn; one that was cut short is quoted."""
        arguments = call.item.get("arguments") or "{}"
        name = str(call.item["name"])
        try:
            # Each value as it came: numbers are not rounded.
            return ToolCallPart(call.id, name, _decode_object(arguments))
        except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError):
            where = f"input[{call.index}].arguments"
            self._report.append(f"{where}: no JSON object; sent as a text in one")
            return ToolCallPart(call.id, name, {"arguments": str(arguments)})

    def _result(self, call: Call) -> ToolResultPart:
        if call.result is None:
            return ToolResultPart(call.id, [_NO_OUTPUT])
        index, item = call.result
        parts = self._parts.write(item.get("output"), f"input[{index}].output")
        return ToolResultPart(call.id, parts, item.get("status") == "incomplete")

    def _add(self, role: Role, parts: Sequence[Part]) -> None:
        if parts:
            self.messages.append(Message(role, parts))


def _entries(turn: Turn) -> list[Entry]:
    return [*turn.reasoning, *turn.messages, *((call.index, call.item) for call in turn.calls)]


def _noted(places: Sequence[int], why: str) -> list[str]:
    """Return one note for the reasoning at these places, if there is any."""
    if not places:
        return []
    more = f" (and {len(places) - 1} more)" if len(places) > 1 else ""
    return [f"input[{places[0]}] (reasoning): {why}{more}"]

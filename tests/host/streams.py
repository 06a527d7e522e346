"""Ways to tell a stream to an adapter in tests: events as JSON, numbered on the way in."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from antiphon.host.adapter import AdapterSettings, StreamAdapter
from antiphon.host.outcome import Outcome
from antiphon.protocol.codec import read_event
from antiphon.protocol.items import Item
from antiphon.wires.host.parts import DataPart, ResponsePart, TextPart, ThinkingPart, ToolCallPart

__all__ = [
    "ARGUMENTS",
    "CITY",
    "Fields",
    "Told",
    "added",
    "call",
    "call_item",
    "created",
    "data",
    "done",
    "end",
    "event",
    "message",
    "message_item",
    "tell",
    "text",
    "thoughts",
    "tool_calls",
    "without",
]

Fields = dict[str, Any]

ARGUMENTS = '{"city":"Ulm"}'
CITY = {"city": "Ulm"}


class Told:
    """An adapter that was told some events, and the parts it gave for each."""

    def __init__(self, adapter: StreamAdapter, steps: list[list[ResponsePart]]) -> None:
        self.adapter = adapter
        self.steps = steps

    @property
    def parts(self) -> list[ResponsePart]:
        """All parts, in order."""
        return [part for step in self.steps for part in step]

    def finish(self) -> Outcome:
        """How it ended."""
        return self.adapter.finish()


def tell(*stream: Fields, settings: AdapterSettings | None = None) -> Told:
    """Tell the events, counted from 0 where they have no number yet."""
    adapter = StreamAdapter(settings)
    read = [read_event({"sequence_number": n} | fields) for n, fields in enumerate(stream)]
    return Told(adapter, [adapter.feed(event) for event in read])


def text(parts: Iterable[ResponsePart]) -> str:
    """The text parts, joined."""
    return "".join(part.value for part in parts if isinstance(part, TextPart))


def thoughts(parts: Iterable[ResponsePart]) -> list[ThinkingPart]:
    """The thinking parts."""
    return [part for part in parts if isinstance(part, ThinkingPart)]


def tool_calls(parts: Iterable[ResponsePart]) -> list[ToolCallPart]:
    """The calls."""
    return [part for part in parts if isinstance(part, ToolCallPart)]


def data(parts: Iterable[ResponsePart]) -> list[DataPart]:
    """The data parts."""
    return [part for part in parts if isinstance(part, DataPart)]


def event(kind: str, **fields: Any) -> Fields:
    """One event as a JSON object, not yet numbered."""
    return {"type": f"response.{kind}", **fields}


def created() -> Fields:
    """The event that begins every stream."""
    return event("created", response={"id": "resp_1", "status": "in_progress"})


def end(*output: Item, kind: str = "completed", **fields: Any) -> Fields:
    """The terminal event."""
    base = {"id": "resp_1", "status": kind, "output": list(output)}
    return event(kind, response=base | fields)


def added(item: Item, index: int = 0) -> Fields:
    """An item opens."""
    return event("output_item.added", output_index=index, item=item)


def done(item: Item, index: int = 0) -> Fields:
    """An item is final."""
    return event("output_item.done", output_index=index, item=item)


def message_item(said: str, item_id: str = "msg_1", **part: Any) -> Item:
    """A message of one part."""
    whole: Item = {"type": "output_text", "text": said, "annotations": []} | part
    content = [whole] if said else []
    return {"id": item_id, "type": "message", "role": "assistant", "content": content}


def message(
    *pieces: str, item_id: str = "msg_1", index: int = 0, said: str | None = None
) -> list[Fields]:
    """A message from added to done, one delta for each piece."""
    said = "".join(pieces) if said is None else said
    place: Fields = {"item_id": item_id, "output_index": index, "content_index": 0}
    part = {"type": "output_text", "text": "", "annotations": []}
    return [
        added(message_item("", item_id), index),
        event("content_part.added", part=part, **place),
        *[event("output_text.delta", delta=piece, **place) for piece in pieces],
        event("output_text.done", text=said, **place),
        event("content_part.done", part=part | {"text": said}, **place),
        done(message_item(said, item_id), index),
    ]


def call_item(
    call_id: str = "call_1", item_id: str = "fc_1", arguments: str = ARGUMENTS, **fields: Any
) -> Item:
    """A call of a function."""
    base = {"id": item_id, "type": "function_call", "status": "completed", "call_id": call_id}
    return base | {"name": "weather", "arguments": arguments} | fields


def call(
    call_id: str = "call_1", item_id: str = "fc_1", index: int = 0, arguments: str = ARGUMENTS
) -> list[Fields]:
    """A call from added to done, its arguments in two deltas."""
    place: Fields = {"item_id": item_id, "output_index": index}
    return [
        added(call_item(call_id, item_id, "", status="in_progress"), index),
        event("function_call_arguments.delta", delta=arguments[:3], **place),
        event("function_call_arguments.delta", delta=arguments[3:], **place),
        event("function_call_arguments.done", arguments=arguments, **place),
        done(call_item(call_id, item_id, arguments), index),
    ]


def without(stream: list[Fields], *kinds: str) -> list[Fields]:
    """The events but for those of some types."""
    return [told for told in stream if told["type"] not in {f"response.{kind}" for kind in kinds}]

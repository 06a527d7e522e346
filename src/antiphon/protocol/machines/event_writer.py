"""Makes the events of one stream: numbers them, places items, and keeps what is done.

This is the only place where sequence numbers and output indexes are made. When something opens,
grows or closes is decided by the builder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, Literal

import msgspec

from antiphon.protocol.events import (
    EVENT_CLASSES,
    ErrorEvent,
    Event,
    LifecycleEvent,
    OutputItemAdded,
    OutputItemDone,
    UnknownEvent,
)
from antiphon.protocol.families import is_call
from antiphon.protocol.items import Item, item_type
from antiphon.protocol.machines.hosted_items import Step, runs_shell
from antiphon.protocol.machines.open_items import copy_json
from antiphon.protocol.response import Failure, Response

__all__ = ["EventWriter", "ItemStatus"]

ItemStatus = Literal["completed", "incomplete"]
# Events inside an item that do not name it but by its index.
_NAMELESS: Final = "response.shell_call_command."


class EventWriter:
    """Collects events until they are taken. `output` are the items that are done."""

    def __init__(self, first: int) -> None:
        self.sequence = first
        self.indexes = 0
        self.output: list[Item] = []
        self.events: list[Event] = []

    def add_item(self, index: int, item: Item) -> None:
        """Emit the opening of an item."""
        self.emit(OutputItemAdded(sequence_number=self.sequence, output_index=index, item=item))

    def end_item(self, index: int, item: Item) -> None:
        """Emit the end of an item, and keep it."""
        self.output.append(item)
        self.emit(
            OutputItemDone(sequence_number=self.sequence, output_index=index, item=copy_json(item))
        )

    def next_index(self) -> int:
        """Return the index of the next item."""
        self.indexes += 1
        return self.indexes - 1

    def after_cut(self, status: ItemStatus) -> ItemStatus:
        """Return the status of the next item: incomplete items are always the last ones.

        Hosted and foreign items have ends of their own, and cut nothing.
        """
        written = (item for item in reversed(self.output) if _is_written(item))
        last = next(written, None)
        return "incomplete" if last and last.get("status") == "incomplete" else status

    def announce(self, response: Response, event: type[LifecycleEvent], status: str) -> None:
        """Emit the response as it is now, with this status and the items that are done."""
        output = copy_json(self.output) if self.output else []
        now = msgspec.structs.replace(response, status=status, output=output)
        self.emit(event(sequence_number=self.sequence, response=now))

    def place(self, item_id: str, index: int) -> dict[str, Any]:
        """Return the place of the next event, if it is inside this item."""
        return {"sequence_number": self.sequence, "item_id": item_id, "output_index": index}

    def emit(self, event: Event) -> None:
        """Emit an event, which has the next sequence number."""
        self.events.append(event)
        self.sequence += 1

    def take(self) -> list[Event]:
        """Return the events since the last call."""
        events, self.events = self.events, []
        return events

    def emit_steps(self, item_id: str, index: int, steps: Iterable[Step]) -> None:
        """Emit events inside an item. Those of unknown types keep their fields as they are."""
        for name, fields in steps:
            place = self.place(item_id, index)
            make: Callable[..., Event] | None = EVENT_CLASSES.get(name)
            if name.startswith(_NAMELESS):
                del place["item_id"]
            if make is None:
                self.emit(UnknownEvent(name, {"type": name, **fields, **place}))
            else:
                self.emit(make(**fields, **place))

    def emit_error(self, response: Response, kind: str, *, is_kept: bool) -> None:
        """Announce the failure of this response.

        The OpenAI SDKs raise at this event and never read the `response.failed` after it. So the
        nested error names the response; one that the server keeps can be read by that id.
        """
        why = response.error or Failure()
        where = f"response {response.id}"
        if is_kept and response.store:
            where = f"what was produced is kept: GET /v1/responses/{response.id}"
        self.emit(
            ErrorEvent(
                sequence_number=self.sequence,
                message=why.message,
                code=why.code,
                kind=kind,
                detail=f"{why.message} ({where})" if why.message else where,
            )
        )


def _is_written(item: Item) -> bool:
    """Return whether the model itself writes such items: prose, and calls for the caller."""
    is_prose = item_type(item) in ("message", "reasoning")
    return is_prose or (is_call(item) and not runs_shell(item))

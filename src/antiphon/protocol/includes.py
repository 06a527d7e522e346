"""What of a hosted item is shown only if `include` asks for it?

Everything that a tool has found is stored. It is hidden on the way out, here and nowhere else:
when a response is created, read or streamed, and when items are listed.

    | `include`                      | without it                                       |
    |--------------------------------|--------------------------------------------------|
    | web_search_call.action.sources | `action` has no `sources`                        |
    | file_search_call.results       | `results` is null                                |
    | code_interpreter_call.outputs  | `outputs` is null                                |

An item is never changed: what is shown is a copy.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Final

import msgspec

from antiphon.protocol.events import Event, LifecycleEvent, OutputItemAdded, OutputItemDone
from antiphon.protocol.items import Item, item_type
from antiphon.protocol.response import Response
from antiphon.protocol.tool_list import types_of
from antiphon.protocol.tools import Tool

__all__ = ["ACCEPTED", "Hidden", "hidden_in_stream"]

_SOURCES: Final = "web_search_call.action.sources"
_RESULTS: Final = "file_search_call.results"
_OUTPUTS: Final = "code_interpreter_call.outputs"
ACCEPTED: Final = frozenset({_SOURCES, _RESULTS, _OUTPUTS})
"""The values of `include` that are honoured here."""
# Tools whose calls have something to hide.
_KINDS: Final = ("web_search", "file_search", "code_interpreter")


def _without_sources(item: Item) -> Item:
    action = item.get("action")
    if not isinstance(action, dict) or "sources" not in action:
        return item
    return item | {"action": {name: action[name] for name in action if name != "sources"}}


def _without_results(item: Item) -> Item:
    return item | {"results": None} if item.get("results") is not None else item


def _without_outputs(item: Item) -> Item:
    return item | {"outputs": None} if item.get("outputs") is not None else item


_HIDE: Final[dict[str, tuple[str, Callable[[Item], Item]]]] = {
    "web_search_call": (_SOURCES, _without_sources),
    "file_search_call": (_RESULTS, _without_results),
    "code_interpreter_call": (_OUTPUTS, _without_outputs),
}
_HIDE_ALL: Final = {kind: hide for kind, (_, hide) in _HIDE.items()}


class Hidden:
    """Hides what `include` does not name."""

    def __init__(self, include: Collection[str] = ()) -> None:
        self._hide = _HIDE_ALL
        if include:
            self._hide = {kind: hide for kind, (name, hide) in _HIDE.items() if name not in include}

    def item(self, item: Item) -> Item:
        """Return the item as it is shown; the same object if nothing is hidden."""
        hide = self._hide.get(item_type(item))
        return item if hide is None else hide(item)

    def response(self, response: Response) -> Response:
        """Return the response as it is shown."""
        if self._hide.keys().isdisjoint(map(item_type, response.output)):
            return response
        return msgspec.structs.replace(response, output=list(map(self.item, response.output)))

    def events(self, events: Sequence[Event]) -> list[Event]:
        """Return the events as they are shown."""
        return list(map(self._event, events))

    def _event(self, event: Event) -> Event:
        if isinstance(event, OutputItemAdded | OutputItemDone):
            return msgspec.structs.replace(event, item=self.item(event.item))
        if isinstance(event, LifecycleEvent):
            return msgspec.structs.replace(event, response=self.response(event.response))
        return event


def hidden_in_stream(tools: list[Tool] | None, include: Collection[str] | None) -> Hidden | None:
    """Return what hides in a stream, None if no tool of the response has anything to hide.

    Most streams have no such tool, and a token then costs nothing more.
    """
    found = any(kind.startswith(_KINDS) for kind in types_of(tools))
    return Hidden(include or ()) if found else None

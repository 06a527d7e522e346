"""Calls and other items of a Responses answer, as deltas.

A call of one of the caller's tools is a call. Functions that stood for a tool of another kind
come as function calls; `wires.lift` turns them back. Everything else, such as a search that the
server ran itself, is passed on from its beginning to its end with the steps in between.

The builder accepts only what makes sense of such an item, so what does not is settled here: a
status that is no end, a text that ends as another one than it was streamed.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from antiphon.plans.toolbox import Offer, Toolbox
from antiphon.protocol.deltas import (
    CallClosed,
    CallGrew,
    CallMade,
    CallOpened,
    Delta,
    ItemClosed,
    ItemOpened,
    ItemProgressed,
    Reported,
)
from antiphon.protocol.events import EVENT_CLASSES, Event, UnknownEvent, event_type
from antiphon.protocol.families import WHOLE, Family, arguments_of, call_family, payload_of
from antiphon.protocol.halves import join_all
from antiphon.protocol.items import Item
from antiphon.wires.responses.places import Place, Places

__all__ = ["ItemReader"]

# Where the text of an item that the server runs itself grows, and in which events.
_GROWING: Final = {
    "code_interpreter_call": ("code", "response.code_interpreter_call_code"),
    "mcp_call": ("arguments", "response.mcp_call_arguments"),
}
# Answers refer to it by its id.
_KEEPS_ID: Final = frozenset({"mcp_approval_request"})
# They open as they end, so that their end alone is worth reporting.
_WHOLE_ONLY: Final = frozenset({"mcp_approval_request"})
_ENDED: Final = frozenset({"completed", "failed", "incomplete", "cancelled", "expired"})
_PLACE_FIELDS: Final = frozenset(
    {"type", "sequence_number", "item_id", "output_index", "obfuscation"}
)
_PREVIEW: Final = "response.image_generation_call.partial_image"
# They hold nothing of the answer.
_NOISE: Final = ("keepalive", "ping", "response.heartbeat", "response.reasoning_part.")


class ItemReader:
    """Reports the items of one answer to `out`."""

    def __init__(self, toolbox: Toolbox, out: list[Delta]) -> None:
        self._toolbox = toolbox
        self._out = out
        self._unknown: set[str] = set()

    # Beginnings and ends.

    def begin(self, place: Place) -> None:
        """Report that an item begins, as soon as that can be done."""
        family = self._family_of(place.item)
        if family is None:
            if place.kind not in _WHOLE_ONLY:
                self._open(place, place.item)
        elif family.kind not in WHOLE and _name_of(place.item):
            self._open_call(place, place.item, family)

    def finish(self, place: Place, item: Item) -> None:
        """Report the end of an item, and its beginning if that is not reported yet."""
        family = self._family_of(item)
        if family is None or (family.kind in WHOLE and self._made(item, family) is None):
            self._finish_item(place, item)
        elif family.kind in WHOLE:
            self._out.append(self._made(item, family))  # type: ignore[arg-type]  # not None
        else:
            self._finish_call(place, item, family)

    def leave(self, place: Place, *, is_cut: bool) -> None:
        """End an item that the upstream never ended, and is not in its terminal response."""
        if is_cut or not place.is_open or self._family_of(place.item) is not None:
            return
        self._report(f"{place.kind}: the upstream never ended it")
        self._finish_item(place, place.item)

    def _family_of(self, item: Item) -> Family | None:
        """Return the family of a call that the caller runs; None for any other item."""
        family = call_family(item)
        if family is None or family.kind not in WHOLE:
            return family
        return family if self._toolbox.find(family.kind, None, family.kind) else None

    # Calls.

    def grow_call(self, place: Place | None, text: str) -> None:
        """Report a piece of the arguments of a call, or of its input."""
        if place is None:
            self._report("arguments of a call that did not begin")
            return
        text = place.take(text)
        place.pieces.append(text)
        if place.is_open and text:
            self._out.append(CallGrew(place.number, text))

    def finish_text(self, place: Place | None, whole: str) -> None:
        """Report what the whole text adds to the pieces: all of it, where there were none."""
        if place is not None:
            self._grow_by_rest(place, whole)

    def _open_call(self, place: Place, item: Item, family: Family) -> None:
        place.is_open = True
        name, namespace = _name_of(item), item.get("namespace")
        call_id = item.get("call_id")
        call_id = call_id if isinstance(call_id, str) and call_id else None
        offer = self._offer(family, namespace, name)
        if offer is None:
            kind = family.kind
            space = namespace if isinstance(namespace, str) else None
            self._out.append(CallOpened(place.number, name, call_id, kind, space))
        else:
            named = (offer.kind, offer.namespace, offer.alias)
            self._out.append(CallOpened(place.number, offer.name, call_id, *named))
        # Some put what they know of the arguments there already.
        self._grow_by_rest(place, "".join(place.pieces) or item.get(family.payload))

    def _offer(self, family: Family, namespace: object, name: str) -> Offer | None:
        """Return the tool that was passed as it is, and is called by this name."""
        if isinstance(namespace, str):
            return self._toolbox.find(family.kind, namespace, name)
        offer = self._toolbox.called(name)
        return offer if offer is not None and offer.kind == family.kind else None

    def _finish_call(self, place: Place, item: Item, family: Family) -> None:
        if not place.is_open:
            told, place.pieces = "".join(place.pieces), []
            self._open_call(place, {**item, family.payload: ""}, family)
            self._grow_by_rest(place, told)
        self._grow_by_rest(place, item.get(family.payload))
        if item.get("status") != "incomplete":
            self._out.append(CallClosed(place.number))

    def _grow_by_rest(self, place: Place, whole: object) -> None:
        rest, place.half = place.rest_of(whole), ""
        if rest is None:
            self._report(f"{place.kind}: its text ended as another one than it was streamed")
        elif rest:
            self.grow_call(place, rest)

    def _made(self, item: Item, family: Family) -> CallMade | None:
        """Return a call that comes whole; None if its kind cannot hold what it says."""
        payload = item.get(family.payload)
        said = arguments_of(family.kind, payload) if isinstance(payload, dict) else ""
        offer = self._toolbox.find(family.kind, None, family.kind)
        if offer is None or payload_of(family.kind, said) is None:
            return None
        call_id = item.get("call_id")
        call_id = call_id if isinstance(call_id, str) and call_id else None
        return CallMade(offer.name, said, call_id, offer.kind, None, offer.alias)

    # Other items.

    def progress(self, event: Event, places: Places) -> None:
        """Report a step of an item that is open."""
        name = event_type(event)
        fields = _fields_of(event)
        index, item_id = fields.get("output_index"), fields.get("item_id")
        place = places.find_any(
            index if isinstance(index, int) else -1, item_id if isinstance(item_id, str) else ""
        )
        place = place or _open_of(places, name)
        if place is not None and place.is_open and _is_step_of(name, place.kind):
            self._step(place, name, fields)
        elif isinstance(event, UnknownEvent) and not name.startswith(_NOISE):
            self._report_once(name)

    def _step(self, place: Place, name: str, fields: dict[str, Any]) -> None:
        kept = {key: value for key, value in fields.items() if key not in _PLACE_FIELDS}
        growing = _GROWING.get(place.kind)
        if growing is not None and name.startswith(growing[1]):
            self._grow_item(place, name, kept, growing[0])
        elif name != _PREVIEW or isinstance(kept.get("partial_image_b64"), str):
            self._out.append(ItemProgressed(place.key, name, join_all(kept)))

    def _grow_item(self, place: Place, name: str, fields: dict[str, Any], field: str) -> None:
        """Report how the code or the arguments of an item grew; its end is reported with it."""
        if name.endswith(".done"):
            text, place.half = place.rest_of(fields.get(field)), ""
            if text is None:
                self._report(f"{place.kind}: its text ended as another one than it was streamed")
        else:
            given = fields.get("delta")
            text = place.take(given) if isinstance(given, str) else None
        if text:
            place.pieces.append(text)
            event = f"{name.rpartition('.')[0]}.delta"
            self._out.append(ItemProgressed(place.key, event, {"delta": text}))

    def _open(self, place: Place, item: Item) -> None:
        place.is_open = True
        self._out.append(ItemOpened(place.key, _without_id(item)))

    def _finish_item(self, place: Place, item: Item) -> None:
        final = self._settle(place, item)
        if not place.is_open:
            self._open(place, final)
        self._out.append(ItemClosed(place.key, final))

    def _settle(self, place: Place, item: Item) -> Item:
        """Return the item as one that has ended."""
        final = _without_id(item)
        if isinstance(final.get("status"), str) and final["status"] not in _ENDED:
            final["status"] = "completed"
        if place.kind == "image_generation_call":
            result = final.get("result")
            final["result"] = result if isinstance(result, str) else ""
            final["status"] = "completed" if final["result"] else "failed"
        if place.kind not in _GROWING:
            return final
        field = _GROWING[place.kind][0]
        if place.rest_of(final.get(field)) is None:
            self._report(f"{place.kind}: its text ended as another one than it was streamed")
        if not isinstance(final.get(field), str) or place.rest_of(final[field]) is None:
            final[field] = "".join(place.pieces)
        return final

    def _report_once(self, name: str) -> None:
        if name not in self._unknown and len(self._unknown) < 32:
            self._unknown.add(name)
            self._report(f"event {name[:80]}: it cannot be passed on")

    def _report(self, what: str) -> None:
        self._out.append(Reported(what))


def _fields_of(event: Event) -> dict[str, Any]:
    if isinstance(event, UnknownEvent):
        return event.fields
    fields: dict[str, Any] = msgspec.to_builtins(event)
    fields |= fields.pop("$extra", {})
    return fields


def _open_of(places: Places, name: str) -> Place | None:
    """Return the open item of the kind that the event is named after, if it is one alone."""
    found = [place for place in places.all if place.is_open and not place.is_done]
    found = [place for place in found if _is_step_of(name, place.kind)]
    return found[-1] if found else None


def _is_step_of(name: str, kind: str) -> bool:
    """Return whether an event of this name can be about an item of this kind.

    One whose type we do not know may be about any item that we do not know either.
    """
    growing = _GROWING.get(kind, ("", "?"))[1]
    if name.startswith((f"response.{kind}.", f"{growing}.")):
        return True
    return name not in EVENT_CLASSES and name.startswith("response.") and kind not in _GROWING


def _without_id(item: Item) -> Item:
    kept = item.get("type") in _KEEPS_ID
    return {name: value for name, value in item.items() if name != "id" or kept}


def _name_of(item: Item) -> str:
    name = item.get("name")
    return name if isinstance(name, str) else ""

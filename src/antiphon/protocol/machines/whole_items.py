"""Items that are known whole: how each opens, and which events lead to its end.

A builder passes such an item on, and a response that has ended is replayed from them. Texts come
in one piece, and hosted items go through all their stages. An item of a shape that a builder does
not make is opaque: it opens as it is, and nothing happens before it is done.
"""

from __future__ import annotations

from typing import Final

from antiphon.protocol.families import WHOLE, call_family, opening_of
from antiphon.protocol.items import Item, Part
from antiphon.protocol.machines.hosted_items import OpenItem, Step, is_hosted
from antiphon.protocol.machines.open_items import PART_FORMS, copy_json

__all__ = ["unfold"]


_LISTS: Final = {"message": ("content",), "reasoning": ("summary", "content")}
_CALL_EVENTS: Final = {
    "function_call": ("arguments", "response.function_call_arguments"),
    "custom_tool_call": ("input", "response.custom_tool_call_input"),
}
_NOTES: Final = ("annotations", "logprobs")
_LATER: Final = frozenset({"content", "summary", "arguments", "encrypted_content"})


def unfold(item: Item, index: int) -> tuple[Item, list[Step], Item]:
    """Return the item as it opens, the steps that follow, and the item as it is done."""
    if is_hosted(item):
        hosted = OpenItem(item, index)
        opening = hosted.opening()
        hosted.close(item)
        assert hosted.final is not None
        return opening, [*hosted.first_steps(), *hosted.ending()], hosted.final
    if not _has_known_shape(item):
        return copy_json(item), [], item
    steps = _call_steps(item)
    for field in _LISTS.get(item["type"], ()):
        for part_index, part in enumerate(item.get(field) or ()):
            steps += _part_steps(part, part_index)
    return copy_json(_opening(item)), steps, item


def _call_steps(item: Item) -> list[Step]:
    if item["type"] not in _CALL_EVENTS:
        return []
    field, events = _CALL_EVENTS[item["type"]]
    text = item[field]
    last = {field: text, "name": item["name"]} if field == "arguments" else {field: text}
    grown: list[Step] = [(f"{events}.delta", {"delta": text})] if text else []
    return [*grown, (f"{events}.done", last)]


def _part_steps(part: Part, part_index: int) -> list[Step]:
    form = PART_FORMS[part["type"]]
    empty: Part = {form.text: ""} | {field: [] for field in _NOTES if field in part}
    text, events, place = part[form.text], form.text_events, {form.index_field: part_index}
    # Only the events of a plain text have logprobs.
    notes = {"logprobs": part.get("logprobs") or []} if part["type"] == "output_text" else {}
    steps: list[Step] = [(f"{form.part_events}.added", {"part": copy_json(part | empty), **place})]
    if text:
        steps.append((f"{events}.delta", {"delta": text, **copy_json(notes), **place}))
    for index, note in enumerate(part.get("annotations") or ()):
        noted = {"annotation_index": index, "annotation": copy_json(note), **place}
        steps.append((f"{events}.annotation.added", noted))
    steps.append((f"{events}.done", {form.text: text, **copy_json(notes), **place}))
    steps.append((f"{form.part_events}.done", {"part": copy_json(part), **place}))
    return steps


def _opening(item: Item) -> Item:
    opening = {key: value for key, value in item.items() if key not in _LATER}
    if "status" in item:
        opening["status"] = "in_progress"
    match item["type"]:
        case "message":
            opening["content"] = []
        case "reasoning":
            opening["summary"] = []
        case _:
            family = call_family(item)
            assert family is not None
            opening[family.payload] = opening_of(family.kind, item[family.payload])
    return opening


def _has_known_shape(item: Item) -> bool:
    kind = item.get("type")
    family = call_family(item)
    if family is not None and family.kind in WHOLE:
        return isinstance(item.get(family.payload), dict)
    if family is not None:
        return all(isinstance(item.get(field), str) for field in ("name", family.payload))
    if kind not in _LISTS:
        return False
    return all(
        _has_form(kind, field, part) for field in _LISTS[kind] for part in item.get(field) or ()
    )


def _has_form(kind: str, field: str, part: object) -> bool:
    if not isinstance(part, dict):
        return False
    form = PART_FORMS.get(str(part.get("type")))
    if form is None or (form.item, form.field) != (kind, field):
        return False
    return isinstance(part.get(form.text), str)

"""What Responses services are known to do today, although the grammar of events forbids it.

A leniency returns a stream as it would be without its known deviations, and the same strict rules
judge that. So it hides nothing else: a deviation that is not listed here is found as ever.

`openai-today`, for OpenAI and Azure:

    | what they do                                             | how it is forgiven               |
    |----------------------------------------------------------|----------------------------------|
    | encrypt reasoning again for the terminal response, and   | encrypted_content is not compared|
    | show it when the item begins                             |                                  |
    | leave out completed_at                                   | it is created_at                 |
    | end lists of MCP tools in any order, after later items,  | each list is put together, with  |
    | or never                                                 | its end of the terminal response |
    | begin a code interpreter call with outputs: []           | they are null                    |
    | send no sequence numbers at all (old versions)           | events are numbered              |
    | end a stream without data: [DONE]                        | it is added                      |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from antiphon.cli.check.case import Json, json_of
from antiphon.protocol.sse import Frame

__all__ = ["LENIENCIES"]

_DONE: Final = b"[DONE]"
_LIST: Final = "mcp_list_tools"
# Where the name of its frame is kept, beside the fields of an event.
_NAME: Final = "$frame"
_CIPHER: Final = "encrypted_content"


def _forgive(frames: Sequence[Frame]) -> list[Frame]:
    """Return the stream without what `openai-today` forgives; frames that are no events stay."""
    sent = [frame for frame in frames if frame.data != _DONE]
    read = [json_of(frame.data) for frame in sent]
    if not read or not all(isinstance(event, dict) for event in read):
        return [*frames]
    named = [event | {_NAME: frame.event} for event, frame in zip(read, sent, strict=True)]
    events = _group_lists([_plain(event) for event in named])
    _number(events)
    marks = [frame for frame in frames if frame.data == _DONE] or [Frame("message", _DONE)]
    return [*map(_frame, events), *marks]


def _frame(event: Json) -> Frame:
    name = event.pop(_NAME)
    return Frame(name, msgspec.json.encode(event))


# One event.


def _plain(event: Json) -> Json:
    item, response = event.get("item"), event.get("response")
    if isinstance(item, dict):
        return event | {"item": _plain_item(item, is_new=_is_added(event))}
    if isinstance(response, dict) and isinstance(response.get("output"), list):
        return event | {"response": _plain_response(response)}
    return event


def _is_added(event: Json) -> bool:
    return event.get("type") == "response.output_item.added"


def _plain_item(item: Any, *, is_new: bool) -> Any:  # Any: what a server put there
    if not isinstance(item, dict):
        return item
    if item.get("type") == "code_interpreter_call" and is_new and item.get("outputs") == []:
        return item | {"outputs": None}
    if _CIPHER not in item:
        return item
    kept = {name: value for name, value in item.items() if name != _CIPHER}
    is_early = is_new and item.get("type") == "reasoning"
    return kept if is_early else kept | {_CIPHER: item[_CIPHER] and "*"}


def _plain_response(response: Json) -> Json:
    output = [_plain_item(item, is_new=False) for item in response["output"]]
    plain = response | {"output": output}
    if plain.get("status") == "completed" and plain.get("completed_at") is None:
        plain["completed_at"] = plain.get("created_at")
    return plain


# The whole stream.


def _group_lists(events: Sequence[Json]) -> list[Json]:
    """Return the events with those of each list of MCP tools together, from its beginning on."""
    lists = {event.get("output_index"): [event] for event in events if _begins_list(event)}
    if not lists:
        return [*events]
    for event in events:
        if event.get("output_index") in lists and not _begins_list(event):
            lists[event["output_index"]].append(event)
    for index, group in lists.items():
        _end_list(group, _at(events[-1], index))
    grouped: list[Json] = []
    for event in events:
        if _begins_list(event):
            grouped += lists[event["output_index"]]
        elif event.get("output_index") not in lists:
            grouped.append(event)
    first = grouped[0].get("sequence_number")
    if isinstance(first, int) and _is_counted(events):
        return [event | {"sequence_number": first + n} for n, event in enumerate(grouped)]
    return grouped


def _begins_list(event: Json) -> bool:
    return _is_added(event) and isinstance(event["item"], dict) and event["item"]["type"] == _LIST


def _end_list(group: list[Json], final: Json | None) -> None:
    """Add the end of a list that has none."""
    if any(event.get("type") == "response.output_item.done" for event in group) or final is None:
        return
    index = group[0]["output_index"]
    kind = "response.output_item.done"
    end = {_NAME: kind, "type": kind, "output_index": index, "item": final}
    group.append(end | {"sequence_number": group[-1].get("sequence_number")})


def _at(terminal: Json, index: object) -> Json | None:
    response = terminal.get("response")
    output = response.get("output") if isinstance(response, dict) else None
    if not isinstance(output, list) or not isinstance(index, int) or not 0 <= index < len(output):
        return None
    item = output[index]
    return item if isinstance(item, dict) and item.get("type") == _LIST else None


def _is_counted(events: Sequence[Json]) -> bool:
    numbers = [event.get("sequence_number") for event in events]
    first = numbers[0]
    return isinstance(first, int) and numbers == [*range(first, first + len(numbers))]


def _number(events: Sequence[Json]) -> None:
    """Number the events of a server that numbers none."""
    if any("sequence_number" in event for event in events):
        return
    for number, event in enumerate(events):
        event["sequence_number"] = number


LENIENCIES: Final[Mapping[str, Callable[[Sequence[Frame]], Sequence[Frame]]]] = {
    "openai-today": _forgive,
}

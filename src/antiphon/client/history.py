"""Which items of a conversation are new to the server?

A caller's copy of the model's output differs from the original: it has no ids, no reasoning,
other spacing in the arguments, one text where there were two. So histories are compared by
meaning:

- reasoning, calls that the server ran itself and empty assistant messages do not count;
- consecutive assistant texts are one text, however they are split into messages and parts;
- a call is its call_id, its name and its arguments as JSON; an output its call_id and content;
- anything else is its fields, without id, status, annotations and logprobs; a content that is
  a string is one text part.

A history that does not begin with what is known is never cut.

A user may continue without the result of a call ("never mind"). Servers refuse a call without an
output, so the request gets one that states this (`NO_OUTPUT`). The caller's history and the
remembered one stay as they were. A turn in which some calls have an output and others have none
looks like a mistake, and is not sent to a thread.

Half a surrogate pair, which a model may leave where its output was cut, cannot be sent back:
`repair_text` puts U+FFFD in its place.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from itertools import groupby, takewhile
from typing import Any, Final

import msgspec

from antiphon.client.errors import BadCall, MissingInput
from antiphon.protocol.families import FAMILIES
from antiphon.protocol.items import Item, item_type, text_of

__all__ = [
    "HOSTED",
    "NO_OUTPUT",
    "answer_calls",
    "complete_history",
    "fingerprint",
    "is_model_made",
    "new_items",
    "repair_text",
    "trim_to_new",
    "unanswered_calls",
]

NO_OUTPUT: Final = "(no output was provided for this call)"
# The outputs that are a text. What answers another call cannot be written for the caller.
_OUTPUTS: Final = {FAMILIES[kind].call: FAMILIES[kind].output for kind in ("function", "custom")}
HOSTED: Final = frozenset(
    {
        "code_interpreter_call",
        "file_search_call",
        "image_generation_call",
        "mcp_call",
        "mcp_list_tools",
        "web_search_call",
    }
)
"""Calls that the server runs itself: a chat-shaped history cannot hold them."""

_MODEL_MADE: Final = frozenset(
    {
        "compaction",
        "mcp_approval_request",
        "mcp_list_tools",
        "program",
        "program_output",
        "reasoning",
    }
)
_TEXTS: Final = frozenset({"text", "input_text", "output_text", "refusal"})
_PART_LABELS: Final = frozenset({"annotations", "logprobs"})
_LABELS: Final = frozenset({"id", "status", "phase"})

_Key = tuple[str, ...]


def new_items(known: Sequence[Item], items: Sequence[Item]) -> list[Item] | None:
    """Return what follows the known items, or None.

    None means that `items` does not begin with the known ones, or that nothing follows them.
    """
    reader = _HistoryReader(items)
    if not all(reader.take(key) for key in _keys(known)):
        return None
    # What does not count may stand on either side of the cut; what is known stays behind it.
    ending = list(takewhile(lambda item: not _counts(item), reversed(known)))
    rest = list(items[reader.place :])
    while rest and not _counts(rest[0]) and any(_is_same(rest[0], item) for item in ending):
        del rest[0]
    return rest if any(_counts(item) for item in rest) else None


def fingerprint(items: Sequence[Item]) -> str:
    """Return a digest of what the items mean: the same for all copies that compare as equal."""
    keys = msgspec.json.encode(repair_text([list(key) for key in _keys(items)]))
    return hashlib.blake2b(keys, digest_size=16).hexdigest()


def trim_to_new(items: Sequence[Item]) -> list[Item]:
    """Return what follows the last item that the model made: the next turn's input.

    Calls that the caller did not answer get an output that states this. Raise MissingInput if
    nothing follows, and BadCall if the rest is half of a turn's outputs.
    """
    made = [index for index, item in enumerate(items) if is_model_made(item)]
    cut = made[-1] + 1 if made else 0
    before, after = items[:cut], list(items[cut:])
    if not after:
        raise MissingInput("there is nothing to answer: the last message is the model's own")
    after = answer_calls(before, after)
    missing = unanswered_calls(before, after)
    if missing and any(map(_is_output, after)):
        raise BadCall(
            f"the calls {', '.join(missing)} have no output, but others of the same turn have; "
            "send all outputs of a turn together",
            param="messages",
        )
    return after


def unanswered_calls(before: Sequence[Item], after: Sequence[Item]) -> list[str]:
    """Return the ids of calls in the last turn of `before` that have no output, there or after."""
    turn = _last_turn(before)
    answered = {item.get("call_id") for item in (*turn, *after) if _is_output(item)}
    calls = [item.get("call_id") for item in turn]
    return [call_id for call_id in calls if isinstance(call_id, str) and call_id not in answered]


def answer_calls(before: Sequence[Item], after: Sequence[Item]) -> list[Item]:
    """Return `after`, with an output for each call of the turn before, if it has none of them.

    Only where a message follows: then the caller continued without them.
    """
    turn = _last_turn(before)
    done = {item.get("call_id") for item in turn if _is_output(item)}
    called = {item.get("call_id") for item in turn} - done - {None}
    if any(item.get("call_id") in called for item in after):
        return list(after)
    return complete_history([*turn, *after])[len(turn) :]


def complete_history(items: Sequence[Item]) -> list[Item]:
    """Return the items, with an output for each call that has none before a later message."""
    answered = {item.get("call_id") for item in items if _is_output(item)}
    complete: list[Item] = []
    missing: list[Item] = []
    for item in items:
        if item_type(item) == "message" and not is_model_made(item):
            complete += missing
            missing = []
        complete.append(item)
        kind, call_id = _OUTPUTS.get(item_type(item)), item.get("call_id")
        if kind is not None and isinstance(call_id, str) and call_id not in answered:
            missing.append({"type": kind, "call_id": call_id, "output": NO_OUTPUT})
    return complete


def _last_turn(items: Sequence[Item]) -> list[Item]:
    """Return what the model made last, with the outputs of tools that the server ran for it.

    A shell or a patch may be run by either side. Such an output does not end the turn: a call
    before it may wait for another one. Functions are always run by the caller.
    """
    return list(takewhile(_may_be_the_servers, reversed(items)))[::-1]


def _may_be_the_servers(item: Item) -> bool:
    return is_model_made(item) or (_is_output(item) and item_type(item) not in _OUTPUTS.values())


def _is_output(item: Item) -> bool:
    return item_type(item).endswith("_output")


def is_model_made(item: Item) -> bool:
    """Return whether an item is what a model produces: text, reasoning or a call.

    So are the outputs that are known to be the server's own: of programs and hosted searches.
    """
    kind = item_type(item)
    if kind == "message":
        return item.get("role") == "assistant"
    if kind == "tool_search_output":
        return item.get("execution") == "server"
    return kind.endswith("_call") or kind in _MODEL_MADE


def repair_text(value: Any) -> Any:
    """Return a copy of what a JSON decoder gave, as it can be written again."""
    if isinstance(value, dict):
        return {repair_text(name): repair_text(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [repair_text(inner) for inner in value]
    if isinstance(value, str) and not value.isascii():
        # By way of UTF-16, where two halves that belong together are one character.
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return value


class _HistoryReader:
    """Reads items one known key at a time; `place` is the first one that was not read."""

    def __init__(self, items: Sequence[Item]) -> None:
        self._items = items
        self.place = 0

    def take(self, key: _Key) -> bool:
        """Read the item of this key. Return whether it was there."""
        if key[0] == "said":
            return self._take_text(key[1])
        item = self._next()
        return item is not None and _key(item) == key

    def _take_text(self, text: str) -> bool:
        """Read as many assistant messages as the text is made of: it ends where one ends."""
        while text:
            item = self._next()
            said = _text(item) if item is not None else None
            if said is None or not text.startswith(said):
                return False
            text = text[len(said) :]
        return True

    def _next(self) -> Item | None:
        while self.place < len(self._items):
            item = self._items[self.place]
            self.place += 1
            if _counts(item):
                return item
        return None


def _keys(items: Sequence[Item]) -> Iterator[_Key]:
    """Yield what the items mean, assistant texts in a row as one."""
    counted = filter(_counts, items)
    for is_said, run in groupby(counted, lambda item: _text(item) is not None):
        if is_said:
            yield "said", "".join(_text(item) or "" for item in run)
        else:
            yield from map(_key, run)


def _counts(item: Item) -> bool:
    kind = item_type(item)
    return kind != "reasoning" and kind not in HOSTED and _text(item) != ""


def _is_same(item: Item, known: Item) -> bool:
    """Return whether two items that do not count are the same one, by their id."""
    return item == known or (item.get("id") is not None and item["id"] == known.get("id"))


def _text(item: Item) -> str | None:
    """Return the text of an assistant message, or None for anything more than text."""
    if item_type(item) != "message" or item.get("role") != "assistant":
        return None
    content = item.get("content")
    for part in content if isinstance(content, list) else ():
        if not isinstance(part, dict) or part.get("type") not in _TEXTS:
            return None
    return text_of(content)


def _key(item: Item) -> _Key:
    kind = item_type(item)
    if kind == "message":
        return kind, str(item.get("role")), _content(item.get("content"))
    if kind == "function_call":
        return kind, str(item.get("call_id")), str(item.get("name")), _arguments(item)
    if kind.endswith("_output") and "output" in item:
        return kind, str(item.get("call_id")), _content(item["output"])
    labels = _LABELS - {"id"} if kind == "item_reference" else _LABELS
    return kind, _written({name: value for name, value in item.items() if name not in labels})


def _arguments(item: Item) -> str:
    arguments = item.get("arguments")
    try:
        return _written(msgspec.json.decode(arguments if isinstance(arguments, str) else ""))
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return str(arguments)


def _content(content: Any) -> str:
    if isinstance(content, str):
        content = [{"type": "input_text", "text": content}]
    if not isinstance(content, list):
        return _written(content)
    return _written([_bare(part) for part in content])


def _bare(part: Any) -> Any:
    if not isinstance(part, dict):
        return part
    fields = {
        name: value
        for name, value in part.items()
        if value is not None and name not in _PART_LABELS
    }
    if fields.get("type") in ("text", "output_text"):
        fields["type"] = "input_text"
    return fields


def _written(value: Any) -> str:
    return msgspec.json.encode(value, order="deterministic").decode()

"""A response as a message: its blocks, why it stopped, and the whole object.

What a stream of the same response ends with is the same message: `encode` uses the same rules.
Items that a message cannot hold are counted in `antiphon.left_out`, and so is reasoning that the
caller did not ask for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from antiphon.protocol.items import Item, item_type, text_of
from antiphon.protocol.response import Response
from antiphon.wires.messages.ask import Thinking
from antiphon.wires.messages.history import BLOCKS, CITATION, OPAQUE
from antiphon.wires.messages.ids import message_id_of, tool_use_id_of
from antiphon.wires.messages.partial_json import read_partial
from antiphon.wires.messages.usage import first_usage, usage_of

__all__ = [
    "THOUGHT_GAP",
    "citation_of",
    "first_message",
    "input_of",
    "native_blocks",
    "notes_of",
    "stop_reason_of",
    "whole_message",
]

THOUGHT_GAP: Final = "\n\n"
"""What stands between two parts of a thought: the API has one text for all of them."""
_TEXTS: Final = frozenset({"output_text", "text", "refusal"})
# How the types of blocks end that have an id of their own.
_NAMED: Final = "tool_use"


def whole_message(response: Response, thinking: Thinking) -> dict[str, Any]:
    """Return the answer to a request that does not stream."""
    blocks = _blocks(response.output, thinking)
    return {
        **first_message(response, 0),
        "content": list(blocks),
        "stop_reason": stop_reason_of(response),
        "usage": usage_of(response.usage),
        **notes_of(response, thinking),
    }


def first_message(response: Response, prompt_tokens: int) -> dict[str, Any]:
    """Return the message as it is before the model has produced anything."""
    return {
        "id": message_id_of(response.id),
        "type": "message",
        "role": "assistant",
        "model": response.model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": first_usage(prompt_tokens),
    }


def stop_reason_of(response: Response) -> str:
    """Return why the model stopped. Which stop sequence it was is not known to us."""
    details = response.incomplete_details
    if response.status != "completed":
        reason = details.reason if details else None
        return "refusal" if reason == "content_filter" else "max_tokens"
    if any(item_type(item) == "function_call" for item in response.output):
        return "tool_use"
    return "refusal" if any(map(_is_refusal, response.output)) else "end_turn"


def notes_of(response: Response, thinking: Thinking) -> dict[str, Any]:
    """Return the field with what antiphon notes about an answer; empty if there is nothing."""
    notes: dict[str, Any] = msgspec.to_builtins(response.antiphon) if response.antiphon else {}
    left_out = Counter(item_type(item) for item in response.output if not _is_held(item, thinking))
    if left_out:
        notes["left_out"] = dict(left_out)
    return {"antiphon": notes} if notes else {}


def citation_of(annotation: dict[str, Any]) -> dict[str, Any] | None:
    """Return an annotation as a citation, or None if the API has no word for it."""
    given = annotation.get(CITATION)
    if isinstance(given, dict):
        return given
    if annotation.get("type") != "url_citation":
        return None
    return {
        "type": "web_search_result_location",
        "cited_text": "",
        "encrypted_index": "",
        "title": annotation.get("title"),
        "url": annotation.get("url") or "",
    }


def native_blocks(item: Item) -> list[dict[str, Any]] | None:
    """Return the blocks of Anthropic's own servers that an item holds; None for other items."""
    kind, carried = item_type(item), item.get(BLOCKS)
    if isinstance(carried, list):
        return carried if all(map(_is_block, carried)) else None
    if not kind.startswith(OPAQUE):
        return None
    block = {**item, "type": kind.removeprefix(OPAQUE)}
    if not kind.endswith(_NAMED):  # then the id is ours: every item has one
        block.pop("id", None)
    return [block]


def _is_block(value: object) -> bool:
    return isinstance(value, dict) and isinstance(value.get("type"), str)


def _is_held(item: Item, thinking: Thinking) -> bool:
    """Return whether a message can hold the item."""
    kind = item_type(item)
    if kind == "reasoning":
        return thinking.is_shown
    return kind in ("message", "function_call") or native_blocks(item) is not None


def _is_refusal(item: Item) -> bool:
    content = item.get("content") if item_type(item) == "message" else None
    return any(part.get("type") == "refusal" for part in content or ())


def _blocks(output: Sequence[Item], thinking: Thinking) -> Iterator[dict[str, Any]]:
    for item in output:
        match item_type(item):
            case "message":
                yield from _texts(item)
            case "function_call":
                yield _tool_use(item)
            case "reasoning":
                if thinking.is_shown:
                    yield from _thought(item, thinking.is_omitted)
            case _:
                yield from native_blocks(item) or ()


def _texts(item: Item) -> Iterator[dict[str, Any]]:
    for part in item.get("content") or ():
        text = text_of([part])
        annotations = part.get("annotations") or ()
        citations = [found for one in annotations if (found := citation_of(one)) is not None]
        if part.get("type") in _TEXTS and (text or citations):
            block = {"type": "text", "text": text}
            yield {**block, "citations": citations} if citations else block


def _tool_use(item: Item) -> dict[str, Any]:
    return {
        "type": "tool_use",
        "id": tool_use_id_of(str(item["call_id"])),
        "name": item["name"],
        "input": input_of(str(item.get("arguments") or "")),
    }


def input_of(arguments: str) -> dict[str, Any]:
    """Return the arguments as an object; of a call that was cut short, what there is of them.

    What is no object is a field of one: the API and its clients know no other input.
    """
    value: Any = None
    try:
        value = msgspec.json.decode(arguments)
    except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError):
        text = arguments.strip()
        value = read_partial(arguments) if not text or text.startswith("{") else arguments
    return value if isinstance(value, dict) else {"arguments": value}


def _thought(item: Item, is_omitted: bool) -> Iterator[dict[str, Any]]:
    sealed = item.get("encrypted_content")
    parts = [*(item.get("summary") or ()), *(item.get("content") or ())]
    text = THOUGHT_GAP.join(filter(None, (text_of([part]) for part in parts)))
    if text and (sealed or not is_omitted):
        shown = "" if is_omitted else text
        yield {"type": "thinking", "thinking": shown, "signature": sealed or ""}
    elif sealed and not text:
        yield {"type": "redacted_thinking", "data": sealed}

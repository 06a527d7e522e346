"""A response as a chat completion: one choice, which holds all that chat can express.

All messages of a response are one message here, with a blank line between them, and so is all
reasoning. Calls follow in their order. Items that a chat message cannot hold are counted in
`antiphon.left_out`. `encode` writes the same as a stream; this module has what both need.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from antiphon.protocol.items import Item, item_type, text_of
from antiphon.protocol.response import Response, Usage
from antiphon.wires.chat.ask_messages import SEAL_FORMAT

__all__ = [
    "BETWEEN",
    "TextPlaces",
    "call_of",
    "chat_id",
    "chat_notes",
    "chat_usage",
    "completion_of",
    "finish_reason",
    "image_of",
    "is_sealed",
    "nested_note",
    "reasoning_fields",
    "sealed_detail",
]

Json = dict[str, Any]  # a JSON object: Any is what JSON holds

BETWEEN: Final = "\n\n"
"""What stands between two messages, or two pieces of reasoning, that chat joins into one."""
_CALLS: Final = frozenset({"function_call", "custom_tool_call"})
_CARRIED: Final = _CALLS | {"message", "reasoning"}


class TextPlaces:
    """Where in the joined text does the text of a part begin?"""

    __slots__ = ("_total", "offset")

    def __init__(self) -> None:
        self._total = 0
        self.offset = 0
        """Where the part that comes next, or is open, begins."""

    def begin_message(self) -> None:
        """Begin a message after those that were ended."""
        self.offset = self._total + len(BETWEEN) if self._total else 0

    def end_part(self, text: str) -> None:
        """Add the text of a part."""
        self.offset += len(text)

    def end_message(self) -> None:
        """End the message. One without text adds nothing."""
        begun = self._total + len(BETWEEN) if self._total else 0
        self._total = self.offset if self.offset > begun else self._total


def chat_id(response_id: str) -> str:
    """Return the id of the completion: the response's own with another prefix.

    `resp_` instead of `chatcmpl-` names the stored response.
    """
    return f"chatcmpl-{response_id.removeprefix('resp_')}"


def reasoning_fields(header: str | None) -> tuple[str, ...]:
    """Return under which names a client wants to see reasoning; both, if it asks for the other."""
    names = ("reasoning_content",)
    return (*names, "reasoning") if (header or "").strip().lower() == "reasoning" else names


def completion_of(
    response: Response, *, is_old: bool = False, fields: tuple[str, ...] = ("reasoning_content",)
) -> Json:
    """Return a response that has ended, and did not fail, as a chat completion."""
    left_out: Counter[str] = Counter()
    message = _message(response.output, left_out, is_old=is_old, fields=fields)
    has_calls = "tool_calls" in message or "function_call" in message
    choice = {
        "index": 0,
        "message": message,
        "logprobs": _logprobs(response.output),
        "finish_reason": finish_reason(response, has_calls=has_calls, is_old=is_old),
    }
    body: Json = {
        "id": chat_id(response.id),
        "object": "chat.completion",
        "created": int(response.created_at),
        "model": response.model,
        "choices": [choice],
        "usage": chat_usage(response.usage),
        "service_tier": response.service_tier,
        "system_fingerprint": None,
    }
    if notes := chat_notes(response, left_out):
        body["antiphon"] = notes
    return body


def finish_reason(response: Response, *, has_calls: bool, is_old: bool = False) -> str:
    """Return why the model stopped. A cut is a cut, also in the middle of a call."""
    if response.status == "incomplete":
        details = response.incomplete_details
        is_filter = details is not None and details.reason == "content_filter"
        return "content_filter" if is_filter else "length"
    if not has_calls:
        return "stop"
    return "function_call" if is_old else "tool_calls"


def chat_usage(usage: Usage | None) -> Json | None:
    """Return the tokens under the names of the chat API."""
    if usage is None:
        return None
    read = usage.input_tokens_details
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.total_tokens,
        "prompt_tokens_details": {
            "cached_tokens": read.cached_tokens,
            "cache_write_tokens": read.cache_write_tokens,
        },
        "completion_tokens_details": {
            "reasoning_tokens": usage.output_tokens_details.reasoning_tokens
        },
    }


def chat_notes(response: Response, left_out: Mapping[str, int]) -> Json:
    """Return what antiphon notes about the answer, {} for nothing."""
    notes: Json = msgspec.to_builtins(response.antiphon) if response.antiphon else {}
    return {**notes, "left_out": dict(left_out)} if left_out else notes


def nested_note(note: Json, index: int, offset: int = 0) -> Json:
    """Return a note on the text as chat has it: its fields under its type.

    `offset` is where the text that the note is about begins in the joined text.
    """
    kind = str(note.get("type"))
    fields = {key: value for key, value in note.items() if key != "type"}
    for name in ("start_index", "end_index"):
        if isinstance(fields.get(name), int):
            fields[name] += offset
    return {"type": kind, "index": index, kind: fields}


def is_sealed(item: Item) -> bool:
    """Return whether this is reasoning that only we can open."""
    return item_type(item) == "reasoning" and bool(item.get("encrypted_content"))


def sealed_detail(item: Item, index: int) -> Json:
    """Return the sealed state of a reasoning item, for a client that sends it back."""
    return {
        "type": "reasoning.encrypted",
        "format": SEAL_FORMAT,
        "index": index,
        "id": item.get("id"),
        "data": item["encrypted_content"],
    }


def image_of(item: Item, index: int) -> Json | None:
    """Return a generated image in the form that OpenRouter made common; None if it has none."""
    if item_type(item) != "image_generation_call" or not isinstance(item.get("result"), str):
        return None
    url = f"data:image/{item.get('output_format') or 'png'};base64,{item['result']}"
    return {"type": "image_url", "index": index, "image_url": {"url": url}}


def call_of(item: Item) -> Json:
    """Return a call as chat has it."""
    if item_type(item) == "custom_tool_call":
        custom = {"name": item["name"], "input": item["input"]}
        return {"id": item["call_id"], "type": "custom", "custom": custom}
    return {"id": item["call_id"], "type": "function", "function": _function(item)}


def _function(item: Item) -> Json:
    return {"name": item["name"], "arguments": item["arguments"]}


def _message(
    output: Iterable[Item], left_out: Counter[str], *, is_old: bool, fields: tuple[str, ...]
) -> Json:
    items = list(output)
    parts = _texts(items, "output_text", "text")
    content = BETWEEN.join(parts) if parts else None
    refusals = _texts(items, "refusal", "refusal")
    message: Json = {
        "role": "assistant",
        "content": content,
        "refusal": BETWEEN.join(refusals) if refusals else None,
    }
    if notes := _notes(items):
        message["annotations"] = notes
    thoughts = [
        text
        for item in items
        if item_type(item) == "reasoning"
        for name in ("summary", "content")
        for part in item.get(name) or ()
        if (text := text_of([part]))
    ]
    if thoughts:
        message |= dict.fromkeys(fields, BETWEEN.join(thoughts))
    sealed = [item for item in items if is_sealed(item)]
    if sealed:
        message["reasoning_details"] = [sealed_detail(item, n) for n, item in enumerate(sealed)]
    _put_rest(items, message, left_out, is_old=is_old)
    return message


def _put_rest(items: list[Item], message: Json, left_out: Counter[str], *, is_old: bool) -> None:
    """Add calls and images; count what cannot be added."""
    calls = [item for item in items if item_type(item) in _CALLS]
    if calls and is_old:
        message["function_call"] = _function(calls[0])
        left_out.update(item_type(call) for call in calls[1:])
    elif calls:
        message["tool_calls"] = [call_of(call) for call in calls]
    images: list[Json] = []
    for item in items:
        if item_type(item) in _CARRIED:
            continue
        image = image_of(item, len(images))
        if image is None:
            left_out[item_type(item)] += 1
        else:
            images.append(image)
    if images:
        message["images"] = images


def _texts(items: list[Item], kind: str, field: str) -> list[str]:
    """Return the text of each message that has any, of parts of this kind."""
    found = [
        "".join(str(part.get(field) or "") for part in item["content"] if part.get("type") == kind)
        for item in items
        if item_type(item) == "message"
    ]
    return [text for text in found if text]


def _notes(items: list[Item]) -> list[Json]:
    notes: list[Json] = []
    places = TextPlaces()
    for item in items:
        if item_type(item) != "message":
            continue
        places.begin_message()
        for part in item["content"]:
            if part.get("type") != "output_text":
                continue
            for note in part.get("annotations") or ():
                notes.append(nested_note(note, len(notes), places.offset))
            places.end_part(part["text"])
        places.end_message()
    return notes


def _logprobs(items: list[Item]) -> Json | None:
    tokens = [
        token
        for item in items
        if item_type(item) == "message"
        for part in item["content"]
        for token in part.get("logprobs") or ()
    ]
    return {"content": tokens, "refusal": None} if tokens else None

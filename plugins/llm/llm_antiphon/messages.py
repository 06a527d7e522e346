"""A conversation of llm as messages of the host.

llm keeps the parts of an answer as it got them, in its log too, with what we noted under
`antiphon` in their `provider_metadata`. So reasoning and what the server ran itself go back as
they came. The metadata of other providers is not ours to send.

Some providers give calls no id. Such a call gets one here, and the first result of the same name
without an id belongs to it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import llm
from llm import parts as own

from antiphon.host import (
    DataPart,
    Message,
    Part,
    Role,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
    UrlPart,
)

__all__ = ["NOTES", "notes_of", "translate_messages"]

NOTES: Final = "antiphon"
_ROLES: Final = {"system": Role.SYSTEM, "assistant": Role.ASSISTANT}


def notes_of(part: own.Part) -> Mapping[str, Any]:
    """Return what an earlier turn noted on a part; nothing on one of another provider."""
    notes = (getattr(part, "provider_metadata", None) or {}).get(NOTES)
    return notes if isinstance(notes, dict) else {}


def translate_messages(messages: Sequence[llm.Message]) -> list[Message]:
    """Return the messages, with every part in its place. A result of a tool comes from the user."""
    names = _CallIds()
    return [
        Message(
            _ROLES.get(message.role, Role.USER),
            [made for part in message.parts for made in _translate(part, names)],
        )
        for message in messages
    ]


class _CallIds:
    """Ids for calls that have none: each result takes that of the oldest call of its name."""

    def __init__(self) -> None:
        self._waiting: dict[str, list[str]] = {}
        self._count = 0

    def of_call(self, call: own.ToolCallPart) -> str:
        if call.tool_call_id:
            return str(call.tool_call_id)
        self._count += 1
        made = f"call_{self._count}"
        self._waiting.setdefault(call.name, []).append(made)
        return made

    def of_result(self, result: own.ToolResultPart) -> str:
        if result.tool_call_id:
            return str(result.tool_call_id)
        waiting = self._waiting.get(result.name)
        return waiting.pop(0) if waiting else f"call_of_{result.name}"


def _translate(part: own.Part, ids: _CallIds) -> Iterator[Part]:
    match part:
        case own.TextPart():
            yield TextPart(part.text)
        case own.ReasoningPart():
            yield from _thought(part)
        case own.AttachmentPart(attachment=llm.Attachment() as attachment):
            yield _attached(attachment)
        case own.ToolCallPart() if part.server_executed:
            yield from _item(part)
        case own.ToolCallPart():
            kind = notes_of(part).get("kind", "function")
            yield ToolCallPart(ids.of_call(part), part.name, part.arguments, kind)
        case own.ToolResultPart() if not part.server_executed:
            yield _result(part, ids.of_result(part))


def _thought(part: own.ReasoningPart) -> Iterator[ThinkingPart]:
    notes = dict(notes_of(part))
    notes.pop("thread", None)
    if notes:
        yield ThinkingPart(part.text, notes.pop("id", None), notes)


def _item(part: own.ToolCallPart) -> Iterator[DataPart]:
    """Give back what the server ran itself; that of another provider stays with llm."""
    data, mime = (notes_of(part).get(name) for name in ("data", "mime"))
    if isinstance(data, str) and isinstance(mime, str):
        yield DataPart(data.encode("utf-8"), mime)


def _result(part: own.ToolResultPart, call_id: str) -> ToolResultPart:
    content = [TextPart(part.output), *map(_attached, part.attachments)]
    return ToolResultPart(call_id, content, is_error=part.exception is not None)


def _attached(attachment: llm.Attachment) -> DataPart | UrlPart:
    """Return an image at an address as the address; llm fetches any other file.

    A chat server takes the address of an image, but of a file only the bytes.
    """
    media = attachment.resolve_type() or "application/octet-stream"
    if attachment.url and media.startswith("image/"):
        return UrlPart(attachment.url, media)
    return DataPart(attachment.content_bytes() or b"", media)

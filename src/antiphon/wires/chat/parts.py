"""The parts of a message, as chat servers take them.

Text stays text, images become `image_url`, a file that is text is put into the text, any
other becomes a `file` part where the server has one. What cannot be sent is replaced by a
note, so that the model knows that something was there, and is reported.
"""

from __future__ import annotations

from typing import Any, Final

from antiphon.protocol.items import Part
from antiphon.wires.chat.profiles import Profile
from antiphon.wires.files import read_text_file
from antiphon.wires.texts import PART_FIELDS, TEXT_FIELDS, unknown_fields

__all__ = ["ChatPart", "PartWriter", "join_text", "together"]

ChatPart = dict[str, Any]
"""A part in the words of the chat API; Any, because its fields differ by type."""

# A search result is in the text too.
_FIELDS: Final = PART_FIELDS | {"search_result", "video_url"}


class PartWriter:
    """Parts of the Responses API to parts of the chat API, with a report of what was lost."""

    def __init__(self, profile: Profile, report: list[str]) -> None:
        self._profile = profile
        self._report = report

    def write(self, content: object, where: str) -> list[ChatPart]:
        """Return the parts of a content field; `where` is how a report calls the field."""
        if isinstance(content, str):
            return [_text(content)] if content else []
        parts = content if isinstance(content, list) else []
        return [self._write_part(part, f"{where}[{n}]") for n, part in enumerate(parts)]

    def _write_part(self, part: Part, where: str) -> ChatPart:
        kind = str(part.get("type"))
        if not _FIELDS.issuperset(part):
            self._report += unknown_fields(part, _FIELDS, where)
        field = TEXT_FIELDS.get(kind)
        if field is not None:
            return {"type": "text", "text": str(part.get(field) or "")}
        where = f"{where} ({kind})"
        if kind == "input_image":
            return self._write_image(part, where)
        if kind == "image_url":
            return self._write_image(_flat_image(part), where)
        if kind == "input_file":
            return self._write_file(part, where)
        return self._leave_out(where, kind, "this backend cannot send it")

    def _write_image(self, part: Part, where: str) -> ChatPart:
        url = part.get("image_url")
        if not url:
            return self._leave_out(where, "image", "only images by URL can be sent")
        if not self._profile.images:
            return self._leave_out(where, "image", "this model takes no images")
        image = {"url": url}
        if part.get("detail") in {"low", "high", "auto"}:
            image["detail"] = part["detail"]
        elif part.get("detail"):
            self._report.append(f"{where}: detail {part['detail']} is not known to chat servers")
        return {"type": "image_url", "image_url": image}

    def _write_file(self, part: Part, where: str) -> ChatPart:
        name = str(part.get("filename") or "file")
        data = part.get("file_data")
        if not data:
            return self._leave_out(where, name, "only files with file_data can be sent")
        text = read_text_file(name, str(data))
        if text is not None:
            return _text(f"File {name}:\n{text}")
        if not self._profile.files:
            return self._leave_out(where, name, "this model takes no files but text")
        return {"type": "file", "file": {"filename": name, "file_data": data}}

    def _leave_out(self, where: str, what: str, why: str) -> ChatPart:
        self._report.append(f"{where}: {why}")
        return _text(f"[{what} left out: {why}]")


def _flat_image(part: Part) -> Part:
    """Return an image of chat completions as one of the Responses API."""
    image = part.get("image_url")
    if not isinstance(image, dict):
        return part
    return {"image_url": image.get("url"), "detail": image.get("detail")}


def together(parts: list[ChatPart]) -> str | list[ChatPart]:
    """Return the parts as one string if all are text, else as they are."""
    if len(parts) == 1 and parts[0]["type"] == "text":
        return str(parts[0]["text"])
    if all(part["type"] == "text" for part in parts):
        return join_text(parts, "\n")
    return parts


def join_text(parts: list[ChatPart], between: str) -> str:
    """Return the text of the text parts."""
    return between.join(part["text"] for part in parts if part["type"] == "text")


def _text(text: str) -> ChatPart:
    return {"type": "text", "text": text}

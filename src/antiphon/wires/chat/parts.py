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

__all__ = ["ChatPart", "PartWriter", "as_part", "join_text"]

ChatPart = dict[str, Any]
"""A part in the words of the chat API; Any, because its fields differ by type."""

# A search result is in the text too.
_FIELDS: Final = PART_FIELDS | {"search_result", "video_url"}


class PartWriter:
    """Parts of the Responses API to parts of the chat API, with a report of what was lost."""

    def __init__(self, profile: Profile, report: list[str]) -> None:
        self._profile = profile
        self._report = report

    def write(
        self, content: object, index: int, between: str = "\n", field: str = "content"
    ) -> str | list[ChatPart]:
        """Return a field of the item at `index`: as one text if all of it is text, else as parts.

        `between` is written between texts.
        """
        if not isinstance(content, list):
            return content if isinstance(content, str) else ""
        if len(content) == 1 and (text := _plain_text(content[0])) is not None:
            return text
        pieces: list[Any] = []  # Any: texts alone, unless `is_text` is False
        is_text = True
        for part in content:
            if not _FIELDS.issuperset(part):
                where = f"input[{index}].{field}[{len(pieces)}]"
                self._report += unknown_fields(part, _FIELDS, where)
            name = TEXT_FIELDS.get(str(part.get("type")))
            if name is not None:
                pieces.append(str(part.get(name) or ""))
            else:
                piece = self._write_other(part, f"input[{index}].{field}[{len(pieces)}]")
                is_text = is_text and isinstance(piece, str)
                pieces.append(piece)
        return between.join(pieces) if is_text else [as_part(piece) for piece in pieces]

    def _write_other(self, part: Part, where: str) -> str | ChatPart:
        """Return a part that is no text itself."""
        kind = str(part.get("type"))
        where = f"{where} ({kind})"
        if kind == "input_image":
            return self._write_image(part, where)
        if kind == "image_url":
            return self._write_image(_flat_image(part), where)
        if kind == "input_file":
            return self._write_file(part, where)
        return self._leave_out(where, kind, "this backend cannot send it")

    def _write_image(self, part: Part, where: str) -> str | ChatPart:
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

    def _write_file(self, part: Part, where: str) -> str | ChatPart:
        name = str(part.get("filename") or "file")
        data = part.get("file_data")
        if not data:
            return self._leave_out(where, name, "only files with file_data can be sent")
        text = read_text_file(name, str(data))
        if text is not None:
            return f"File {name}:\n{text}"
        if not self._profile.files:
            return self._leave_out(where, name, "this model takes no files but text")
        return {"type": "file", "file": {"filename": name, "file_data": data}}

    def _leave_out(self, where: str, what: str, why: str) -> str:
        self._report.append(f"{where}: {why}")
        return f"[{what} left out: {why}]"


def _plain_text(part: Part) -> str | None:
    """Return the text of a part that is a text and has nothing to report, as most have."""
    name = TEXT_FIELDS.get(str(part.get("type")))
    if name is None or not _FIELDS.issuperset(part):
        return None
    text = part.get(name)
    return text if type(text) is str else None


def _flat_image(part: Part) -> Part:
    """Return an image of chat completions as one of the Responses API."""
    image = part.get("image_url")
    if not isinstance(image, dict):
        return part
    return {"image_url": image.get("url"), "detail": image.get("detail")}


def join_text(parts: str | list[ChatPart], between: str) -> str:
    """Return the text of what was written: that of its text parts."""
    if isinstance(parts, str):
        return parts
    return between.join(part["text"] for part in parts if part["type"] == "text")


def as_part(piece: str | ChatPart) -> ChatPart:
    """Return a text as a part."""
    return {"type": "text", "text": piece} if isinstance(piece, str) else piece

"""The parts of a message, as an editor takes them.

Text stays text, an image in a data URL becomes bytes, a file that is text is put into the text.
The models of an editor take no other media, and nothing is fetched here: what cannot be sent is
replaced by a note, so that the model knows that something was there, and is reported.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any, Final

from antiphon.protocol.items import Part
from antiphon.wires.files import read_data_url, read_text_file
from antiphon.wires.host.parts import DataPart, TextPart
from antiphon.wires.texts import TEXT_FIELDS

__all__ = ["IMAGE_TYPES", "PartWriter", "image_of"]

IMAGE_TYPES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp", "image/bmp"})
"""The images that editors know."""

# What we read of a part; annotations, logprobs and `cache_control` mean nothing to the model.
_FIELDS: Final = frozenset(
    {
        "type",
        "cache_control",
        "search_result",
        "text",
        "refusal",
        "annotations",
        "logprobs",
        "image_url",
        "detail",
        "filename",
        "file_data",
        "file_url",
        "file_id",
        "video_url",
        "input_audio",
    }
)
_ANY_DETAIL: Final = (None, "auto")
_JPG: Final = {"image/jpg": "image/jpeg"}


class PartWriter:
    """Parts of the Responses API to parts of a chat application, with a report of what was lost."""

    def __init__(self, report: list[str]) -> None:
        self._report = report

    def write(self, content: object, where: str) -> list[TextPart | DataPart]:
        """Return the parts of a content field; `where` is how a report calls the field."""
        if isinstance(content, str):
            return [TextPart(content)] if content else []
        parts = content if isinstance(content, list) else []
        written = (self._write_part(part, f"{where}[{n}]") for n, part in enumerate(parts))
        return [part for part in written if part != _EMPTY]

    def _write_part(self, part: Part, where: str) -> TextPart | DataPart:
        kind = str(part.get("type"))
        if not _FIELDS.issuperset(part):
            unknown = (name for name, value in part.items() if value and name not in _FIELDS)
            self._report += [f"{where}.{name}" for name in unknown]
        field = TEXT_FIELDS.get(kind)
        if field is not None:
            return TextPart(str(part.get(field) or ""))
        where = f"{where} ({kind})"
        match kind:
            case "input_image" | "image_url":
                return self._write_image(part, where)
            case "input_file":
                return self._write_file(part, where)
        return self._leave_out(where, kind, "this backend cannot send it")

    def _write_image(self, part: Part, where: str) -> TextPart | DataPart:
        url: Any = part.get("image_url")
        detail: Any = part.get("detail")
        if isinstance(url, dict):  # as in chat completions
            url, detail = url.get("url"), url.get("detail") or detail
        if not isinstance(url, str) or not url.startswith("data:"):
            return self._leave_out(where, "image", "only images in data URLs can be sent")
        image = image_of(url)
        if image is None:
            return self._leave_out(where, "image", "it is no PNG, JPEG, GIF, WebP or BMP in base64")
        if detail not in _ANY_DETAIL:
            self._report.append(f"{where}.detail: an editor has no such setting")
        return image

    def _write_file(self, part: Part, where: str) -> TextPart | DataPart:
        name = str(part.get("filename") or "file")
        data = part.get("file_data")
        if not data:
            return self._leave_out(where, name, "only files with file_data can be sent")
        text = read_text_file(name, str(data))
        if text is not None:
            return TextPart(f"File {name}:\n{text}")
        return self._leave_out(where, name, "models of an editor take no files but text")

    def _leave_out(self, where: str, what: str, why: str) -> TextPart:
        self._report.append(f"{where}: {why}")
        return TextPart(f"[{what} left out: {why}]")


_EMPTY: Final = TextPart("")


def image_of(url: str) -> DataPart | None:
    """Return the image in a data URL, or None if editors do not know its type."""
    data = read_data_url(url)
    media_type = _JPG.get(data.media_type, data.media_type)
    if media_type not in IMAGE_TYPES or not data.is_base64:
        return None
    try:
        return DataPart(base64.b64decode(data.data, validate=True), media_type)
    except (binascii.Error, ValueError):
        return None

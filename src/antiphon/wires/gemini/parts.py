"""The parts of a message, as Gemini takes them.

Text stays text, data URLs become `inlineData`, addresses that Gemini can read itself become
`fileData`. Nothing is fetched here: any other address is replaced by a note, so that the model
knows that something was there, and is reported. A file that is text is put into the text.
"""

from __future__ import annotations

import re
from typing import Any, Final

from antiphon.protocol.items import Part
from antiphon.wires.files import read_data_url, read_text_file
from antiphon.wires.texts import PART_FIELDS, TEXT_FIELDS, unknown_fields

__all__ = ["READABLE", "GeminiPart", "PartWriter", "is_binary", "text_part"]

GeminiPart = dict[str, Any]
"""A part in the words of Gemini; Any, because its fields differ by kind."""

_FIELDS: Final = PART_FIELDS | {"video_url", "input_audio"}
# Addresses that the server reads itself: its own files, Cloud Storage and YouTube.
READABLE: Final = (
    r"gs://|https://generativelanguage\.googleapis\.com/"
    r"|https://(?:www\.)?(?:youtube\.com/watch\?|youtu\.be/)"
)
_READABLE: Final = re.compile(READABLE)
_TYPES: Final = {
    "aac": "audio/aac",
    "flac": "audio/flac",
    "gif": "image/gif",
    "heic": "image/heic",
    "jpeg": "image/jpeg",
    "jpg": "image/jpeg",
    "mov": "video/mov",
    "mp3": "audio/mp3",
    "mp4": "video/mp4",
    "mpeg": "video/mpeg",
    "ogg": "audio/ogg",
    "pdf": "application/pdf",
    "png": "image/png",
    "wav": "audio/wav",
    "webm": "video/webm",
    "webp": "image/webp",
}
_RESOLUTIONS: Final = {
    "low": "MEDIA_RESOLUTION_LOW",
    "medium": "MEDIA_RESOLUTION_MEDIUM",
    "high": "MEDIA_RESOLUTION_HIGH",
    "original": "MEDIA_RESOLUTION_ULTRA_HIGH",
}
_NOT_FETCHED: Final = "only data URLs, and addresses that Gemini reads itself, can be sent"


def text_part(text: str) -> GeminiPart:
    """Return a part with this text."""
    return {"text": text}


def is_binary(part: GeminiPart) -> bool:
    """Return whether a part is an image, a file or a sound."""
    return "inlineData" in part or "fileData" in part


class PartWriter:
    """Parts of the Responses API to parts of Gemini, with a report of what was lost."""

    def __init__(self, report: list[str], *, has_resolution: bool) -> None:
        self._report = report
        self._has_resolution = has_resolution

    def write(self, content: object, where: str) -> list[GeminiPart]:
        """Return the parts of a content field; `where` is how a report calls the field."""
        if isinstance(content, str):
            return [text_part(content)] if content else []
        parts = content if isinstance(content, list) else []
        written = (self._write_part(part, f"{where}[{n}]") for n, part in enumerate(parts))
        return [part for part in written if part != _EMPTY]

    def _write_part(self, part: Part, where: str) -> GeminiPart:
        kind = str(part.get("type"))
        if not _FIELDS.issuperset(part):
            self._report += unknown_fields(part, _FIELDS, where)
        field = TEXT_FIELDS.get(kind)
        if field is not None:
            return text_part(str(part.get(field) or ""))
        where = f"{where} ({kind})"
        match kind:
            case "input_image" | "image_url":
                return self._write_image(part, where)
            case "input_file":
                return self._write_file(part, where)
            case "input_audio":
                return self._write_audio(part, where)
            case "input_video" | "video_url":
                return self._write_media(part.get("video_url"), "video", where)
        return self._leave_out(where, kind, "this backend cannot send it")

    def _write_image(self, part: Part, where: str) -> GeminiPart:
        image: Any = part.get("image_url")
        detail: Any = part.get("detail")
        if isinstance(image, dict):  # as in chat completions
            image, detail = image.get("url"), image.get("detail") or detail
        written = self._write_media(image or part.get("file_id"), "image", where)
        level = _RESOLUTIONS.get(str(detail))
        if level is None or not is_binary(written):
            return written
        if not self._has_resolution:
            self._report.append(f"{where}.detail: this model has no such setting")
            return written
        return written | {"mediaResolution": {"level": level}}

    def _write_media(self, url: object, what: str, where: str) -> GeminiPart:
        """Return what is at this address, or in it."""
        inner = url.get("url") if isinstance(url, dict) else url
        address = inner if isinstance(inner, str) else ""
        data = read_data_url(address)
        if data.media_type and data.is_base64:
            return _inline(data.media_type, data.data)
        if _READABLE.match(address):
            return {"fileData": {"fileUri": address}}
        return self._leave_out(where, what, _NOT_FETCHED)

    def _write_file(self, part: Part, where: str) -> GeminiPart:
        name = str(part.get("filename") or "file")
        data = str(part.get("file_data") or "")
        if not data:
            return self._write_media(part.get("file_url") or part.get("file_id"), name, where)
        text = read_text_file(name, data)
        if text is not None:
            return text_part(f"File {name}:\n{text}")
        url = read_data_url(data)
        media = url.media_type or _TYPES.get(name.rpartition(".")[2].lower())
        if not media or not url.is_base64:
            return self._leave_out(where, name, "its type is not known; send a data URL")
        return _inline(media, url.data)

    def _write_audio(self, part: Part, where: str) -> GeminiPart:
        sound = part.get("input_audio")
        if not isinstance(sound, dict) or not isinstance(sound.get("data"), str):
            return self._leave_out(where, "audio", "it has no data")
        return _inline(f"audio/{sound.get('format') or 'wav'}", sound["data"])

    def _leave_out(self, where: str, what: str, why: str) -> GeminiPart:
        self._report.append(f"{where}: {why}")
        return text_part(f"[{what} left out: {why}]")


_EMPTY: Final[GeminiPart] = {"text": ""}  # which Gemini refuses


def _inline(media_type: str, data: str) -> GeminiPart:
    return {"inlineData": {"mimeType": media_type, "data": data}}

"""How is data shown to a model: as text, as an image, or as a file?

- Data declared as text (`text/*`, JSON, SVG, which no model accepts as an image) that can be
  decoded goes as `input_text`.
- An image goes as `input_image`, under the media type of its bytes; bytes that are not recognised
  go under the declared one.
- All else goes as `input_file`, under a name made up from its media type.
- Hosts put notes for themselves between the parts, as data of a made-up type, and the adapter
  shows notes on a text as data. Such markers are no content and are left out.
- An address goes as it is, as an image or a file by its declared type. Nothing is fetched here.
- Empty data is left out. Data without a media type that is no marker is an error: there is no
  right way to send it, and it must not be dropped in silence.
"""

from __future__ import annotations

import base64
import logging
import re
from typing import Final

from antiphon.host.data import ANNOTATION_MIME
from antiphon.host.errors import UnsupportedContent
from antiphon.host.images import sniff_image
from antiphon.protocol.items import Part as WirePart
from antiphon.wires.host.parts import DataPart, TextPart, UrlPart

__all__ = ["MARKERS", "media_type", "read_text", "translate_content"]

# The bare words are those of VS Code's own chat.
MARKERS: Final = frozenset(
    {
        ANNOTATION_MIME,
        "cache_control",
        "context_management",
        "phase_data",
        "stateful_marker",
        "thinking",
        "token_usage",
        "usage",
    }
)

_log: Final = logging.getLogger("antiphon.host")

_SVG: Final = "image/svg+xml"
_BYTES: Final = "application/octet-stream"
_CHARSET: Final = re.compile(r";\s*charset=\"?([\w.:-]+)", re.IGNORECASE)
_EXTENSION: Final = re.compile(r"[a-z0-9]{1,8}")
_EXTENSIONS: Final = {
    "application/msword": "doc",
    "application/vnd.openxmlformats-officedocument.presentationml.presentation": "pptx",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": "xlsx",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": "docx",
    "audio/mpeg": "mp3",
    "image/svg+xml": "svg",
    "text/plain": "txt",
}


def translate_content(part: TextPart | DataPart | UrlPart) -> WirePart | None:
    """Return text or data as content of a user, or None if it has nothing for a model.

    Raise UnsupportedContent for data of no media type that is no marker.
    """
    if isinstance(part, TextPart):
        return {"type": "input_text", "text": part.value} if part.value else None
    if isinstance(part, UrlPart):
        return _translate_url(part)
    media = media_type(part)
    if media in MARKERS:
        _log.debug("a %s marker of %d bytes is not sent", media, len(part.data))
        return None
    if not part.data:
        return None
    text = read_text(part)
    if text is not None:
        return {"type": "input_text", "text": text}
    is_image = media.startswith("image/") and media != _SVG
    image = sniff_image(part.data) or (media if is_image else None)
    if image is not None:
        url = _data_url(part.data, image)
        return {"type": "input_image", "image_url": url, "detail": "auto"}
    if media and "/" not in media:
        raise UnsupportedContent(part.mime)
    return {
        "type": "input_file",
        "filename": _filename(media),
        "file_data": _data_url(part.data, media or _BYTES),
    }


def _translate_url(part: UrlPart) -> WirePart:
    media = media_type(part)
    if media.startswith("image/") and media != _SVG:
        return {"type": "input_image", "image_url": part.url, "detail": "auto"}
    return {"type": "input_file", "filename": _filename(media), "file_url": part.url}


def media_type(part: DataPart | UrlPart) -> str:
    """Return the type of data without its parameters, in lower case."""
    return part.mime.partition(";")[0].strip().lower()


def read_text(part: DataPart) -> str | None:
    """Return the text of data that is declared as text and can be decoded, else None."""
    media = media_type(part)
    is_named = media in ("application/json", _SVG)
    if not (is_named or media.startswith("text/") or media.endswith("+json")):
        return None
    charset = _CHARSET.search(part.mime)
    try:
        return part.data.decode(charset[1] if charset else "utf-8")
    except (LookupError, UnicodeError):  # not text after all: it goes as a file
        return None


def _data_url(data: bytes, media: str) -> str:
    return f"data:{media};base64,{base64.b64encode(data).decode('ascii')}"


def _filename(media: str) -> str:
    """Return a name for data that has none; servers distinguish files by its extension."""
    kind = media.partition("/")[2]
    extension = _EXTENSIONS.get(media) or (kind if _EXTENSION.fullmatch(kind) else "bin")
    return f"file.{extension}"

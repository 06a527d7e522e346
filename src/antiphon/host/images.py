"""What kind of image is this, and how large? The bytes say, not the label.

Hosts label images by file name, and a screenshot called `.jpg` is often a PNG; servers refuse
a data URL whose media type is not what the bytes are. Only headers are read. Bytes that are
cut short or damaged give None, never an error. Nothing is decoded: a good header proves no
good image.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final

__all__ = ["image_size", "sniff_image"]

Size = tuple[int, int]

# The sizes a bitmap's second header may have. "BM" alone begins many a text.
_BMP_HEADERS: Final = frozenset({12, 16, 40, 52, 56, 64, 108, 124})
_BMP_CORE: Final = 12

_JPEG_FRAMES: Final = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_JPEG_ALONE: Final = frozenset({0x01, *range(0xD0, 0xD8)})
_JPEG_SCAN_OR_END: Final = frozenset({0xDA, 0xD9})


def sniff_image(data: bytes) -> str | None:
    """Return the media type of an image by its first bytes, or None if it is not recognised."""
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if data.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if data.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        return "image/webp"
    if _is_bmp(data):
        return "image/bmp"
    return None


def image_size(data: bytes) -> Size | None:
    """Return width and height in pixels as the header states them, or None if it does not.

    The size is as stored: a camera's note that the picture lies on its side is not read.
    """
    read = _READERS.get(sniff_image(data) or "")
    if read is None:
        return None
    try:
        size = read(data)
    except struct.error:  # the header is cut short
        return None
    return size if size and all(size) else None


def _is_bmp(data: bytes) -> bool:
    if len(data) < 18 or not data.startswith(b"BM"):
        return False
    reserved, _, header = struct.unpack_from("<III", data, 6)
    return reserved == 0 and header in _BMP_HEADERS


def _png_size(data: bytes) -> Size | None:
    name, width, height = struct.unpack_from(">4sII", data, 12)
    return (width, height) if name == b"IHDR" else None


def _gif_size(data: bytes) -> Size:
    width, height = struct.unpack_from("<HH", data, 6)
    return width, height


def _bmp_size(data: bytes) -> Size:
    (header,) = struct.unpack_from("<I", data, 14)
    width, height = struct.unpack_from("<HH" if header == _BMP_CORE else "<ii", data, 18)
    return abs(width), abs(height)  # rows from the top down have a negative height


def _webp_size(data: bytes) -> Size | None:
    kind = data[12:16]
    if kind == b"VP8 ":
        start, width, height = struct.unpack_from("<3sHH", data, 23)
        return (width & 0x3FFF, height & 0x3FFF) if start == b"\x9d\x01\x2a" else None
    if kind == b"VP8L":
        mark, bits = struct.unpack_from("<BI", data, 20)
        return ((bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1) if mark == 0x2F else None
    if kind == b"VP8X":
        width, height = struct.unpack_from("<3s3s", data, 24)
        return int.from_bytes(width, "little") + 1, int.from_bytes(height, "little") + 1
    return None


def _jpeg_size(data: bytes) -> Size | None:
    """Walk the segments up to the frame header, which may stand behind long notes."""
    place = 2
    while True:
        fill, marker = struct.unpack_from(">BB", data, place)
        if fill != 0xFF or marker in _JPEG_SCAN_OR_END:
            return None
        if marker == 0xFF:  # any number of these may stand before a marker
            place += 1
        elif marker in _JPEG_ALONE:
            place += 2
        elif marker in _JPEG_FRAMES:
            height, width = struct.unpack_from(">HH", data, place + 5)
            return width, height
        else:
            (length,) = struct.unpack_from(">H", data, place + 2)
            place += 2 + length


_READERS: Final[dict[str, Callable[[bytes], Size | None]]] = {
    "image/png": _png_size,
    "image/jpeg": _jpeg_size,
    "image/gif": _gif_size,
    "image/webp": _webp_size,
    "image/bmp": _bmp_size,
}

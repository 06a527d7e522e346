"""Files of a conversation: which of them are text, and what is in a data URL."""

from __future__ import annotations

import base64
import binascii
import re
from typing import Final, NamedTuple

__all__ = ["DataUrl", "read_data_url", "read_text_file"]

_TEXT_TYPES: Final = frozenset(
    {
        "application/json",
        "application/javascript",
        "application/sql",
        "application/toml",
        "application/x-ndjson",
        "application/x-sh",
        "application/x-yaml",
        "application/xml",
        "application/yaml",
        "image/svg+xml",
    }
)
_TEXT_NAME: Final = re.compile(
    r"\.(?:c|cfg|conf|cpp|css|csv|diff|go|h|html|ini|java|js|json|jsonl|jsx|kt|log|lua|md|patch|php"
    r"|py|rb|rs|rst|sh|sql|svg|swift|tex|toml|ts|tsv|tsx|txt|vue|xml|yaml|yml)$",
    re.IGNORECASE,
)


class DataUrl(NamedTuple):
    """The parts of a data URL. `media_type` is empty if the text is no data URL."""

    media_type: str
    data: str
    is_base64: bool


def read_data_url(text: str) -> DataUrl:
    """Return the parts of a data URL; any other text is taken for base64."""
    head, comma, rest = text.partition(",")
    if not comma or not head.startswith("data:"):
        return DataUrl("", text, True)
    media_type, _, encoding = head[5:].lower().partition(";")
    return DataUrl(media_type, rest, "base64" in encoding)


def read_text_file(name: str, text: str) -> str | None:
    """Return the content of a text file, or None if the file is not text."""
    url = read_data_url(text)
    is_text = url.media_type.startswith("text/") or url.media_type in _TEXT_TYPES
    if not (is_text or _TEXT_NAME.search(name)):
        return None
    if not url.is_base64:
        return url.data
    try:
        return base64.b64decode(url.data, validate=True).decode("utf-8-sig")
    except (binascii.Error, UnicodeDecodeError, ValueError):
        return None

"""What does an answer hold beside text, reasoning and calls?

An image becomes an `image_generation_call` item: that is how the Responses API returns one, and
how a client sends it back. It must be in the answer itself, as base64: nothing is fetched here.
Sound has no item in the Responses API; its transcript is the text if there is no other. What
cannot be carried is reported, each kind once.
"""

from __future__ import annotations

import binascii
import re
from typing import Any, Final

from antiphon.protocol.deltas import ItemPassed, Reported
from antiphon.protocol.items import Item

__all__ = ["MAX_IMAGES", "MediaReader"]

MAX_IMAGES: Final = 32 * 1024 * 1024
"""How many characters the images of one answer may have together."""

_DATA: Final = re.compile(r"data:image/([a-zA-Z0-9.+-]+)(?:;[^,;]*)*;base64,", re.IGNORECASE)
_MAX_SHOWN: Final = 500
_NO_SOUND: Final = "audio: the sound is left out, because the Responses API has no item for it"


class MediaReader:
    """Reads what is neither text nor call. Servers may repeat an image in a later chunk."""

    def __init__(self, max_images: int = MAX_IMAGES) -> None:
        self._room = max_images
        self._seen: set[int] = set()
        self._reported: set[str] = set()

    def images(self, entries: object) -> list[ItemPassed | Reported]:
        """Return the images of a message, in the form of OpenRouter or as parts of a content."""
        found: list[ItemPassed | Reported] = []
        for entry in entries if isinstance(entries, list) else [entries]:
            url = _url_of(entry)
            if hash(url) not in self._seen:
                self._seen.add(hash(url))
                found += self._image(url)
        return found

    def audio(self) -> list[Reported]:
        """Return the report of sound."""
        return self._report(_NO_SOUND)

    def part(self, kind: object) -> list[Reported]:
        """Return the report of a part of a kind that we do not know."""
        return self._report(f"content ({str(kind)[:_MAX_SHOWN]}): a part that is left out")

    def _image(self, url: str | None) -> list[ItemPassed] | list[Reported]:
        if url is None:
            return self._report("images: one has no address")
        head = _DATA.match(url)
        if head is None:
            is_inside = url[:5].lower() == "data:"
            where = "is not base64" if is_inside else f"is only at {url[:_MAX_SHOWN]}"
            return self._report(f"images: one {where}, and is left out")
        data = url[head.end() :]
        if len(data) > self._room:
            return self._report("images: those over 32 MiB together are left out")
        if not _is_base64(data):
            return self._report("images: one is not valid base64")
        self._room -= len(data)
        return [ItemPassed(_item(data, head[1].lower()))]

    def _report(self, what: str) -> list[Reported]:
        if what in self._reported:
            return []
        self._reported.add(what)
        return [Reported(what)]


def _url_of(entry: Any) -> str | None:  # Any: JSON of a server
    image = entry.get("image_url", entry.get("url")) if isinstance(entry, dict) else entry
    url = image.get("url") if isinstance(image, dict) else image
    if url is None and isinstance(entry, dict) and isinstance(entry.get("b64_json"), str):
        url = f"data:image/png;base64,{entry['b64_json']}"
    return url if isinstance(url, str) else None


def _is_base64(data: str) -> bool:
    try:
        binascii.a2b_base64(data, strict_mode=True)
    except ValueError:
        return False
    return True


def _item(data: str, form: str) -> Item:
    return {
        "type": "image_generation_call",
        "status": "completed",
        "result": data,
        "output_format": form,
    }

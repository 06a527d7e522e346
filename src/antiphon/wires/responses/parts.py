"""The parts of messages and outputs, as a Responses server takes them.

Parts in the words of chat completions get the words of this API. A mark for the cache is written
where the server knows such marks; elsewhere it is a hint that means nothing. What the server does
not take is left out and reported.
"""

from __future__ import annotations

from typing import Any, Final

from antiphon.protocol.items import Part
from antiphon.wires.responses.profiles import Profile

__all__ = ["PartWriter", "without_vendor_fields"]

_MAX_MARKS: Final = 4
_FIELDS: Final[dict[str, tuple[str, ...]]] = {
    "input_text": ("text",),
    "output_text": ("text", "annotations"),
    "refusal": ("refusal",),
    "input_image": ("image_url", "file_id", "detail"),
    "input_file": ("filename", "file_data", "file_url", "file_id"),
}
_TEXTS: Final = frozenset({"input_text", "output_text", "text", "summary_text", "reasoning_text"})


class PartWriter:
    """Writes parts for one request. What cannot be sent goes to `report`."""

    def __init__(self, profile: Profile, report: list[str], marks: int = 0) -> None:
        self._profile = profile
        self._report = report
        self.marks = marks
        """How many marks for the cache were written."""

    def write(self, content: object, where: str, *, is_ours: bool) -> str | list[Part]:
        """Return the content of a message; `is_ours` if the model wrote it."""
        if not isinstance(content, list):
            return content if isinstance(content, str) else ""
        written = [
            self._write(part, f"{where}[{index}]", is_ours=is_ours)
            for index, part in enumerate(content)
            if isinstance(part, dict)
        ]
        return [part for part in written if part is not None]

    def write_output(self, output: object, where: str) -> str | list[Part]:
        """Return the output of a call."""
        return self.write(output, where, is_ours=False)

    def _write(self, part: Part, where: str, *, is_ours: bool) -> Part | None:
        kind = part.get("type")
        if kind in _TEXTS:
            return self._marked(_text(part, is_ours=is_ours), part)
        if kind == "refusal":
            return {"type": "refusal", "refusal": part.get("refusal")}
        image = _image(part) if kind in ("image_url", "input_image") else None
        written = image or part
        kind = written.get("type")
        if kind not in self._profile.parts or kind not in _FIELDS:
            self._report.append(f"{where} ({kind}): this server does not take it")
            return None
        return self._marked(_known(written, str(kind)), part)

    def _marked(self, written: Part, given: Part) -> Part:
        """Return the part with a mark for the cache if the caller set one. Few are taken."""
        is_marked = given.get("cache_control") or given.get("prompt_cache_breakpoint")
        if not is_marked or not self._profile.breakpoints or self.marks >= _MAX_MARKS:
            return written
        self.marks += 1
        return written | {"prompt_cache_breakpoint": {"mode": "explicit"}}


def _text(part: Part, *, is_ours: bool) -> Part:
    if not is_ours:
        return {"type": "input_text", "text": part.get("text")}
    notes: Any = part.get("annotations")
    return {
        "type": "output_text",
        "text": part.get("text"),
        "annotations": [_plain(note) for note in notes] if isinstance(notes, list) else [],
    }


def _plain(note: Any) -> Any:  # Any: what a caller has put there
    """Return an annotation without the fields of another vendor."""
    return without_vendor_fields(note) if isinstance(note, dict) else note


def without_vendor_fields(fields: dict[str, Any]) -> dict[str, Any]:
    """Return an object without what another wire keeps in it: names with a colon."""
    return {name: value for name, value in fields.items() if ":" not in name}


def _image(part: Part) -> Part:
    """Return an image; chat completions put its address into an object."""
    given = part.get("image_url")
    if isinstance(given, dict):
        detail = {"detail": given["detail"]} if given.get("detail") else {}
        return {"type": "input_image", "image_url": given.get("url"), **detail}
    return {**part, "type": "input_image"}


def _known(part: Part, kind: str) -> Part:
    fields = {name: part[name] for name in _FIELDS[kind] if part.get(name) is not None}
    if kind == "input_image":
        fields.setdefault("detail", "auto")
    return {"type": kind, **fields}

"""Where did the words of an answer come from? Gemini's metadata as annotations.

Places in the text are counted in bytes of the whole text there, and in characters of one message
here. A source that is not tied to any words cannot be an annotation: it is reported.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from antiphon.protocol.deltas import AnnotationAdded, Reported

__all__ = ["AnswerText", "annotate"]

_LOOSE: Final = (
    "groundingMetadata: sources that belong to no words of the last message are left out"
)
_EXTRA: Final = "groundingMetadata: search queries and suggestions are left out"
_MAX_ANNOTATIONS: Final = 10_000


class AnswerText:
    """The text of an answer, and where its last message begins in it."""

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self._begin = 0

    def begin_message(self) -> None:
        """Note that what follows is another message."""
        self._begin = len(self.pieces)

    def span(self, start: object, end: object) -> tuple[int, int] | None:
        """Return the place in the last message of these bytes of the text, if it is there."""
        before = len("".join(self.pieces[: self._begin]).encode())
        text = "".join(self.pieces[self._begin :]).encode()
        first = (start if type(start) is int else 0) - before
        last = (end if type(end) is int else 0) - before
        if not 0 <= first < last <= len(text):
            return None
        return tuple(len(text[:at].decode("utf-8", "ignore")) for at in (first, last))  # type: ignore[return-value]  # there are two


def annotate(
    text: AnswerText, grounding: Any, citations: Any
) -> Iterator[AnnotationAdded | Reported]:
    """Yield the annotations of the last message, and what could not be one. Any: JSON."""
    found = [*_grounded(text, grounding), *_cited(text, citations)]
    for one in found[:_MAX_ANNOTATIONS]:
        if one is not None:
            yield AnnotationAdded(one)
    if None in found or len(found) > _MAX_ANNOTATIONS:
        yield Reported(_LOOSE)
    if _dict(grounding).keys() & {"searchEntryPoint", "webSearchQueries"}:
        yield Reported(_EXTRA)


def _grounded(text: AnswerText, grounding: Any) -> Iterator[dict[str, Any] | None]:
    chunks = _list(_dict(grounding).get("groundingChunks"))
    used: set[int] = set()
    for support in _list(_dict(grounding).get("groundingSupports")):
        segment = _dict(_dict(support).get("segment"))
        span = text.span(segment.get("startIndex"), segment.get("endIndex"))
        for place in _list(_dict(support).get("groundingChunkIndices")):
            if type(place) is not int or not 0 <= place < len(chunks):
                continue
            used.add(place)
            yield None if span is None else _source(_dict(chunks[place]), *span)
    if len(used) < len(chunks):
        yield None


def _source(chunk: dict[str, Any], start: int, end: int) -> dict[str, Any] | None:
    """Return the annotation for a source: a page, a place, or a document of a store."""
    for kind in ("web", "maps", "image"):
        if isinstance(chunk.get(kind), dict):
            return _url(chunk[kind], start, end)
    context = _dict(chunk.get("retrievedContext"))
    name = context.get("title") or context.get("uri") or context.get("fileSearchStore")
    if not name:
        return None
    identity = context.get("documentName") or context.get("uri") or name
    return {
        "type": "file_citation",
        "file_id": str(identity),
        "filename": str(name),
        "index": end,
    }


def _cited(text: AnswerText, citations: Any) -> Iterator[dict[str, Any] | None]:
    fields = _dict(citations)
    for source in _list(fields.get("citationSources") or fields.get("citations")):
        span = text.span(_dict(source).get("startIndex"), _dict(source).get("endIndex"))
        yield None if span is None else _url(_dict(source), *span)


def _url(source: dict[str, Any], start: int, end: int) -> dict[str, Any] | None:
    url = source.get("uri") or source.get("sourceUri")
    if not isinstance(url, str):
        return None
    return {
        "type": "url_citation",
        "url": url,
        "title": str(source.get("title") or ""),
        "start_index": start,
        "end_index": end,
    }


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []

"""Parts of our items as content blocks of a Messages request.

Text, images and documents have blocks of their own; a text file is a document, so that it can be
cited. What the API cannot take is replaced by a note, so that the model knows that something was
there, and is reported. A part of an unknown type is sent as its JSON. Empty texts are left out:
the API refuses them. `cache_control`, `citations` and `context` go with their block. A text of the
assistant is cut where pages are cited, because a citation belongs to all of its block.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from antiphon.protocol.items import Part
from antiphon.wires.files import read_data_url, read_text_file
from antiphon.wires.messages.history import CITATION
from antiphon.wires.texts import PART_FIELDS, TEXT_FIELDS, unknown_fields

__all__ = ["Block", "ContentWriter", "cited_blocks", "text_block"]

Block = dict[str, Any]
"""A content block; Any, because its fields differ by type."""

_IMAGE_TYPES: Final = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
_PDF: Final = "application/pdf"
_FIELDS: Final = PART_FIELDS | {"citations", "context", "search_result"}
_CANNOT: Final = "this API cannot take it"
_NOT_THERE: Final = "it is not a file of this provider"
# Ids of other providers begin otherwise: OpenAI's with `file-`.
_FILE: Final = "file_"


class ContentWriter:
    """Parts to blocks, with a report of what was lost."""

    def __init__(self, report: list[str]) -> None:
        self._report = report

    def write(self, content: object, where: str) -> list[Block]:
        """Return the blocks of a content field; `where` is how a report calls the field."""
        if isinstance(content, str):
            return [text_block(content)] if content.strip() else []
        parts = content if isinstance(content, list) else []
        written = (self._part(part, f"{where}[{n}]") for n, part in enumerate(parts))
        return [block for blocks in written for block in blocks]

    def _part(self, part: Part, where: str) -> list[Block]:
        kind = str(part.get("type"))
        field = TEXT_FIELDS.get(kind)
        write = _WRITERS.get(kind)
        if field is None and write is None:
            return [self._unknown(part, kind, where)]
        if not _FIELDS.issuperset(part):
            self._report += unknown_fields(part, _FIELDS, where)
        if write is not None:
            return [_with_hints(part, write(self, part, f"{where} ({kind})"))]
        if isinstance(part.get("search_result"), dict):
            return [_with_hints(part, {"type": "search_result", **part["search_result"]})]
        text = str(part.get(field or "") or "")
        if not text.strip():
            return []
        blocks = cited_blocks(text, part.get("annotations"))
        return [*blocks[:-1], _with_hints(part, blocks[-1])]

    def _unknown(self, part: Part, kind: str, where: str) -> Block:
        if kind in ("input_audio", "input_video"):
            return self._leave_out(f"{where} ({kind})", kind.removeprefix("input_"), _CANNOT)
        self._report.append(f"{where} ({kind}): sent as its JSON")
        return text_block(msgspec.json.encode(part).decode())

    def _image(self, part: Part, where: str) -> Block:
        if part.get("detail") not in (None, "auto"):
            self._report.append(f"{where}: detail is left out")
        url, file_id = part.get("image_url"), part.get("file_id")
        if isinstance(url, dict):  # as chat completions have it
            url = url.get("url")
        if isinstance(url, str) and url.startswith(("http://", "https://")):
            return {"type": "image", "source": {"type": "url", "url": url}}
        if isinstance(url, str) and url:
            found = read_data_url(url)
            if found.media_type in _IMAGE_TYPES and found.is_base64:
                return {"type": "image", "source": _base64(found.media_type, found.data)}
            return self._leave_out(where, "image", "it is no JPEG, PNG, GIF or WebP in base64")
        if isinstance(file_id, str) and file_id.startswith(_FILE):
            return {"type": "image", "source": {"type": "file", "file_id": file_id}}
        return self._leave_out(where, "image", _NOT_THERE)

    def _file(self, part: Part, where: str) -> Block:
        name = part.get("filename")
        title = name if isinstance(name, str) and name else None
        source = self._source(part, title or "file")
        if source is None:
            why = "only text and PDF can be sent" if part.get("file_data") else _NOT_THERE
            return self._leave_out(where, title or "file", why)
        block: Block = {"type": "document", "source": source}
        return {**block, "title": title} if title else block

    def _source(self, part: Part, name: str) -> Block | None:
        data, url, file_id = part.get("file_data"), part.get("file_url"), part.get("file_id")
        if isinstance(data, str) and data:
            text = read_text_file(name, data)
            if text is not None:
                return {"type": "text", "media_type": "text/plain", "data": text}
            found = read_data_url(data)
            is_pdf = found.media_type == _PDF or name.lower().endswith(".pdf")
            return _base64(_PDF, found.data) if is_pdf and found.is_base64 else None
        if isinstance(url, str) and url:
            return {"type": "url", "url": url}
        if isinstance(file_id, str) and file_id.startswith(_FILE):
            return {"type": "file", "file_id": file_id}
        return None

    def _leave_out(self, where: str, what: str, why: str) -> Block:
        self._report.append(f"{where}: {why}")
        return text_block(f"[{what} left out: {why}]")


_Write = Callable[[ContentWriter, Part, str], Block]
_WRITERS: Final[dict[str, _Write]] = {
    "input_image": ContentWriter._image,
    "image_url": ContentWriter._image,
    "input_file": ContentWriter._file,
}


def text_block(text: str) -> Block:
    """Return a text block."""
    return {"type": "text", "text": text}


def cited_blocks(text: str, annotations: object) -> list[Block]:
    """Return a text as blocks, those that cite pages with their citations.

    Only citations of a search are sent back: the provider finds the page by their index.
    """
    blocks: list[Block] = []
    done = 0
    for (start, end), citations in sorted(_spans(text, annotations).items()):
        if start >= done and text[start:end].strip():
            # The API refuses a block of spaces, so those between two blocks go with the second.
            between = text[done:start]
            begin = start if between.strip() else done
            blocks += [text_block(between)] if between.strip() else []
            blocks.append({**text_block(text[begin:end]), "citations": citations})
            done = end
    rest = text[done:]
    if rest.strip() or not blocks:
        return [*blocks, text_block(rest)]
    blocks[-1]["text"] += rest
    return blocks


def _spans(text: str, annotations: object) -> dict[tuple[int, int], list[Block]]:
    """Return the citations that an answer came with, by the place of their words."""
    found: dict[tuple[int, int], list[Block]] = {}
    for note in annotations if isinstance(annotations, list) else ():
        citation = note.get(CITATION) if isinstance(note, dict) else None
        if not isinstance(citation, dict) or not citation.get("encrypted_index"):
            continue
        start, end = note.get("start_index"), note.get("end_index")
        if type(start) is int and type(end) is int and 0 <= start < end <= len(text):
            found.setdefault((start, end), []).append(citation)
    return found


def _base64(media_type: str, data: str) -> Block:
    return {"type": "base64", "media_type": media_type, "data": data}


def _with_hints(part: Part, block: Block) -> Block:
    """Return the block with the hints of its part, where its type has them."""
    if part.get("cache_control") is not None:
        block["cache_control"] = part["cache_control"]
    names = _HINTS.get(block["type"], ())
    return block | {name: part[name] for name in names if part.get(name) is not None}


_HINTS: Final = {"document": ("citations", "context"), "search_result": ("citations",)}

"""Content blocks of a Messages request as parts of our items.

Text, images and documents become the parts of the Responses API. A block that has no such part
becomes text: a search result as its text with title and source, any other as its JSON, so that a
model sees it and nothing is dropped. `cache_control`, `citations` and `context` stay on the part
as they are, and so does a search result beside its text: a wire that knows them can use them.
"""

from __future__ import annotations

import base64
from typing import Any, Final

import msgspec

from antiphon.protocol.errors import InvalidRequest
from antiphon.protocol.items import Part

__all__ = ["Block", "block_type", "keep_hints", "read_blocks", "read_parts", "text_in"]

# A JSON object of open shape: Any is what a caller may put there.
Block = dict[str, Any]

_HINTS: Final = ("cache_control", "citations", "context")


def read_blocks(content: object, param: str) -> list[Block]:
    """Return the blocks of a content field; a string is one text block, or none if empty."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    if not isinstance(content, list):
        raise InvalidRequest(
            f"{param} must be a string or a list of blocks", code="invalid_type", param=param
        )
    for index, block in enumerate(content):
        block_type(block, f"{param}[{index}]")
    return content


def block_type(block: object, param: str) -> str:
    """Return the type of a block. Raise InvalidRequest if it is no object with a type."""
    kind = block.get("type") if isinstance(block, dict) else None
    if not isinstance(kind, str):
        raise InvalidRequest(
            f"{param}.type is missing", code="missing_required_parameter", param=f"{param}.type"
        )
    return kind


def read_parts(block: Block, param: str) -> list[Part]:
    """Return the parts of one block of a user or system message, or of a tool result."""
    match block["type"]:
        case "text" | "input_text" | "output_text":
            return [keep_hints(block, {"type": "input_text", "text": text_in(block, param)})]
        case "image":
            return [keep_hints(block, _image(_source(block, param), param))]
        case "document":
            return _document(block, param)
        case "search_result":
            return [keep_hints(block, _search_part(block, param))]
        case _:
            return [{"type": "input_text", "text": msgspec.json.encode(block).decode()}]


def text_in(block: Block, param: str, field: str = "text") -> str:
    """Return a text of a block. Raise InvalidRequest if it has none."""
    text = block.get(field)
    if not isinstance(text, str):
        raise InvalidRequest(
            f"{param}.{field} must be a string", code="invalid_type", param=f"{param}.{field}"
        )
    return text


def keep_hints(block: Block, part: dict[str, Any]) -> dict[str, Any]:
    """Return the part with the hints of its block: unknown to us, known to some upstream."""
    for name in _HINTS:
        if block.get(name) is not None:
            part[name] = block[name]
    return part


def _source(block: Block, param: str) -> Block:
    source = block.get("source")
    block_type(source, f"{param}.source")
    assert isinstance(source, dict)
    return source


def _image(source: Block, param: str) -> Part:
    where = f"{param}.source"
    match source["type"]:
        case "base64":
            return {"type": "input_image", "image_url": _data_url(source, where), "detail": "auto"}
        case "url":
            url = text_in(source, where, "url")
            return {"type": "input_image", "image_url": url, "detail": "auto"}
        case "file":
            file_id = text_in(source, where, "file_id")
            return {"type": "input_image", "file_id": file_id, "detail": "auto"}
        case kind:
            raise _unknown_source(kind, where)


def _document(block: Block, param: str) -> list[Part]:
    source, where = _source(block, param), f"{param}.source"
    title = block.get("title")
    name = title if isinstance(title, str) and title else None
    file: Part = {"type": "input_file"}
    match source["type"]:
        case "base64":
            file |= {"filename": name or "document.pdf", "file_data": _data_url(source, where)}
        case "text":
            data = base64.b64encode(text_in(source, where, "data").encode()).decode()
            file |= {"filename": name or "document.txt"}
            file |= {"file_data": f"data:text/plain;base64,{data}"}
        case "url":
            file |= {"filename": name or "document", "file_url": text_in(source, where, "url")}
        case "file":
            file |= {"filename": name or "document", "file_id": text_in(source, where, "file_id")}
        case "content":
            return _nested(name, source, where)
        case kind:
            raise _unknown_source(kind, where)
    return [keep_hints(block, file)]


def _nested(name: str | None, source: Block, where: str) -> list[Part]:
    """Return the parts of a document that is made of blocks, after its title."""
    blocks = read_blocks(source.get("content"), f"{where}.content")
    parts: list[Part] = [{"type": "input_text", "text": f"Document {name}:"}] if name else []
    for index, block in enumerate(blocks):
        parts += read_parts(block, f"{where}.content[{index}]")
    return parts


def _search_part(block: Block, param: str) -> Part:
    text = _search_result(block, param)
    found = {name: block.get(name) for name in ("source", "title", "content")}
    return {"type": "input_text", "text": text, "search_result": found}


def _search_result(block: Block, param: str) -> str:
    where = f"{param}.content"
    blocks = read_blocks(block.get("content") or [], where)
    texts = [text_in(one, f"{where}[{index}]") for index, one in enumerate(blocks)]
    return "\n".join([f"{block.get('title')} ({block.get('source')})", *texts])


def _data_url(source: Block, where: str) -> str:
    media_type = text_in(source, where, "media_type")
    return f"data:{media_type};base64,{text_in(source, where, 'data')}"


def _unknown_source(kind: str, where: str) -> InvalidRequest:
    return InvalidRequest(
        f"{where}.type: '{kind}' is not known here", code="invalid_value", param=f"{where}.type"
    )

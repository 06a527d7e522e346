"""How does the result of an MCP tool become a text, and what does a model see of it?

An `mcp_call` has one text as its output. Text stays as it is; what has no text (images, sound,
other data) is named with its type and size, so that nothing disappears without a trace. A model
that sees is shown the images too, if they are of a common type and not too large: they come from
outside, so what their bytes are counts, not what the server states.
"""

from __future__ import annotations

import binascii
from typing import Any, Final

import msgspec

from antiphon.protocol.items import Part

__all__ = ["CallResult", "read_result"]

_MAX_BLOCKS: Final = 4096
_MAX_OUTPUT: Final = 1024 * 1024
_MAX_ERROR: Final = 64 * 1024
_MAX_IMAGES: Final = 8
_MAX_IMAGE: Final = 5 * 1024 * 1024  # characters of base64, as most providers take them
_MAX_ALL: Final = 16 * 1024 * 1024
_MARKS: Final = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"RIFF", "image/webp"),
)


class CallResult(msgspec.Struct, frozen=True):
    """The result of a call: its text, and the content of an error if the tool reports one."""

    output: str
    error_content: list[dict[str, Any]] | None = None
    images: tuple[str, ...] = ()
    """Data URLs of images that can be shown; the text names them too."""

    def shown(self) -> list[Part]:
        """Return what a model gets that sees images."""
        images = [
            {"type": "input_image", "image_url": url, "detail": "auto"} for url in self.images
        ]
        return [{"type": "input_text", "text": self.output}, *images]

    @property
    def error(self) -> dict[str, Any] | None:
        """The error of the `mcp_call`, if the tool failed."""
        if self.error_content is None:
            return None
        return {"type": "mcp_tool_execution_error", "content": self.error_content}


def read_result(raw: dict[str, Any]) -> CallResult:
    """Return the text and the error of a server's `CallToolResult`."""
    content = raw.get("content")
    blocks = content[:_MAX_BLOCKS] if isinstance(content, list) else []
    texts = [_text_of(block) for block in blocks if isinstance(block, dict)]
    output = "\n".join(texts)
    structured = raw.get("structuredContent")
    if not texts and structured is not None:
        output = msgspec.json.encode(structured).decode()
    output = _cut(output, _MAX_OUTPUT)
    if raw.get("isError") is not True:
        return CallResult(output, images=_images(blocks))
    return CallResult(output, [{"type": "text", "text": _cut(output, _MAX_ERROR)}])


def _text_of(block: dict[str, Any]) -> str:
    match block.get("type"):
        case "text":
            return str(block.get("text") or "")
        case "image" | "audio" as kind:
            return _left_out(kind, block.get("mimeType"), block.get("data"))
        case "resource":
            return _resource(block.get("resource"))
        case "resource_link":
            fields = ("uri", "name", "description", "mimeType")
            link = {name: block[name] for name in fields if isinstance(block.get(name), str)}
            return msgspec.json.encode({"resource_link": link}).decode()
        case kind:
            return f"[{str(kind)[:40]}: this kind of content cannot be shown]"


def _images(blocks: list[Any]) -> tuple[str, ...]:  # Any: JSON of the server
    """Return the first images, as far as they fit."""
    found: list[str] = []
    room = _MAX_ALL
    for block in blocks:
        data = block.get("data") if isinstance(block, dict) else None
        if not isinstance(data, str) or block.get("type") != "image":
            continue
        kind = _image_type(data) if len(data) <= min(room, _MAX_IMAGE) else None
        if kind is not None and len(found) < _MAX_IMAGES:
            room -= len(data)
            found.append(f"data:{kind};base64,{data}")
    return tuple(found)


def _image_type(data: str) -> str | None:
    """Return the type of an image in base64; None if it is no image, or no base64."""
    try:
        content = binascii.a2b_base64(data, strict_mode=True)
    except ValueError:
        return None
    kind = next((kind for mark, kind in _MARKS if content.startswith(mark)), None)
    return None if kind == "image/webp" and content[8:12] != b"WEBP" else kind


def _resource(resource: object) -> str:
    if not isinstance(resource, dict):
        return "[resource: it cannot be read]"
    text = resource.get("text")
    if isinstance(text, str):
        return text
    return _left_out("resource", resource.get("mimeType"), resource.get("blob"))


def _left_out(kind: str, media_type: object, data: object) -> str:
    name = media_type if isinstance(media_type, str) else "unknown type"
    size = len(data) * 3 // 4 if isinstance(data, str) else 0
    return f"[{kind}, {name[:80]}, about {size} bytes: it is not part of the text]"


def _cut(text: str, most: int) -> str:
    whole = text.encode("utf-8", "replace")
    if len(whole) <= most:
        return whole.decode()
    return f"{whole[:most].decode('utf-8', 'ignore')}\n[cut here: {len(whole) - most} bytes more]"

"""How does the result of an MCP tool become a text?

An `mcp_call` has one text as its output. Text stays as it is; what has no text (images, sound,
other data) is named with its type and size, so that nothing disappears without a trace.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

__all__ = ["CallResult", "read_result"]

_MAX_BLOCKS: Final = 4096
_MAX_OUTPUT: Final = 1024 * 1024
_MAX_ERROR: Final = 64 * 1024


class CallResult(msgspec.Struct, frozen=True):
    """The result of a call: its text, and the content of an error if the tool reports one."""

    output: str
    error_content: list[dict[str, Any]] | None = None

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
        return CallResult(output)
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

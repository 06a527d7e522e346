"""The conversation of a Messages request as items, in the caller's order.

System blocks are one item each, in front; a `system` message inside the conversation stays where
it is, because moving it would change the beginning of every later prompt. Blocks of one message
become as many items as they need: texts in a row are one message, each call and each result is an
item of its own. Rendering depends on nothing but the blocks themselves, so the items of turn n
are a prefix of those of turn n + 1.

Thinking comes back as the reasoning item that its signature seals. Without a signature there is
nothing to open, and the block is left out.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from antiphon.protocol.errors import InvalidRequest
from antiphon.protocol.items import Item, Part
from antiphon.wires.messages.ids import call_id_of
from antiphon.wires.messages.parts import Block, keep_hints, read_blocks, read_parts, text_in

__all__ = [
    "BLOCKS",
    "CITATION",
    "ERROR_PREFIX",
    "OPAQUE",
    "read_messages",
    "read_system",
    "system_blocks",
]

OPAQUE: Final = "anthropic:"
"""What the type of an item begins with that is a block of Anthropic's own servers."""
BLOCKS: Final = "anthropic:blocks"
"""The field of a hosted item with the blocks of Anthropic's own servers that it stands for."""
CITATION: Final = "anthropic:citation"
"""The field of an annotation with the citation that it stands for."""
ERROR_PREFIX: Final = "Error: "
"""What the output of a failed tool call begins with."""

# Some clients put blocks of the Responses API into messages of the assistant.
_TEXTS: Final = frozenset({"text", "input_text", "output_text"})
# A hash in it changes with every request, and a prompt that begins with it is never cached:
# https://github.com/ggml-org/llama.cpp/issues/21793
_BILLING: Final = "x-anthropic-billing-header:"


def read_system(system: object) -> list[Item]:
    """Return the system prompt as items, one for each block."""
    return [
        _message("system", read_parts(block, f"system[{index}]"))
        for index, block in system_blocks(system)
    ]


def system_blocks(system: object) -> list[tuple[int, Block]]:
    """Return the blocks of the system prompt that are sent on, with their places."""
    blocks = [] if system is None else read_blocks(system, "system")
    return [(index, block) for index, block in enumerate(blocks) if not _is_billing(block)]


def read_messages(messages: object) -> list[Item]:
    """Return the messages as items. Raise InvalidRequest with the place of what is wrong."""
    if not isinstance(messages, list):
        raise InvalidRequest("messages must be a list", code="invalid_type", param="messages")
    if not messages:
        raise InvalidRequest(
            "messages must have at least one message", code="invalid_value", param="messages"
        )
    items: list[Item] = []
    for index, message in enumerate(messages):
        param = f"messages[{index}]"
        if not isinstance(message, dict):
            raise InvalidRequest(f"{param} must be an object", code="invalid_type", param=param)
        blocks = read_blocks(message.get("content"), f"{param}.content")
        match message.get("role"):
            case "assistant":
                items += _assistant_items(blocks, f"{param}.content")
            case "user" | "system" as role:
                items += _user_items(role, blocks, f"{param}.content")
            case role:
                raise InvalidRequest(
                    f"{param}.role must be user, assistant or system, not '{role}'",
                    code="invalid_value",
                    param=f"{param}.role",
                )
    return items


def _is_billing(block: Block) -> bool:
    return str(block.get("text") or "").startswith(_BILLING)


def _message(role: str, parts: list[Part]) -> Item:
    return {"type": "message", "role": role, "content": parts}


def _user_items(role: str, blocks: list[Block], param: str) -> list[Item]:
    items: list[Item] = []
    parts: list[Part] = []
    for index, block in enumerate(blocks):
        where = f"{param}[{index}]"
        if block["type"] != "tool_result":
            parts += read_parts(block, where)
            continue
        if parts:
            items.append(_message(role, parts))
            parts = []
        items.append(_result(block, where))
    if parts:
        items.append(_message(role, parts))
    return items


def _result(block: Block, param: str) -> Item:
    call_id = call_id_of(text_in(block, param, "tool_use_id"))
    output = _output(block.get("content"), param)
    item: Item = {"type": "function_call_output", "call_id": call_id, "output": output}
    if block.get("is_error"):
        item |= {"output": _with_error(output), "status": "incomplete"}
    return keep_hints(block, item)


def _output(content: object, param: str) -> str | list[Part]:
    """Return what a tool has returned; no content at all is an empty text."""
    if content is None or isinstance(content, str):
        return content or ""
    parts: list[Part] = []
    for index, block in enumerate(read_blocks(content, f"{param}.content")):
        parts += read_parts(block, f"{param}.content[{index}]")
    return parts


def _with_error(output: str | list[Part]) -> str | list[Part]:
    """Return the output marked as a failure in words, which every model understands."""
    if isinstance(output, str):
        return ERROR_PREFIX + output
    if output and output[0]["type"] == "input_text":
        return [{**output[0], "text": ERROR_PREFIX + output[0]["text"]}, *output[1:]]
    return [{"type": "input_text", "text": ERROR_PREFIX}, *output]


def _assistant_items(blocks: list[Block], param: str) -> list[Item]:
    items: list[Item] = []
    texts: list[Part] = []
    for index, block in enumerate(blocks):
        where = f"{param}[{index}]"
        if block["type"] in _TEXTS:
            texts.append(_text(block, where))
            continue
        if texts:
            items.append(_message("assistant", texts))
            texts = []
        item = _assistant_item(block, where)
        if item is not None:
            items.append(item)
    if texts:
        items.append(_message("assistant", texts))
    return items


def _text(block: Block, param: str) -> Part:
    part: Part = {"type": "output_text", "text": text_in(block, param)}
    citations = block.get("citations") or []
    if not isinstance(citations, list):
        where = f"{param}.citations"
        raise InvalidRequest(f"{where} must be a list", code="invalid_type", param=where)
    if citations:
        part["annotations"] = [_annotation(one, len(part["text"])) for one in citations]
    if block.get("cache_control") is not None:
        part["cache_control"] = block["cache_control"]
    return part


def _annotation(citation: Any, size: int) -> dict[str, Any]:
    """Return a citation as an annotation of a text; one that is no web page stays as it is."""
    if not isinstance(citation, dict) or citation.get("type") != "web_search_result_location":
        return citation if isinstance(citation, dict) else {"type": "unknown"}
    note = {"type": "url_citation", "url": citation.get("url"), "title": citation.get("title")}
    if not citation.get("encrypted_index"):
        return note
    return {**note, "start_index": 0, "end_index": size, CITATION: citation}


def _assistant_item(block: Block, param: str) -> Item | None:
    match block["type"]:
        case "tool_use":
            return keep_hints(block, _call(block, param))
        case "thinking":
            return _thought(block.get("signature"))
        case "redacted_thinking":
            return _thought(block.get("data"))
        case "image" | "document" | "search_result":
            return _message("assistant", read_parts(block, param))
        case kind:
            return {**block, "type": OPAQUE + kind}


def _call(block: Block, param: str) -> Item:
    given = block.get("input")
    return {
        "type": "function_call",
        "call_id": call_id_of(text_in(block, param, "id")),
        "name": text_in(block, param, "name"),
        # The keys stay in the caller's order, and the text has no spaces, as JavaScript writes it.
        "arguments": msgspec.json.encode({} if given is None else given).decode(),
    }


def _thought(sealed: object) -> Item | None:
    """Return the reasoning that is sealed in a signature; some clients send an empty one."""
    if not isinstance(sealed, str) or not sealed:
        return None
    return {"type": "reasoning", "summary": [], "encrypted_content": sealed}

"""How many tokens, when no backend counts them?

Four bytes of text to a token, over everything that was sent: instructions, items and tool
schemas, which in real agents are most of it. Keys and ids cost nothing. A picture or a file
costs a fixed amount, however long the data URL is that holds it. Always an estimate.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from antiphon.models.image_cost import DEFAULT_IMAGE_COST, UNKNOWN_SIZE
from antiphon.plans.plan import Plan
from antiphon.plans.tool_schemas import SCHEMAS
from antiphon.plans.toolbox import Toolbox
from antiphon.protocol.items import Item, Part
from antiphon.protocol.response import OutputDetails, Usage
from antiphon.protocol.thread import Thread

__all__ = [
    "ATTACHMENT_TOKENS",
    "BYTES_PER_TOKEN",
    "Contents",
    "InputEstimate",
    "contents_of",
    "estimate_text",
    "estimate_tokens",
    "estimate_tools",
    "estimate_usage",
    "most_input",
    "text_bytes",
    "tool_text",
]

BYTES_PER_TOKEN: Final = 4
ATTACHMENT_TOKENS: Final = DEFAULT_IMAGE_COST.tokens(UNKNOWN_SIZE)
"""The cost of an image of unknown size, and of a file."""

_MOST_OF_ATTACHMENT: Final = 4 * ATTACHMENT_TOKENS
# What a template writes around an item.
_FRAME: Final = 16

_TEXTS: Final = frozenset(
    {
        *("text", "refusal", "arguments", "name", "input", "output", "content", "summary"),
        # What is shown of calls that a server ran.
        *("action", "code", "logs", "outputs", "queries", "query", "results", "sources", "url"),
    }
)
_IMAGES: Final = frozenset(
    # "image" is what a code interpreter drew.
    {"input_image", "image_url", "image", "computer_screenshot", "image_generation_call"}
)
_FILES: Final = frozenset({"input_file", "input_video", "input_audio", "file"})


class Contents(msgspec.Struct):
    """What of a value costs tokens. `sealed` counts characters that only the server can read."""

    texts: list[str] = []
    images: list[Part] = []
    files: int = 0
    sealed: int = 0


def contents_of(value: object) -> Contents:
    """Return what costs tokens in items, parts or texts, in no order."""
    found = Contents()
    waiting: list[object] = [value]
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            found.texts.append(value)
        elif isinstance(value, dict):
            waiting.extend(_open(value, found))
        elif isinstance(value, list | tuple):
            waiting.extend(value)
    return found


def _open(value: dict[str, Any], found: Contents) -> Iterable[object]:
    """Note what the object itself costs and return what is in it."""
    kind = value.get("type")
    if isinstance(kind, str):
        if kind in _IMAGES:
            found.images.append(value)
            return ()
        if kind in _FILES:
            found.files += 1
            return ()
    sealed = value.get("encrypted_content")
    if isinstance(sealed, str):
        found.sealed += len(sealed)
    return [inner for name, inner in value.items() if name in _TEXTS]


def text_bytes(text: str) -> int:
    """Return how many bytes the text is in UTF-8; half a surrogate pair is no reason to fail."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def estimate_text(text: str) -> int:
    """Return the estimated tokens of one text."""
    return _tokens(text_bytes(text))


def estimate_tokens(value: object) -> int:
    """Return the estimated tokens of items, parts or texts. What is sealed costs nothing."""
    found = contents_of(value)
    attachments = len(found.images) + found.files
    return _tokens(sum(map(text_bytes, found.texts))) + attachments * ATTACHMENT_TOKENS


def tool_text(tool: Any) -> str:
    """Return a tool as the text that a model reads, near enough: its JSON."""
    return msgspec.json.encode(tool).decode()


def estimate_tools(tools: Iterable[Any]) -> int:
    """Return the estimated tokens of tools: all of their JSON is shown to the model."""
    return _tokens(sum(len(msgspec.json.encode(tool)) for tool in tools))


def estimate_usage(plan: Plan, output: Sequence[Item]) -> Usage:
    """Return the estimated usage of a plan and what came of it."""
    size, attachments = _weigh(plan.items)
    text = _tokens(size + text_bytes(plan.instructions or ""))
    sent = text + attachments * ATTACHMENT_TOKENS + _estimate_toolbox(plan.toolbox)
    thought = sum(estimate_tokens(item) for item in output if item.get("type") == "reasoning")
    said = sum(estimate_tokens(item) for item in output if item.get("type") != "reasoning")
    return Usage(
        input_tokens=sent,
        output_tokens=said + thought,
        output_tokens_details=OutputDetails(reasoning_tokens=thought),
        total_tokens=sent + said + thought,
    )


def _weigh(items: Sequence[Item]) -> tuple[int, int]:
    """Return the bytes of text in items, and how many attachments. A thread remembers them."""
    if not isinstance(items, Thread):
        found = contents_of(items)
        return sum(map(text_bytes, found.texts)), len(found.images) + found.files
    begin, size, attachments = items.recall(_weigh) or (0, 0, 0)
    new, tail = _weigh(items[begin : items.lasting]), _weigh(items[items.lasting :])
    size, attachments = size + new[0], attachments + new[1]
    items.learn(_weigh, (items.lasting, size, attachments))
    return size + tail[0], attachments + tail[1]


class InputEstimate:
    """Estimates the input of one plan after the other, as `estimate_usage` does.

    The plans of a turn grow: of a plan that continues the one before it, only what was added is
    looked at.
    """

    def __init__(self) -> None:
        self._items: list[Item] = []
        self._size = 0
        self._attachments = 0

    def of(self, plan: Plan) -> int:
        """Return the estimated input tokens of a plan."""
        known = len(self._items)
        if list(plan.items[:known]) != self._items:
            self._items, self._size, self._attachments, known = [], 0, 0, 0
        added = plan.items[known:] if known else plan.items
        size, attachments = _weigh(added)
        self._items += added
        self._size += size
        self._attachments += attachments
        text = _tokens(self._size + text_bytes(plan.instructions or ""))
        return text + self._attachments * ATTACHMENT_TOKENS + _estimate_toolbox(plan.toolbox)


def most_input(plan: Plan) -> int:
    """Return more input tokens than a plan has, as far as no backend counts them.

    A tokenizer makes tokens of two bytes at least of anything but digits, which may be one each.
    """
    found = contents_of([plan.instructions or "", *plan.items])
    text = "".join(found.texts).encode("utf-8", "surrogatepass")
    digits = len(text) - len(text.translate(None, b"0123456789"))
    attachments = (len(found.images) + found.files) * _MOST_OF_ATTACHMENT
    tools = 2 * _estimate_toolbox(plan.toolbox)
    frames = _FRAME * (1 + len(plan.items))
    return digits - (digits - len(text)) // 2 + found.sealed + attachments + tools + frames


def _estimate_toolbox(toolbox: Toolbox) -> int:
    """Return the estimated tokens of tools, with the schemas of those that bring none."""

    def estimate() -> int:
        kinds = {offer.kind for offer in toolbox.offers}
        schemas = [SCHEMAS[kind] for kind in kinds if kind in SCHEMAS]
        tools = [*(offer.tool for offer in toolbox.offers), *toolbox.upstream]
        return estimate_tools([*tools, *schemas])

    return toolbox.derived.get(_estimate_toolbox, estimate)


def _tokens(size: int) -> int:
    return -(-size // BYTES_PER_TOKEN)

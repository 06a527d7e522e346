"""How many tokens is this text, this message, this request?

Texts are counted by `text_counter`: as the server counted them, by the model's own tokenizer,
or by an estimate that leans high. Around them stands what no text shows: a few tokens for each
item and for the answer's beginning, the tool schemas, the pictures by their size. How servers
write tools and calls is not published, so a request that has them is never called exact.

What a server counted is better than all of this. Every figure of a server is learned from, for
its model. And once a server has answered in a conversation, its figure stands for everything up
to that answer, and only what is new is counted here.
"""

from __future__ import annotations

import base64
import hashlib
import json
import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby, takewhile
from typing import Any, Final

import msgspec

from antiphon.client.history import is_model_made
from antiphon.host.content import MARKERS, media_type, read_text
from antiphon.host.images import image_size, sniff_image
from antiphon.host.last_used import LastUsed
from antiphon.host.model_table import ModelTable
from antiphon.host.text_counter import TextCache, TextCounter
from antiphon.host.vocabulary import Tokenizers, default_tokenizers
from antiphon.models.image_cost import UNKNOWN_SIZE
from antiphon.plans.estimate import (
    ATTACHMENT_TOKENS,
    BYTES_PER_TOKEN,
    Contents,
    contents_of,
    tool_text,
)
from antiphon.protocol.items import Item, item_type
from antiphon.protocol.machines.partial_items import encode_json
from antiphon.protocol.response import Usage
from antiphon.wires.host.parts import (
    DataPart,
    Message,
    Part,
    Role,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
    UrlPart,
)

__all__ = ["TokenCount", "TokenCounter"]

_log = logging.getLogger("antiphon.host")

PER_ITEM: Final = 4
"""The marks around a message and its role, as OpenAI describes them."""
PER_TOOL: Final = 8
FOR_TOOLS: Final = 16
FOR_REPLY: Final = 3

# A header is in the first bytes; only a camera's JPEG puts its notes and a preview before it.
_HEADS: Final = (4 * 1024, 512 * 1024)
# Sealed content is base 64 of text, more or less.
_SEALED_PER_TOKEN: Final = BYTES_PER_TOKEN * 4 / 3


class TokenCount(msgspec.Struct, frozen=True):
    """How many tokens. Exact: every part of it was counted by a published rule."""

    tokens: int
    is_exact: bool


class _Actual(msgspec.Struct, frozen=True):
    """What a server counted for a request: its items by number and digest, and the figures."""

    items: int
    digest: bytes
    frame: bytes
    """What stood around the items, by its digest, and by our count."""
    frame_tokens: int
    usage: Usage


class TokenCounter:
    """Counts tokens, and learns from what servers counted. Safe to use from several threads."""

    def __init__(
        self,
        *,
        table: ModelTable | None = None,
        tokenizers: Tokenizers | None = None,
        cache: TextCache | None = None,
        max_conversations: int = 100,
    ) -> None:
        self._texts = TextCounter(
            table or ModelTable(),
            tokenizers or default_tokenizers(),
            TextCache() if cache is None else cache,
        )
        self._lock = threading.RLock()
        self._actuals: LastUsed[tuple[str, str], _Actual] = LastUsed(max_conversations)

    def prepare(self, model: str) -> bool:
        """Load what counting needs, and return whether texts will be counted by a tokenizer.

        Loading takes a third of a second and may be done in another thread.
        """
        return self._texts.has_tokenizer(model)

    def is_prepared(self, model: str) -> bool:
        """Return whether what counting needs is loaded."""
        return self._texts.is_prepared(model)

    def count_text(self, text: str, model: str) -> int:
        """Return the tokens of a text alone."""
        with self._lock:
            return self._texts.count(text, model)

    def count_message(self, message: Message | str, model: str) -> int:
        """Return the tokens of a message with the marks around it; a bare text has none."""
        if isinstance(message, str):
            return self.count_text(message, model)
        with self._lock:
            parts = _join_texts(message)
            return PER_ITEM + sum(self._count_part(part, model) for part in parts)

    def count_request(
        self, body: Mapping[str, Any], model: str, conversation: str | None = None
    ) -> TokenCount:
        """Return the input tokens of a request: instructions, items, tools and answer format.

        `input` must be the whole conversation; what only the server remembers is not seen.
        With `conversation`, the server's own figure is taken for what it has counted before.
        """
        items = _items_of(body)
        with self._lock:
            actual = self._find_actual(conversation, model, items)
            if actual is not None:
                return self._continue(actual, body, items, model)
            offset = TokenCount(self._texts.offset(model), self._texts.is_exact(model))
            frame = self._count_frame(body, model)
            total = _sum([frame, offset, *(self._count_item(item, model) for item in items)])
        return TokenCount(max(total.tokens, 0), total.is_exact)

    def note_actual(
        self, conversation: str | None, model: str, body: Mapping[str, Any], usage: Usage
    ) -> None:
        """Remember what the server counted for this request, and learn from it.

        An estimate is not for here, nor a request that continues what only the server has.
        """
        with self._lock:
            self.learn(model, body, usage.input_tokens)
            if conversation is None:
                return
            items, frame = _items_of(body), self._count_frame(body, model).tokens
            actual = _Actual(len(items), _digest(items), _frame(body), frame, usage)
            self._actuals.keep((conversation, model), actual)

    def learn(self, model: str, body: Mapping[str, Any], tokens: int) -> None:
        """Learn from the server's own count of a request, of an answer or of `input_tokens`."""
        items, extras = _items_of(body), _extras(body)
        found = contents_of(items)
        texts = [*found.texts, str(body.get("instructions") or "")]
        with self._lock:
            attached = self._count_attachments(found, model)
            marks = FOR_REPLY + PER_ITEM * (len(items) + bool(texts[-1])) + _tool_marks(body)
            left = tokens - marks - attached
            schemas = [tool_text(extra) for extra in extras]
            self._texts.learn(model, texts, schemas, left, attached / 2)
        _log.debug("server counted %d tokens for %d items", tokens, len(items))

    def forget(self, conversation: str) -> None:
        """Forget what was counted in a conversation, with any model."""
        for key in [key for key in self._actuals if key[0] == conversation]:
            del self._actuals[key]

    def _count_part(self, part: Part, model: str) -> int:
        match part:
            case TextPart(value=text) | ThinkingPart(value=text):
                return self.count_text(text, model)
            case ToolCallPart(name=name, input=arguments):
                written = self.count_text(_write(arguments), model)
                return PER_ITEM + self.count_text(name, model) + written
            case ToolResultPart(content=content):
                return PER_ITEM + sum(self._count_part(inner, model) for inner in content)
            case UrlPart():
                is_image = media_type(part).startswith("image/")
                cost = self._texts.image_cost(model)
                return cost.tokens(UNKNOWN_SIZE) if is_image else ATTACHMENT_TOKENS
            case _:
                return self._count_data(part, model)

    def _count_data(self, part: DataPart, model: str) -> int:
        """Count data as it would be sent: as text, image or file, or not at all."""
        media = media_type(part)
        if not part.data or media in MARKERS:
            return 0
        text = read_text(part)
        if text is not None:
            return self.count_text(text, model)
        if media.startswith("image/") or sniff_image(part.data):
            cost = self._texts.image_cost(model)
            return cost.tokens(image_size(part.data) or UNKNOWN_SIZE)
        return ATTACHMENT_TOKENS

    def _count_frame(self, body: Mapping[str, Any], model: str) -> TokenCount:
        """Count what stands around the items."""
        tokens = FOR_REPLY + _tool_marks(body)
        if instructions := body.get("instructions"):
            tokens += PER_ITEM + self._texts.count(str(instructions), model)
        extras = _extras(body)
        for extra in extras:
            tokens += self._texts.count(tool_text(extra), model, is_schema=True)
        return TokenCount(tokens, is_exact=not extras and self._texts.is_exact(model))

    def _count_item(self, item: Item, model: str) -> TokenCount:
        found = contents_of(item)
        tokens = PER_ITEM + sum(self._texts.count(text, model) for text in found.texts)
        tokens += self._count_attachments(found, model)
        is_plain = item_type(item) == "message" and not (found.images or found.files)
        return TokenCount(tokens, is_exact=is_plain and self._texts.is_exact(model))

    def _count_attachments(self, found: Contents, model: str) -> int:
        """Count what is not text: files, pictures, and what only the server can read."""
        cost = self._texts.image_cost(model)
        tokens = found.files * ATTACHMENT_TOKENS + int(found.sealed // _SEALED_PER_TOKEN)
        for part in found.images:
            tokens += cost.tokens(_size_of(part) or UNKNOWN_SIZE, part.get("detail"))
        return tokens

    def _find_actual(
        self, conversation: str | None, model: str, items: Sequence[Item]
    ) -> _Actual | None:
        if conversation is None:
            return None
        actual = self._actuals.find((conversation, model))
        if actual is None or _digest(items[: actual.items]) != actual.digest:
            return None
        return actual

    def _continue(
        self, actual: _Actual, body: Mapping[str, Any], items: Sequence[Item], model: str
    ) -> TokenCount:
        """Take the server's figure and count what came after its answer."""
        rest = items[actual.items :]
        answer = list(takewhile(is_model_made, rest))
        new = [self._count_item(item, model) for item in rest[len(answer) :]]
        changed = 0
        if _frame(body) != actual.frame:
            changed = self._count_frame(body, model).tokens - actual.frame_tokens
        base = actual.usage.input_tokens + changed + _kept_output(actual.usage, answer)
        is_exact = not changed and not answer  # how an answer is marked off is not published
        return _sum([TokenCount(max(base, 0), is_exact), *new])


def _sum(counts: Sequence[TokenCount]) -> TokenCount:
    return TokenCount(
        sum(count.tokens for count in counts), all(count.is_exact for count in counts)
    )


def _items_of(body: Mapping[str, Any]) -> Sequence[Item]:
    given = body.get("input") or ()
    if isinstance(given, str):
        return [{"type": "message", "role": "user", "content": given}]
    return list(given)


def _extras(body: Mapping[str, Any]) -> list[Any]:
    """Return what the model is shown as JSON: the tools, and the schema of the answer."""
    text = body.get("text")
    form = text.get("format") if isinstance(text, Mapping) else None
    schema = form.get("schema") if isinstance(form, Mapping) else None
    return [*(body.get("tools") or ()), *([schema] if schema else [])]


def _tool_marks(body: Mapping[str, Any]) -> int:
    tools = body.get("tools") or ()
    return FOR_TOOLS + PER_TOOL * len(tools) if tools else 0


def _frame(body: Mapping[str, Any]) -> bytes:
    """Return a digest of what stands around the items."""
    return _digest([{"instructions": body.get("instructions")}, *_extras(body)])


def _join_texts(message: Message) -> Iterator[Part]:
    """Yield the parts; texts of the assistant in a row are one, as they are when they are sent."""
    if message.role is not Role.ASSISTANT:
        yield from message.content
        return
    for is_text, parts in groupby(message.content, lambda part: isinstance(part, TextPart)):
        if is_text:
            yield TextPart("".join(part.value for part in parts if isinstance(part, TextPart)))
        else:
            yield from parts


def _digest(items: Sequence[Item]) -> bytes:
    return hashlib.blake2b(encode_json(items), digest_size=16).digest()


def _write(arguments: Mapping[str, Any]) -> str:
    """Return arguments as JSON. What JSON has not is counted all the same, by its text."""
    return json.dumps(arguments, ensure_ascii=False, separators=(",", ":"), default=_plain)


def _plain(value: object) -> object:
    return dict(value) if isinstance(value, Mapping) else str(value)


def _kept_output(usage: Usage, answer: Sequence[Item]) -> int:
    """Return how much of the answer is in the next context: no reasoning that is not sent."""
    if not answer:
        return 0
    if any(item_type(item) == "reasoning" for item in answer):
        return usage.output_tokens
    return max(usage.output_tokens - usage.output_tokens_details.reasoning_tokens, 0)


def _size_of(part: Mapping[str, Any]) -> tuple[int, int] | None:
    """Return the size of a picture that is in the request; others cannot be measured."""
    url = part.get("image_url") or part.get("result")
    if isinstance(url, Mapping):
        url = url.get("url")
    if not isinstance(url, str) or url.startswith(("http:", "https:")):
        return None
    start = url.find(",") + 1
    for length in _HEADS:
        try:
            size = image_size(base64.b64decode(url[start : start + length]))
        except ValueError:
            return None
        if size or len(url) - start <= length:
            return size
    return None

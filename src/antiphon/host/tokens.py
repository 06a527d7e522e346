"""How many tokens is this text, this message, this request?

Texts are counted with the model's own tokenizer where `antiphon[tokens]` is installed and the
model's encoding is known, and estimated otherwise. Around them stands what no text shows: a
few tokens for each item and for the answer's beginning, the tool schemas, the pictures by
their size. How servers write tools and calls is not published, so a request that has them is
never called exact.

What a server counted is better than all of this. Once it has answered in a conversation, its
figure stands for everything up to that answer, and only what is new is counted here.
"""

from __future__ import annotations

import base64
import hashlib
import json
import logging
import sys
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any, Final

import msgspec

from antiphon.host.content import MARKERS, media_type, read_text
from antiphon.host.image_cost import DEFAULT_IMAGE_COST, UNKNOWN_SIZE, ImageCost
from antiphon.host.images import image_size, sniff_image
from antiphon.host.model_table import ModelTable
from antiphon.host.parts import (
    DataPart,
    Message,
    Part,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
)
from antiphon.host.vocabulary import Tokenizer, Tokenizers, default_tokenizers
from antiphon.protocol.drafts import encode_json
from antiphon.protocol.estimate import (
    ATTACHMENT_TOKENS,
    BYTES_PER_TOKEN,
    contents_of,
    estimate_text,
    tool_text,
)
from antiphon.protocol.items import Item, item_type
from antiphon.protocol.response import Usage

__all__ = ["TextCache", "TokenCount", "TokenCounter"]

_log = logging.getLogger("antiphon.host")

PER_ITEM: Final = 4
"""The marks around a message and its role, as OpenAI describes them."""
PER_TOOL: Final = 8
FOR_TOOLS: Final = 16
FOR_REPLY: Final = 3

_MIB: Final = 1024 * 1024
_MAX_MODELS: Final = 256
# A header is in the first bytes; only a camera's JPEG puts its notes and a preview before it.
_HEADS: Final = (4 * 1024, 512 * 1024)
# Sealed content is base 64 of text, more or less.
_SEALED_PER_TOKEN: Final = BYTES_PER_TOKEN * 4 / 3


class TokenCount(msgspec.Struct, frozen=True):
    """How many tokens. Exact: every part of it was counted by a published rule."""

    tokens: int
    is_exact: bool


class TextCache:
    """Counts of texts, by encoding. It forgets what was not asked for longest."""

    def __init__(self, max_entries: int = 20_000, max_bytes: int = 32 * _MIB) -> None:
        self._max_entries = max_entries
        self._max_bytes = max_bytes
        self._counts: OrderedDict[tuple[str, str], int] = OrderedDict()
        self._size = 0

    def __len__(self) -> int:
        return len(self._counts)

    @property
    def size(self) -> int:
        """The bytes that the texts take up."""
        return self._size

    def count(self, tokenizer: Tokenizer, text: str) -> int:
        """Return the tokens of a text, from memory if they are known."""
        key = (tokenizer.name, text)
        known = self._counts.get(key)
        if known is not None:
            self._counts.move_to_end(key)
            return known
        count = tokenizer.count(text)
        self._keep(key, count)
        return count

    def _keep(self, key: tuple[str, str], count: int) -> None:
        size = sys.getsizeof(key[1])
        if size > self._max_bytes:
            return
        self._counts[key] = count
        self._size += size
        while len(self._counts) > self._max_entries or self._size > self._max_bytes:
            (_, text), _ = self._counts.popitem(last=False)
            self._size -= sys.getsizeof(text)


class _Model(msgspec.Struct, frozen=True):
    """How one model counts."""

    tokenizer: Tokenizer | None
    image_cost: ImageCost


class _Actual(msgspec.Struct, frozen=True):
    """What a server counted for a request: its items by number and digest, and the figures."""

    items: int
    digest: bytes
    frame: int
    usage: Usage


class TokenCounter:
    """Counts tokens, and remembers texts and what servers counted. For one thread."""

    def __init__(
        self,
        *,
        table: ModelTable | None = None,
        tokenizers: Tokenizers | None = None,
        cache: TextCache | None = None,
        max_conversations: int = 100,
    ) -> None:
        self._table = table or ModelTable()
        self._tokenizers = tokenizers or default_tokenizers()
        self._cache = cache or TextCache()
        self._max_conversations = max_conversations
        self._models: dict[str, _Model] = {}
        self._actuals: OrderedDict[tuple[str, str], _Actual] = OrderedDict()

    def prepare(self, model: str) -> bool:
        """Load what counting needs, and tell whether texts will be counted exactly.

        Loading takes a third of a second and may be done in another thread.
        """
        return self._model(model).tokenizer is not None

    def is_prepared(self, model: str) -> bool:
        """Say whether what counting needs is loaded: then nobody has to wait for it."""
        return model in self._models

    def count_text(self, text: str, model: str) -> int:
        """Return the tokens of a text alone."""
        tokenizer = self._model(model).tokenizer
        if tokenizer is None:  # an estimate costs less than looking it up
            return estimate_text(text)
        return self._cache.count(tokenizer, text)

    def count_message(self, message: Message | str, model: str) -> int:
        """Return the tokens of a message with the marks around it; a bare text has none."""
        if isinstance(message, str):
            return self.count_text(message, model)
        return PER_ITEM + sum(self._count_part(part, model) for part in message.content)

    def count_request(
        self, body: Mapping[str, Any], model: str, conversation: str | None = None
    ) -> TokenCount:
        """Return the input tokens of a request: instructions, items, tools and answer format.

        `input` must be the whole conversation; what only the server remembers is not seen.
        With `conversation`, the server's own figure is taken for what it has counted before.
        """
        items = _items_of(body)
        frame = self._count_frame(body, model)
        actual = self._find_actual(conversation, model, items)
        if actual is not None:
            return self._continue(actual, frame, items, model)
        return _sum([frame, *(self._count_item(item, model) for item in items)])

    def note_actual(
        self, conversation: str, model: str, body: Mapping[str, Any], usage: Usage
    ) -> None:
        """Remember what the server counted for this request. An estimate is not for here."""
        items = _items_of(body)
        key = (conversation, model)
        frame = self._count_frame(body, model).tokens
        self._actuals[key] = _Actual(len(items), _digest(items), frame, usage)
        self._actuals.move_to_end(key)
        if len(self._actuals) > self._max_conversations:
            self._actuals.popitem(last=False)
        _log.debug("server counted %d tokens for %d items", usage.input_tokens, len(items))

    def forget(self, conversation: str) -> None:
        """Forget what was counted in a conversation, with any model."""
        for key in [key for key in self._actuals if key[0] == conversation]:
            del self._actuals[key]

    def _model(self, model: str) -> _Model:
        known = self._models.get(model)
        if known is None:
            facts = self._table.facts(model)
            tokenizer = self._tokenizers.find(facts.encoding) if facts.encoding else None
            known = _Model(tokenizer, facts.image_cost or DEFAULT_IMAGE_COST)
            if len(self._models) >= _MAX_MODELS:
                self._models.clear()
            self._models[model] = known
        return known

    def _count_part(self, part: Part, model: str) -> int:
        match part:
            case TextPart(value=text) | ThinkingPart(value=text):
                return self.count_text(text, model)
            case ToolCallPart(name=name, input=arguments):
                written = self.count_text(_write(arguments), model)
                return PER_ITEM + self.count_text(name, model) + written
            case ToolResultPart(content=content):
                return PER_ITEM + sum(self._count_part(inner, model) for inner in content)
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
            return self._model(model).image_cost.tokens(image_size(part.data) or UNKNOWN_SIZE)
        return ATTACHMENT_TOKENS

    def _count_frame(self, body: Mapping[str, Any], model: str) -> TokenCount:
        """Count what stands around the items."""
        tokens = FOR_REPLY
        if instructions := body.get("instructions"):
            tokens += PER_ITEM + self.count_text(str(instructions), model)
        extras = list(body.get("tools") or ())
        if extras:
            tokens += FOR_TOOLS + PER_TOOL * len(extras)
        extras += _schemas(body.get("text"))
        tokens += sum(self.count_text(tool_text(extra), model) for extra in extras)
        return TokenCount(tokens, is_exact=not extras and self.prepare(model))

    def _count_item(self, item: Item, model: str) -> TokenCount:
        rules = self._model(model)
        found = contents_of(item)
        tokens = PER_ITEM + sum(self.count_text(text, model) for text in found.texts)
        tokens += found.files * ATTACHMENT_TOKENS + int(found.sealed // _SEALED_PER_TOKEN)
        for part in found.images:
            tokens += rules.image_cost.tokens(_size_of(part) or UNKNOWN_SIZE, part.get("detail"))
        is_plain = item_type(item) == "message" and not (found.images or found.files)
        return TokenCount(tokens, is_exact=is_plain and rules.tokenizer is not None)

    def _find_actual(
        self, conversation: str | None, model: str, items: Sequence[Item]
    ) -> _Actual | None:
        if conversation is None:
            return None
        actual = self._actuals.get((conversation, model))
        if actual is None or _digest(items[: actual.items]) != actual.digest:
            return None
        self._actuals.move_to_end((conversation, model))
        return actual

    def _continue(
        self, actual: _Actual, frame: TokenCount, items: Sequence[Item], model: str
    ) -> TokenCount:
        """Take the server's figure and count what came after its answer."""
        rest = items[actual.items :]
        answer = list(takewhile(_is_made_by_model, rest))
        new = [self._count_item(item, model) for item in rest[len(answer) :]]
        changed = frame.tokens - actual.frame
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


def _schemas(text: object) -> list[Any]:
    """Return the schema that the answer must have, if there is one."""
    form = text.get("format") if isinstance(text, Mapping) else None
    schema = form.get("schema") if isinstance(form, Mapping) else None
    return [schema] if schema else []


def _digest(items: Sequence[Item]) -> bytes:
    return hashlib.blake2b(encode_json(items), digest_size=16).digest()


def _write(arguments: Mapping[str, Any]) -> str:
    """Return arguments as JSON. What JSON has not is counted all the same, by its text."""
    return json.dumps(arguments, ensure_ascii=False, separators=(",", ":"), default=_plain)


def _plain(value: object) -> object:
    return dict(value) if isinstance(value, Mapping) else str(value)


def _is_made_by_model(item: Item) -> bool:
    kind = item_type(item)
    if kind == "message":
        return item.get("role") == "assistant"
    return not (kind.endswith("_output") or kind == "item_reference")


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

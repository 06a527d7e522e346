"""What is known of a model before anyone has asked a server?

A small table of well-known models, as of FIGURES_FROM; what is not certain is left out. A
name finds the longest entry that it begins with, so dated versions find their model; another
version number is another model, of which we know nothing. A provider before the name
(`openai/`, `anthropic:`) and dots for dashes make no difference. Prices are the maker's list
prices in US dollars for a million tokens, without surcharges for long contexts.

Config knows better: overrides win, field by field.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from antiphon.client.errors import BadCall
from antiphon.host.image_cost import ImageCost, PatchCost, TileCost
from antiphon.protocol.response import Usage

__all__ = [
    "FIGURES_FROM",
    "MODELS",
    "ModelFacts",
    "ModelTable",
    "Overrides",
    "Price",
    "is_chat_model",
    "merge",
]

FIGURES_FROM: Final = "2026-11-15"

Overrides = Mapping[str, Mapping[str, Any]]
"""For a model, or all whose names begin so, the fields of ModelFacts to set."""

_MILLION: Final = 1_000_000
# A dash and one or two digits is another version ("gpt-5-6"); more digits are a date.
_VARIANT: Final = re.compile(r"$|[-:@_](?!\d{1,2}(?:-|$))")
_NOT_CHAT: Final = re.compile(
    r"\b(embed|embedding|moderation|realtime|rerank|reranker|transcribe|tts|whisper)\b"
    r"|^(sora|dall-e|gpt-image|chatgpt-image|davinci-002|babbage-002|gpt-3\.5-turbo-instruct)"
)


class Price(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """US dollars for a million tokens; `cached` is for input that the server had kept."""

    input: float
    output: float
    cached: float | None = None

    def cost(self, usage: Usage) -> float:
        """Return what a response cost, in US dollars."""
        # Some servers count what they kept for later as well: no more is kept than was sent.
        kept = min(usage.input_tokens_details.cached_tokens, usage.input_tokens)
        kept_price = self.input if self.cached is None else self.cached
        spent = (usage.input_tokens - kept) * self.input + kept * kept_price
        return (spent + usage.output_tokens * self.output) / _MILLION


class ModelFacts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is known of a model. None: nobody said."""

    name: str | None = None
    family: str | None = None
    context_window: int | None = None
    max_input_tokens: int | None = None
    max_output_tokens: int | None = None
    image_input: bool | None = None
    tool_calling: bool | None = None
    reasoning: bool | None = None
    reasoning_levels: tuple[str, ...] | None = None
    encoding: str | None = None
    image_cost: ImageCost | None = None
    price: Price | None = None


def merge(first: ModelFacts, *others: ModelFacts) -> ModelFacts:
    """Return the facts together; who stands first wins."""
    merged = msgspec.structs.asdict(first)
    for facts in others:
        for name, value in msgspec.structs.asdict(facts).items():
            if merged[name] is None:
                merged[name] = value
    return ModelFacts(**merged)


class ModelTable:
    """The table, with what config says about it."""

    def __init__(
        self,
        overrides: Overrides | None = None,
        models: Mapping[str, ModelFacts] | None = None,
    ) -> None:
        given = {name: _read_override(name, it) for name, it in (overrides or {}).items()}
        self._given = _by_length(given)
        self._models = _by_length(
            {
                name: merge(facts, ModelFacts(family=name))
                for name, facts in (MODELS if models is None else models).items()
            }
        )

    def overrides(self, model: str) -> ModelFacts:
        """Return what config says of the model."""
        return _look_up(self._given, model) or ModelFacts()

    def known(self, model: str) -> ModelFacts:
        """Return what the table says of the model, whatever config says."""
        facts = _look_up(self._models, model) or ModelFacts()
        # A tuned model costs more than the one it comes from.
        return msgspec.structs.replace(facts, price=None) if model.startswith("ft:") else facts

    def facts(self, model: str) -> ModelFacts:
        """Return both: config first, then the table."""
        return merge(self.overrides(model), self.known(model))


def is_chat_model(model: str) -> bool:
    """Tell whether the name is not one of those that only embed, draw, speak or listen."""
    return _NOT_CHAT.search(model.lower().rpartition("/")[2]) is None


def _read_override(name: str, fields: Mapping[str, Any]) -> ModelFacts:
    try:
        return msgspec.convert(dict(fields), ModelFacts)
    except msgspec.ValidationError as error:
        raise BadCall(f"override of model {name!r}: {error}", param=name) from None


def _by_length(models: Mapping[str, ModelFacts]) -> list[tuple[str, ModelFacts]]:
    entries = [(_plain(name), facts) for name, facts in models.items()]
    return sorted(entries, key=lambda entry: len(entry[0]), reverse=True)


def _look_up(entries: list[tuple[str, ModelFacts]], model: str) -> ModelFacts | None:
    plain = _plain(model)
    bare = plain.rpartition("/")[2]
    for name in dict.fromkeys((plain, bare, bare.partition(":")[2])):
        for prefix, facts in entries:
            if name.startswith(prefix) and _VARIANT.match(name, len(prefix)):
                return facts
    return None


def _plain(name: str) -> str:
    return name.lower().replace(".", "-")


_LOW_TO_HIGH: Final = ("low", "medium", "high")
_MINIMAL_TO_HIGH: Final = ("minimal", *_LOW_TO_HIGH)
_NONE_TO_HIGH: Final = ("none", *_LOW_TO_HIGH)
_NONE_TO_XHIGH: Final = (*_NONE_TO_HIGH, "xhigh")


def _plain_model(
    context: int,
    output: int,
    price: Price | None,
    *,
    image: ImageCost | None = None,
    encoding: str = "o200k_base",
    has_tools: bool | None = True,
) -> ModelFacts:
    """Return a model of OpenAI's that does not reason; it sees pictures if it has a rule."""
    return ModelFacts(
        context_window=context,
        max_output_tokens=output,
        image_input=image is not None,
        tool_calling=has_tools,
        reasoning=False,
        encoding=encoding,
        image_cost=image,
        price=price,
    )


def _reasoner(
    context: int,
    output: int,
    levels: tuple[str, ...] | None,
    price: Price,
    *,
    image: ImageCost | None = None,
    has_images: bool = True,
    has_tools: bool | None = True,
) -> ModelFacts:
    """Return a model of OpenAI's that reasons. No rule: what pictures cost is not certain."""
    return ModelFacts(
        context_window=context,
        max_output_tokens=output,
        image_input=has_images,
        tool_calling=has_tools,
        reasoning=True,
        reasoning_levels=levels,
        encoding="o200k_base",
        image_cost=image,
        price=price,
    )


def _other(context: int, output: int, price: Price) -> ModelFacts:
    """Return another maker's model that reasons, sees and calls tools."""
    return ModelFacts(
        context_window=context,
        max_output_tokens=output,
        image_input=True,
        tool_calling=True,
        reasoning=True,
        price=price,
    )


_CL100K: Final = "cl100k_base"
_GPT_4O_TILES: Final = TileCost(85, 170)
_O_TILES: Final = TileCost(75, 150)
_GPT_5_TILES: Final = TileCost(70, 140)
_MINI_PATCHES: Final = PatchCost(1.62)
_NANO_PATCHES: Final = PatchCost(2.46)
_GPT_5: Final = Price(1.25, 10, 0.125)
_GPT_5_2: Final = Price(1.75, 14, 0.175)
_SONNET: Final = Price(3, 15, 0.3)
_OPUS: Final = Price(5, 25, 0.5)
_OLD_OPUS: Final = Price(15, 75, 1.5)

MODELS: Final[Mapping[str, ModelFacts]] = {
    "gpt-3.5-turbo": _plain_model(16_385, 4_096, Price(0.5, 1.5), encoding=_CL100K),
    "gpt-4": _plain_model(8_192, 8_192, Price(30, 60), encoding=_CL100K),
    "gpt-4-32k": ModelFacts(context_window=32_768, image_input=False, encoding=_CL100K),
    "gpt-4-0125-preview": _plain_model(128_000, 4_096, Price(10, 30), encoding=_CL100K),
    "gpt-4-1106-preview": _plain_model(128_000, 4_096, Price(10, 30), encoding=_CL100K),
    "gpt-4-turbo": _plain_model(
        128_000, 4_096, Price(10, 30), image=_GPT_4O_TILES, encoding=_CL100K
    ),
    "gpt-4o": _plain_model(128_000, 16_384, Price(2.5, 10, 1.25), image=_GPT_4O_TILES),
    "gpt-4o-2024-05-13": _plain_model(128_000, 4_096, Price(5, 15), image=_GPT_4O_TILES),
    "gpt-4o-audio-preview": _plain_model(128_000, 16_384, None),
    "gpt-4o-search-preview": ModelFacts(context_window=128_000, encoding="o200k_base"),
    "gpt-4o-mini": _plain_model(
        128_000, 16_384, Price(0.15, 0.6, 0.075), image=TileCost(2833, 5667)
    ),
    "gpt-4o-mini-audio-preview": _plain_model(128_000, 16_384, None),
    "gpt-4o-mini-search-preview": ModelFacts(context_window=128_000, encoding="o200k_base"),
    "chatgpt-4o-latest": _plain_model(
        128_000, 16_384, Price(5, 15), image=_GPT_4O_TILES, has_tools=False
    ),
    "gpt-4.1": _plain_model(1_047_576, 32_768, Price(2, 8, 0.5), image=_GPT_4O_TILES),
    "gpt-4.1-mini": _plain_model(1_047_576, 32_768, Price(0.4, 1.6, 0.1), image=_MINI_PATCHES),
    "gpt-4.1-nano": _plain_model(1_047_576, 32_768, Price(0.1, 0.4, 0.025), image=_NANO_PATCHES),
    "o1": _reasoner(200_000, 100_000, _LOW_TO_HIGH, Price(15, 60, 7.5), image=_O_TILES),
    "o1-mini": _reasoner(
        128_000, 65_536, None, Price(1.1, 4.4, 0.55), has_images=False, has_tools=False
    ),
    "o1-preview": _reasoner(
        128_000, 32_768, None, Price(15, 60, 7.5), has_images=False, has_tools=False
    ),
    "o1-pro": _reasoner(200_000, 100_000, _LOW_TO_HIGH, Price(150, 600), image=_O_TILES),
    "o3": _reasoner(200_000, 100_000, _LOW_TO_HIGH, Price(2, 8, 0.5), image=_O_TILES),
    "o3-mini": _reasoner(200_000, 100_000, _LOW_TO_HIGH, Price(1.1, 4.4, 0.55), has_images=False),
    "o3-pro": _reasoner(200_000, 100_000, _LOW_TO_HIGH, Price(20, 80)),
    "o3-deep-research": _reasoner(200_000, 100_000, None, Price(10, 40, 2.5), has_tools=None),
    "o4-mini": _reasoner(
        200_000, 100_000, _LOW_TO_HIGH, Price(1.1, 4.4, 0.275), image=PatchCost(1.72)
    ),
    "o4-mini-deep-research": _reasoner(200_000, 100_000, None, Price(2, 8, 0.5), has_tools=None),
    "codex-mini-latest": _reasoner(200_000, 100_000, _LOW_TO_HIGH, Price(1.5, 6, 0.375)),
    "gpt-5": _reasoner(400_000, 128_000, _MINIMAL_TO_HIGH, _GPT_5, image=_GPT_5_TILES),
    "gpt-5-chat-latest": _plain_model(128_000, 16_384, _GPT_5, image=_GPT_5_TILES, has_tools=None),
    "gpt-5-codex": _reasoner(400_000, 128_000, _LOW_TO_HIGH, _GPT_5),
    "gpt-5-mini": _reasoner(
        400_000, 128_000, _MINIMAL_TO_HIGH, Price(0.25, 2, 0.025), image=_MINI_PATCHES
    ),
    "gpt-5-nano": _reasoner(
        400_000, 128_000, _MINIMAL_TO_HIGH, Price(0.05, 0.4, 0.005), image=_NANO_PATCHES
    ),
    "gpt-5-pro": _reasoner(400_000, 272_000, ("high",), Price(15, 120)),
    "gpt-5-search-api": ModelFacts(encoding="o200k_base"),
    "gpt-5.1": _reasoner(400_000, 128_000, _NONE_TO_HIGH, _GPT_5),
    "gpt-5.1-chat-latest": ModelFacts(
        context_window=128_000, max_output_tokens=16_384, encoding="o200k_base", price=_GPT_5
    ),
    "gpt-5.1-codex": _reasoner(400_000, 128_000, None, _GPT_5),
    "gpt-5.1-codex-max": _reasoner(400_000, 128_000, None, _GPT_5),
    "gpt-5.1-codex-mini": _reasoner(400_000, 128_000, None, Price(0.25, 2, 0.025)),
    "gpt-5.2": _reasoner(400_000, 128_000, _NONE_TO_XHIGH, _GPT_5_2),
    "gpt-5.2-chat-latest": ModelFacts(
        context_window=128_000, max_output_tokens=16_384, encoding="o200k_base", price=_GPT_5_2
    ),
    "gpt-5.2-codex": _reasoner(400_000, 128_000, None, _GPT_5_2),
    "gpt-5.2-pro": _reasoner(400_000, 128_000, None, Price(21, 168)),
    "gpt-5.3-codex": _reasoner(400_000, 128_000, None, _GPT_5_2),
    "gpt-5.3-chat-latest": ModelFacts(
        context_window=128_000, max_output_tokens=16_384, encoding="o200k_base", price=_GPT_5_2
    ),
    "gpt-5.4": _reasoner(1_050_000, 128_000, _NONE_TO_XHIGH, Price(2.5, 15, 0.25)),
    "gpt-5.4-mini": _reasoner(400_000, 128_000, _NONE_TO_XHIGH, Price(0.75, 4.5, 0.075)),
    "gpt-5.4-nano": _reasoner(400_000, 128_000, _NONE_TO_XHIGH, Price(0.2, 1.25, 0.02)),
    "gpt-5.4-pro": _reasoner(1_050_000, 128_000, None, Price(30, 180)),
    "gpt-5.5": _reasoner(1_050_000, 128_000, _NONE_TO_XHIGH, Price(5, 30, 0.5)),
    "gpt-5.5-pro": _reasoner(1_050_000, 128_000, None, Price(30, 180)),
    "gpt-5.6": ModelFacts(
        image_input=True, tool_calling=True, reasoning=True, encoding="o200k_base"
    ),
    "gpt-oss": ModelFacts(
        context_window=131_072,
        image_input=False,
        tool_calling=True,
        reasoning=True,
        reasoning_levels=_LOW_TO_HIGH,
        encoding="o200k_base",
    ),
    "claude-haiku-4.5": _other(200_000, 64_000, Price(1, 5, 0.1)),
    "claude-sonnet-4": _other(200_000, 64_000, _SONNET),
    "claude-sonnet-4.5": _other(200_000, 64_000, _SONNET),
    "claude-sonnet-4.6": _other(1_000_000, 128_000, _SONNET),
    "claude-opus-4": _other(200_000, 32_000, _OLD_OPUS),
    "claude-opus-4.1": _other(200_000, 32_000, _OLD_OPUS),
    "claude-opus-4.5": _other(200_000, 64_000, _OPUS),
    "claude-opus-4.6": _other(1_000_000, 128_000, _OPUS),
    "gemini-2.5-flash": _other(1_048_576, 65_536, Price(0.3, 2.5, 0.03)),
    "gemini-2.5-flash-lite": _other(1_048_576, 65_536, Price(0.1, 0.4, 0.01)),
    "gemini-2.5-pro": _other(1_048_576, 65_536, Price(1.25, 10, 0.125)),
}

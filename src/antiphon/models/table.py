"""What is known about a model before a server has stated anything?

A table of well-known models, as of FIGURES_FROM. A figure that is not certain is left out.
Figures are the maker's: a server may run a model with a smaller window, so what the server or
the configuration states comes first. Prices are without surcharges for long contexts.

A row is for one family of models. Its pattern matches the start of a plain name (see `names`)
and must end where a word ends. The longest match wins.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache, lru_cache
from typing import Final, NamedTuple

import msgspec

from antiphon.models.facts import Facts, ModelInfo, merge
from antiphon.models.image_cost import ImageCost, PatchCost, TileCost
from antiphon.models.names import END_OF_NAME, bare_name, plain_name, spellings
from antiphon.models.prices import Price

__all__ = ["FIGURES_FROM", "ROWS", "Row", "fill_in", "find_facts"]

FIGURES_FROM: Final = "2026-11-15"

# Ollama and LM Studio, by what they state as the owner: they choose the window when they load a
# model, mostly far below what it was made for, and their lists do not state it.
_CHOOSE_WINDOW: Final = frozenset({"library", "organization_owner"})


class Row(NamedTuple):
    """A family of models: a name that it fits, the start of all names that it fits, its facts."""

    name: str
    pattern: str
    facts: Facts


def fill_in(model: ModelInfo) -> ModelInfo:
    """Return the model with what the table knows where the server states nothing."""
    facts = find_facts(model.id)
    if model.owned_by in _CHOOSE_WINDOW:
        facts = msgspec.structs.replace(facts, context_length=None)
    return merge(model, facts)


@lru_cache(maxsize=16_384)
def find_facts(name: str) -> Facts:
    """Return what the table knows about the model of this name."""
    row = next(filter(None, map(_find, spellings(name))), None)
    if row is None:
        return Facts()
    if bare_name(name).startswith("ft:"):  # a tuned model costs more than its base model
        return msgspec.structs.replace(row.facts, price=None)
    return row.facts


def _find(plain: str) -> Row | None:
    found = [(match.end(), row) for regex, row in _regexes() if (match := regex.match(plain))]
    return max(found, key=lambda pair: pair[0])[1] if found else None


@cache
def _regexes() -> tuple[tuple[re.Pattern[str], Row], ...]:
    """Return the rows with their patterns, compiled at first use: it delays a start."""
    return tuple((re.compile(row.pattern + END_OF_NAME), row) for row in ROWS)


_TEXT: Final = ("text",)
_IMAGE: Final = ("text", "image")
_AUDIO: Final = ("text", "image", "audio")

_NO_LEVELS: Final = ()
_TO_HIGH: Final = ("low", "medium", "high")
_FROM_MINIMAL: Final = ("minimal", *_TO_HIGH)
_FROM_NONE: Final = ("none", *_TO_HIGH)
_TO_XHIGH: Final = (*_FROM_NONE, "xhigh")

_O200K: Final = "o200k_base"
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

_K: Final = 1024
_M: Final = 1_048_576


def _chat(
    context: int,
    output: int | None,
    price: Price | None = None,
    *,
    image: ImageCost | None = None,
    encoding: str = _O200K,
    tools: bool | None = True,
) -> Facts:
    """Return a model of OpenAI's that does not reason; it sees images if their cost is given."""
    return Facts(
        context_length=context,
        max_output_tokens=output,
        modalities=_TEXT if image is None else _IMAGE,
        supports_tools=tools,
        reasoning=False,
        reasoning_levels=_NO_LEVELS,
        encoding=encoding,
        image_cost=image,
        price=price,
    )


def _reasoner(
    context: int,
    output: int | None,
    levels: tuple[str, ...] | None = None,
    price: Price | None = None,
    *,
    image: ImageCost | None = None,
    modalities: tuple[str, ...] = _IMAGE,
    encoding: str | None = _O200K,
    tools: bool | None = True,
) -> Facts:
    """Return a model that reasons. No `image`: what images cost is not certain."""
    return Facts(
        context_length=context,
        max_output_tokens=output,
        modalities=modalities,
        supports_tools=tools,
        reasoning=True,
        reasoning_levels=levels,
        encoding=encoding,
        image_cost=image,
        price=price,
    )


def _other(
    context: int | None,
    output: int | None = None,
    levels: tuple[str, ...] | None = _NO_LEVELS,
    modalities: tuple[str, ...] = _TEXT,
    tools: bool | None = True,
) -> Facts:
    """Return another maker's model. Whether it reasons is left to the server."""
    return Facts(
        context_length=context,
        max_output_tokens=output,
        modalities=modalities,
        supports_tools=tools,
        reasoning_levels=levels,
    )


def _latest(
    context: int | None = None, output: int | None = None, price: Price | None = None
) -> Facts:
    """Return a model of OpenAI's of whose abilities little is certain."""
    return Facts(context_length=context, max_output_tokens=output, encoding=_O200K, price=price)


_FAMILIES: Final[Mapping[str, Facts]] = {
    "gpt-3.5-turbo": _chat(16_385, 4_096, Price(0.5, 1.5), encoding=_CL100K),
    "gpt-4": _chat(8_192, 8_192, Price(30, 60), encoding=_CL100K),
    "gpt-4-32k": _chat(32_768, None, encoding=_CL100K),
    "gpt-4-0125-preview": _chat(128_000, 4_096, Price(10, 30), encoding=_CL100K),
    "gpt-4-1106-preview": _chat(128_000, 4_096, Price(10, 30), encoding=_CL100K),
    "gpt-4-turbo": _chat(128_000, 4_096, Price(10, 30), image=_GPT_4O_TILES, encoding=_CL100K),
    "gpt-4o": _chat(128_000, 16_384, Price(2.5, 10, 1.25), image=_GPT_4O_TILES),
    "gpt-4o-2024-05-13": _chat(128_000, 4_096, Price(5, 15), image=_GPT_4O_TILES),
    "gpt-4o-audio-preview": _chat(128_000, 16_384),
    "gpt-4o-search-preview": _latest(128_000),
    "gpt-4o-mini": _chat(128_000, 16_384, Price(0.15, 0.6, 0.075), image=TileCost(2833, 5667)),
    "gpt-4o-mini-audio-preview": _chat(128_000, 16_384),
    "gpt-4o-mini-search-preview": _latest(128_000),
    "chatgpt-4o-latest": _chat(128_000, 16_384, Price(5, 15), image=_GPT_4O_TILES, tools=False),
    "gpt-4.1": _chat(1_047_576, 32_768, Price(2, 8, 0.5), image=_GPT_4O_TILES),
    "gpt-4.1-mini": _chat(1_047_576, 32_768, Price(0.4, 1.6, 0.1), image=_MINI_PATCHES),
    "gpt-4.1-nano": _chat(1_047_576, 32_768, Price(0.1, 0.4, 0.025), image=_NANO_PATCHES),
    "o1": _reasoner(200_000, 100_000, _TO_HIGH, Price(15, 60, 7.5), image=_O_TILES),
    "o1-mini": _reasoner(
        128_000, 65_536, None, Price(1.1, 4.4, 0.55), modalities=_TEXT, tools=False
    ),
    "o1-preview": _reasoner(
        128_000, 32_768, None, Price(15, 60, 7.5), modalities=_TEXT, tools=False
    ),
    "o1-pro": _reasoner(200_000, 100_000, _TO_HIGH, Price(150, 600), image=_O_TILES),
    "o3": _reasoner(200_000, 100_000, _TO_HIGH, Price(2, 8, 0.5), image=_O_TILES),
    "o3-mini": _reasoner(200_000, 100_000, _TO_HIGH, Price(1.1, 4.4, 0.55), modalities=_TEXT),
    "o3-pro": _reasoner(200_000, 100_000, _TO_HIGH, Price(20, 80)),
    "o3-deep-research": _reasoner(200_000, 100_000, None, Price(10, 40, 2.5), tools=None),
    "o4-mini": _reasoner(200_000, 100_000, _TO_HIGH, Price(1.1, 4.4, 0.275), image=PatchCost(1.72)),
    "o4-mini-deep-research": _reasoner(200_000, 100_000, None, Price(2, 8, 0.5), tools=None),
    "codex-mini-latest": _reasoner(200_000, 100_000, _TO_HIGH, Price(1.5, 6, 0.375)),
    "gpt-5": _reasoner(400_000, 128_000, _FROM_MINIMAL, _GPT_5, image=_GPT_5_TILES),
    "gpt-5-chat-latest": _chat(128_000, 16_384, _GPT_5, image=_GPT_5_TILES, tools=None),
    "gpt-5-codex": _reasoner(400_000, 128_000, _TO_HIGH, _GPT_5),
    "gpt-5-mini": _reasoner(
        400_000, 128_000, _FROM_MINIMAL, Price(0.25, 2, 0.025), image=_MINI_PATCHES
    ),
    "gpt-5-nano": _reasoner(
        400_000, 128_000, _FROM_MINIMAL, Price(0.05, 0.4, 0.005), image=_NANO_PATCHES
    ),
    "gpt-5-pro": _reasoner(400_000, 272_000, ("high",), Price(15, 120)),
    "gpt-5-search-api": _latest(),
    "gpt-5.1": _reasoner(400_000, 128_000, _FROM_NONE, _GPT_5),
    "gpt-5.1-chat-latest": _latest(128_000, 16_384, _GPT_5),
    "gpt-5.1-codex": _reasoner(400_000, 128_000, None, _GPT_5),
    "gpt-5.1-codex-max": _reasoner(400_000, 128_000, None, _GPT_5),
    "gpt-5.1-codex-mini": _reasoner(400_000, 128_000, None, Price(0.25, 2, 0.025)),
    "gpt-5.2": _reasoner(400_000, 128_000, _TO_XHIGH, _GPT_5_2),
    "gpt-5.2-chat-latest": _latest(128_000, 16_384, _GPT_5_2),
    "gpt-5.2-codex": _reasoner(400_000, 128_000, None, _GPT_5_2),
    "gpt-5.2-pro": _reasoner(400_000, 128_000, None, Price(21, 168)),
    "gpt-5.3-codex": _reasoner(400_000, 128_000, None, _GPT_5_2),
    "gpt-5.3-chat-latest": _latest(128_000, 16_384, _GPT_5_2),
    "gpt-5.4": _reasoner(1_050_000, 128_000, _TO_XHIGH, Price(2.5, 15, 0.25)),
    "gpt-5.4-mini": _reasoner(400_000, 128_000, _TO_XHIGH, Price(0.75, 4.5, 0.075)),
    "gpt-5.4-nano": _reasoner(400_000, 128_000, _TO_XHIGH, Price(0.2, 1.25, 0.02)),
    "gpt-5.4-pro": _reasoner(1_050_000, 128_000, None, Price(30, 180)),
    "gpt-5.5": _reasoner(1_050_000, 128_000, _TO_XHIGH, Price(5, 30, 0.5)),
    "gpt-5.5-pro": _reasoner(1_050_000, 128_000, None, Price(30, 180)),
    "gpt-5.6": Facts(modalities=_IMAGE, supports_tools=True, reasoning=True, encoding=_O200K),
    "gpt-oss": _reasoner(128 * _K, None, _TO_HIGH, modalities=_TEXT),
    "claude-haiku-4.5": _reasoner(200_000, 64_000, price=Price(1, 5, 0.1), encoding=None),
    "claude-sonnet-4": _reasoner(200_000, 64_000, price=_SONNET, encoding=None),
    "claude-sonnet-4.5": _reasoner(200_000, 64_000, price=_SONNET, encoding=None),
    "claude-sonnet-4.6": _reasoner(1_000_000, 128_000, price=_SONNET, encoding=None),
    "claude-opus-4": _reasoner(200_000, 32_000, price=_OLD_OPUS, encoding=None),
    "claude-opus-4.1": _reasoner(200_000, 32_000, price=_OLD_OPUS, encoding=None),
    "claude-opus-4.5": _reasoner(200_000, 64_000, price=_OPUS, encoding=None),
    "claude-opus-4.6": _reasoner(1_000_000, 128_000, price=_OPUS, encoding=None),
    "gemini-2.5-flash": _reasoner(
        _M, 65_536, price=Price(0.3, 2.5, 0.03), modalities=_AUDIO, encoding=None
    ),
    "gemini-2.5-flash-lite": _reasoner(
        _M, 65_536, price=Price(0.1, 0.4, 0.01), modalities=_AUDIO, encoding=None
    ),
    "gemini-2.5-pro": _reasoner(
        _M, 65_536, price=Price(1.25, 10, 0.125), modalities=_AUDIO, encoding=None
    ),
}

# The families whose names begin otherwise than their own: an alias, or a sibling that is unlike.
_PATTERNS: Final[Mapping[str, str]] = {
    "gpt-4o": r"gpt-4o(?!.*-(?:audio|search))",
    "gpt-4o-mini": r"gpt-4o-mini(?!.*-(?:audio|search))",
    "o1": r"o1(?!-mini|-preview)",
    "o3": r"o3(?!-deep)",
    "o4-mini": r"o4-mini(?!-deep)",
    **{
        f"gpt-5{dot}": rf"gpt-5{dot.replace('.', '-')}(?!-chat|-pro|-search)"
        for dot in ("", ".1", ".2", ".4", ".5", ".6")
    },
    **{
        f"gpt-5{dot}-chat-latest": rf"gpt-5{dot.replace('.', '-')}-chat(?:-latest)?"
        for dot in ("", ".1", ".2", ".3")
    },
}

# Models without a common family name: a name, the pattern, the facts.
_OTHERS: Final[tuple[tuple[str, str, Facts], ...]] = (
    ("llama3:8b", r"(?:meta-)?llama-?3", _other(8 * _K, tools=False)),
    ("meta-llama/Llama-3.1-8B-Instruct", r"(?:meta-)?llama-?3-(?:1|2|3)", _other(128 * _K)),
    (
        "meta-llama/Llama-3.2-11B-Vision-Instruct",
        r"(?:meta-)?llama-?3-2-(?:11b|90b)-vision",
        _other(128 * _K, modalities=_IMAGE, tools=None),
    ),
    ("command-a-03-2025", r"command-a", _other(256_000, 8_000)),
    ("command-r-plus-08-2024", r"command-r(?:-plus)?", _other(128_000, 4_000)),
    ("deepseek-chat", r"deepseek-(?:chat|reasoner)", _other(128 * _K, levels=None)),
    ("deepseek-r1:7b", r"deepseek-r1", _other(128 * _K, tools=None)),
    ("deepseek-ai/DeepSeek-V3-0324", r"deepseek-v3", _other(128 * _K)),
    ("deepseek-ai/DeepSeek-V3.1", r"deepseek-v3-[12]", _other(128 * _K, levels=None)),
    ("mistralai/Devstral-Small-2507", r"devstral-(?:small|medium)-250[57]", _other(128 * _K)),
    ("gemini-2.0-flash-001", r"gemini-2-0-flash", _other(_M, 8_192, modalities=_AUDIO)),
    ("gemma2:9b", r"gemma-?2", _other(8 * _K, tools=False)),
    ("google/gemma-3-27b-it", r"gemma-?3", _other(128 * _K, modalities=_IMAGE, tools=None)),
    ("gemma3:1b", r"gemma-?3-(?:270m|1b)", _other(32 * _K, tools=None)),
    ("zai-org/GLM-4.5-Air", r"glm-4-5(?:-air)?", _other(128 * _K, 96 * _K, None)),
    ("zai-org/GLM-4.6", r"glm-4-6", _other(200 * _K, 128 * _K, None)),
    ("granite3.3:8b", r"granite-?3-[123]", _other(128 * _K)),
    ("ibm-granite/granite-4.0-h-small", r"granite-?4(?:-0)?", _other(128 * _K)),
    ("grok-3", r"grok-3(?:-fast)?", _other(128 * _K)),
    ("grok-3-mini", r"grok-3-mini(?:-fast)?", _other(128 * _K, levels=("low", "high"))),
    ("grok-4-0709", r"grok-4", _other(256_000, modalities=_IMAGE)),
    ("moonshotai/Kimi-K2-Instruct", r"kimi-k2", _other(128 * _K)),
    ("moonshotai/Kimi-K2-Thinking", r"kimi-k2-(?:instruct-0905|thinking)", _other(256 * _K)),
    ("llama4", r"llama-?4", _other(None, modalities=_IMAGE)),
    ("MiniMaxAI/MiniMax-M2", r"minimax-m2", _other(196_608)),
    ("mistral-large-2411", r"mistral-large-2411", _other(128 * _K)),
    ("mistral-medium-latest", r"mistral-medium", _other(128 * _K, modalities=_IMAGE)),
    ("phi4", r"phi-?4", _other(16 * _K, tools=None)),
    ("microsoft/Phi-4-mini-instruct", r"phi-?4-mini", _other(128 * _K)),
    ("pixtral-large-latest", r"pixtral-(?:12b|large)", _other(128 * _K, modalities=_IMAGE)),
    ("Qwen/Qwen2.5-Coder-1.5B-Instruct", r"qwen-?2-5", _other(32 * _K)),
    ("qwen2.5vl:7b", r"qwen-?2-5-?vl", _other(128_000, modalities=_IMAGE, tools=None)),
    ("Qwen/Qwen3-8B", r"qwen-?3", _other(32 * _K)),
    (
        "Qwen3-4B-Instruct-2507",
        r"qwen-?3-\d+b(?:-a\d+b)?-(?:instruct|thinking)-2507",
        _other(256 * _K),
    ),
    ("qwen3-coder:30b", r"qwen-?3-coder", _other(256 * _K)),
    ("Qwen/Qwen3-Next-80B-A3B-Instruct", r"qwen-?3-next", _other(256 * _K)),
    ("Qwen/Qwen3-VL-8B-Instruct", r"qwen-?3-vl", _other(256 * _K, modalities=_IMAGE)),
    ("Qwen/QwQ-32B", r"qwq(?:-32b)?", _other(128 * _K)),
    ("smollm2:1.7b", r"smollm-?2", _other(8 * _K, tools=None)),
    ("HuggingFaceTB/SmolLM3-3B", r"smollm-?3", _other(64 * _K)),
)


def _family(name: str, facts: Facts) -> Row:
    named = msgspec.structs.replace(facts, family=name)
    return Row(name, _PATTERNS.get(name, plain_name(name)), named)


ROWS: Final[tuple[Row, ...]] = (
    *(_family(name, facts) for name, facts in _FAMILIES.items()),
    *(Row(*row) for row in _OTHERS),
)

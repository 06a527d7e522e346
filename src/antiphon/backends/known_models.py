"""What is known of a model before any server has said anything of it?

A table of well-known families, as of FIGURES_FROM; what is not certain is left out. A pattern
is matched against the plain form of a name: in small letters, without what stands before the
last slash, and with dashes for dots, colons, underscores and the like. It must begin the name
and end where a word ends; another version number is another model, of which we know nothing.
The longest match wins. Figures are those of the model's maker: a server may run it with less,
and then what the server says, or config, comes first.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, NamedTuple

import msgspec

from antiphon.backends.base import ModelInfo

__all__ = ["FIGURES_FROM", "KNOWN", "Known", "fill_in", "find_known", "is_chat_model"]

FIGURES_FROM: Final = "2026-11-15"

# Sizes are no versions: "1.5b" is one word.
_SIZES: Final = re.compile(r"(\d)\.(\d+b)(?![a-z0-9])")
_JOINTS: Final = re.compile(r"[^a-z0-9]+")
# A dash and one or two digits is another version ("qwen3-5"), unless they are a month of a year.
_END: Final = r"(?![a-z0-9])(?!-\d{1,2}(?:$|-(?!\d{4}(?:-|$))))"
# Ollama and LM Studio, by what they put as the owner: they choose the window when they load a
# model, mostly far below what it was made for, and their lists do not tell which.
_CHOOSE_WINDOW: Final = frozenset({"library", "organization_owner"})
# Words in the names of models that only embed, draw, speak or listen.
_NOT_CHAT: Final = re.compile(
    r"(?:^|[^a-z])(?:dall-e|embed|embedding|embeddings|image|moderation|ocr|realtime|rerank|"
    r"reranker|sora|transcribe|tts|whisper)(?:$|[^a-z])"
)

_TEXT: Final = ("text",)
_IMAGE: Final = ("text", "image")
_AUDIO: Final = ("text", "image", "audio")

_NO_LEVELS: Final = ()
_TO_HIGH: Final = ("low", "medium", "high")
_FROM_MINIMAL: Final = ("minimal", *_TO_HIGH)
_FROM_NONE: Final = ("none", *_TO_HIGH)
_TO_XHIGH: Final = (*_FROM_NONE, "xhigh")


class Known(NamedTuple):
    """A family of models: a pattern, a name that it fits, and what is known of them."""

    pattern: str
    example: str
    context: int | None
    output: int | None = None
    levels: tuple[str, ...] | None = _NO_LEVELS
    modalities: tuple[str, ...] = _TEXT
    has_tools: bool | None = True


@lru_cache(maxsize=16_384)
def find_known(name: str) -> Known | None:
    """Return the family of a model, if it is one of those we know."""
    plain = _plain(name)
    found = [(match.end(), row) for regex, row in _ROWS if (match := regex.match(plain))]
    return max(found, key=lambda pair: pair[0])[1] if found else None


def fill_in(model: ModelInfo) -> ModelInfo:
    """Return the model with what the table knows where the server said nothing."""
    row = find_known(model.id)
    if row is None:
        return model
    context = None if model.owned_by in _CHOOSE_WINDOW else row.context
    facts = {
        "context_length": context,
        "max_output_tokens": row.output,
        "reasoning_levels": row.levels,
        "modalities": row.modalities,
        "supports_tools": row.has_tools,
    }
    missing = {key: value for key, value in facts.items() if getattr(model, key) is None}
    return msgspec.structs.replace(model, **missing)


def is_chat_model(name: str) -> bool:
    """Say whether the name is not one of those that only embed, draw, speak or listen."""
    return _NOT_CHAT.search(name.lower()) is None


def _plain(name: str) -> str:
    last = name.lower().removesuffix(".gguf").rstrip("/").rpartition("/")[2]
    return _JOINTS.sub("-", _SIZES.sub(r"\1\2", last)).strip("-")


_K: Final = 1024
_M: Final = 1_048_576

KNOWN: Final[tuple[Known, ...]] = (
    Known(r"(?:meta-)?llama-?3", "llama3:8b", 8 * _K, None, _NO_LEVELS, _TEXT, False),
    Known(r"(?:meta-)?llama-?3-(?:1|2|3)", "meta-llama/Llama-3.1-8B-Instruct", 128 * _K),
    Known(
        r"(?:meta-)?llama-?3-2-(?:11b|90b)-vision",
        "meta-llama/Llama-3.2-11B-Vision-Instruct",
        128 * _K,
        None,
        _NO_LEVELS,
        _IMAGE,
        None,
    ),
    Known(r"claude-(?:opus|sonnet)-4", "claude-sonnet-4-20250514", 200_000, None, None, _IMAGE),
    Known(r"claude-(?:opus|sonnet)-4-6", "claude-opus-4-6", 1_000_000, 128_000, None, _IMAGE),
    Known(r"claude-haiku-4-5", "claude-haiku-4-5", 200_000, 64_000, None, _IMAGE),
    Known(r"claude-opus-4-1", "claude-opus-4-1", 200_000, 32_000, None, _IMAGE),
    Known(r"claude-opus-4-5", "claude-opus-4.5", 200_000, 64_000, None, _IMAGE),
    Known(r"claude-sonnet-4-5", "claude-sonnet-4-5-20250929", 200_000, 64_000, None, _IMAGE),
    Known(r"command-a", "command-a-03-2025", 256_000, 8_000),
    Known(r"command-r(?:-plus)?", "command-r-plus-08-2024", 128_000, 4_000),
    Known(r"deepseek-(?:chat|reasoner)", "deepseek-chat", 128 * _K, None, None),
    Known(r"deepseek-r1", "deepseek-r1:7b", 128 * _K, None, _NO_LEVELS, _TEXT, None),
    Known(r"deepseek-v3", "deepseek-ai/DeepSeek-V3-0324", 128 * _K),
    Known(r"deepseek-v3-[12]", "deepseek-ai/DeepSeek-V3.1", 128 * _K, None, None),
    Known(r"devstral-(?:small|medium)-250[57]", "mistralai/Devstral-Small-2507", 128 * _K),
    Known(r"gemini-2-0-flash", "gemini-2.0-flash-001", _M, 8_192, _NO_LEVELS, _AUDIO),
    Known(r"gemini-2-5-(?:pro|flash)", "models/gemini-2.5-flash", _M, 65_536, None, _AUDIO),
    Known(r"gemini-2-5-flash-lite", "gemini-2.5-flash-lite", _M, 65_536, None, _AUDIO),
    Known(r"gemma-?2", "gemma2:9b", 8 * _K, None, _NO_LEVELS, _TEXT, False),
    Known(r"gemma-?3", "google/gemma-3-27b-it", 128 * _K, None, _NO_LEVELS, _IMAGE, None),
    Known(r"gemma-?3-(?:270m|1b)", "gemma3:1b", 32 * _K, None, _NO_LEVELS, _TEXT, None),
    Known(r"glm-4-5(?:-air)?", "zai-org/GLM-4.5-Air", 128 * _K, 96 * _K, None),
    Known(r"glm-4-6", "zai-org/GLM-4.6", 200 * _K, 128 * _K, None),
    Known(r"gpt-3-5-turbo", "gpt-3.5-turbo-0125", 16_385, 4_096),
    Known(r"gpt-4", "gpt-4-0613", 8_192, 8_192),
    Known(r"gpt-4-0125-preview", "gpt-4-0125-preview", 128_000, 4_096),
    Known(r"gpt-4-1(?:-mini|-nano)?", "gpt-4.1-mini", 1_047_576, 32_768, _NO_LEVELS, _IMAGE),
    Known(r"gpt-4-1106-preview", "gpt-4-1106-preview", 128_000, 4_096),
    Known(r"gpt-4-32k", "gpt-4-32k-0613", 32_768),
    Known(r"gpt-4-turbo", "gpt-4-turbo-2024-04-09", 128_000, 4_096, _NO_LEVELS, _IMAGE),
    Known(
        r"gpt-4o(?!.*-audio)(?:-mini)?", "openai/gpt-4o-mini", 128_000, 16_384, _NO_LEVELS, _IMAGE
    ),
    Known(r"gpt-4o-2024-05-13", "gpt-4o-2024-05-13", 128_000, 4_096, _NO_LEVELS, _IMAGE),
    Known(
        r"gpt-5(?!-chat|-pro|-search)(?:-mini|-nano)?",
        "gpt-5-mini",
        400_000,
        128_000,
        _FROM_MINIMAL,
        _IMAGE,
    ),
    Known(r"gpt-5-1(?!-chat|-pro)", "gpt-5.1", 400_000, 128_000, _FROM_NONE, _IMAGE),
    Known(r"gpt-5-1-codex(?:-max|-mini)?", "gpt-5.1-codex", 400_000, 128_000, None, _IMAGE),
    Known(r"gpt-5-2(?!-chat|-pro)", "gpt-5.2", 400_000, 128_000, _TO_XHIGH, _IMAGE),
    Known(r"gpt-5-4(?!-chat|-pro)", "gpt-5.4", 1_050_000, 128_000, _TO_XHIGH, _IMAGE),
    Known(r"gpt-5-4-(?:mini|nano)", "gpt-5.4-mini", 400_000, 128_000, _TO_XHIGH, _IMAGE),
    Known(r"gpt-5-5(?!-chat|-pro)", "gpt-5.5", 1_050_000, 128_000, _TO_XHIGH, _IMAGE),
    Known(r"gpt-5-[23]-codex", "gpt-5.3-codex", 400_000, 128_000, None, _IMAGE),
    Known(r"gpt-5-codex", "gpt-5-codex", 400_000, 128_000, _TO_HIGH, _IMAGE),
    Known(r"gpt-oss", "openai/gpt-oss-120b", 128 * _K, None, _TO_HIGH),
    Known(r"granite-?3-[123]", "granite3.3:8b", 128 * _K),
    Known(r"granite-?4(?:-0)?", "ibm-granite/granite-4.0-h-small", 128 * _K),
    Known(r"grok-3(?:-fast)?", "grok-3", 128 * _K),
    Known(r"grok-3-mini(?:-fast)?", "grok-3-mini", 128 * _K, None, ("low", "high")),
    Known(r"grok-4", "grok-4-0709", 256_000, None, _NO_LEVELS, _IMAGE),
    Known(r"kimi-k2", "moonshotai/Kimi-K2-Instruct", 128 * _K),
    Known(r"kimi-k2-(?:instruct-0905|thinking)", "moonshotai/Kimi-K2-Thinking", 256 * _K),
    Known(r"llama-?4", "llama4", None, None, _NO_LEVELS, _IMAGE),
    Known(r"minimax-m2", "MiniMaxAI/MiniMax-M2", 196_608),
    Known(r"mistral-large-2411", "mistral-large-2411", 128 * _K),
    Known(r"mistral-medium", "mistral-medium-latest", 128 * _K, None, _NO_LEVELS, _IMAGE),
    Known(r"o1(?!-mini|-preview)", "o1-2024-12-17", 200_000, 100_000, _TO_HIGH, _IMAGE),
    Known(r"o3(?!-deep)", "o3", 200_000, 100_000, _TO_HIGH, _IMAGE),
    Known(r"o3-mini", "o3-mini", 200_000, 100_000, _TO_HIGH),
    Known(r"o4-mini(?!-deep)", "o4-mini", 200_000, 100_000, _TO_HIGH, _IMAGE),
    Known(r"phi-?4", "phi4", 16 * _K, None, _NO_LEVELS, _TEXT, None),
    Known(r"phi-?4-mini", "microsoft/Phi-4-mini-instruct", 128 * _K),
    Known(r"pixtral-(?:12b|large)", "pixtral-large-latest", 128 * _K, None, _NO_LEVELS, _IMAGE),
    Known(r"qwen-?2-5", "Qwen/Qwen2.5-Coder-1.5B-Instruct", 32 * _K),
    Known(r"qwen-?2-5-?vl", "qwen2.5vl:7b", 128_000, None, _NO_LEVELS, _IMAGE, None),
    Known(r"qwen-?3", "Qwen/Qwen3-8B", 32 * _K),
    Known(
        r"qwen-?3-\d+b(?:-a\d+b)?-(?:instruct|thinking)-2507", "Qwen3-4B-Instruct-2507", 256 * _K
    ),
    Known(r"qwen-?3-coder", "qwen3-coder:30b", 256 * _K),
    Known(r"qwen-?3-next", "Qwen/Qwen3-Next-80B-A3B-Instruct", 256 * _K),
    Known(r"qwen-?3-vl", "Qwen/Qwen3-VL-8B-Instruct", 256 * _K, None, _NO_LEVELS, _IMAGE),
    Known(r"qwq(?:-32b)?", "Qwen/QwQ-32B", 128 * _K),
    Known(r"smollm-?2", "smollm2:1.7b", 8 * _K, None, _NO_LEVELS, _TEXT, None),
    Known(r"smollm-?3", "HuggingFaceTB/SmolLM3-3B", 64 * _K),
)

_ROWS: Final = tuple((re.compile(row.pattern + _END), row) for row in KNOWN)

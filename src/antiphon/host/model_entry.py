"""What does a server's list say of its models? Every server has words of its own for it.

OpenAI gives names alone. vLLM, llama.cpp, OpenRouter, Vercel, Mistral and our gateway add
limits, abilities and prices under the names below. Codex servers list them a second time, as
`models` with a `slug`; both lists are read and what they say of one model is put together.
Words nobody knows are passed over: an entry is never refused for them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from antiphon.client.errors import InvalidAnswer
from antiphon.host.model_table import ModelFacts, Price, is_chat_model, merge

__all__ = ["read_models"]

_Entry = Mapping[str, Any]

_CONTEXT: Final = (
    "context_window",
    "context_length",
    "max_context_window",
    "max_model_len",
    "max_context_length",
    "max_context_window_tokens",
    "n_ctx",
    "n_ctx_train",
)
_OUTPUT: Final = ("max_output_tokens", "max_completion_tokens", "max_tokens")
_INPUT: Final = ("max_input_tokens", "max_prompt_tokens")
# Where entries keep such figures besides their top level.
_INNER: Final = ("top_provider", "meta", "limits", "capabilities")

_SEES: Final = frozenset({"vision", "image", "image_input", "image-input"})
_CALLS: Final = frozenset(
    {"tools", "tool_calling", "tool_calls", "tool_use", "tool-use", "function_calling"}
)
_REASONS: Final = frozenset({"reasoning", "reasoning_effort", "thinking"})

_CHAT_KINDS: Final = frozenset({"language", "chat", "llm", "vlm", "model", "text"})
_MILLION: Final = 1_000_000
# Some servers price a token, some a million; no token costs as much as this.
_TOP_PRICE: Final = 0.01


def read_models(body: bytes) -> dict[str, ModelFacts]:
    """Return what the list says of each model that can chat, in its order.

    Raise InvalidAnswer if this is no list of models.
    """
    models: dict[str, ModelFacts] = {}
    hidden: set[str] = set()
    for entry in _entries(body):
        name = entry.get("slug") or entry.get("id")
        if not isinstance(name, str) or not name:
            continue
        if not _is_shown(name, entry):
            hidden.add(name)
        models[name] = merge(models.get(name, ModelFacts()), _read(entry))
    return {name: facts for name, facts in models.items() if name not in hidden}


def _entries(body: bytes) -> Iterator[_Entry]:
    try:
        answer: Any = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        answer = None
    lists = [answer] if isinstance(answer, list) else []
    if isinstance(answer, Mapping):
        lists = [found for key in ("data", "models") if isinstance(found := answer.get(key), list)]
    if not lists:
        raise InvalidAnswer("the server's list of models cannot be read; check the base URL")
    return (entry for entries in lists for entry in entries if isinstance(entry, Mapping))


def _is_shown(name: str, entry: _Entry) -> bool:
    if entry.get("visibility") in ("hide", "none") or entry.get("supported_in_api") is False:
        return False
    kind = entry.get("type")
    return is_chat_model(name) and (not isinstance(kind, str) or kind in _CHAT_KINDS)


def _read(entry: _Entry) -> ModelFacts:
    assumed = entry.get("assumed")
    if isinstance(assumed, list):  # what our gateway tells Codex for want of knowledge
        entry = {key: value for key, value in entry.items() if key not in assumed}
    levels = _levels(entry)
    reasons = _ability(entry, _REASONS)
    return ModelFacts(
        name=_text(entry, "display_name") or _text(entry, "name"),
        family=_text(entry, "family"),
        context_window=_figure(entry, _CONTEXT),
        max_input_tokens=_figure(entry, _INPUT),
        max_output_tokens=_figure(entry, _OUTPUT),
        image_input=_sees(entry),
        tool_calling=_ability(entry, _CALLS),
        reasoning=True if levels and reasons is None else reasons,
        reasoning_levels=levels or None,
        price=_price(entry.get("pricing")),
    )


def _text(entry: _Entry, name: str) -> str | None:
    value = entry.get(name)
    return value if isinstance(value, str) and value else None


def _figure(entry: _Entry, names: tuple[str, ...]) -> int | None:
    """Return the first figure under one of these names, here or one level down."""
    inner = [found for key in _INNER if isinstance(found := entry.get(key), Mapping)]
    inner += [found for it in inner if isinstance(found := it.get("limits"), Mapping)]
    for place in (entry, *inner):
        for name in names:
            value = place.get(name)
            if isinstance(value, int) and not isinstance(value, bool) and value > 0:
                return value
    return None


def _sees(entry: _Entry) -> bool | None:
    """Tell whether pictures may be sent. A list of modalities is complete; others are not."""
    for place in (entry, entry.get("architecture")):
        modalities = place.get("input_modalities") if isinstance(place, Mapping) else None
        if isinstance(modalities, list):
            return "image" in modalities
    return _ability(entry, _SEES)


def _ability(entry: _Entry, words: frozenset[str]) -> bool | None:
    """Return what the entry says under any of these words, as a list or with a yes or no."""
    said: bool | None = None
    for key in ("capabilities", "tags", "supported_parameters"):
        given = entry.get(key)
        if isinstance(given, list):
            said = said or (True if words.intersection(filter(_is_text, given)) else None)
        elif isinstance(given, Mapping):
            inner = given.get("supports")
            answers = {**given, **(inner if isinstance(inner, Mapping) else {})}
            flags = [flag for word in words if isinstance(flag := answers.get(word), bool)]
            said = any(flags) if flags else said
    return said


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _levels(entry: _Entry) -> tuple[str, ...]:
    given = entry.get("supported_reasoning_levels")
    if not isinstance(given, list):
        return ()
    levels = [level.get("effort") if isinstance(level, Mapping) else level for level in given]
    return tuple(level for level in levels if isinstance(level, str))


def _price(pricing: object) -> Price | None:
    if not isinstance(pricing, Mapping):
        return None
    read = _per_million(pricing, "input", "prompt")
    written = _per_million(pricing, "output", "completion")
    if read is None or written is None:
        return None
    return Price(read, written, _per_million(pricing, "input_cache_read", "cached_input"))


def _per_million(pricing: _Entry, *names: str) -> float | None:
    """Return the price of a million tokens, where the entry gives it for one."""
    for name in names:
        try:
            price = float(pricing.get(name, "none"))
        except (TypeError, ValueError, OverflowError):
            continue
        if 0 <= price < _TOP_PRICE:
            return round(price * _MILLION, 6)
    return None

"""What does a server's list state about its models? Each server has its own names for it.

OpenAI gives names alone. vLLM, SGLang, llama.cpp, LM Studio, OpenRouter, Vercel, Mistral,
Together, Groq, Fireworks, GitHub Copilot and others add limits, abilities and prices under the
names below. llama.cpp, Codex servers and our gateway list the same models twice, as `data` and
as `models`; the two entries of a model are merged. Other fields of an entry are kept unchanged
in `stated`, within limits. No entry is refused for a field or a value that is not known.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from antiphon.models.facts import ModelInfo, merge
from antiphon.models.prices import Price
from antiphon.protocol.codec import decode_json
from antiphon.protocol.errors import BackendError

__all__ = ["read_models"]

_Entry = Mapping[str, Any]  # Any: JSON of a peer

_MAX_MODELS: Final = 10_000
_MAX_WORDS: Final = 32
_MAX_LENGTH: Final = 200
# No window and no time is larger; a number of more than 64 bits could not even be encoded.
_MAX_TOKENS: Final = 1_000_000_000
_MAX_TIME: Final = 1 << 53
# The window that a server runs a model with comes before the one that the model was made for.
_CONTEXT: Final = (
    "loaded_context_length",
    "max_model_len",
    "n_ctx",
    "context_length",
    "context_window",
    "max_context_length",
    "max_context_window",
    "max_context_window_tokens",
    "context_size",
    "n_ctx_train",
)
_INPUT: Final = ("max_input_tokens", "max_prompt_tokens")
_OUTPUT: Final = ("max_output_tokens", "max_completion_tokens", "max_output_length", "max_tokens")
# Where entries keep such figures, besides their top level.
_INNER: Final = ("top_provider", "meta", "metadata", "limits", "capabilities")
# Where entries state abilities: as a list of words, or as words with true or false.
_ABILITIES: Final = ("capabilities", "tags", "supported_parameters", "features")

_IMAGES: Final = frozenset({"vision", "image", "image_input", "image-input", "multimodal"})
_REASONING: Final = frozenset({"reasoning", "reasoning_effort", "thinking"})
_TOOLS: Final = frozenset(
    {
        "function_calling",
        "function-calling",
        "supports_tools",
        "tool-use",
        "tool_calling",
        "tool_calls",
        "tool_use",
        "tools",
    }
)
# The values of `type` that chat models have.
_CHAT_KINDS: Final = frozenset({"language", "chat", "llm", "vlm", "model", "text"})

_MILLION: Final = 1_000_000
# Some servers price a token, others a million tokens. No token costs as much as this.
_TOP_PRICE: Final = 0.01

# How many bytes of JSON are kept of the other fields of an entry.
_MAX_STATED: Final = 4096
# Fields that are read here, describe the upstream's API and not ours, or are paths on its disk.
_NOT_STATED: Final = frozenset(
    {
        *("id", "object", "created", "owned_by", "model", "name", "display_name", "assumed"),
        *("input_modalities", "reasoning_levels", "supported_reasoning_levels"),
        *_CONTEXT,
        *_OUTPUT,
        *("supported_parameters", "supported_endpoints", "endpoints", "links", "url"),
        *("permission", "root", "parent", "path"),
    }
)


def read_models(body: bytes) -> list[ModelInfo]:
    """Return what the list states about each model, in its order.

    Raise BackendError if the body is not a list of models.
    """
    merged: dict[str, ModelInfo] = {}
    for entry in _entries(body):
        model = _read_model(entry)
        if model is None:
            continue
        first = merged.get(model.id)
        if first is not None:
            is_hidden = first.is_hidden or model.is_hidden
            model = msgspec.structs.replace(merge(first, model), is_hidden=is_hidden)
        merged[model.id] = model
    return list(merged.values())


def _entries(body: bytes) -> Iterator[_Entry]:
    answer = decode_json(body)
    lists = [answer] if isinstance(answer, list) else []
    if isinstance(answer, dict):
        lists = [found for key in ("data", "models") if isinstance(found := answer.get(key), list)]
    if not lists:
        raise BackendError(
            "the upstream's list of models cannot be read", code="upstream_invalid_response"
        )
    return (
        entry for entries in lists for entry in entries[:_MAX_MODELS] if isinstance(entry, dict)
    )


def _read_model(entry: _Entry) -> ModelInfo | None:
    name = _text(entry, "id") or _text(entry, "slug") or _text(entry, "model")
    if name is None:
        return None
    entry = _without_assumptions(entry)
    created = entry.get("created")
    levels = _levels(entry)
    reasoning = _ability(entry, _REASONING)
    return ModelInfo(
        id=name,
        created=created if isinstance(created, int) and 0 < created < _MAX_TIME else 0,
        owned_by=_text(entry, "owned_by") or "upstream",
        is_hidden=_is_hidden(entry),
        display_name=_display_name(entry, name),
        family=_text(entry, "family"),
        context_length=_figure(entry, _CONTEXT),
        max_input_tokens=_figure(entry, _INPUT),
        max_output_tokens=_figure(entry, _OUTPUT),
        modalities=_modalities(entry),
        supports_tools=_ability(entry, _TOOLS),
        reasoning=True if levels and reasoning is None else reasoning,
        reasoning_levels=levels,
        price=_price(entry.get("pricing")),
        stated=_stated(entry),
    )


def _without_assumptions(entry: _Entry) -> _Entry:
    """Leave out the fields that a gateway like ours marks as assumed."""
    assumed = entry.get("assumed")
    if not isinstance(assumed, list):
        return entry
    return {key: value for key, value in entry.items() if key not in assumed}


def _is_hidden(entry: _Entry) -> bool:
    if entry.get("visibility") in ("hide", "none") or entry.get("supported_in_api") is False:
        return True
    kind = entry.get("type")
    return isinstance(kind, str) and kind not in _CHAT_KINDS


def _stated(entry: _Entry) -> dict[str, Any] | None:
    """Return the other fields of an entry, as many as there is room for.

    Entries for Codex have none: the gateway writes its own.
    """
    stated: dict[str, Any] = {}
    room = _MAX_STATED
    for name, value in entry.items():
        if name in _NOT_STATED or value is None or "slug" in entry:
            continue
        size = len(msgspec.json.encode({name: value}))
        if size <= room:
            stated[name] = value
            room -= size
    return stated or None


def _text(entry: _Entry, name: str) -> str | None:
    value = entry.get(name)
    return value if isinstance(value, str) and value else None


def _display_name(entry: _Entry, name: str) -> str | None:
    """Return what people call the model, if that is not its name."""
    shown = _text(entry, "display_name") or _text(entry, "name")
    return shown[:_MAX_LENGTH] if shown and shown != name else None


def _figure(entry: _Entry, names: tuple[str, ...]) -> int | None:
    """Return the first figure under one of these names, at the top level or one below."""
    inner = [found for key in _INNER if isinstance(found := entry.get(key), dict)]
    inner += [found for it in inner if isinstance(found := it.get("limits"), dict)]
    for place in (entry, *inner):
        for name in names:
            value = place.get(name)
            if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= _MAX_TOKENS:
                return value
    return None


def _modalities(entry: _Entry) -> tuple[str, ...] | None:
    """Return the accepted input. A list is complete; a word for images adds to text."""
    for place in (entry, entry.get("architecture")):
        if isinstance(place, dict):
            words = _words(place.get("input_modalities") or place.get("modalities"))
            if words:
                return words
    flag = entry.get("supports_image_input")  # Fireworks
    images = flag if isinstance(flag, bool) else _ability(entry, _IMAGES)
    if images is None and entry.get("type") == "vlm":  # LM Studio
        images = True
    if images is None:
        return None
    return ("text", "image") if images else ("text",)


def _levels(entry: _Entry) -> tuple[str, ...] | None:
    """Return the levels of reasoning under our name, Codex's or OpenRouter's."""
    reasoning = entry.get("reasoning")
    inner = reasoning.get("supported_efforts") if isinstance(reasoning, dict) else None
    for given in (entry.get("reasoning_levels"), entry.get("supported_reasoning_levels"), inner):
        if isinstance(given, list):
            efforts = [level.get("effort") if isinstance(level, dict) else level for level in given]
            words = _words(efforts)
            return words if words or not given else None
    return None


def _ability(entry: _Entry, words: frozenset[str]) -> bool | None:
    """Return what the entry states under any of these words.

    A list without the word means false only where lists are known to be complete: OpenRouter's
    parameters, for tools.
    """
    flags = [flag for word in words if isinstance(flag := entry.get(word), bool)]
    for key in _ABILITIES:
        given = entry.get(key)
        if isinstance(given, list):
            if words.intersection(_words(given)):
                flags.append(True)
            elif key == "supported_parameters" and "tools" in words:
                flags.append(False)
        elif isinstance(given, dict):
            inner = given.get("supports")
            answers = {**given, **inner} if isinstance(inner, dict) else given
            flags += [flag for word in words if isinstance(flag := answers.get(word), bool)]
    return any(flags) if flags else None


def _words(given: object) -> tuple[str, ...]:
    """Return the short words of a list, each once."""
    if not isinstance(given, list):
        return ()
    words = [word for word in given[:_MAX_WORDS] if isinstance(word, str)]
    return tuple(dict.fromkeys(word for word in words if 0 < len(word) <= _MAX_LENGTH))


def _price(pricing: object) -> Price | None:
    if not isinstance(pricing, dict):
        return None
    read = _per_million(pricing, "input", "prompt")
    written = _per_million(pricing, "output", "completion")
    if read is None or written is None:
        return None
    return Price(
        read,
        written,
        _per_million(pricing, "input_cache_read", "cached_input"),
        _per_million(pricing, "input_cache_write"),
    )


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

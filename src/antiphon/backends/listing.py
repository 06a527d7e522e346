"""What does an upstream's list say of its models? Every server has words of its own for it.

OpenAI gives names alone. vLLM, SGLang, llama.cpp, LM Studio, OpenRouter, Mistral, Together,
Groq, Fireworks and others add limits and abilities under the names below. llama.cpp and
gateways like ours list the same models twice, as `data` and as `models`; what both say of one
is put together. What an entry states beyond that (`reasoning`, prices, a description) is kept as
the upstream wrote it, within limits; an entry is never refused for words that are not known.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from antiphon.backends.base import ModelInfo
from antiphon.protocol.errors import BackendError

__all__ = ["read_models"]

_Entry = Mapping[str, Any]

_MAX_MODELS: Final = 10_000
_MAX_WORDS: Final = 32
_MAX_LENGTH: Final = 200
# No window and no time is beyond these; what is beyond 64 bits could not even be written.
_MAX_TOKENS: Final = 1_000_000_000
_MAX_TIME: Final = 1 << 53
# The window a server runs a model with comes before the one that the model was made for.
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
_OUTPUT: Final = ("max_output_tokens", "max_completion_tokens", "max_output_length", "max_tokens")
# Where entries keep such figures besides their top level.
_INNER: Final = ("top_provider", "meta", "metadata", "limits", "capabilities")
# Where they say what a model can do: as a list of words, or as words with a yes or no.
_ABILITIES: Final = ("capabilities", "tags", "supported_parameters", "features")

_SEES: Final = frozenset({"vision", "image", "image_input", "image-input", "multimodal"})
_CALLS: Final = frozenset(
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

# The bytes of JSON that are kept of what one entry states besides.
_MAX_FACTS: Final = 4096
# What is said in our own words, is about the API of the upstream and not ours, or is a path there.
_NO_FACTS: Final = frozenset(
    {
        *("id", "object", "created", "owned_by", "model", "name", "display_name", "assumed"),
        *(
            "input_modalities",
            "reasoning_levels",
            "supported_reasoning_levels",
            *_CONTEXT,
            *_OUTPUT,
        ),
        *("supported_parameters", "supported_endpoints", "endpoints", "links", "url"),
        *("permission", "root", "parent", "path"),
    }
)


def read_models(body: bytes) -> list[ModelInfo]:
    """Return what the list says of each model, in its order.

    Raise BackendError if this is no list of models.
    """
    merged: dict[str, ModelInfo] = {}
    for entry in _entries(body):
        model = _read_model(entry)
        if model is not None:
            merged[model.id] = _put_together(merged.get(model.id), model)
    return list(merged.values())


def _entries(body: bytes) -> Iterator[_Entry]:
    try:
        answer = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        answer = None
    lists = [answer] if isinstance(answer, list) else []
    if isinstance(answer, dict):
        lists = [found for key in ("data", "models") if isinstance(found := answer.get(key), list)]
    if not lists:
        raise BackendError(
            "the upstream's list of models cannot be read", code="upstream_invalid_response"
        )
    return (entry for entries in lists for entry in entries[:_MAX_MODELS] if _is_entry(entry))


def _is_entry(value: object) -> bool:
    return isinstance(value, dict)


def _read_model(entry: _Entry) -> ModelInfo | None:
    name = _text(entry, "id") or _text(entry, "slug") or _text(entry, "model")
    if name is None:
        return None
    entry = _without_guesses(entry)
    created = entry.get("created")
    return ModelInfo(
        id=name,
        created=created if isinstance(created, int) and 0 < created < _MAX_TIME else 0,
        owned_by=_text(entry, "owned_by") or "upstream",
        context_length=_figure(entry, _CONTEXT),
        display_name=_display_name(entry, name),
        max_output_tokens=_figure(entry, _OUTPUT),
        reasoning_levels=_levels(entry),
        modalities=_modalities(entry),
        supports_tools=_ability(entry, _CALLS),
        facts=_facts(entry),
    )


def _facts(entry: _Entry) -> dict[str, Any] | None:  # Any: JSON as the upstream wrote it
    """Return what else the entry states, as much as there is room for. Codex's entries: nothing."""
    facts: dict[str, Any] = {}
    room = _MAX_FACTS
    for name, value in entry.items():
        if name in _NO_FACTS or value is None or "slug" in entry:
            continue
        size = len(msgspec.json.encode({name: value}))
        if size <= room:
            facts[name] = value
            room -= size
    return facts or None


def _without_guesses(entry: _Entry) -> _Entry:
    """Leave out what a gateway like ours says that it only assumes."""
    assumed = entry.get("assumed")
    if not isinstance(assumed, list):
        return entry
    return {key: value for key, value in entry.items() if key not in assumed}


def _put_together(first: ModelInfo | None, second: ModelInfo) -> ModelInfo:
    """Return what both say; the first wins."""
    if first is None:
        return second
    said = msgspec.structs.asdict(second).items()
    missing = {key: value for key, value in said if getattr(first, key) is None}
    return msgspec.structs.replace(first, **missing)


def _text(entry: _Entry, name: str) -> str | None:
    value = entry.get(name)
    return value if isinstance(value, str) and value else None


def _display_name(entry: _Entry, name: str) -> str | None:
    """Return what people call the model, if that is not its name."""
    shown = _text(entry, "display_name") or _text(entry, "name")
    return shown[:_MAX_LENGTH] if shown and shown != name else None


def _figure(entry: _Entry, names: tuple[str, ...]) -> int | None:
    """Return the first figure under one of these names, here or one level down."""
    inner = [found for key in _INNER if isinstance(found := entry.get(key), dict)]
    inner += [found for it in inner if isinstance(found := it.get("limits"), dict)]
    for place in (entry, *inner):
        for name in names:
            value = place.get(name)
            if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= _MAX_TOKENS:
                return value
    return None


def _modalities(entry: _Entry) -> tuple[str, ...] | None:
    """Return what may be sent. A list of modalities is complete; a word for vision adds to text."""
    for place in (entry, entry.get("architecture")):
        if isinstance(place, dict):
            words = _words(place.get("input_modalities") or place.get("modalities"))
            if words:
                return words
    flag = entry.get("supports_image_input")  # Fireworks
    sees = flag if isinstance(flag, bool) else _ability(entry, _SEES)
    if sees is None and entry.get("type") == "vlm":  # LM Studio
        sees = True
    if sees is None:
        return None
    return ("text", "image") if sees else ("text",)


def _levels(entry: _Entry) -> tuple[str, ...] | None:
    """Return the levels of reasoning: our word, Codex's, or OpenRouter's."""
    reasoning = entry.get("reasoning")
    inner = reasoning.get("supported_efforts") if isinstance(reasoning, dict) else None
    for given in (entry.get("reasoning_levels"), entry.get("supported_reasoning_levels"), inner):
        if isinstance(given, list):
            return _words(
                [level.get("effort") if isinstance(level, dict) else level for level in given]
            )
    return None


def _ability(entry: _Entry, words: frozenset[str]) -> bool | None:
    """Return what the entry says under any of these words.

    A list that lacks the word says no only where lists are known to be complete: OpenRouter's
    parameters.
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

"""The list of models that a Messages server gives, page by page.

Anthropic states what each model takes; open servers give the list of the chat API at the same
path. Both are read: a field that is not there is not known.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from antiphon.models.facts import ModelInfo
from antiphon.models.listing import read_models
from antiphon.protocol.codec import decode_json
from antiphon.wires.messages.traits import Stated, read_traits

__all__ = ["Listed", "read_page"]


class Listed(msgspec.Struct, frozen=True):
    """One page: the models, what they take, and the id after which the next page begins."""

    models: Sequence[ModelInfo]
    traits: Mapping[str, Stated]
    after: str | None


def read_page(body: bytes) -> Listed:
    """Return a page of the list. Raise BackendError if the body is none."""
    models = read_models(body)
    page = decode_json(body)
    fields = page if isinstance(page, dict) else {}
    entries = {entry["id"]: entry for entry in _entries(fields)}
    last = fields.get("last_id")
    has_more = fields.get("has_more") is True and isinstance(last, str)
    return Listed(
        [_complete(model, entries.get(model.id) or {}) for model in models],
        {
            model.id: read_traits(entries[model.id], model.context_length)
            for model in models
            if model.id in entries
        },
        str(last) if has_more else None,
    )


def _entries(page: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    data = page.get("data")
    for entry in data if isinstance(data, list) else ():
        if isinstance(entry, dict) and isinstance(entry.get("id"), str):
            yield entry


def _complete(model: ModelInfo, entry: Mapping[str, Any]) -> ModelInfo:
    """Return the model with what Anthropic's `capabilities` state."""
    stated = entry.get("capabilities")
    if not isinstance(stated, dict):
        return model
    traits = read_traits(entry)
    thinks = _is_supported(stated, "thinking")
    levels = None if traits.efforts is None else traits.efforts
    if levels is not None and thinks and traits.disabled:
        levels = ("none", *levels)
    return msgspec.structs.replace(
        model,
        context_length=model.context_length or model.max_input_tokens,
        modalities=_modalities(stated),
        supports_tools=True,
        reasoning=thinks,
        reasoning_levels=levels,
        stated=None,
    )


def _modalities(stated: Mapping[str, Any]) -> tuple[str, ...]:
    words = {"image": "image_input", "file": "pdf_input"}
    return "text", *(word for word, name in words.items() if _is_supported(stated, name))


def _is_supported(stated: Mapping[str, Any], name: str) -> bool:
    value = stated.get(name)
    return isinstance(value, dict) and value.get("supported") is True

"""What does the gateway state about a model?

Each field comes from the first source that has it: the settings, the upstream's list, the
bundled table. A field that none of them has stays None.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

import msgspec

from antiphon.models.facts import ModelInfo
from antiphon.models.prices import PriceSettings
from antiphon.models.table import fill_in

__all__ = ["Modality", "ModelSettings", "PriceSource", "describe", "overrule", "price_source"]

Modality = Literal["text", "image", "audio", "video", "file"]

_Tokens = Annotated[int, msgspec.Meta(ge=1, le=1_000_000_000)]
_FIGURES: Final = ("top_provider", "meta", "metadata", "limits", "capabilities")
# Which other fields of an upstream's entry state what the settings may state too.
_STATED_IN: Final[dict[str, tuple[str, ...]]] = {
    "context_length": _FIGURES,
    "max_output_tokens": _FIGURES,
    "reasoning_levels": ("reasoning",),
    "modalities": ("architecture", "modalities", "capabilities", "type", "tags"),
    "supports_tools": ("capabilities", "tags", "features"),
    "price": ("pricing",),
}
_Word = Annotated[str, msgspec.Meta(min_length=1, max_length=64)]


class ModelSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a model. None: not set."""

    context_length: _Tokens | None = None
    max_output_tokens: _Tokens | None = None
    display_name: _Word | None = None
    reasoning_levels: tuple[_Word, ...] | None = None
    modalities: tuple[Modality, ...] | None = None
    supports_tools: bool | None = None
    price: PriceSettings | None = None
    """US dollars for a million tokens."""


PriceSource = Literal["settings", "upstream", "bundled", "unknown"]
"""Where the price of a model comes from."""


def price_source(
    model: ModelInfo, provider: str, config: Mapping[str, ModelSettings]
) -> PriceSource:
    """Return where the price of a model comes from, as its provider lists it."""
    chosen = _settings_of(model.id, provider, config)
    if chosen is not None and chosen.price is not None:
        return "settings"
    if model.price is not None:
        return "upstream"
    return "unknown" if fill_in(model).price is None else "bundled"


def describe(model: ModelInfo, provider: str, config: Mapping[str, ModelSettings]) -> ModelInfo:
    """Return the model with all that is known about it.

    Settings for `provider/name` are for that provider alone and come before those for the name.
    """
    return overrule(fill_in(model), _settings_of(model.id, provider, config))


def _settings_of(
    model: str, provider: str, config: Mapping[str, ModelSettings]
) -> ModelSettings | None:
    return config.get(f"{provider}/{model}") or config.get(model)


def overrule(model: ModelInfo, chosen: ModelSettings | None) -> ModelInfo:
    """Return the model as the settings describe it, where they do."""
    if chosen is None:
        return model
    given = {key: it for key, it in msgspec.structs.asdict(chosen).items() if it is not None}
    if chosen.price is not None:
        given["price"] = chosen.price.price
    return msgspec.structs.replace(model, **given, stated=_without_overruled(model.stated, given))


def _without_overruled(
    stated: dict[str, Any] | None,  # Any: JSON of the upstream
    given: Mapping[str, object],
) -> dict[str, Any] | None:
    """Leave out the upstream's fields that state what the settings state otherwise."""
    overruled = {name for key in given for name in _STATED_IN.get(key, ())}
    kept = {name: value for name, value in (stated or {}).items() if name not in overruled}
    return kept or None

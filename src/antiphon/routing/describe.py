"""What is a model able to do, and who says so?

Config knows best, then what the upstream's list says, then the bundled table; each field comes
from the first that has it. What none of them knows stays unknown: nothing is claimed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

import msgspec

from antiphon.models.facts import ModelInfo
from antiphon.models.table import fill_in

__all__ = ["Modality", "ModelSettings", "describe"]

Modality = Literal["text", "image", "audio", "video", "file"]

_Tokens = Annotated[int, msgspec.Meta(ge=1, le=1_000_000_000)]
_FIGURES: Final = ("top_provider", "meta", "metadata", "limits", "capabilities")
# Where the lists of upstreams state what config may state too, besides the names that are read.
_STATED_IN: Final[dict[str, tuple[str, ...]]] = {
    "context_length": _FIGURES,
    "max_output_tokens": _FIGURES,
    "reasoning_levels": ("reasoning",),
    "modalities": ("architecture", "modalities", "capabilities", "type", "tags"),
    "supports_tools": ("capabilities", "tags", "features"),
}
_Word = Annotated[str, msgspec.Meta(min_length=1, max_length=64)]


class ModelSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What config says of a model. None: it says nothing."""

    context_length: _Tokens | None = None
    max_output_tokens: _Tokens | None = None
    display_name: _Word | None = None
    reasoning_levels: tuple[_Word, ...] | None = None
    modalities: tuple[Modality, ...] | None = None
    supports_tools: bool | None = None


def describe(model: ModelInfo, provider: str, config: Mapping[str, ModelSettings]) -> ModelInfo:
    """Return the model with all that is known of it.

    Config for `provider/name` is for that provider alone, and comes before config for the name.
    """
    full = fill_in(model)
    told = config.get(f"{provider}/{model.id}") or config.get(model.id)
    if told is None:
        return full
    said = {key: it for key, it in msgspec.structs.asdict(told).items() if it is not None}
    return msgspec.structs.replace(full, **said, stated=_without_overruled(full.stated, said))


def _without_overruled(
    facts: dict[str, Any] | None,  # Any: JSON as the upstream wrote it
    said: Mapping[str, object],
) -> dict[str, Any] | None:
    """Leave out the upstream's facts that state what config states otherwise."""
    overruled = {name for key in said for name in _STATED_IN.get(key, ())}
    kept = {name: value for name, value in (facts or {}).items() if name not in overruled}
    return kept or None

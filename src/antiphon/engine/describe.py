"""What is a model able to do, and who says so?

Config knows best, then what the upstream's list says, then the bundled table; each field comes
from the first that has it. What none of them knows stays unknown: nothing is claimed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec

from antiphon.backends.base import ModelInfo
from antiphon.backends.known_models import fill_in

__all__ = ["Modality", "ModelSettings", "describe"]

Modality = Literal["text", "image", "audio", "video", "file"]

_Tokens = Annotated[int, msgspec.Meta(ge=1, le=1_000_000_000)]
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
    said = msgspec.structs.asdict(told).items()
    return msgspec.structs.replace(full, **{key: it for key, it in said if it is not None})

"""What can be known about a model?

`Facts` holds what any source may state: configuration, a server's list, the bundled table. None
means that the source does not state it. `merge` combines sources, field by field, in the order
of precedence that the caller gives.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar

import msgspec

from antiphon.models.image_cost import ImageCost
from antiphon.models.names import is_chat_model
from antiphon.models.prices import Price

__all__ = ["ASSUMED_WINDOW", "Facts", "ModelInfo", "merge"]

ASSUMED_WINDOW: Final = 32_768
"""The window to assume where a client needs one and no source states it."""

_Struct = TypeVar("_Struct", bound=msgspec.Struct)


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What one or more sources state about a model. None: not stated."""

    display_name: str | None = None
    family: str | None = None
    context_length: int | None = None
    """Input and output tokens together."""
    max_input_tokens: int | None = None
    max_output_tokens: int | None = None
    modalities: tuple[str, ...] | None = None
    """Accepted input: "text" and others."""
    supports_tools: bool | None = None
    reasoning: bool | None = None
    reasoning_levels: tuple[str, ...] | None = None
    """Values of `reasoning.effort`, least first; empty: the effort cannot be set."""
    encoding: str | None = None
    """The name of its tokenizer."""
    image_cost: ImageCost | None = None
    price: Price | None = None

    @property
    def image_input(self) -> bool | None:
        """Whether images may be sent."""
        return None if self.modalities is None else "image" in self.modalities


class ModelInfo(Facts, frozen=True):
    """A model that a server or a backend offers."""

    id: str
    created: int = 0
    owned_by: str = "antiphon"
    is_hidden: bool = False
    """The server hides it from its users, or states that it is not a chat model."""
    stated: dict[str, Any] | None = None
    """Other fields of the server's entry, unchanged. Any: JSON of a peer."""

    @property
    def is_chat(self) -> bool:
        """Whether it can be offered for chat, by its entry and by its name."""
        return not self.is_hidden and is_chat_model(self.id)


def merge(first: _Struct, *others: msgspec.Struct) -> _Struct:
    """Return `first` with its None fields filled from the others; an earlier one wins.

    The others have no fields that `first` lacks.
    """
    merged = msgspec.structs.asdict(first)
    for other in others:
        for name, value in msgspec.structs.asdict(other).items():
            if merged[name] is None:
                merged[name] = value
    return type(first)(**merged)

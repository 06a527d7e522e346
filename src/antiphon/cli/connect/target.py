"""What is a client to be connected with? A gateway, its models, and what is known of them."""

from __future__ import annotations

from typing import Final

import msgspec

from antiphon.host.models import ModelAbilities, ModelDescription
from antiphon.models.facts import ASSUMED_WINDOW

__all__ = ["Target", "longest", "unknown_model", "window"]

_ASSUMED_OUTPUT: Final = 8_192


class Target(msgspec.Struct, frozen=True):
    """What a client is to be connected with. The first model is the one it begins with."""

    url: str
    models: tuple[ModelDescription, ...]
    key_env: str | None = None

    @property
    def model(self) -> str:
        """Return the name of the first model."""
        return self.models[0].id


def unknown_model(name: str) -> ModelDescription:
    """Return a model of which nothing but the name is known."""
    return ModelDescription(id=name, name=name, family="", capabilities=ModelAbilities())


def window(model: ModelDescription) -> int:
    """Return how many tokens it takes in and gives out, or a careful guess."""
    return model.context_window or ASSUMED_WINDOW


def longest(model: ModelDescription) -> int:
    """Return how many tokens of the window to keep for the answer."""
    return min(model.max_output_tokens or _ASSUMED_OUTPUT, window(model) // 4)

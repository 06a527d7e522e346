"""What does a chat application know about a model?

Facts come from `antiphon.models`: a server's list, then the bundled table. Overrides of the
configuration win over both, field by field. This module has no figures of its own: it holds
the overrides and gives the facts the names that chat applications use.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from antiphon.client.errors import BadCall
from antiphon.models.facts import Facts, ModelInfo, merge
from antiphon.models.image_cost import ImageCost
from antiphon.models.names import END_OF_NAME, plain_name, spellings
from antiphon.models.prices import Price
from antiphon.models.table import fill_in, find_facts

__all__ = ["ModelFacts", "ModelTable", "Overrides"]

Overrides = Mapping[str, Mapping[str, Any]]
"""The fields of ModelFacts to set, for a model or for all models whose names begin so."""


class ModelFacts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is known about a model. None: not stated by any source."""

    name: str | None = None
    family: str | None = None
    context_window: int | None = None
    max_input_tokens: int | None = None
    max_output_tokens: int | None = None
    image_input: bool | None = None
    tool_calling: bool | None = None
    reasoning: bool | None = None
    reasoning_levels: tuple[str, ...] | None = None
    encoding: str | None = None
    image_cost: ImageCost | None = None
    price: Price | None = None


class ModelTable:
    """The facts about models, with the overrides of the configuration."""

    def __init__(self, overrides: Overrides | None = None) -> None:
        given = ((name, _read_override(name, it)) for name, it in (overrides or {}).items())
        entries = [(plain_name(name), facts) for name, facts in given]
        self._overrides = [
            (re.compile(re.escape(name) + END_OF_NAME), facts)
            for name, facts in sorted(entries, key=lambda entry: len(entry[0]), reverse=True)
        ]

    def overrides(self, model: str) -> ModelFacts:
        """Return what the configuration states; the longest name that fits wins."""
        for name in (plain_name(model), *spellings(model)):
            for regex, facts in self._overrides:
                if regex.match(name):
                    return facts
        return ModelFacts()

    def facts(self, model: str) -> ModelFacts:
        """Return what is known about a model that no server has listed."""
        return merge(self.overrides(model), _translate(find_facts(model)))

    def describe(self, model: ModelInfo) -> ModelFacts:
        """Return what is known about a model that a server lists."""
        return merge(self.overrides(model.id), _translate(fill_in(model)))


def _translate(facts: Facts) -> ModelFacts:
    return ModelFacts(
        name=facts.display_name,
        family=facts.family,
        context_window=facts.context_length,
        max_input_tokens=facts.max_input_tokens,
        max_output_tokens=facts.max_output_tokens,
        image_input=facts.image_input,
        tool_calling=facts.supports_tools,
        reasoning=facts.reasoning,
        reasoning_levels=facts.reasoning_levels,
        encoding=facts.encoding,
        image_cost=facts.image_cost,
        price=facts.price,
    )


def _read_override(name: str, fields: Mapping[str, Any]) -> ModelFacts:
    try:
        return msgspec.convert(dict(fields), ModelFacts)
    except msgspec.ValidationError as error:
        raise BadCall(f"override of model {name!r}: {error}", param=name) from None

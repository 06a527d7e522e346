"""How many tokens is a text, for one model?

The best answer wins: what the model's server counted it as; then the model's own tokenizer,
where `antiphon[tokens]` is installed and the encoding is known; then an estimate by the kinds of
text in it, which leans high. What the server counted corrects the two others (`calibration`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from antiphon.host.calibration import Calibration, Counted, Vector
from antiphon.host.last_used import LastUsed
from antiphon.host.model_table import ModelTable
from antiphon.host.text_kinds import ENCODINGS, UNKNOWN, Estimate, estimate_kinds
from antiphon.host.vocabulary import Tokenizer, Tokenizers
from antiphon.models.image_cost import DEFAULT_IMAGE_COST, ImageCost

__all__ = ["TextCache", "TextCounter"]

_MAX_MODELS: Final = 256
# How far a factor may be from 1, before a server has counted: tokenizers agree about English words
# and differ about other scripts. Servers write tools in ways of their own, so those are the first
# to be doubted. A tokenizer is hardly ever wrong.
_KIND_DOUBTS: Final = Estimate(
    words=0.25, foreign_words=0.35, digits=0.5, marks=0.25, signs=0.5, letters=0.6, pictures=0.35
)
_SCHEMA_DOUBT: Final = 0.6
_TOKENIZER_DOUBT: Final = 0.1


class TextCache(LastUsed[tuple[str, int, int], Vector]):
    """What was found out about texts, by the way it was found. It holds no text itself."""

    def __init__(self, max_entries: int = 20_000) -> None:
        super().__init__(max_entries)

    def look_up(self, way: str, text: str, read: Callable[[str], Vector]) -> Vector:
        """Return what `read` makes of a text, from memory if it is known."""
        key = (way, hash(text), len(text))
        found = self.find(key)
        if found is None:
            found = read(text)
            self.keep(key, found)
        return found


class _Counting(msgspec.Struct, frozen=True):
    """How one model counts."""

    tokenizer: Tokenizer | None
    encoding: str
    """Its name; empty if it is not known."""
    image_cost: ImageCost


class TextCounter:
    """Counts texts for any model, and learns. For one thread."""

    def __init__(self, table: ModelTable, tokenizers: Tokenizers, cache: TextCache) -> None:
        self._table = table
        self._tokenizers = tokenizers
        self._cache = cache
        self._models: LastUsed[str, _Counting] = LastUsed(_MAX_MODELS)
        self._learned: LastUsed[str, Calibration] = LastUsed(_MAX_MODELS)

    def is_prepared(self, model: str) -> bool:
        """Return whether what counting needs is loaded."""
        return model in self._models

    def has_tokenizer(self, model: str) -> bool:
        """Return whether the model's own tokenizer is here, and load it."""
        return self._model(model).tokenizer is not None

    def is_exact(self, model: str) -> bool:
        """Return whether texts are counted as the server counts them, as far as is known."""
        learned = self._learned.get(model)
        return self.has_tokenizer(model) and (learned is None or not learned.is_changed)

    def image_cost(self, model: str) -> ImageCost:
        """Return what pictures cost."""
        return self._model(model).image_cost

    def offset(self, model: str) -> int:
        """Return what the model's server adds to every request, as far as was learned."""
        learned = self._learned.get(model)
        return learned.offset if learned else 0

    def count(self, text: str, model: str, *, is_schema: bool = False) -> int:
        """Return the tokens of a text. A schema is JSON that a server may write in its own way."""
        if not text:
            return 0
        learned = self._learned.get(model)
        share = learned.share(text) if learned else None
        if share is not None:
            return round(share)
        vector = self._vector(text, model, is_schema=is_schema)
        tokens = learned.estimate(vector) if learned else sum(vector)
        return max(round(tokens), 1)

    def learn(
        self,
        model: str,
        texts: Sequence[str],
        schemas: Sequence[str],
        tokens: float,
        doubt: float,
    ) -> None:
        """Learn that these texts and schemas are so many tokens together, more or less."""
        counted = [
            Counted(text, self._vector(text, model, is_schema=is_schema))
            for group, is_schema in ((texts, False), (schemas, True))
            for text in group
            if text
        ]
        if counted:
            self._calibration(model).learn(counted, tokens, doubt)

    def _vector(self, text: str, model: str, *, is_schema: bool) -> Vector:
        """Return the tokens of a text by kind; a schema is a kind of its own, the last."""
        known = self._model(model)
        tokenizer = known.tokenizer
        if tokenizer is None:
            prices = ENCODINGS.get(known.encoding, UNKNOWN)
            way = f"prices of {known.encoding}"
            vector = self._cache.look_up(way, text, lambda it: estimate_kinds(it, prices))
        else:
            vector = self._cache.look_up(tokenizer.name, text, lambda it: (tokenizer.count(it),))
        zeros = (0.0,) * len(vector)
        return (*zeros, sum(vector)) if is_schema else (*vector, 0.0)

    def _calibration(self, model: str) -> Calibration:
        learned = self._learned.find(model)
        if learned is None:
            doubts = [_TOKENIZER_DOUBT] if self.has_tokenizer(model) else _KIND_DOUBTS
            learned = Calibration([*doubts, _SCHEMA_DOUBT])
            self._learned.keep(model, learned)
        return learned

    def _model(self, model: str) -> _Counting:
        known = self._models.find(model)
        if known is None:
            facts = self._table.facts(model)
            tokenizer = self._tokenizers.find(facts.encoding) if facts.encoding else None
            image_cost = facts.image_cost or DEFAULT_IMAGE_COST
            known = _Counting(tokenizer, facts.encoding or "", image_cost)
            self._models.keep(model, known)
        return known

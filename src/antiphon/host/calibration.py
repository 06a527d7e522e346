"""What do a server's own counts say about the tokens of a text?

Two things are learned for each model, because they answer two questions:

- What was counted is known. The texts of a counted request are remembered, each with its share
  of the server's figure, so that together they come to that figure again. Texts that were known
  before keep their share; what is left over belongs to the new ones.
- What is new is estimated better. Each kind of text has a factor, 1 at first, which moves so
  that the estimate of the new texts comes to what was left over for them. The kind that makes up
  most of a text takes most of the correction, and a kind that was not counted yet keeps leaning
  high. A constant stands for what a server adds to every request, such as a prompt of its own.

The update is that of a Kalman filter whose kinds are independent: `_doubts` are the variances
of the factors. They never fall below a floor, so the newest count has the most weight.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from antiphon.host.last_used import LastUsed

__all__ = ["Calibration", "Counted", "Vector"]

Vector = Sequence[float]
"""The estimated tokens of a text, kind by kind."""

_MIN_FACTOR: Final = 0.25
_MAX_FACTOR: Final = 16.0
_FLOOR: Final = 0.08**2
_OFFSET_DOUBT: Final = 10.0**2
_MIN_OFFSET: Final = -32.0
# A text this short that seems to be many times as long stands beside a prompt of the server's.
_SHORT: Final = 64.0
_MAX_SHORT_ERROR: Final = 3.0
# How far a server's figure is from what its texts are: counts are whole, marks are guessed.
_NOISE: Final = 0.005
_NOISE_TOKENS: Final = 2.0
# New texts are a little longer for their estimate than those that were counted, or shorter.
_LEAN: Final = 1.01
# A share that is further from its estimate than this is not the share of these texts.
_MAX_SCALE: Final = 2.0
_MAX_SHARES: Final = 20_000


class Counted(msgspec.Struct, frozen=True):
    """A text that was in a counted request."""

    text: str
    vector: Vector


class Calibration:
    """What one model's server has taught. `doubts` are how uncertain each factor is at first."""

    def __init__(self, doubts: Sequence[float]) -> None:
        self._factors = [1.0] * len(doubts)
        self._doubts = [doubt**2 for doubt in doubts]
        self._offset = 0.0
        self._offset_doubt = _OFFSET_DOUBT
        self._shares: LastUsed[tuple[int, int], float] = LastUsed(_MAX_SHARES)
        self.is_changed = False
        """Whether a server's count was ever another than ours."""

    @property
    def offset(self) -> int:
        """The tokens that the server adds to every request, beyond those we know of."""
        return round(self._offset)

    def share(self, text: str) -> float | None:
        """Return what a text was counted as, or None if it was not counted."""
        return self._shares.get(_key(text))

    def estimate(self, vector: Vector) -> float:
        """Return the tokens of a text that was not counted yet."""
        tokens = self._apply(vector)
        return tokens * _LEAN if self.is_changed else tokens

    def learn(self, texts: Sequence[Counted], tokens: float, doubt: float = 0.0) -> None:
        """Learn that these texts are so many tokens together, with the server's own constant.

        `doubt` is how many tokens that figure may be off, because of pictures for example.
        """
        shares = [self.share(counted.text) for counted in texts]
        new = [it for it, share in zip(texts, shares, strict=True) if share is None]
        left = tokens - sum(share for share in shares if share is not None)
        if new:
            total = [sum(column) for column in zip(*(it.vector for it in new), strict=True)]
            self._correct(total, left, doubt)
        self._remember(texts, new, tokens, left - self._offset, doubt)

    def _apply(self, vector: Vector) -> float:
        return sum(factor * value for factor, value in zip(self._factors, vector, strict=True))

    def _correct(self, vector: Vector, tokens: float, doubt: float) -> None:
        """Move factors and offset so that the vector comes to the tokens."""
        expected = self._apply(vector)
        error = tokens - self._offset - expected
        if abs(error) < 0.5:
            return
        self.is_changed = True
        if expected < _SHORT and error > _MAX_SHORT_ERROR * expected:
            self._offset += error
            return
        noise = (_NOISE * tokens) ** 2 + _NOISE_TOKENS**2 + doubt**2
        weights = [variance * value for variance, value in zip(self._doubts, vector, strict=True)]
        spread = sum(w * value for w, value in zip(weights, vector, strict=True))
        spread += self._offset_doubt + noise
        for kind, (weight, value) in enumerate(zip(weights, vector, strict=True)):
            factor = self._factors[kind] + weight * error / spread
            self._factors[kind] = min(max(factor, _MIN_FACTOR), _MAX_FACTOR)
            left = self._doubts[kind] * (1 - weight * value / spread)
            self._doubts[kind] = max(left, min(_FLOOR, self._doubts[kind]))
        self._offset = max(self._offset + self._offset_doubt * error / spread, _MIN_OFFSET)
        self._offset_doubt *= 1 - self._offset_doubt / spread

    def _remember(
        self,
        texts: Sequence[Counted],
        new: Sequence[Counted],
        tokens: float,
        left: float,
        doubt: float,
    ) -> None:
        """Give the new texts what is left for them, or forget all if that cannot be theirs."""
        if doubt > 0.1 * tokens:
            return
        expected = sum(self._apply(counted.vector) for counted in new)
        scale = left / expected if expected else 1.0
        is_plausible = 1 / _MAX_SCALE <= scale <= _MAX_SCALE if new else abs(left) < 0.05 * tokens
        if not is_plausible:
            for counted in texts:
                self._shares.pop(_key(counted.text), None)
            return
        for counted in new:
            self._shares.keep(_key(counted.text), self._apply(counted.vector) * scale)
        for counted in texts:
            self._shares.find(_key(counted.text))


def _key(text: str) -> tuple[int, int]:
    return hash(text), len(text)

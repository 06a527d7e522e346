"""What does a picture cost? OpenAI's two published rules, by its size in pixels.

Older models cut it into tiles, newer small ones into patches. A rule is data of a model; the
size comes from the picture's header. What cannot be measured costs as much as a square of
1024 pixels.
"""

from __future__ import annotations

import math
from typing import Final

import msgspec

__all__ = ["DEFAULT_IMAGE_COST", "UNKNOWN_SIZE", "ImageCost", "PatchCost", "TileCost"]

Size = tuple[int, int]

UNKNOWN_SIZE: Final[Size] = (1024, 1024)
_TILE: Final = 512
_LONGEST: Final = 2048
_SHORTEST: Final = 768
_PATCH: Final = 32


class TileCost(msgspec.Struct, frozen=True, tag="tiles"):
    """A fixed amount, and one for each tile of 512 pixels, once the picture fits 2048 by 768."""

    base: int
    tile: int

    def tokens(self, size: Size, detail: str | None = None) -> int:
        """Return the tokens of a picture; low detail costs the fixed amount alone."""
        if detail == "low":
            return self.base
        width, height = size
        scale = min(1.0, _LONGEST / max(size))
        scale = min(scale, _SHORTEST / min(size))
        tiles = math.ceil(width * scale / _TILE) * math.ceil(height * scale / _TILE)
        return self.base + self.tile * tiles


class PatchCost(msgspec.Struct, frozen=True, tag="patches"):
    """Something for each patch of 32 pixels, once the picture is small enough."""

    multiplier: float
    max_patches: int = 1536

    def tokens(self, size: Size, detail: str | None = None) -> int:
        """Return the tokens of a picture; `detail` changes nothing for these models."""
        across, down = size[0] / _PATCH, size[1] / _PATCH
        if math.ceil(across) * math.ceil(down) > self.max_patches:
            across, down = self._shrink(across, down)
        patches = min(math.ceil(across) * math.ceil(down), self.max_patches)
        return math.ceil(patches * self.multiplier)

    def _shrink(self, across: float, down: float) -> tuple[float, float]:
        """Return the patches once the picture is scaled so that one side is whole patches."""
        scale = math.sqrt(self.max_patches / (across * down))
        across, down = across * scale, down * scale
        fit = min(max(math.floor(side), 1) / side for side in (across, down))
        return round(across * fit, 6), round(down * fit, 6)


ImageCost = TileCost | PatchCost

DEFAULT_IMAGE_COST: Final = TileCost(base=85, tile=170)

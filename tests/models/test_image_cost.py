"""What pictures cost, held against the worked examples that OpenAI publishes."""

from __future__ import annotations

import pytest

from antiphon.models.image_cost import DEFAULT_IMAGE_COST, UNKNOWN_SIZE, PatchCost, TileCost
from antiphon.plans.estimate import ATTACHMENT_TOKENS


@pytest.mark.parametrize(
    ("size", "detail", "tokens"),
    [
        ((1024, 1024), "high", 765),
        ((2048, 4096), "high", 1105),
        ((4096, 8192), "low", 85),
        ((512, 512), None, 255),
        ((513, 512), "auto", 425),
        ((10_000, 1), "high", 85 + 4 * 170),
    ],
)
def test_tiles_are_counted_once_the_picture_fits(
    size: tuple[int, int], detail: str | None, tokens: int
) -> None:
    assert TileCost(base=85, tile=170).tokens(size, detail) == tokens


@pytest.mark.parametrize(
    ("size", "patches"),
    [
        ((1024, 1024), 1024),
        ((1800, 2400), 1452),
        ((1, 1), 1),
        ((33, 32), 2),
        ((100_000, 10), 1536),
    ],
)
def test_patches_are_counted_once_there_are_few_enough(size: tuple[int, int], patches: int) -> None:
    assert PatchCost(multiplier=1.0).tokens(size) == patches
    assert PatchCost(multiplier=1.0).tokens(size, "low") == patches


def test_a_small_model_pays_more_for_a_patch() -> None:
    assert PatchCost(multiplier=1.62).tokens((1024, 1024)) == 1659


def test_a_picture_of_unknown_size_costs_what_the_plain_estimate_says() -> None:
    assert DEFAULT_IMAGE_COST.tokens(UNKNOWN_SIZE) == ATTACHMENT_TOKENS

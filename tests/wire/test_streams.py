"""Recorded streams, one file per habit of a server, say the same however they are cut.

Each `.sse` file in `streams/` has a `.deltas` file beside it: what it must say, line by line.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from tests.wire.replay import replay

# Where they break, these say what they had held back in the hope of more.
HOLD_BACK = {"think_never_closed", "think_tags_split", "python_server_surrogates"}
STREAMS = sorted((Path(__file__).parent / "streams").glob("*.sse"))

pytestmark = pytest.mark.parametrize("path", STREAMS, ids=lambda path: path.stem)


def expected(path: Path) -> list[list[Any]]:
    lines = path.with_suffix(".deltas").read_text(encoding="utf-8").split("\n")
    return [json.loads(line) for line in lines if line]


def test_whole(path: Path) -> None:
    assert replay([path.read_bytes()]) == expected(path)


def test_byte_by_byte(path: Path) -> None:
    data = path.read_bytes()
    assert replay(data[n : n + 1] for n in range(len(data))) == expected(path)


def test_cut_in_two_at_every_place(path: Path) -> None:
    data, said = path.read_bytes(), expected(path)
    for cut in range(len(data)):
        assert replay([data[:cut], data[cut:]]) == said, f"cut at byte {cut}"


def test_cut_at_random(path: Path) -> None:
    data, said = path.read_bytes(), expected(path)
    dice = random.Random(path.stem)
    for _ in range(50):
        cuts = sorted(dice.sample(range(len(data)), k=min(9, len(data))))
        pieces = [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]
        assert replay(pieces) == said, f"cut at bytes {cuts}"


def test_a_stream_cut_short_says_a_prefix_and_ends_well_only_after_its_reason(path: Path) -> None:
    data, said = path.read_bytes(), without_usage(expected(path))
    for cut in range(len(data)):
        *short, last = without_usage(replay([data[:cut]]))
        assert last[0] in {"Stopped", "fault"}
        assert said[: len(short)] == short or path.stem in HOLD_BACK
        if last[0] == "Stopped":
            assert b'finish_reason":"' in data[:cut] or b"[DONE]" in data[:cut]


def without_usage(deltas: list[list[Any]]) -> list[list[Any]]:
    return [delta for delta in deltas if delta[0] != "UsageKnown"]

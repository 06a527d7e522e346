"""The picture: two panels, a line for each mode, in a file that is what its name says."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from antiphon.cli.bench.plot import SUFFIXES, draw
from antiphon.cli.bench.run import MeasuredMode
from tests.cli.bench.test_report import measured_turn

_MEASURED = [
    MeasuredMode("chat", [measured_turn(1), measured_turn(2)]),
    MeasuredMode("stateless", failure="turn 1: no"),
    MeasuredMode("stateful", [measured_turn(1, tokens_sent=10), measured_turn(2, tokens_sent=10)]),
]


def _texts(path: Path) -> set[str]:
    """Return the texts of a picture; their letters are drawn, and they stand there as comments."""
    ElementTree.parse(path)
    return set(re.findall(r"<!-- (.*?) -->", path.read_text("utf-8")))


def test_an_svg_names_the_panels_and_the_modes(tmp_path: Path) -> None:
    draw(tmp_path / "b.svg", "2 turns with m", _MEASURED)
    assert _texts(tmp_path / "b.svg") >= {
        "2 turns with m",
        "Tokens sent per turn (estimate)",
        "Latency per turn, s",
        "chat",
        "stateless (failed)",
        "stateful",
    }


def test_a_png_is_one_of_its_size(tmp_path: Path) -> None:
    draw(tmp_path / "b.png", "2 turns with m", _MEASURED)
    data = (tmp_path / "b.png").read_bytes()
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    assert data.rstrip().endswith(b"IEND\xaeB`\x82")
    assert (int.from_bytes(data[16:20]), int.from_bytes(data[20:24])) == (1500, 660)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_the_same_figures_make_the_same_file(tmp_path: Path, suffix: str) -> None:
    for name in ("one", "two"):
        draw(tmp_path / f"{name}{suffix}", "t", _MEASURED)
    assert (tmp_path / f"one{suffix}").read_bytes() == (tmp_path / f"two{suffix}").read_bytes()


def test_short_times_are_in_milliseconds(tmp_path: Path) -> None:
    fast = [MeasuredMode("chat", [measured_turn(1, seconds=0.02)])]
    draw(tmp_path / "b.svg", "t", fast)
    assert "Latency per turn, ms" in _texts(tmp_path / "b.svg")


def test_a_hundred_turns_are_not_a_hundred_marks(tmp_path: Path) -> None:
    few, many = (
        [MeasuredMode("chat", [measured_turn(number) for number in range(1, turns + 1)])]
        for turns in (20, 400)
    )
    draw(tmp_path / "few.svg", "t", few)
    draw(tmp_path / "many.svg", "t", many)
    marks = [(tmp_path / name).read_text().count("<use") for name in ("few.svg", "many.svg")]
    # Letters are counted too; 400 marks in each of two panels would be many more.
    assert marks[1] < 400

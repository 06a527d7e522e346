"""Lines over two logarithmic axes, as an SVG that is readable on light and on dark paper.

No library: a figure is rows of three panels, a panel has a few named lines, and what is drawn is
computed here. Colours come from a style sheet inside the picture, which asks the reader for the
paper. The figures come from a file that scale.py wrote.

    python bench/plot.py FROM.json TO.svg
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Final, NamedTuple

__all__ = ["Panel", "Point", "draw", "read_panels"]

Point = tuple[float, float]

_WIDTH: Final = 360
_HEIGHT: Final = 350
_COLUMNS: Final = 3
_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 14, 38, 110
_LEGEND_ROWS: Final = 3
_MARKS: Final = ("circle", "square", "diamond", "ring")
_STYLE: Final = """
  .paper { fill: #ffffff } .text { fill: #24292f } .faint { fill: #57606a }
  .grid { stroke: #d8dee4 } .axis { stroke: #57606a }
  .a { stroke: #0969da; fill: #0969da } .b { stroke: #bc4c00; fill: #bc4c00 }
  .c { stroke: #1a7f37; fill: #1a7f37 } .d { stroke: #8250df; fill: #8250df }
  .line { fill: none; stroke-width: 2 } .mark { stroke-width: 2 }
  .hollow { fill: #ffffff }
  text { font: 12px system-ui, sans-serif; stroke: none }
  .title { font-weight: 600; font-size: 13px }
  @media (prefers-color-scheme: dark) {
    .paper, .hollow { fill: #0d1117 } .text { fill: #e6edf3 } .faint { fill: #9198a1 }
    .grid { stroke: #30363d } .axis { stroke: #9198a1 }
    .a { stroke: #4493f8; fill: #4493f8 } .b { stroke: #f0883e; fill: #f0883e }
    .c { stroke: #3fb950; fill: #3fb950 } .d { stroke: #ab7df8; fill: #ab7df8 }
  }
"""


class Panel(NamedTuple):
    """One picture of a row. Points whose values are not above zero are left out."""

    title: str
    x_label: str
    y_label: str
    lines: Mapping[str, Sequence[Point]]


class _Axis:
    """A logarithmic axis from whole decade to whole decade, or less if that is too wide."""

    def __init__(self, values: Sequence[float], begin: float, end: float) -> None:
        low, high = min(values), max(values)
        self._low = _round_down(low)
        self._high = _round_up(high if high > low else low * 2)
        self._begin, self._end = begin, end

    def place(self, value: float) -> float:
        share = math.log(value / self._low) / math.log(self._high / self._low)
        return self._begin + share * (self._end - self._begin)

    def ticks(self) -> list[float]:
        first, last = math.floor(math.log10(self._low)), math.ceil(math.log10(self._high))
        decades = range(first, last + 1)
        steps = (1, 2, 5) if last - first <= 2 else (1,)
        values = [step * 10.0**decade for decade in decades for step in steps]
        return [v for v in values if self._low * 0.999 <= v <= self._high * 1.001]


def _round_down(value: float) -> float:
    decade = 10.0 ** math.floor(math.log10(value))
    return max(step * decade for step in (1, 2, 5) if step * decade <= value * 1.0001)


def _round_up(value: float) -> float:
    decade = 10.0 ** math.floor(math.log10(value))
    return min(step * decade for step in (1, 2, 5, 10) if step * decade >= value * 0.9999)


def draw(panels: Sequence[Panel]) -> str:
    """Return the picture."""
    width = _WIDTH * min(len(panels), _COLUMNS)
    height = _HEIGHT * math.ceil(len(panels) / _COLUMNS)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"'
        f' width="{width}" height="{height}" role="img">'
    )
    body = [
        f'<g transform="translate({_WIDTH * (number % _COLUMNS)}'
        f' {_HEIGHT * (number // _COLUMNS)})">\n{_draw_panel(panel)}\n</g>'
        for number, panel in enumerate(panels)
    ]
    paper = f'<rect class="paper" width="{width}" height="{height}"/>'
    return "\n".join([head, f"<style>{_STYLE}</style>", paper, *body, "</svg>", ""])


def _draw_panel(panel: Panel) -> str:
    lines = {
        name: [(x, y) for x, y in points if x > 0 and y > 0] for name, points in panel.lines.items()
    }
    points = [point for line in lines.values() for point in line]
    parts = [_text(_LEFT, 20, panel.title, "text title", "start")]
    if points:
        x_axis = _Axis([x for x, _ in points], _LEFT, _WIDTH - _RIGHT)
        y_axis = _Axis([y for _, y in points], _HEIGHT - _BOTTOM, _TOP)
        parts += _draw_axes(x_axis, y_axis)
        for number, (name, line) in enumerate(lines.items()):
            placed = [(x_axis.place(x), y_axis.place(y)) for x, y in line]
            parts += _draw_line(number, name, placed)
    middle = (_LEFT + _WIDTH - _RIGHT) / 2
    parts.append(_text(middle, _HEIGHT - _BOTTOM + 34, panel.x_label, "faint", "middle"))
    parts.append(
        f'<text class="faint" text-anchor="middle" transform="translate(14'
        f' {(_TOP + _HEIGHT - _BOTTOM) / 2:.0f}) rotate(-90)">{escape(panel.y_label)}</text>'
    )
    return "\n".join(parts)


def _draw_axes(x_axis: _Axis, y_axis: _Axis) -> Iterator[str]:
    left, right, top, bottom = _LEFT, _WIDTH - _RIGHT, _TOP, _HEIGHT - _BOTTOM
    for value in x_axis.ticks():
        x = x_axis.place(value)
        yield f'<path class="grid" d="M{x:.1f} {top}V{bottom}"/>'
        yield _text(x, bottom + 16, _short(value), "text", "middle")
    for value in y_axis.ticks():
        y = y_axis.place(value)
        yield f'<path class="grid" d="M{left} {y:.1f}H{right}"/>'
        yield _text(left - 6, y + 4, _short(value), "text", "end")
    yield f'<path class="axis" fill="none" d="M{left} {top}V{bottom}H{right}"/>'


def _draw_line(number: int, name: str, points: Sequence[Point]) -> Iterator[str]:
    colour = "abcd"[number % 4]
    path = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    if path:
        yield f'<path class="{colour} line" style="fill:none" d="M{path}"/>'
    for x, y in points:
        yield _mark(number, colour, x, y)
    column, row = divmod(number, _LEGEND_ROWS)
    x, y = _LEFT + column * 145, _HEIGHT - 50 + row * 18
    yield f'<path class="{colour} line" style="fill:none" d="M{x} {y - 4}h22"/>'
    yield _mark(number, colour, x + 11, y - 4)
    yield _text(x + 28, y, name, "text", "start")


def _mark(number: int, colour: str, x: float, y: float) -> str:
    """Return a mark of a shape of its own, so that lines differ without their colour too."""
    match _MARKS[number % len(_MARKS)]:
        case "square":
            shape = f'<rect class="{colour} mark" x="{x - 3:.1f}" y="{y - 3:.1f}"'
            return f'{shape} width="6" height="6"/>'
        case "diamond":
            return f'<path class="{colour} mark" d="M{x:.1f} {y - 4:.1f}l4 4-4 4-4-4z"/>'
        case "ring":
            return f'<circle class="{colour} mark hollow" cx="{x:.1f}" cy="{y:.1f}" r="3.5"/>'
    return f'<circle class="{colour} mark" cx="{x:.1f}" cy="{y:.1f}" r="3"/>'


def _text(x: float, y: float, content: str, kind: str, anchor: str) -> str:
    return (
        f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">'
        f"{escape(content)}</text>"
    )


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 1 else f"{value:g}"


def read_panels(path: Path) -> list[Panel]:
    """Return the panels of a file that scale.py wrote."""
    return [Panel(**panel) for panel in json.loads(path.read_text())["panels"]]


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("plot.py: say FROM.json TO.svg")
    Path(sys.argv[2]).write_text(draw(read_panels(Path(sys.argv[1]))))

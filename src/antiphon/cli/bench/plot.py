"""What was measured, as a picture: tokens sent and latency, turn by turn, a line for each mode.

The only module that imports matplotlib, which is the extra `plot`. The picture is drawn without
a screen and without the library's global state.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from antiphon.cli.bench.run import MeasuredMode, MeasuredTurn

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["SUFFIXES", "draw"]

SUFFIXES: Final = (".svg", ".png")

# Colours for colour-blind readers, and markers for lines that lie on each other.
_LOOKS: Final[dict[str, dict[str, Any]]] = {  # Any: what the library takes for a line
    "chat": {"color": "#D55E00", "marker": "s", "linestyle": "-", "markersize": 7.0},
    "stateless": {"color": "#0072B2", "marker": "o", "linestyle": "--", "markersize": 4.5},
    "stateful": {"color": "#009E73", "marker": "^", "linestyle": "-", "markersize": 5.5},
}
_GREY: Final = "#555555"
_STYLE: Final[dict[Any, Any]] = {  # Any: the library's names of settings are a type of its own
    "font.size": 10.0,
    "figure.constrained_layout.w_pad": 0.12,
    "figure.constrained_layout.h_pad": 0.1,
    "axes.edgecolor": "#999999",
    "axes.labelcolor": _GREY,
    "xtick.color": _GREY,
    "ytick.color": _GREY,
    "svg.hashsalt": "antiphon",  # the same figures, the same file
}


def draw(path: Path, title: str, measured: Sequence[MeasuredMode]) -> None:
    """Write the picture in the format of the path's suffix. Raise ImportError or OSError."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(_STYLE):
        figure = Figure(figsize=(10, 4.4), dpi=150, layout="constrained")
        left, right = figure.subplots(1, 2)
        unit, scale = _unit(measured)
        _panel(left, "Tokens sent per turn (estimate)", measured, lambda turn: turn.tokens_sent)
        _panel(right, f"Latency per turn, {unit}", measured, lambda turn: turn.seconds * scale)
        left.yaxis.set_major_formatter("{x:,.0f}")
        figure.suptitle(title, x=0.015, ha="left", fontsize=11, color=_GREY)
        handles, labels = left.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper right", ncols=3, frameon=False)
        metadata = {"Date": None} if path.suffix.lower() == ".svg" else None
        figure.savefig(path, metadata=metadata)


def _panel(
    axes: Axes, title: str, measured: Sequence[MeasuredMode], value: Callable[[MeasuredTurn], float]
) -> None:
    from matplotlib.ticker import MaxNLocator

    for mode in measured:
        turns = [turn.turn for turn in mode.turns]
        label = f"{mode.mode} (failed)" if mode.failure else mode.mode
        axes.plot(
            turns,
            [value(turn) for turn in mode.turns],
            label=label,
            **_LOOKS[mode.mode],
            markevery=max(len(turns) // 20, 1),
            linewidth=1.8,
        )
    axes.set_title(title, loc="left", fontsize=12)
    axes.set_xlabel("turn")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_ylim(bottom=0)
    axes.grid(axis="y", color="#e4e4e4")
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def _unit(measured: Sequence[MeasuredMode]) -> tuple[str, float]:
    slowest = max((turn.seconds for mode in measured for turn in mode.turns), default=0.0)
    return ("s", 1.0) if slowest >= 1 else ("ms", 1e3)

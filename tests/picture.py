"""The picture of the rooms in docs/topics/design.md, drawn from the imports of the code.

An arrow means "imports". Only the arrows that no longer way implies are drawn: where `server`
imports `engine` and `engine` imports `store`, an arrow from `server` to `store` would add nothing.

    python -m tests.picture            prints the diagram
    python -m tests.picture --write    writes it into the page
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

__all__ = ["PAGE", "ROOMS", "diagram", "main", "picture_in", "reduced", "room_imports"]

ROOT: Final = Path(__file__).parent.parent
PAGE: Final = ROOT / "docs/topics/design.md"
_SOURCE: Final = ROOT / "src/antiphon"
_FENCE: Final = re.compile(r"```mermaid\n(.*?)```\n", re.DOTALL)
ROOMS: Final = sorted(path.parent.name for path in _SOURCE.glob("*/__init__.py"))
_WINGS: Final = {
    "calling wing": ["client", "host"],
    "serving wing": [
        "accounts",
        "backends",
        "engine",
        "gateway",
        "routing",
        "server",
        "store",
        "tools",
    ],
}

Graph = Mapping[str, set[str]]


def room_imports() -> dict[str, set[str]]:
    """Return which rooms each room imports, also in functions and for type checkers only."""
    graph: dict[str, set[str]] = {room: set() for room in ROOMS}
    for room in ROOMS:
        for path in (_SOURCE / room).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                graph[room] |= _rooms_in(node)
        graph[room] -= {room}
    return graph


def _rooms_in(node: ast.AST) -> set[str]:
    names: list[str] = []
    match node:
        case ast.Import(names=aliases):
            names = [alias.name for alias in aliases]
        case ast.ImportFrom(module="antiphon", names=aliases):
            names = [f"antiphon.{alias.name}" for alias in aliases]
        case ast.ImportFrom(module=str(module)):
            names = [module]
    parts = [name.split(".") for name in names]
    return {steps[1] for steps in parts if steps[0] == "antiphon" and steps[1:2]} & set(ROOMS)


def reduced(graph: Graph) -> dict[str, set[str]]:
    """Return the graph without the arrows that a longer way implies; it must have no cycle."""
    below: dict[str, set[str]] = {}

    def reach(room: str, above: tuple[str, ...]) -> set[str]:
        assert room not in above, f"the rooms import each other: {' > '.join((*above, room))}"
        if room not in below:
            below[room] = set()
            for other in graph[room]:
                below[room] |= {other} | reach(other, (*above, room))
        return below[room]

    for room in graph:
        reach(room, ())
    return {
        room: {other for other in others if not any(other in below[via] for via in others)}
        for room, others in graph.items()
    }


def diagram() -> str:
    """Return the Mermaid diagram of the rooms as the code is now."""
    lines = ["flowchart TD"]
    for wing, rooms in _WINGS.items():
        lines.append(f'    subgraph {wing.partition(" ")[0]} ["{wing}"]')
        lines += [f"        {room}" for room in rooms]
        lines.append("    end")
    graph = reduced(room_imports())
    lines += [f"    {room} --> {other}" for room in graph for other in sorted(graph[room])]
    return "\n".join(lines) + "\n"


def picture_in(page: str) -> str:
    """Return the one Mermaid diagram of a page."""
    (found,) = _FENCE.findall(page)
    return str(found)


def main() -> None:
    """Print the diagram, or write it into the page."""
    if sys.argv[1:] == ["--write"]:
        page = PAGE.read_text("utf-8")
        PAGE.write_text(_FENCE.sub(f"```mermaid\n{diagram()}```\n", page), "utf-8")
    else:
        print(diagram(), end="")


if __name__ == "__main__":
    main()

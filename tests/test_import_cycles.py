"""No module of the package imports itself through others, also not for its types alone.

Every import statement counts, wherever it is: in a function, or under TYPE_CHECKING. `from
package import module` counts as an import of both, because the package runs first.
"""

from __future__ import annotations

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src"

Graph = dict[str, set[str]]


def read_graph(source: Path) -> Graph:
    """Return the modules under a directory, each with those that it imports."""
    paths = {_name(path.relative_to(source)): path for path in source.rglob("*.py")}
    return {name: (_imports(path) & paths.keys()) - {name} for name, path in paths.items()}


def _name(path: Path) -> str:
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imports(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        match node:
            case ast.Import(names=names):
                found |= {name.name for name in names}
            case ast.ImportFrom(module=str(module), names=names):
                found |= {module} | {f"{module}.{name.name}" for name in names}
    return found


def find_cycle(graph: Graph) -> list[str]:
    """Return the modules of one cycle, or nothing."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        cycle: list[str] = error.args[1]
        return cycle
    return []


def test_no_module_imports_itself_through_others() -> None:
    assert find_cycle(read_graph(SOURCE)) == []


@pytest.mark.parametrize(
    "line",
    [
        "import room.first",
        "from room.first import First",
        "from room import first",
        "if TYPE_CHECKING:\n    from room.first import First",
        "def f():\n    from room.first import First",
    ],
)
def test_a_cycle_is_found_however_it_is_written(tmp_path: Path, line: str) -> None:
    room = tmp_path / "room"
    room.mkdir()
    (room / "__init__.py").write_text("")
    (room / "first.py").write_text("from room.second import Second\n")
    (room / "second.py").write_text("")
    assert find_cycle(read_graph(tmp_path)) == []
    (room / "second.py").write_text(f"{line}\n")
    assert set(find_cycle(read_graph(tmp_path))) == {"room.first", "room.second"}


def test_a_module_that_imports_its_own_package_is_found(tmp_path: Path) -> None:
    room = tmp_path / "room"
    room.mkdir()
    (room / "__init__.py").write_text("from room.face import Face\n")
    (room / "face.py").write_text("from room import rows\n")
    (room / "rows.py").write_text("")
    assert set(find_cycle(read_graph(tmp_path))) == {"room", "room.face"}

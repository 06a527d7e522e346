"""What shape is the package in? Size, import cycles, and what one streamed turn passes through.

The traced turn is a streamed, stored answer of two sentences and one tool call, over the whole
gateway with a scripted chat server behind it. Counted are our own functions in the thread that
serves it. "Changes of room" counts how often a call lands in another room than the call before
it. "Objects" are instances of our classes that exist while the turn streams, and not before.

    python bench/shape.py [--before TREE]      TREE: another checkout, shown beside this one
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Container, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from antiphon.testing import Call, Script, ScriptedUpstream, Stall

__all__ = ["main"]

_HERE: Final = Path(__file__).resolve().parent.parent
_WAIT: Final = 60.0
_TURN: Final = {
    "model": "echo",
    "input": "What is the weather in Turin?",
    "stream": True,
    "tools": [
        {
            "type": "function",
            "name": "weather",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
        }
    ],
}

# Runs inside the gateway's process. SIGUSR1 starts the trace or counts the objects, by turns.
_TRACER: Final = """
import collections, gc, json, os, signal, sys
root = sys.argv[1]
out = sys.argv[2]
functions, modules, counts = set(), set(), collections.Counter()
last = [None]
def note(frame, kind, _):
    if kind != "call":
        return
    code = frame.f_code
    name = code.co_filename
    if not name.startswith(root):
        return
    place = name[len(root):].lstrip("/").split("/")
    room = place[0]
    functions.add((name, code.co_firstlineno, code.co_name))
    modules.add(name)
    counts["calls"] += 1
    counts["rooms"] += room != last[0]
    last[0] = room
def ours():
    gc.collect()
    return {id(o): type(o).__qualname__ for o in gc.get_objects()
            if type(o).__module__.startswith("antiphon")}
before = {}
def step(*_):
    count[0] += 1
    if count[0] == 1:
        before.update(ours())
        sys.setprofile(note)
    elif count[0] == 2:
        sys.setprofile(None)
        kinds = collections.Counter(n for i, n in ours().items() if i not in before)
        counts["objects"], counts["classes"] = sum(kinds.values()), len(kinds)
        sys.setprofile(note)
    else:
        sys.setprofile(None)
        with open(out + ".new", "w") as file:
            json.dump({"functions": len(functions), "modules": len(modules), **counts}, file)
        os.rename(out + ".new", out)
    open(f"{out}.{count[0]}", "w").close()
count = [0]
signal.signal(signal.SIGUSR1, step)
sys.argv = ["antiphon", *sys.argv[3:]]
from antiphon.cli import main
main()
"""


class _Size(NamedTuple):
    modules: int
    lines: int
    largest_modules: list[tuple[int, str]]
    largest_classes: list[tuple[int, str]]
    cycles: list[list[str]]


def main(before: Path | None = None) -> None:
    """Measure and print one column for each tree."""
    trees = [("before", before)] if before is not None else []
    trees.append(("now", _HERE))
    columns = {name: asyncio.run(_figures(tree.resolve())) for name, tree in trees}
    width = max(len(row) for row in columns["now"])
    print(" " * width, *(f"{name:>28}" for name in columns))
    for row in columns["now"]:
        print(f"{row:{width}}", *(f"{figures[row]:>28}" for figures in columns.values()))


async def _figures(tree: Path) -> dict[str, str]:
    size = _measure(tree / "src" / "antiphon")
    trace = await _trace(tree)
    return {
        "modules": str(size.modules),
        "lines": str(size.lines),
        "import cycles (TYPE_CHECKING included)": str(len(size.cycles)),
        "modules in the largest cycle": str(max(map(len, size.cycles), default=0)),
        **_ranked("largest module", size.largest_modules),
        **_ranked("largest class", size.largest_classes),
        "traced turn: functions": str(trace["functions"]),
        "traced turn: modules": str(trace["modules"]),
        "traced turn: calls": str(trace["calls"]),
        "traced turn: changes of room": str(trace["rooms"]),
        "traced turn: objects": str(trace["objects"]),
        "traced turn: classes of these": str(trace["classes"]),
    }


def _ranked(title: str, found: list[tuple[int, str]]) -> dict[str, str]:
    return {f"{title} {place}": f"{name} {count}" for place, (count, name) in enumerate(found, 1)}


def _measure(package: Path) -> _Size:
    """Return the figures that reading the source gives."""
    sources = {_module_name(package, path): path for path in package.rglob("*.py")}
    trees = {name: ast.parse(path.read_text()) for name, path in sources.items()}
    lines = {name: len(path.read_text().splitlines()) for name, path in sources.items()}
    classes = [
        ((node.end_lineno or 0) - node.lineno + 1, f"{name.rpartition('.')[2]}.{node.name}")
        for name, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    ]
    graph = {name: set(_imports(tree, sources)) - {name} for name, tree in trees.items()}
    return _Size(
        len(sources),
        sum(lines.values()),
        sorted(((count, name.removeprefix("antiphon.")) for name, count in lines.items()))[:-4:-1],
        sorted(classes)[:-4:-1],
        _cycles(graph),
    )


def _module_name(package: Path, path: Path) -> str:
    parts = path.relative_to(package.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imports(tree: ast.Module, known: Container[str | None]) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module in known:
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                yield whole if whole in known else str(node.module)


def _cycles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Return the strongly connected groups of more than one module."""
    groups = []
    left = set(graph)
    while left:
        start = left.pop()
        group = {start} | (_reach(graph, start) & _reach(_reversed(graph), start))
        left -= group
        if len(group) > 1:
            groups.append(sorted(group))
    return groups


def _reach(graph: dict[str, set[str]], start: str) -> set[str]:
    seen: set[str] = set()
    waiting = [start]
    while waiting:
        for name in graph[waiting.pop()] - seen:
            seen.add(name)
            waiting.append(name)
    return seen


def _reversed(graph: dict[str, set[str]]) -> dict[str, set[str]]:
    back: dict[str, set[str]] = {name: set() for name in graph}
    for name, targets in graph.items():
        for target in targets:
            back[target].add(name)
    return back


async def _trace(tree: Path) -> dict[str, int]:
    """Run one turn through a traced gateway of that tree and return the counts."""
    text = "Turin lies in Piedmont. I will look up the weather there."
    call = Call("weather", '{"city": "Turin"}')
    plain = Script(text=text, calls=[call])
    stalled = Script(text=text, calls=[call], faults=[Stall(after=6)])
    with tempfile.TemporaryDirectory() as folder:
        async with ScriptedUpstream([plain, stalled, plain]) as upstream:
            place = Path(folder)
            (place / "home").mkdir()
            arguments = ["serve", "--upstream", upstream.base_url, "--port", "0"]
            arguments += ["--store", f"sqlite:{place}/turns.db"]
            process = _start(tree, place, arguments)
            try:
                return await _traced(process, upstream, place)
            finally:
                process.terminate()
                process.wait(_WAIT)


def _start(tree: Path, place: Path, arguments: list[str]) -> subprocess.Popen[str]:
    tracer = [sys.executable, "-c", _TRACER, str(tree / "src/antiphon"), f"{place}/out"]
    return subprocess.Popen(
        [*tracer, *arguments],
        env={**os.environ, "PYTHONPATH": str(tree / "src"), "HOME": str(place)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


async def _traced(
    process: subprocess.Popen[str], upstream: ScriptedUpstream, place: Path
) -> dict[str, int]:
    port = await asyncio.to_thread(_port_of, process)
    await asyncio.wait_for(_ask(port), _WAIT)  # imports what the first turn imports
    process.send_signal(signal.SIGUSR1)
    await asyncio.to_thread(_wait_for, place / "out.1")
    turn = asyncio.ensure_future(_ask(port))
    await asyncio.wait_for((await upstream.received(2)).stalled.wait(), _WAIT)
    await asyncio.sleep(0.5)  # what was received is stored and sent
    process.send_signal(signal.SIGUSR1)
    await asyncio.to_thread(_wait_for, place / "out.2")
    upstream.release()
    await asyncio.wait_for(turn, _WAIT)
    process.send_signal(signal.SIGUSR1)
    await asyncio.to_thread(_wait_for, place / "out")
    found: dict[str, int] = json.loads((place / "out").read_text())
    return found


def _port_of(process: subprocess.Popen[str]) -> int:
    assert process.stdout is not None
    seen = ""
    for line in process.stdout:
        seen += line
        if "http://127.0.0.1:" in line and "/v1" in line:
            return int(line.partition("http://127.0.0.1:")[2].partition("/")[0])
    raise RuntimeError(f"the gateway did not start:\n{seen}")


async def _ask(port: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    body = json.dumps(_TURN).encode()
    writer.write(
        b"POST /v1/responses HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
        b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
    )
    answer = await reader.read()
    writer.close()
    if b"event: response.completed" not in answer:
        raise RuntimeError(f"the turn did not complete: {answer[-2000:]!r}")


def _wait_for(path: Path) -> None:
    """Wait for a file that the traced process makes; a signal has no answer of its own."""
    limit = time.monotonic() + _WAIT
    while not path.exists():
        if time.monotonic() > limit:
            raise RuntimeError(f"the traced gateway did not write {path.name}")
        time.sleep(0.05)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--before", type=Path, help="another checkout, shown beside this one")
    main(parser.parse_args().before)

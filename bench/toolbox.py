"""What does an agent's toolbox cost? Requests with 24 tools beside the same ones without.

One gateway, one connection, stored requests in turns: plain, with tools, plain, … so that the
load of the machine meets both alike. The tools are the same each time, as an agent sends them.
What it costs to send the bytes upstream is part of the figure.

    python bench/toolbox.py [--tools 24] [--rounds 400] [--stream] [--before TREE]
"""

from __future__ import annotations

import argparse
import http.client
import json
import statistics
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, Final

from processes import Process, Trouble, code_of, gateway, machine, scratch, script

__all__ = ["main", "make_tool"]

_WARM_UP: Final = 30
_BODY: Final = {
    "model": "whole",
    "instructions": "You are a coding agent. Work in small steps and check each of them. " * 8,
    "input": "Look at the file that holds the settings and tell me what is wrong with it.",
}


def main(tools: int, rounds: int, *, stream: bool, before: Path | None) -> None:
    """Ask in turns and print what a request of each kind costs."""
    plain = _BODY | {"stream": stream}
    rich = plain | {"tools": [make_tool(index) for index in range(tools)]}
    size = len(json.dumps(rich))
    print(f"Stored requests with {tools} tools, {size:,} bytes ({machine()})")
    print(f"CPU ms of the gateway, medians of {rounds}\n")
    print(f"{'':10}{'plain':>10}{'tools':>10}{'ratio':>8}")
    trees = {"before": before.resolve()} if before else {}
    for name, tree in (*trees.items(), ("now", None)):
        costs = [_measure([plain, rich], rounds, tree) for _ in range(2)]
        small, large = (min(cost[kind] for cost in costs) for kind in (0, 1))
        print(f"{name:10}{small * 1000:10.3f}{large * 1000:10.3f}{large / small:8.2f}")


def _measure(bodies: list[dict[str, Any]], rounds: int, tree: Path | None) -> list[float]:
    with ExitStack() as stack:
        stack.enter_context(code_of(tree))
        directory = stack.enter_context(scratch())
        upstream = stack.enter_context(script("upstream.py"))
        flags = ("--upstream", f"http://127.0.0.1:{upstream.port}/v1")
        process = stack.enter_context(gateway(*flags, store=directory / "toolbox.db"))
        connection = http.client.HTTPConnection("127.0.0.1", process.port, timeout=60)
        stack.enter_context(closing(connection))
        encoded = [json.dumps(body).encode() for body in bodies]
        costs: list[list[float]] = [[] for _ in bodies]
        for turn in range(rounds + _WARM_UP):
            for kind, data in enumerate(encoded):
                cost = _ask(process, connection, data)
                if turn >= _WARM_UP:
                    costs[kind].append(cost)
        return [statistics.median(cost) for cost in costs]


def _ask(process: Process, connection: http.client.HTTPConnection, data: bytes) -> float:
    cpu = process.cpu
    connection.request("POST", "/v1/responses", data, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    body = answer.read()
    if answer.status != 200 or b'"completed"' not in body:
        raise Trouble(f"a turn was answered with {answer.status}: {body[:300]!r}")
    return process.cpu - cpu


def make_tool(index: int) -> dict[str, Any]:
    """Return a tool as agents have them: about a kilobyte, a few parameters with descriptions."""
    place = {"type": "string", "description": "An absolute path inside the workspace."}
    properties: dict[str, Any] = {f"path_{number}": place for number in range(4)}
    properties["limit"] = {"type": "integer", "minimum": 0, "description": "How many lines."}
    properties["modes"] = {
        "type": "array",
        "items": {"type": "string", "enum": ["read", "write", "append"]},
    }
    return {
        "type": "function",
        "name": f"workspace_tool_{index}",
        "description": "Does one thing with the files of the workspace and reports on it. " * 4,
        "strict": False,
        "parameters": {
            "type": "object",
            "properties": properties,
            "required": ["path_0"],
            "additionalProperties": False,
        },
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tools", type=int, default=24)
    parser.add_argument("--rounds", type=int, default=400)
    parser.add_argument("--stream", action="store_true")
    parser.add_argument("--before", type=Path, help="another checkout, measured first")
    given = parser.parse_args()
    main(given.tools, given.rounds, stream=given.stream, before=given.before)

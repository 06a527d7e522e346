"""What does an agent's long request cost beside a short one, through each door?

The long one is as large as those of Claude Code, in our own words: 24 tools with `$schema`, three
system blocks and eight messages, of which the last differs each time, as an agent's do. Both are
streamed, ask for nothing to be stored, and get the same short answer. They take turns on one
connection, ten of a kind in a row, so that the load of the machine meets both alike and what
is done after an answer counts for its own kind. Figures are CPU of the gateway's process for one
request; the goal is for the Messages door.

    python bench/agent_request.py [--rounds 40] [--before TREE]
"""

from __future__ import annotations

import argparse
import http.client
import itertools
import json
import statistics
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from processes import Process, Trouble, code_of, gateway, machine, scratch, script

__all__ = ["DOORS", "agent_tools", "long_body", "main"]

GOAL: Final = 1.5
_WARM_UP: Final = 3
_IN_A_ROW: Final = 10
_MODEL: Final = "brief"
_TOOLS: Final = 24
_CALLS: Final = 3

Body = dict[str, Any]


class _Door(NamedTuple):
    path: str
    end: bytes
    write: Callable[[list[str], list[Body], list[Body]], Body]
    """Returns a body with these system texts, tools and messages; each as Messages has them."""


def main(rounds: int, *, before: Path | None) -> int:
    """Measure and print the table; return 1 if the Messages door is over the goal."""
    size = len(_encode(long_body("messages", 0)))
    print(f"CPU ms of the gateway, a streamed request of {size:,} bytes ({machine()})")
    print(f"medians of {rounds} times {_IN_A_ROW} requests, lowest in brackets\n")
    print(f"{'':9}{'door':12}{'short':>18}{'long':>18}{'ratio':>8}   goal: at most {GOAL}")
    trees = {"before": before.resolve()} if before else {}
    ratios: dict[tuple[str, str], float] = {}
    for name, tree in (*trees.items(), ("now", None)):
        with _serving(tree) as process:
            for door in DOORS:
                short, long = _measure(process, door, rounds)
                ratio = ratios[name, door] = statistics.median(long) / statistics.median(short)
                print(f"{name:9}{door:12}{_shown(short):>18}{_shown(long):>18}{ratio:8.2f}")
    return 1 if ratios["now", "messages"] > GOAL else 0


def _shown(costs: list[float]) -> str:
    return f"{statistics.median(costs) * 1e3:.3f} ({min(costs) * 1e3:.3f})"


@contextmanager
def _serving(tree: Path | None) -> Iterator[Process]:
    with ExitStack() as stack:
        directory = stack.enter_context(scratch())
        upstream = stack.enter_context(script("stamped.py"))
        url = f"http://127.0.0.1:{upstream.port}/v1"
        with code_of(tree):
            process = stack.enter_context(gateway("--upstream", url, store=directory / "agent.db"))
        yield process


def _measure(process: Process, door: str, rounds: int) -> tuple[list[float], list[float]]:
    """Return what a short and a long request have cost in each round."""
    costs: tuple[list[float], list[float]] = ([], [])
    numbers = itertools.count()
    connection = http.client.HTTPConnection("127.0.0.1", process.port, timeout=60)
    with closing(connection):
        for turn in range(rounds + _WARM_UP):
            short = [_short_body(door)] * _IN_A_ROW
            long = [long_body(door, next(numbers)) for _ in range(_IN_A_ROW)]
            for found, bodies in zip(costs, (short, long), strict=True):
                cost = _ask_all(process, connection, DOORS[door], bodies)
                if turn >= _WARM_UP:
                    found.append(cost)
    return costs


def _ask_all(
    process: Process, connection: http.client.HTTPConnection, door: _Door, bodies: list[Body]
) -> float:
    """Send the requests one after the other; return the CPU seconds for one of them."""
    encoded = [_encode(body) for body in bodies]
    cpu = process.cpu
    for data in encoded:
        connection.request("POST", door.path, data, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        told = answer.read()
        if answer.status != 200 or not told.endswith(door.end):
            raise Trouble(f"{door.path} answered with {answer.status}: {told[-300:]!r}")
    return (process.cpu - cpu) / len(encoded)


def _encode(body: Body) -> bytes:
    return json.dumps(body, separators=(",", ":")).encode()


def _short_body(door: str) -> Body:
    return DOORS[door].write(["You are brief."], [], [_said("user", "Look at the settings.")])


def long_body(door: str, turn: int) -> Body:
    """Return a request of 76 KB like those of Claude Code; only its last message has the turn."""
    rules = "Work in small steps, check each of them, and report what you have really seen. "
    system = ["Sent by an agent.", "You are a coding agent.", rules * 190]
    messages = [_said("user", "Find out why the build fails. " * 20)]
    for number in range(_CALLS):
        called = {"type": "tool_use", "id": f"toolu_{number}", "name": f"tool_{number}"}
        said = {"type": "text", "text": "I look at the next file."}
        messages.append(
            {"role": "assistant", "content": [said, {**called, "input": {"field_0": "a/b.py"}}]}
        )
        seen = "    return settings.get(name, default)  # line of the file\n" * 20
        result = {"type": "tool_result", "tool_use_id": f"toolu_{number}", "content": seen}
        messages.append({"role": "user", "content": [result]})
    messages.append(_said("user", f"Go on with step {turn}."))
    return DOORS[door].write(system, [_tool(number) for number in range(_TOOLS)], messages)


def _said(role: str, text: str) -> Body:
    return {"role": role, "content": [{"type": "text", "text": text}]}


def _tool(number: int) -> Body:
    fields = {
        f"field_{index}": {"type": "string", "description": "What this field is for. " * 4}
        for index in range(6)
    }
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": fields,
        "required": ["field_0"],
        "additionalProperties": False,
    }
    about = "Does one thing with the files of the workspace and reports on it. " * 20
    return {"name": f"tool_{number}", "description": about, "input_schema": schema}


def agent_tools() -> list[Body]:
    """Return the tools of the long request, as the Responses door has them."""
    return [{"type": "function", **_function(_tool(number))} for number in range(_TOOLS)]


def _messages(system: list[str], tools: list[Body], messages: list[Body]) -> Body:
    body: Body = {
        "model": _MODEL,
        "max_tokens": 32_000,
        "stream": True,
        "system": [{"type": "text", "text": text} for text in system],
        "messages": messages,
    }
    return body | ({"tools": tools} if tools else {})


def _chat(system: list[str], tools: list[Body], messages: list[Body]) -> Body:
    said: list[Body] = [{"role": "system", "content": text} for text in system]
    for block, role in _blocks(messages):
        if block["type"] == "text":
            said.append({"role": role, "content": block["text"]})
        elif block["type"] == "tool_use":
            function = {"name": block["name"], "arguments": json.dumps(block["input"])}
            said[-1]["tool_calls"] = [{"id": block["id"], "type": "function", "function": function}]
        else:
            called = block["tool_use_id"]
            said.append({"role": "tool", "tool_call_id": called, "content": block["content"]})
    offered = [{"type": "function", "function": _function(tool)} for tool in tools]
    body: Body = {"model": _MODEL, "stream": True, "messages": said}
    return body | ({"tools": offered} if tools else {})


def _responses(system: list[str], tools: list[Body], messages: list[Body]) -> Body:
    items: list[Body] = [{"type": "message", "role": "system", "content": s} for s in system[1:]]
    for block, role in _blocks(messages):
        if block["type"] == "text":
            items.append({"type": "message", "role": role, "content": block["text"]})
        elif block["type"] == "tool_use":
            call = {"call_id": block["id"], "name": block["name"]}
            arguments = json.dumps(block["input"])
            items.append({"type": "function_call", **call, "arguments": arguments})
        else:
            seen = {"call_id": block["tool_use_id"], "output": block["content"]}
            items.append({"type": "function_call_output", **seen})
    offered = [{"type": "function", **_function(tool)} for tool in tools]
    body: Body = {"model": _MODEL, "stream": True, "store": False, "instructions": system[0]}
    return body | {"input": items} | ({"tools": offered} if tools else {})


def _blocks(messages: list[Body]) -> Iterator[tuple[Body, str]]:
    for message in messages:
        for block in message["content"]:
            yield block, message["role"]


def _function(tool: Body) -> Body:
    named = {"name": tool["name"], "description": tool["description"]}
    return {**named, "parameters": tool["input_schema"]}


DOORS: Final = {
    "messages": _Door("/v1/messages", b'{"type":"message_stop"}\n\n', _messages),
    "chat": _Door("/v1/chat/completions", b"data: [DONE]\n\n", _chat),
    "responses": _Door("/v1/responses", b"data: [DONE]\n\n", _responses),
}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--before", type=Path, help="another checkout, measured first")
    given = parser.parse_args()
    try:
        sys.exit(main(given.rounds, before=given.before))
    except Trouble as trouble:
        sys.exit(f"agent_request.py: {trouble}")

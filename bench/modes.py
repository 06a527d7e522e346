"""What does a streamed token cost in each kind of turn?

A plain SSE stream, one with a tool, one with an agent's 24 tools, a WebSocket, a background turn
and streams through the other doors, which are stored too, against one gateway with a durable
store. The rows take turns within each repeat, so that the load of the machine meets all alike.
Figures are CPU of the gateway's process per token, and the ratio to the plain row. The tokens
come one to a read, 25 a second. With `--before`, doors that the other tree does not have are left
out of its rows.

With `--wires` the rows are plain SSE streams from an upstream of each API, and the ratio is that
to the upstream with chat completions.

    python bench/modes.py [--wires] [--streams 40] [--repeats 5] [--before TREE]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import aiohttp
from apis import APIS
from processes import Process, Trouble, code_of, gateway, machine, run_loop, scratch, script
from toolbox import make_tool
from upstream import PACED_TOKENS

__all__ = ["main"]

_BODY: Final = {
    "model": "chat/paced",
    "instructions": "You are brief.",
    "input": "Tell me of the lighthouse and its keeper.",
}
_ENDS: Final = ("response.completed", "response.failed", "response.incomplete")
_POLL_SECONDS: Final = 0.5
_PATIENCE: Final = 120.0

_PATHS: Final = {"gemini": "/v1beta"}
"""Where the APIs of an upstream begin that do not begin at /v1."""

_Ask = Callable[[aiohttp.ClientSession, str], Awaitable[None]]


class _NoSuchDoor(Trouble):
    """The gateway does not serve this API."""


def main(streams: int, repeats: int, *, is_wires: bool, before: Path | None) -> None:
    """Measure and print the table; the ratio is that to the first row."""
    modes = _WIRES if is_wires else _MODES
    apis = list(APIS) if is_wires else ["chat"]
    print(f"CPU us of the gateway per token, {streams} streams at a time ({machine()})")
    print(f"medians of {repeats}, lowest and highest in brackets\n")
    trees = {"before": before.resolve()} if before else {}
    with ExitStack() as stack:
        upstream = stack.enter_context(script("upstream.py"))
        processes = {
            name: stack.enter_context(_serving(upstream, tree, apis))
            for name, tree in (*trees.items(), ("now", None))
        }
        costs: dict[tuple[str, str], list[float]] = {}
        for repeat in range(repeats + 1):  # the first requests of a process pay for its imports
            for mode, ask in modes.items():
                for name, process in processes.items():
                    try:
                        cost = _measure(process, ask, streams)
                    except _NoSuchDoor:
                        if name == "now":
                            raise
                        continue
                    if repeat:
                        costs.setdefault((name, mode), []).append(cost)
    for name in processes:
        _print(name, {mode: costs[name, mode] for mode in modes if (name, mode) in costs})


@contextmanager
def _serving(upstream: Process, tree: Path | None, apis: Sequence[str]) -> Iterator[Process]:
    """Run a gateway of this tree or of another, with a provider for each of the APIs."""
    with ExitStack() as stack:
        directory = stack.enter_context(scratch())
        settings = directory / "antiphon.toml"
        settings.write_text("".join(_provider(api, upstream.port) for api in apis))
        with code_of(tree):
            started = gateway("--config", str(settings), store=directory / "m.db")
            process = stack.enter_context(started)
        yield process


def _provider(api: str, port: int) -> str:
    url = f"http://127.0.0.1:{port}{_PATHS.get(api, '/v1')}"
    return f'[providers.{api}]\nwire_api = "{api}"\nbase_url = "{url}"\n'


def _measure(process: Process, ask: _Ask, streams: int) -> float:
    before = process.cpu
    run_loop(_run(f"http://127.0.0.1:{process.port}/v1/responses", ask, streams))
    return (process.cpu - before) / (streams * PACED_TOKENS) * 1e6


async def _run(url: str, ask: _Ask, streams: int) -> None:
    connector = aiohttp.TCPConnector(limit=0)
    async with asyncio.timeout(_PATIENCE), aiohttp.ClientSession(connector=connector) as session:
        await asyncio.gather(*(ask(session, url) for _ in range(streams)))


def _sse(tools: int = 0, wire: str = "chat") -> _Ask:
    body: dict[str, Any] = _BODY | {"model": f"{wire}/paced", "stream": True}
    if tools:
        body["tools"] = [make_tool(index) for index in range(tools)]

    async def ask(session: aiohttp.ClientSession, url: str) -> None:
        async with session.post(url, json=body) as answer:
            data = await answer.read()
        if b"event: response.completed" not in data:
            raise Trouble(f"a stream did not complete: {data[-200:]!r}")

    return ask


def _door(path: str, end: bytes, **fields: Any) -> _Ask:
    """Return a stream of another API, which ends with these bytes."""
    said = [{"role": "user", "content": _BODY["input"]}]
    body = {"model": _BODY["model"], "messages": said, "stream": True, "store": True, **fields}

    async def ask(session: aiohttp.ClientSession, url: str) -> None:
        async with session.post(url.replace("responses", path), json=body) as answer:
            data = await answer.read()
            if answer.status == 404:
                raise _NoSuchDoor(f"{path} is not served")
        if not data.endswith(end):
            raise Trouble(f"a stream of {path} did not complete: {data[-200:]!r}")

    return ask


async def _websocket(session: aiohttp.ClientSession, url: str) -> None:
    async with session.ws_connect(url, max_msg_size=0) as socket:
        await socket.send_json(_BODY | {"type": "response.create"})
        async for message in socket:
            kind = json.loads(message.data)["type"]
            if kind == "error" or kind in _ENDS:
                break
    if kind != "response.completed":
        raise Trouble(f"a turn over a WebSocket ended with {kind}")


async def _background(session: aiohttp.ClientSession, url: str) -> None:
    async with session.post(url, json=_BODY | {"background": True, "stream": False}) as answer:
        response = await answer.json()
    while response["status"] in ("queued", "in_progress"):
        await asyncio.sleep(_POLL_SECONDS)
        async with session.get(f"{url}/{response['id']}") as answer:
            response = await answer.json()
    if response["status"] != "completed":
        raise Trouble(f"a background turn ended as {response['status']}")


_MODES: Final[dict[str, _Ask]] = {
    "SSE": _sse(),
    "SSE, 1 tool": _sse(1),
    "SSE, 24 tools": _sse(24),
    "WebSocket": _websocket,
    "background": _background,
    "chat door": _door("chat/completions", b"data: [DONE]\n\n"),
    "Messages door": _door("messages", b'{"type":"message_stop"}\n\n', max_tokens=1000),
}
_WIRES: Final[dict[str, _Ask]] = {f"{api} upstream": _sse(wire=api) for api in APIS}


def _print(name: str, costs: dict[str, list[float]]) -> None:
    plain = statistics.median(next(iter(costs.values())))
    for mode, found in costs.items():
        middle = statistics.median(found)
        spread = f"({min(found):.1f}-{max(found):.1f})"
        print(f"{name:8} {mode:18} {middle:8.1f} {spread:>16} {middle / plain:8.2f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=40)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--wires", action="store_true", help="an upstream of each API")
    parser.add_argument("--before", type=Path, help="another tree to compare with")
    given = parser.parse_args()
    try:
        main(given.streams, given.repeats, is_wires=given.wires, before=given.before)
    except Trouble as trouble:
        sys.exit(f"modes.py: {trouble}")

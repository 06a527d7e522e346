"""Bridges in processes of their own, over real pipes."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, Self

import msgspec

from antiphon.host.bridge.client import AskSettings, BridgeAnswer, BridgeClient, Notice
from antiphon.wires.host.parts import ResponsePart, TextPart
from tests.cli.processes import environment
from tests.client.native import Answer

__all__ = [
    "COMMAND",
    "WAIT_SECONDS",
    "RawBridge",
    "bridge",
    "greeted",
    "raw_bridge",
    "read_all",
    "stream_of",
    "text_of",
]

COMMAND: Final = (sys.executable, "-m", "antiphon", "host")
WAIT_SECONDS: Final = 60.0
Fields = dict[str, Any]


@asynccontextmanager
async def bridge(
    home: Path,
    base_url: str,
    *,
    listen: Callable[[Notice], object] = lambda notice: None,
    environ: Mapping[str, str] | None = None,
    **settings: Any,
) -> AsyncIterator[BridgeClient]:
    """Run a bridge with our own client before it."""
    asked = AskSettings(base_url=base_url, **settings)
    env = environment(home, environ)
    async with await BridgeClient.start(COMMAND, asked, listen=listen, env=env, cwd=home) as client:
        yield client


async def read_all(answer: BridgeAnswer) -> list[ResponsePart]:
    """Return the parts of an answer."""
    async with asyncio.timeout(WAIT_SECONDS):
        return [part async for part in answer]


def text_of(parts: list[ResponsePart]) -> str:
    """Return the text of an answer."""
    return "".join(part.value for part in parts if isinstance(part, TextPart))


def stream_of(*events: Fields, **settings: Any) -> Answer:
    """Return these events as a stream, numbered where they have no number, each in one write."""
    numbered = [{"sequence_number": place} | event for place, event in enumerate(events)]
    pieces = [b"data: %b\n\n" % msgspec.json.encode(event) for event in numbered]
    return Answer(pieces=pieces, **settings)


def _line_of(message: Fields | bytes) -> bytes:
    return message if isinstance(message, bytes) else msgspec.json.encode(message) + b"\n"


class RawBridge:
    """A bridge whose lines the test writes and reads itself."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self.process: Final = process
        self.input: Final = process.stdin
        self.output: Final = process.stdout
        self.errors: Final = process.stderr
        self.seen: list[Fields] = []

    async def send(self, *messages: Fields | bytes) -> None:
        """Write messages, or lines as they are, in one piece."""
        self.input.write(b"".join(map(_line_of, messages)))
        await self.input.drain()

    async def read(self) -> Fields:
        """Return the next message that is no log."""
        while True:
            async with asyncio.timeout(WAIT_SECONDS):
                line = await self.output.readline()
            assert line.endswith(b"\n"), await self.errors.read()
            message: Fields = msgspec.json.decode(line)
            self.seen.append(message)
            if message["type"] != "log":
                return message

    async def read_to_end(self, *ids: int | str) -> dict[int | str, list[Fields]]:
        """Read until each of these requests has its last message; return what each got."""
        got: dict[int | str, list[Fields]] = {request: [] for request in ids}
        missing = set(ids)
        while missing:
            message = await self.read()
            if message.get("id") in got:
                got[message["id"]].append(message)
                if message["type"] != "parts":
                    missing.discard(message["id"])
        return got

    async def close(self) -> int:
        """Close the bridge's input and return its exit code."""
        self.input.close()
        async with asyncio.timeout(WAIT_SECONDS):
            return await self.process.wait()

    def memory(self) -> int:
        """Return the most memory that the bridge has used so far, in bytes."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        (line,) = [line for line in status.splitlines() if line.startswith("VmHWM")]
        return int(line.split()[1]) * 1024

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *reason: object) -> None:
        if self.process.returncode is None:
            self.process.kill()
            await self.process.wait()
        self.input.close()


@asynccontextmanager
async def raw_bridge(
    home: Path, *flags: str, environ: Mapping[str, str] | None = None
) -> AsyncIterator[RawBridge]:
    """Run a bridge without a client."""
    process = await asyncio.create_subprocess_exec(
        *COMMAND,
        *flags,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=environment(home, environ),
        cwd=home,
    )
    async with RawBridge(process) as running:
        yield running


@asynccontextmanager
async def greeted(home: Path, base_url: str, **settings: Any) -> AsyncIterator[RawBridge]:
    """Run a bridge without a client, after its `welcome`."""
    async with raw_bridge(home, "--base-url", base_url) as running:
        await running.send({"type": "hello", "version": 1, "settings": settings})
        assert (await running.read())["type"] == "welcome"
        yield running

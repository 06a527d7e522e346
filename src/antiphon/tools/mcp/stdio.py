"""An MCP server as a process of ours: messages are lines on stdin and stdout.

The library has such a transport too, but it reads lines of any length. Here a line has a limit,
and a server that breaks it is stopped. The process gets a small environment, not that of the
gateway, and a session of its own, so that what it starts is stopped with it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client.stdio import get_default_environment
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from antiphon.tools.mcp.bridge import Trace
from antiphon.tools.mcp.endpoints import Endpoint
from antiphon.tools.mcp.faults import protocol_fault

__all__ = ["Streams", "run_process"]

Incoming = SessionMessage | Exception
Streams = tuple[MemoryObjectReceiveStream[Incoming], MemoryObjectSendStream[SessionMessage]]

_PIECE: Final = 64 * 1024
_GRACE_SECONDS: Final = 2.0
_MAX_LOGGED: Final = 500
_KILL: Final = 9
_log = logging.getLogger(__name__)


@asynccontextmanager
async def run_process(endpoint: Endpoint, line_bytes: int, trace: Trace) -> AsyncIterator[Streams]:
    """Start the server and yield the streams that the library reads and writes.

    Raise OSError if it cannot be started. However the block is left, the process is stopped.
    """
    process = await asyncio.create_subprocess_exec(
        *endpoint.command,
        stdin=PIPE,
        stdout=PIPE,
        stderr=PIPE if _log.isEnabledFor(logging.DEBUG) else DEVNULL,
        env={**get_default_environment(), **endpoint.env},
        cwd=endpoint.cwd,
        start_new_session=True,
        limit=_PIECE,
    )
    to_library, incoming = anyio.create_memory_object_stream[Incoming](0)
    outgoing, from_library = anyio.create_memory_object_stream[SessionMessage](0)
    tasks = [
        asyncio.create_task(_read(process, to_library, line_bytes, trace)),
        asyncio.create_task(_write(process, from_library)),
        asyncio.create_task(_log_errors(process, endpoint.label)),
    ]
    try:
        yield incoming, outgoing
    finally:
        for stream in (to_library, incoming, outgoing, from_library):
            stream.close()
        await asyncio.shield(_stop(process, tasks))


async def _read(
    process: Process, to_library: MemoryObjectSendStream[Incoming], most: int, trace: Trace
) -> None:
    """Pass on each line as a message, until the output ends or a line is too long."""
    assert process.stdout is not None
    line = bytearray()
    with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError), to_library:
        while data := await process.stdout.read(_PIECE):
            *whole, rest = data.split(b"\n")
            for part in whole:
                line += part
                if line.strip():
                    await to_library.send(_parse(bytes(line)))
                line.clear()
            line += rest
            if len(line) > most:
                trace.note(protocol_fault(f"the server's answer is longer than {most} bytes"))
                return
        trace.note(protocol_fault("the server's process has ended"))


def _parse(line: bytes) -> Incoming:
    try:
        return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValueError as error:
        return error


async def _write(process: Process, from_library: MemoryObjectReceiveStream[SessionMessage]) -> None:
    """Write each message of the library as a line."""
    assert process.stdin is not None
    with suppress(anyio.ClosedResourceError, ConnectionError, RuntimeError), from_library:
        async for sent in from_library:
            text = sent.message.model_dump_json(by_alias=True, exclude_unset=True)
            process.stdin.write(f"{text}\n".encode())
            await process.stdin.drain()


async def _log_errors(process: Process, label: str) -> None:
    """Log what the server writes to stderr, for operators who debug."""
    if process.stderr is None:
        return
    while data := await process.stderr.read(_PIECE):
        for line in data.decode("utf-8", "replace").splitlines():
            _log.debug("mcp server %s: %s", label, line[:_MAX_LOGGED])


async def _stop(process: Process, tasks: list[asyncio.Task[None]]) -> None:
    """End the process: by closing its input, then by signals to all that it has started.

    Its output is read to the end: a process that waits for a reader does not end, and its pipe
    would stay open here.
    """
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert process.stdin is not None
    process.stdin.close()
    rest = asyncio.create_task(_discard(process))
    for number in (signal.SIGTERM, _KILL):
        if await _ends(process):
            break
        _signal(process, number)
    await _ends(process)
    _signal(process, _KILL)  # what it has started may still be there
    await asyncio.wait({rest}, timeout=_GRACE_SECONDS)
    rest.cancel()


async def _discard(process: Process) -> None:
    for stream in (process.stdout, process.stderr):
        while stream is not None and await stream.read(_PIECE):
            pass


async def _ends(process: Process) -> bool:
    with suppress(TimeoutError):
        async with asyncio.timeout(_GRACE_SECONDS):
            await process.wait()
    return process.returncode is not None


def _signal(process: Process, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        if sys.platform == "win32":
            process.kill()  # there are no sessions, and no gentler way
        else:
            os.killpg(process.pid, number)

"""Which processes parse documents, and how is one asked?

A process is started when the first document needs it, limited by itself (`parsing.program`), used
for a number of documents and replaced: earlier if one failed, was given up or took too long. It
gets the content through a pipe and knows no path, no key and nothing of the environment. One that
is not needed for a while is ended.

Time is counted while the process is waited for, not while its answers are used.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec

import antiphon
from antiphon.tools.documents.base import DocumentFailed, ReadContent
from antiphon.tools.documents.parsing.frames import (
    CONTENT,
    END,
    FAILED,
    HEAD,
    INFO,
    LARGEST,
    TASK,
    TEXT,
    Task,
)
from antiphon.tools.documents.settings import DocumentSettings

__all__ = ["PageInfo", "ParserPool"]

_PIECE: Final = 256 * 1024
_DOCUMENTS_EACH: Final = 50
_IDLE_SECONDS: Final = 60.0
_GONE: Final = "The file takes more time or memory to be read than is allowed."
# All that a Python needs to start; nothing with a key in it.
_PASSED_ON: Final = ("PATH", "LD_LIBRARY_PATH", "SYSTEMROOT", "VIRTUAL_ENV", "TMPDIR", "TEMP")
_START: Final = (
    "import sys; sys.path.insert(0, sys.argv[3]); "
    "from antiphon.tools.documents.parsing.program import main; "
    "main(int(sys.argv[1]), int(sys.argv[2]))"
)
_ROOT: Final = str(Path(antiphon.__file__).parent.parent)


class PageInfo(msgspec.Struct):
    """What a page of HTML has beside its text."""

    title: str = ""
    links: list[str] = []


class _Refusal(msgspec.Struct):
    code: str
    message: str


class _Clock:
    """The time that is left for a document."""

    def __init__(self, seconds: float) -> None:
        self._left = seconds

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        began = time.monotonic()
        async with asyncio.timeout(self._left):
            yield
        self._left -= time.monotonic() - began


class _Parser:
    """One process."""

    def __init__(self, process: Process) -> None:
        assert process.stdin is not None and process.stdout is not None
        self._process = process
        self._stdin = process.stdin
        self._stdout = process.stdout
        self._count = 0
        self._is_busy = False
        self.idle_timer: asyncio.TimerHandle | None = None

    @classmethod
    async def start(cls, settings: DocumentSettings) -> _Parser:
        """Start a process. It has a small environment and no folder of ours."""
        environment = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
        limits = (str(settings.memory_bytes), str(settings.bytes))
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-E", "-P", "-c", _START, *limits, _ROOT),
            stdin=PIPE,
            stdout=PIPE,
            stderr=DEVNULL,
            env=environment,
            cwd=os.sep,
            limit=_PIECE,
        )
        return cls(process)

    @property
    def is_usable(self) -> bool:
        """Whether it can take another document."""
        is_alive = self._process.returncode is None
        return is_alive and not self._is_busy and self._count < _DOCUMENTS_EACH

    async def parse(
        self, task: Task, content: ReadContent, clock: _Clock
    ) -> AsyncGenerator[str | PageInfo, None]:
        """Yield what the process answers. Raise DocumentFailed for what it refuses, or its end."""
        self._is_busy = True
        self._count += 1
        try:
            await self._send(task, content, clock)
            while True:
                async with clock.running():
                    tag, body = await self._frame()
                if tag == TEXT:
                    yield body.decode()
                elif tag == INFO:
                    yield msgspec.json.decode(body, type=PageInfo)
                else:
                    break
        except (TimeoutError, OSError, EOFError, asyncio.IncompleteReadError):
            raise DocumentFailed("invalid_file", _GONE) from None
        if tag == FAILED:
            refusal = msgspec.json.decode(body, type=_Refusal)
            is_known = refusal.code == "unsupported_file"
            raise DocumentFailed(
                "unsupported_file" if is_known else "invalid_file", refusal.message
            )
        self._is_busy = False

    async def _send(self, task: Task, content: ReadContent, clock: _Clock) -> None:
        await self._write(TASK, msgspec.json.encode(task._asdict()), clock)
        offset = 0
        while data := await content(offset, _PIECE):
            await self._write(CONTENT, data, clock)
            offset += len(data)
        await self._write(END, b"", clock)

    async def _write(self, tag: bytes, body: bytes, clock: _Clock) -> None:
        self._stdin.write(HEAD.pack(tag, len(body)))
        self._stdin.write(body)
        async with clock.running():
            await self._stdin.drain()

    async def _frame(self) -> tuple[bytes, bytes]:
        tag, size = HEAD.unpack(await self._stdout.readexactly(HEAD.size))
        if size > LARGEST:
            raise EOFError
        return tag, await self._stdout.readexactly(size) if size else b""

    async def stop(self) -> None:
        """End the process at once."""
        if self.idle_timer is not None:
            self.idle_timer.cancel()
        if self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.kill()
        self._stdin.close()
        await self._process.wait()


class ParserPool:
    """The parsing processes of this gateway process."""

    def __init__(self, settings: DocumentSettings) -> None:
        self._settings = settings
        self._places = asyncio.Semaphore(settings.processes)
        self._idle: list[_Parser] = []
        self._busy: set[_Parser] = set()
        self._ending: set[asyncio.Task[None]] = set()

    async def parse(
        self, task: Task, content: ReadContent, seconds: float
    ) -> AsyncGenerator[str | PageInfo, None]:
        """Yield the text of a document as it becomes known, and for HTML its title and links."""
        async with (
            self._parser() as parser,
            aclosing(parser.parse(task, content, _Clock(seconds))) as pieces,
        ):
            async for piece in pieces:
                yield piece

    async def close(self) -> None:
        """End all processes."""
        parsers = [*self._idle, *self._busy]
        self._idle.clear()
        await asyncio.gather(*(parser.stop() for parser in parsers), *self._ending)

    @asynccontextmanager
    async def _parser(self) -> AsyncIterator[_Parser]:
        async with self._places:
            parser = self._take_idle() or await _Parser.start(self._settings)
            self._busy.add(parser)
            try:
                yield parser
            finally:
                self._busy.discard(parser)
                if parser.is_usable:
                    self._keep(parser)
                else:
                    await parser.stop()

    def _take_idle(self) -> _Parser | None:
        while self._idle:
            parser = self._idle.pop()
            if parser.idle_timer is not None:
                parser.idle_timer.cancel()
            if parser.is_usable:
                return parser
        return None

    def _keep(self, parser: _Parser) -> None:
        loop = asyncio.get_running_loop()
        parser.idle_timer = loop.call_later(_IDLE_SECONDS, self._end_idle, parser)
        self._idle.append(parser)

    def _end_idle(self, parser: _Parser) -> None:
        if parser in self._idle:
            self._idle.remove(parser)
            task = asyncio.get_running_loop().create_task(parser.stop())
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)

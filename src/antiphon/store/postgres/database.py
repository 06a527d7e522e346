"""How is a PostgreSQL database reached, and how long does a caller wait for it?

Connections are opened when they are needed and opened again when they were lost. A question,
and a change that certainly was not committed, is tried again until `patience` is over, so that a
restart of the database is a short wait. When it has been unreachable for longer, callers get an
error at once. A change whose commit got no answer is never repeated here: only its caller knows
how.

The server ends transactions that a frozen gateway left open, so that they do not hold locks.
Questions, changes and the lanes of the flusher have connections of their own: a change that
waits for a locked row delays neither streams nor readers.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, Final, TypeVar

import asyncpg

from antiphon.protocol.errors import StoreUnavailable
from antiphon.store.postgres.errors import FAULTS, is_away, is_broken, unavailable
from antiphon.store.postgres.migrations import is_newest, migrate
from antiphon.store.postgres.pgvector import Pgvector, find_pgvector
from antiphon.store.trouble import Trouble

__all__ = [
    "CONNECTIONS",
    "LANES",
    "Connection",
    "Database",
    "UncertainCommit",
    "connect",
    "in_transaction",
]

_log = logging.getLogger(__name__)

# Any: asyncpg has no types of its own.
Connection = Any

LANES: Final = 2
_QUESTIONS: Final = 4
_CHANGES: Final = 3
_MAX_CONNECTIONS: Final = LANES + _QUESTIONS + _CHANGES
# And one that renews the lease and listens (see `node`).
CONNECTIONS: Final = _MAX_CONNECTIONS + 1
"""The most that one store, which is one worker, has open at once in its daily work."""
_RETRY_PAUSE: Final = 0.1
_RELEASE_SECONDS: Final = 1.0
# How long a process may migrate an old database, or wait for another that does.
_MIGRATION_SECONDS: Final = 3600.0

# Set when connected, because a pooler may refuse to start a session with them. Our statements
# are short: compiling them takes longer than running them. Each has its index, and a plan that
# was made while a table was empty is kept for when it is not: it must not read all of it.
_SETTINGS: Final = """
    SET default_transaction_isolation = 'read committed';
    SET statement_timeout = {milliseconds};
    SET idle_in_transaction_session_timeout = {milliseconds};
    SET jit = off;
    SET enable_seqscan = off;
"""
_NO_LIMITS: Final = """
    SET statement_timeout = 0;
    SET idle_in_transaction_session_timeout = 0;
"""

_T = TypeVar("_T")
_Use = Callable[[Connection], Awaitable[_T]]


class Database:
    """The connections of one store. `patience` bounds every question and change, in seconds."""

    def __init__(self, url: str, patience: float) -> None:
        self._url = url
        self._patience = patience
        self._pool: Any = None
        self._pgvector: Pgvector | str = "the database was not opened yet"
        self._allowed = 0
        self._opening: asyncio.Task[None] | None = None
        self._is_closed = False
        self._questions = asyncio.Semaphore(_QUESTIONS)
        self._changes = asyncio.Semaphore(_CHANGES)
        self._lanes = asyncio.Semaphore(LANES)
        self._away_since: float | None = None
        self._trouble = Trouble("the PostgreSQL store")

    @property
    def pgvector(self) -> Pgvector | None:
        """The extension that compares vectors, if the opened database has it."""
        return self._pgvector if isinstance(self._pgvector, Pgvector) else None

    async def why_not_pgvector(self) -> str | None:
        """Return why the extension is not used; None if it is."""
        await self.ask_value("SELECT 1")
        return self._pgvector if isinstance(self._pgvector, str) else None

    async def ask(self, use: _Use[_T]) -> _T:
        """Return the answer to one statement that changes nothing, or may run twice."""
        return await self._persist(self._questions, use)

    async def ask_value(self, statement: str, *values: object) -> Any:
        """Like `ask`: return the first value of the first row, None without a row."""
        return await self.ask(lambda connection: connection.fetchval(statement, *values))

    async def ask_rows(self, statement: str, *values: object) -> list[Any]:
        """Like `ask`: return all rows."""
        return await self.ask(lambda connection: connection.fetch(statement, *values))

    async def view(self, use: _Use[_T]) -> _T:
        """Return the answer to several statements that must see one state."""
        settings = {"isolation": "repeatable_read", "readonly": True}
        return await self._persist(self._questions, partial(in_transaction, use=use, **settings))

    async def change(self, use: _Use[_T]) -> _T:
        """Make changes in one transaction; durable on return."""
        return await self._persist(self._changes, partial(in_transaction, use=use))

    @asynccontextmanager
    async def lane(self) -> AsyncIterator[Connection]:
        """Lend one of LANES connections. Raises one of FAULTS, as does what is done with it."""
        async with self._lanes, self._connection() as connection:
            yield connection

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[Connection]:
        await self._open()
        connection = await self._pool.acquire(timeout=self._patience)
        try:
            yield connection
        except asyncio.CancelledError:
            # The statement may still be running: the connection must not be used again.
            _drop(connection)
            raise
        except FAULTS as error:
            if is_broken(error):
                _drop(connection)
            raise
        finally:
            await self._pool.release(connection, timeout=_RELEASE_SECONDS)

    async def connect(self, *, is_patient: bool = False) -> Connection:
        """Return a connection beside the pool, which the caller closes.

        A statement of one that is patient may take as long as it needs.
        """
        await self._open()
        connection = await connect(self._url, **self._limits())
        try:
            await self._prepare(connection)
            if is_patient:
                await connection.execute(_NO_LIMITS)
        except BaseException:
            connection.terminate()
            raise
        return connection

    async def close(self) -> None:
        """Close all connections, by force if they do not close soon."""
        self._is_closed = True
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.gather(self._opening, return_exceptions=True)
        pool, self._pool = self._pool, None
        if pool is None:
            return
        try:
            async with asyncio.timeout(_RELEASE_SECONDS):
                await pool.close()
        except FAULTS:
            pool.terminate()

    async def _persist(self, room: asyncio.Semaphore, use: _Use[_T]) -> _T:
        """Use a connection when there is room; retry while the database is away and in time."""
        start = time.monotonic()
        away: BaseException | None = None
        try:
            async with asyncio.timeout(self._patience):
                while True:
                    try:
                        async with room, self._connection() as connection:
                            result = await use(connection)
                    except FAULTS as error:
                        if not is_away(error) or self._is_long_away(start):
                            raise
                        away = error
                        await asyncio.sleep(_RETRY_PAUSE)
                    else:
                        self._away_since = None
                        self._trouble.end()
                        return result
        except FAULTS as error:
            # The reason for the retries is more helpful than the timeout.
            fault = unavailable(away or error)
            self._trouble.report(fault.message)
            raise fault from error

    def _is_long_away(self, now: float) -> bool:
        self._away_since = self._away_since or now
        return now - self._away_since > self._patience

    async def _open(self) -> None:
        """Make the pool when it is first needed. Migrating an old database may take longer than
        a caller waits: it continues without the caller.
        """
        if self._is_closed:
            raise StoreUnavailable("the store is closed")
        if self._pool is not None:
            return
        if self._opening is None or self._opening.done():
            self._opening = asyncio.create_task(self._make_pool())
            self._opening.add_done_callback(_look_at)
        await asyncio.shield(self._opening)

    async def _make_pool(self) -> None:
        await self._migrate()
        _log.info(
            "PostgreSQL: this worker opens at most %d connections; the server allows %d in all",
            CONNECTIONS,
            self._allowed,
        )
        self._pool = await asyncpg.create_pool(
            self._url,
            min_size=0,
            max_size=_MAX_CONNECTIONS,
            init=self._prepare,
            reset=_leave_as_it_is,
            **self._limits(),
        )

    async def _migrate(self) -> None:
        connection = await connect(
            self._url, timeout=self._patience, server_settings={"application_name": "antiphon"}
        )
        try:
            # Of our timeouts, only those given here are in force.
            async with asyncio.timeout(self._patience):
                is_old = not await is_newest(connection)
            async with asyncio.timeout(_MIGRATION_SECONDS):
                if is_old:
                    await migrate(connection)
                self._pgvector = await find_pgvector(connection)
                self._allowed = int(await connection.fetchval("SHOW max_connections"))
        finally:
            connection.terminate()

    async def _prepare(self, connection: Connection) -> None:
        await connection.execute(_SETTINGS.format(milliseconds=int(self._patience * 1000)))
        # Wait for the disk at every commit, also if the server's default is not to.
        if await connection.fetchval("SHOW synchronous_commit") == "off":
            await connection.execute("SET synchronous_commit = on")
        if self.pgvector is not None:
            await self.pgvector.register(connection)

    def _limits(self) -> dict[str, Any]:
        return {
            "timeout": self._patience,
            "command_timeout": self._patience,
            "server_settings": {"application_name": "antiphon"},
        }


async def connect(url: str, **settings: Any) -> Connection:  # Any: the settings of asyncpg
    """Connect; raise one of FAULTS, or StoreUnavailable if the URL makes no sense."""
    try:
        return await asyncpg.connect(url, **settings)
    except (ValueError, OverflowError) as error:  # OverflowError: an invalid port
        raise StoreUnavailable(
            "the URL of the database cannot be used: write postgresql://USER@HOST/DATABASE"
        ) from error


async def in_transaction(
    connection: Connection,
    use: _Use[_T],
    **settings: Any,  # Any: the settings of asyncpg
) -> _T:
    """Use the connection in a transaction that is committed on return.

    Raise StoreUnavailable if the commit got no answer, else one of FAULTS.
    """
    transaction = connection.transaction(**settings)
    await transaction.start()
    try:
        result = await use(connection)
    except Exception as error:
        # A broken connection is not worth another word: the server rolls back by itself.
        if not is_broken(error):
            await transaction.rollback()
        raise
    try:
        await transaction.commit()
    except FAULTS as error:
        if not is_broken(error):
            raise
        _drop(connection)
        raise UncertainCommit from error
    return result


class UncertainCommit(StoreUnavailable):
    """The connection went away between the commit and its answer."""

    def __init__(self) -> None:
        super().__init__(
            "the connection to the database was lost; it is not known whether this was stored"
        )


def _drop(connection: Connection) -> None:
    """Close a connection of the pool at once, unless it is closed already.

    One that the server has closed is back in the pool, and the driver refuses to close it. That
    error must not replace the one that is about to be raised.
    """
    with suppress(asyncpg.InterfaceError):
        connection.terminate()


def _look_at(task: asyncio.Task[None]) -> None:
    """Retrieve the exception: the callers that waited for it may have left."""
    if not task.cancelled():
        task.exception()


async def _leave_as_it_is(_: Connection) -> None:
    """Skip the reset and its round trip: our sessions keep no state that matters."""

"""Which tables does the database have, and how is an older one brought up to date?

Migrations are numbered from 1 and never edited once released: `user_version` in the file is
the number of the last one applied. All missing ones run in one transaction, so a crash leaves
the old version or the new one. A file of a newer antiphon, or of another program, is refused
untouched.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Sequence
from typing import Final, NamedTuple

from antiphon.protocol.errors import StoreUnavailable
from antiphon.store.sqlite.ledger_migrations import LEDGER
from antiphon.store.versions import NewerDatabase, OlderDatabase, Versions

__all__ = [
    "APPLICATION_ID",
    "MIGRATIONS",
    "OLDEST_LEVEL",
    "SHARED_INPUTS",
    "STORE",
    "ForeignDatabase",
    "Migration",
    "Schema",
    "check_version",
    "is_newest",
    "lower_level",
    "migrate",
    "read_level",
    "version_of",
]

# Written into the header of the file, so that it is recognised as ours.
APPLICATION_ID: Final = int.from_bytes(b"anti")
OLDEST_LEVEL: Final = 5
"""The oldest version of gateways that can work on these tables."""

_HAS_ADDITIONS: Final = "SELECT count(*) FROM sqlite_master WHERE name = 'antiphon_additions'"

Migration = tuple[str, ...]

# `writer` names the store that works on an unfinished response; NULL means finished.
# `items.kind` is 0 for input and 1 for output, so the primary key is the order of a history.
# The bodies come last: a walk along the parents then never reads their overflow pages.
_FIRST: Final[Migration] = (
    """CREATE TABLE responses (
        key INTEGER PRIMARY KEY,
        owner TEXT NOT NULL,
        id TEXT NOT NULL,
        parent TEXT,
        status TEXT NOT NULL,
        writer TEXT,
        created_at INTEGER NOT NULL,
        body BLOB NOT NULL,
        UNIQUE (owner, id)
    )""",
    "CREATE INDEX responses_by_time ON responses (created_at)",
    "CREATE INDEX responses_by_writer ON responses (writer) WHERE writer IS NOT NULL",
    """CREATE TABLE items (
        response INTEGER NOT NULL,
        kind INTEGER NOT NULL,
        position INTEGER NOT NULL,
        owner TEXT NOT NULL,
        id TEXT,
        body BLOB NOT NULL,
        PRIMARY KEY (response, kind, position)
    ) WITHOUT ROWID""",
    "CREATE INDEX items_by_id ON items (owner, id)",
    """CREATE TABLE keys (
        id TEXT PRIMARY KEY,
        owner TEXT NOT NULL,
        digest BLOB NOT NULL,
        created_at INTEGER NOT NULL,
        expires_at INTEGER,
        revoked_at INTEGER,
        name TEXT NOT NULL
    )""",
)

# `log` holds the batches of unfinished responses. Rows are only ever added at its end, which
# costs half of what a table does that is sorted by response; `logs` holds whole logs, compressed.
# `jobs` holds what is needed to run a turn again elsewhere, and the request to cancel it.
# A conversation is locked by a response, for as long as the store `writer` is alive or the
# response unfinished. The writer of a claim is the store that took it.
# `erasure` counts removals, and how many of them are known to have left the file (see there).
# What an older version removed may not have.
_SECOND: Final[Migration] = (
    """CREATE TABLE log (
        key INTEGER PRIMARY KEY,
        response INTEGER NOT NULL,
        first INTEGER NOT NULL,
        last INTEGER NOT NULL,
        owner TEXT NOT NULL,
        body BLOB NOT NULL
    )""",
    "CREATE INDEX log_by_response ON log (response, first)",
    """CREATE TABLE logs (
        response INTEGER PRIMARY KEY,
        owner TEXT NOT NULL,
        body BLOB NOT NULL
    )""",
    """CREATE TABLE jobs (
        response INTEGER PRIMARY KEY,
        owner TEXT NOT NULL,
        is_cancelled INTEGER NOT NULL,
        request BLOB
    )""",
    "CREATE INDEX jobs_by_wish ON jobs (response) WHERE is_cancelled",
    """CREATE TABLE conversations (
        key INTEGER PRIMARY KEY,
        owner TEXT NOT NULL,
        id TEXT NOT NULL,
        locked_by TEXT,
        writer TEXT,
        body BLOB NOT NULL,
        UNIQUE (owner, id)
    )""",
    "CREATE INDEX conversations_by_lock ON conversations (owner, locked_by)"
    " WHERE locked_by IS NOT NULL",
    """CREATE TABLE conversation_items (
        conversation INTEGER NOT NULL,
        position INTEGER NOT NULL,
        owner TEXT NOT NULL,
        id TEXT NOT NULL,
        body BLOB NOT NULL,
        PRIMARY KEY (conversation, position),
        UNIQUE (conversation, id)
    ) WITHOUT ROWID""",
    "CREATE INDEX conversation_items_by_id ON conversation_items (owner, id)",
    """CREATE TABLE claims (
        owner TEXT NOT NULL,
        token TEXT NOT NULL,
        digest BLOB NOT NULL,
        response TEXT NOT NULL,
        created_at INTEGER NOT NULL,
        writer TEXT NOT NULL,
        PRIMARY KEY (owner, token)
    ) WITHOUT ROWID""",
    "CREATE INDEX claims_by_response ON claims (owner, response)",
    "CREATE INDEX claims_by_time ON claims (created_at)",
    """CREATE TABLE notices (
        key INTEGER PRIMARY KEY,
        id TEXT NOT NULL UNIQUE,
        owner TEXT NOT NULL,
        response TEXT NOT NULL,
        type TEXT NOT NULL,
        created_at INTEGER NOT NULL,
        endpoint TEXT NOT NULL,
        attempts INTEGER NOT NULL,
        due_at INTEGER NOT NULL
    )""",
    "CREATE INDEX notices_by_due ON notices (endpoint, due_at)",
    """CREATE TABLE secrets (
        name TEXT PRIMARY KEY,
        value BLOB NOT NULL
    )""",
    """CREATE TABLE erasure (
        due INTEGER NOT NULL,
        done INTEGER NOT NULL
    )""",
    "INSERT INTO erasure SELECT EXISTS (SELECT 1 FROM responses), 0",
)

# `log` without an index: its entries would lie on as many pages as there are streams, and each
# commit would write them all. Who writes a log knows its rows (see `open_turns`), the others look
# through the table, from where they were last: so no key is ever given twice.
_THIRD: Final[Migration] = (
    "DROP INDEX log_by_response",
    "ALTER TABLE log RENAME TO old_log",
    """CREATE TABLE log (
        key INTEGER PRIMARY KEY AUTOINCREMENT,
        response INTEGER NOT NULL,
        first INTEGER NOT NULL,
        last INTEGER NOT NULL,
        owner TEXT NOT NULL,
        body BLOB NOT NULL
    )""",
    "INSERT INTO log SELECT key, response, first, last, owner, body FROM old_log ORDER BY key",
    "DROP TABLE old_log",
)

# `call` is a digest of the call id. The greatest key is the newest row.
_FOURTH: Final[Migration] = (
    """CREATE TABLE native_states (
        key INTEGER PRIMARY KEY,
        owner TEXT NOT NULL,
        call BLOB NOT NULL,
        response TEXT NOT NULL,
        created_at INTEGER NOT NULL,
        body BLOB NOT NULL,
        UNIQUE (owner, call)
    )""",
    "CREATE INDEX native_states_by_response ON native_states (owner, response)",
    "CREATE INDEX native_states_by_time ON native_states (created_at)",
)

# `approvals.asked_by` is the response that asked, if it is stored; `response` the one that runs.
_FIFTH: Final[Migration] = (
    """CREATE TABLE tool_calls (
        key INTEGER PRIMARY KEY,
        owner TEXT NOT NULL,
        response TEXT NOT NULL,
        call TEXT NOT NULL,
        kind TEXT NOT NULL,
        digest BLOB NOT NULL,
        created_at INTEGER NOT NULL,
        UNIQUE (owner, response, call)
    )""",
    "CREATE INDEX tool_calls_by_time ON tool_calls (created_at)",
    """CREATE TABLE approvals (
        owner TEXT NOT NULL,
        request TEXT NOT NULL,
        response TEXT NOT NULL,
        asked_by TEXT,
        created_at INTEGER NOT NULL,
        PRIMARY KEY (owner, request)
    ) WITHOUT ROWID""",
    "CREATE INDEX approvals_by_response ON approvals (owner, asked_by)",
    "CREATE INDEX approvals_by_time ON approvals (created_at)",
)

# A project without a row exists if keys know it. `models` and `settings` are JSON. `user_name`,
# because `user` is a word of SQL. `audit.number` has no gaps.
_PROJECTS: Final[Migration] = (
    "ALTER TABLE keys ADD COLUMN role TEXT NOT NULL DEFAULT 'user'",
    "ALTER TABLE keys ADD COLUMN user_name TEXT",
    "ALTER TABLE keys ADD COLUMN models BLOB",
    "ALTER TABLE keys ADD COLUMN never_store INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE keys ADD COLUMN hint TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE keys ADD COLUMN previous_digest BLOB",
    "ALTER TABLE keys ADD COLUMN previous_until INTEGER",
    "ALTER TABLE keys ADD COLUMN last_used_at INTEGER",
    "CREATE INDEX keys_by_owner ON keys (owner, created_at)",
    """CREATE TABLE projects (
        id TEXT PRIMARY KEY,
        name TEXT NOT NULL,
        created_at INTEGER NOT NULL,
        archived_at INTEGER,
        never_store INTEGER NOT NULL,
        settings BLOB NOT NULL
    ) WITHOUT ROWID""",
    """CREATE TABLE audit (
        number INTEGER PRIMARY KEY,
        at INTEGER NOT NULL,
        actor TEXT NOT NULL,
        action TEXT NOT NULL,
        subject TEXT NOT NULL,
        project TEXT,
        body BLOB NOT NULL,
        id TEXT NOT NULL UNIQUE,
        previous BLOB NOT NULL,
        digest BLOB NOT NULL
    )""",
)

# What upstreams were sent, and which responses continue which.
_ROUNDS: Final[Migration] = (
    """CREATE TABLE rounds (
        owner TEXT NOT NULL,
        response TEXT NOT NULL,
        number INTEGER NOT NULL,
        kind TEXT NOT NULL,
        created_at INTEGER NOT NULL,
        size INTEGER NOT NULL,
        body BLOB,
        PRIMARY KEY (owner, response, number)
    )""",
    "CREATE INDEX rounds_by_time ON rounds (created_at)",
    "CREATE INDEX responses_by_parent ON responses (owner, parent) WHERE parent IS NOT NULL",
)

# Nano-dollars: what a run of a key may cost, by default and at most.
_RUN_BUDGETS: Final[Migration] = (
    "ALTER TABLE keys ADD COLUMN run_budget INTEGER",
    "ALTER TABLE keys ADD COLUMN max_run_budget INTEGER",
)

# What inputs have in common is stored once (see `shared_inputs`). `inputs.items` is the number of
# items up to and with its own, which are in `items` under its negative key.
_INPUTS: Final[Migration] = (
    """CREATE TABLE inputs (
        key INTEGER PRIMARY KEY,
        owner TEXT NOT NULL,
        previous INTEGER,
        items INTEGER NOT NULL,
        token BLOB NOT NULL
    )""",
    "CREATE INDEX inputs_by_previous ON inputs (previous) WHERE previous IS NOT NULL",
    "ALTER TABLE responses ADD COLUMN input INTEGER",
    "CREATE INDEX responses_by_input ON responses (input) WHERE input IS NOT NULL",
)

MIGRATIONS: Final[tuple[Migration, ...]] = (
    *(_FIRST, _SECOND, _THIRD, _FOURTH, _FIFTH),
    *(_PROJECTS, LEDGER, _ROUNDS, _RUN_BUDGETS, _INPUTS),
)
SHARED_INPUTS: Final = MIGRATIONS.index(_INPUTS) + 1
"""The version from which on gateways find shared items."""


class Schema(NamedTuple):
    """The tables of one kind of database file, and the number that marks such a file."""

    application_id: int
    migrations: Sequence[Migration]
    additions: Collection[int] = frozenset()
    """Migrations after which gateways that do not know them may still start (see `versions`)."""


STORE: Final = Schema(APPLICATION_ID, MIGRATIONS)
"""The main file of a store. For the one with the files of callers see `files_migrations`."""


class ForeignDatabase(StoreUnavailable):
    """The file is a database of another program."""

    def __init__(self) -> None:
        super().__init__("the database belongs to another program: name another file")


def migrate(connection: sqlite3.Connection, schema: Schema = STORE) -> None:
    """Bring the database to the newest version, or raise and leave it as it is.

    The connection must be in autocommit mode. Several processes may do this at once.
    """
    if is_newest(connection, schema):
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        level, version = _versions(connection, schema)
        for number, migration in enumerate(schema.migrations[version:], version + 1):
            for statement in migration:
                connection.execute(statement)
            if number in schema.additions:
                _add(connection, number)
            else:
                level = number
        connection.execute(f"PRAGMA application_id = {schema.application_id}")
        connection.execute(f"PRAGMA user_version = {level}")
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def lower_level(
    connection: sqlite3.Connection,
    level: int,
    schema: Schema = STORE,
    before: Callable[[sqlite3.Connection], None] | None = None,
) -> None:
    """Let gateways that know migrations up to `level` start on this database.

    `before` writes what they could not read, in the same transaction.
    """
    connection.execute("BEGIN IMMEDIATE")
    try:
        now, _ = _versions(connection, schema)
        for number in range(level + 1, now + 1):
            _add(connection, number)
        if before is not None:
            before(connection)
        connection.execute(f"PRAGMA user_version = {min(level, now)}")
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def is_newest(connection: sqlite3.Connection, schema: Schema = STORE) -> bool:
    """Return whether there is nothing to migrate.

    Raise for a database that is not ours, or that this antiphon must not use.
    """
    return _versions(connection, schema).version >= len(schema.migrations)


def check_version(connection: sqlite3.Connection, schema: Schema = STORE) -> None:
    """Raise if the database is not of exactly the newest version. It is left as it is."""
    version, known = _versions(connection, schema).version, len(schema.migrations)
    if version < known:
        raise OlderDatabase(version, known)
    if version > known:
        raise NewerDatabase(version, known)


def version_of(connection: sqlite3.Connection, schema: Schema = STORE) -> int:
    """Return the version of a database. Raise for one that is not ours, or newer."""
    return _versions(connection, schema).version


def read_level(connection: sqlite3.Connection, schema: Schema = STORE) -> int:
    """Return the version that a gateway must know to use this database."""
    return _versions(connection, schema).level


def _versions(connection: sqlite3.Connection, schema: Schema) -> Versions:
    level = _number(connection, "PRAGMA user_version")
    is_empty = not _number(connection, "SELECT count(*) FROM sqlite_master")
    if not is_empty and _number(connection, "PRAGMA application_id") != schema.application_id:
        raise ForeignDatabase
    if level > len(schema.migrations):
        raise NewerDatabase(level, len(schema.migrations))
    if not _number(connection, _HAS_ADDITIONS):
        return Versions(level, level)
    added = _number(connection, "SELECT coalesce(max(number), 0) FROM antiphon_additions")
    return Versions(level, max(level, added))


def _add(connection: sqlite3.Connection, number: int) -> None:
    connection.execute("CREATE TABLE IF NOT EXISTS antiphon_additions (number INTEGER PRIMARY KEY)")
    connection.execute("INSERT OR IGNORE INTO antiphon_additions VALUES (?)", (number,))


def _number(connection: sqlite3.Connection, question: str) -> int:
    return int(connection.execute(question).fetchone()[0])

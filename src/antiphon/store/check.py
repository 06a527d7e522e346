"""Is everything in a store whole, and does everything belong to something?

It is only read. What can be wrong is found in five ways: the database checks its own pages, rows
are decoded, logs are replayed, rows and contents are held against what they belong to, and the
books are proved. A gateway may run: then one state of the store is checked.

What a dead process has left unfinished is not wrong: the next gateway takes it over. It is
counted, and reported apart.
"""

from __future__ import annotations

import hashlib
import sqlite3
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Final, NamedTuple

import msgspec

from antiphon.protocol.errors import AntiphonError
from antiphon.protocol.events import LifecycleEvent
from antiphon.protocol.machines.log import unpack_events
from antiphon.protocol.response import DONE_STATUSES, Response
from antiphon.store.base import Store
from antiphon.store.copy import Progress, open_place
from antiphon.store.copy_tables import TABLES, Place, Row, Table
from antiphon.store.encoding import decode_item, decode_turn, expand_log
from antiphon.store.open import is_postgres, path_of
from antiphon.store.sqlite.check import check_contents, check_pages

__all__ = ["Checked", "Finding", "check_books", "check_store"]

_BY_NAME: Final = {table.name: table for table in TABLES}
_ABANDONED: Final = "I7"
# What a body that is damaged can raise, from the decoders and from the texts in it.
_DAMAGE: Final = (AntiphonError, msgspec.MsgspecError, ValueError, zlib.error, RecursionError)
_DONE: Final = ", ".join(f"'{status}'" for status in sorted(DONE_STATUSES))
# Each question counts rows that belong to nothing, or contradict themselves.
_MAIN: Final = {
    "items without their response": (
        "SELECT count(*) FROM items WHERE items.response > 0 AND NOT EXISTS"
        " (SELECT 1 FROM responses WHERE responses.key = items.response)"
    ),
    "logs without their response": (
        "SELECT count(*) FROM logs WHERE NOT EXISTS"
        " (SELECT 1 FROM responses WHERE responses.key = logs.response)"
    ),
    "jobs without their response": (
        "SELECT count(*) FROM jobs WHERE NOT EXISTS"
        " (SELECT 1 FROM responses WHERE responses.key = jobs.response)"
    ),
    "items without their conversation": (
        "SELECT count(*) FROM conversation_items WHERE NOT EXISTS"
        " (SELECT 1 FROM conversations WHERE conversations.key = conversation_items.conversation)"
    ),
    "responses without an end and without a writer": (
        "SELECT count(*) FROM responses"  # noqa: S608 # constants
        f" WHERE writer IS NULL AND status NOT IN ({_DONE})"
    ),
}
# Of SQLite, which stores once what inputs have in common.
_SHARED: Final = {
    "shared items without their input": (
        "SELECT count(*) FROM items WHERE items.response < 0 AND NOT EXISTS"
        " (SELECT 1 FROM inputs WHERE inputs.key = -items.response)"
    ),
    "responses without the beginning of their input": (
        "SELECT count(*) FROM responses WHERE input IS NOT NULL AND NOT EXISTS"
        " (SELECT 1 FROM inputs WHERE inputs.key = responses.input)"
    ),
    "inputs that lack items": (
        "SELECT count(*) FROM inputs LEFT JOIN inputs AS earlier ON earlier.key = inputs.previous"
        " WHERE inputs.items <> coalesce(earlier.items, 0)"
        " + (SELECT count(*) FROM items WHERE items.response = -inputs.key)"
    ),
    "inputs that no response has": (
        "SELECT count(*) FROM inputs WHERE NOT EXISTS"
        " (SELECT 1 FROM responses WHERE responses.input = inputs.key) AND NOT EXISTS"
        " (SELECT 1 FROM inputs AS later WHERE later.previous = inputs.key)"
    ),
}
_NAMING: Final = ("files", "upload_parts", "container_files", "skill_versions")
_FILES: Final = {
    **{
        f"{table} without their content": (
            f"SELECT count(*) FROM {table} WHERE NOT EXISTS"  # noqa: S608 # constants
            f" (SELECT 1 FROM blobs WHERE blobs.id = {table}.blob AND blobs.state = 1)"
        )
        for table in _NAMING
    },
    "contents that no row names": (
        "SELECT count(*) FROM blobs WHERE state = 1 AND id NOT IN ("  # noqa: S608 # constants
        + " UNION ALL ".join(f"SELECT blob FROM {table}" for table in _NAMING)  # noqa: S608
        + ")"
    ),
    "parts without their upload": (
        "SELECT count(*) FROM upload_parts WHERE NOT EXISTS"
        " (SELECT 1 FROM uploads WHERE uploads.key = upload_parts.upload)"
    ),
    "files without their container": (
        "SELECT count(*) FROM container_files WHERE NOT EXISTS"
        " (SELECT 1 FROM containers WHERE containers.key = container_files.container)"
    ),
    "versions without their skill": (
        "SELECT count(*) FROM skill_versions WHERE NOT EXISTS"
        " (SELECT 1 FROM skills WHERE skills.key = skill_versions.skill)"
    ),
    "files without their vector store": (
        "SELECT count(*) FROM vector_files WHERE NOT EXISTS"
        " (SELECT 1 FROM vector_stores WHERE vector_stores.key = vector_files.store)"
    ),
}
_DECODERS: Final[dict[str, Callable[[bytes], object]]] = {
    "items": decode_item,
    "conversation_items": decode_item,
    "conversations": msgspec.json.decode,
    "files": msgspec.json.decode,
    "uploads": msgspec.json.decode,
    "containers": msgspec.json.decode,
    "skill_versions": msgspec.json.decode,
}
"""What reads the bodies of these tables."""


class Finding(NamedTuple):
    """Something that is wrong: where, and what."""

    where: str
    message: str


class Checked(NamedTuple):
    """What a check has found."""

    findings: list[Finding]
    unfinished: int
    """Turns that have not ended; the gateway that runs, or the next one, ends them."""


async def check_store(url: str, progress: Progress) -> Checked:
    """Return what is wrong with the database, its rows, logs and contents.

    Raise OlderDatabase if it is not up to date, and ValueError if the URL cannot be used.
    """
    findings: list[Finding] = []
    path = None if is_postgres(url) else path_of(url)
    unfinished = 0
    async with open_place(url, is_target=False) as place:
        await place.begin()
        if path is not None:
            findings += [Finding(*found) for found in check_pages(path)]
        try:
            unfinished = await place.number(
                "SELECT count(*) FROM responses WHERE writer IS NOT NULL"
            )
            if path is not None:
                findings += [one async for one in _count(place.number, _SHARED)]
            findings += [one async for one in _check_rows(place, progress)]
            if path is None:
                findings += [one async for one in _check_pieces(place)]
        except sqlite3.DatabaseError as error:
            findings.append(Finding("database", f"it cannot be read to the end: {error}"))
    if path is not None:
        findings += [Finding(*found) for found in check_contents(path)]
    return Checked(findings, unfinished)


async def check_books(store: Store) -> list[Finding]:
    """Return what the ledger and the audit log contradict."""
    findings = [
        Finding("ledger", f"{one.rule}: {one.subject} {one.message}")
        for one in await store.ledger.check()
        if one.rule != _ABANDONED
    ]
    audit = await store.audit.verify()
    if audit.problem is not None:
        findings.append(Finding("audit", audit.problem))
    return findings


async def _count(
    ask: Callable[[str], Awaitable[int]], questions: Mapping[str, str]
) -> AsyncIterator[Finding]:
    for name, question in questions.items():
        if count := await ask(question):
            yield Finding("orphans", f"{name}: {count:,}")


async def _check_rows(place: Place, progress: Progress) -> AsyncIterator[Finding]:
    async for finding in _count(place.number, _MAIN):
        yield finding
    async for finding in _count(place.files_number, _FILES):
        yield finding
    async for finding in _check_turns(place, progress):
        yield finding
    for name, decode in _DECODERS.items():
        async for finding in _check_bodies(place, _BY_NAME[name], decode, progress):
            yield finding


async def _check_bodies(
    place: Place, table: Table, decode: Callable[[bytes], object], progress: Progress
) -> AsyncIterator[Finding]:
    """Decode the last column of every row: one that is shared by many, once."""
    table = table._replace(is_whole=False)
    done, total = 0, await place.count(table)
    async for rows in place.rows(table):
        for row in rows:
            try:
                decode(row[-1])
            except _DAMAGE as error:
                named = dict(zip(table.columns, row, strict=True))
                name = named.get("id") or named.get(table.key[0])
                yield Finding(table.name, f"{name} cannot be read: {_words(error)}")
        done += len(rows)
        progress(table.name, done, total)


async def _check_turns(place: Place, progress: Progress) -> AsyncIterator[Finding]:
    """Decode every response, and replay the log of each that has one."""
    done, total = 0, await place.count(_BY_NAME["responses"])
    logs = _each(place.rows(_BY_NAME["logs"]))
    log = await anext(logs, None)
    async for rows in place.rows(_BY_NAME["responses"]):
        for key, _, name, _, status, _, _, body in rows:
            while log is not None and log[0] < key:
                log = await anext(logs, None)  # an orphan, which is counted
            try:
                response = decode_turn(body, [], status)
                if response.id != name:
                    yield Finding("responses", f"{name} has the body of {response.id}")
            except _DAMAGE as error:
                yield Finding("responses", f"{name} cannot be read: {_words(error)}")
                continue
            if log is not None and log[0] == key:
                problem = _problem_of(log[2], response)
                if problem is not None:
                    yield Finding("logs", f"the log of {name} {problem}")
        done += len(rows)
        progress("responses", done, total)


def _problem_of(body: bytes, response: Response) -> str | None:
    """Return what is wrong with a whole log, if anything is."""
    try:
        batches = expand_log(body)
        events = [event for batch in batches for event in unpack_events(batch.body, response)]
    except _DAMAGE as error:
        return f"cannot be read: {_words(error)}"
    numbers = [event.sequence_number for event in events]
    if numbers != list(range(len(numbers))):
        return "lacks events: their numbers have gaps"
    last = events[-1] if events else None
    if not isinstance(last, LifecycleEvent) or last.response.status not in DONE_STATUSES:
        return "does not end: its last event is not the end of the response"
    return None


async def _check_pieces(place: Place) -> AsyncIterator[Finding]:
    """Check the contents of files that are in the database, in pieces."""
    pieces = _each(place.rows(_BY_NAME["blob_pieces"]))
    piece = await anext(pieces, None)
    async for rows in place.rows(_BY_NAME["blobs"]):
        for key, _, name, size, sha256, _, _ in rows:
            digest, found = hashlib.sha256(), 0
            while piece is not None and piece[0] <= key:
                if piece[0] == key:
                    digest.update(piece[2])
                    found += len(piece[2])
                piece = await anext(pieces, None)
            if found != size or digest.digest() != bytes(sha256):
                yield Finding("contents", f"{name} has {found:,} bytes that are not those sent")


async def _each(batches: AsyncIterator[list[Row]]) -> AsyncIterator[Row]:
    async for rows in batches:
        for row in rows:
            yield row


def _words(error: BaseException) -> str:
    """Return the message of an error, in one line."""
    text = " ".join(str(error).split())
    return text[:200] or type(error).__name__

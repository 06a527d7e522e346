"""Copy a store in SQLite to another place while gateways use it: both databases and the folder.

The backup is the store at one moment. While no process can write, for an instant, a view of each
database is opened and the contents of files get a second name, so that a removal cannot take them
away; then everything is copied at leisure. The backup appears at the end, under its own name, as
a whole: first the folder, then the files, then the database that makes it a store.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from antiphon.protocol.errors import CallerError, OurFault
from antiphon.store.sqlite.connection import create_file
from antiphon.store.sqlite.files_migrations import FILES
from antiphon.store.sqlite.migrations import STORE, ForeignDatabase, Schema
from antiphon.store.sqlite.queue import queued

__all__ = ["BackupRefused", "Made", "Progress", "backup", "parts_of"]

_PATIENCE: Final = 30.0
_PAGES: Final = 4096
_BLOBS: Final = "SELECT id FROM blobs WHERE state = 1"

Progress = Callable[[str, int, int], None]
"""Receives what is copied, how much of it is done, and the total."""


class BackupRefused(CallerError):
    """The backup was not begun: it would overwrite something, or there is nothing to copy."""


class Made(NamedTuple):
    """What a backup holds."""

    size: int
    """In bytes."""
    blobs: int
    """Contents of files."""


class _Parts(NamedTuple):
    """The places of a store."""

    main: Path
    files: Path
    blobs: Path


def parts_of(path: Path) -> _Parts:
    """Return the places of the store whose main file this is."""
    return _Parts(path, path.with_name(f"{path.name}-files"), path.with_name(f"{path.name}-blobs"))


def backup(source: Path, target: Path, progress: Progress) -> Made:
    """Copy a store; the target holds all of it, or does not exist.

    Raise BackupRefused if anything is there already. Errors of SQLite and of the disk are raised
    as they are.
    """
    ours, theirs = parts_of(source.absolute()), parts_of(target.absolute())
    if not ours.main.is_file():
        raise BackupRefused(f"there is no file {source}")
    for place in (*theirs, theirs.main.with_name(f"{theirs.main.name}-wal")):
        if os.path.lexists(place):
            raise BackupRefused(f"{place} exists: a backup overwrites nothing; name another file")
    theirs.main.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder = theirs.main.with_name(f".{theirs.main.name}-{secrets.token_hex(4)}")
    folder.mkdir(mode=0o700)
    try:
        made = _copy(ours, parts_of(folder / "store"), progress)
        _publish(parts_of(folder / "store"), theirs)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return made


def _copy(ours: _Parts, theirs: _Parts, progress: Progress) -> Made:
    with ExitStack() as staging:
        with ExitStack() as stack:
            views, names, staged = _freeze(ours, stack, staging)
            for schema, (view, path) in views.items():
                target = theirs.main if schema is STORE else theirs.files
                _copy_database(view, path, target, progress)
        # Without the views from here on: removals wait for them, until nothing is left anywhere.
        size = sum(
            _copy_blob(staged / name, theirs.blobs / name) for name in _shown(names, progress)
        )
    for path in (theirs.main, theirs.files):
        size += path.stat().st_size if path.exists() else 0
    return Made(size, len(names))


def _shown(names: list[str], progress: Progress) -> Iterator[str]:
    for done, name in enumerate(names):
        progress("contents of files", done, len(names))
        yield name
    if names:
        progress("contents of files", len(names), len(names))


_Views = dict[Schema, tuple[sqlite3.Connection, Path]]


def _freeze(ours: _Parts, stack: ExitStack, staging: ExitStack) -> tuple[_Views, list[str], Path]:
    """Return views of both databases at one moment, the contents, and a folder that keeps them.

    The views are closed by `stack`, and the folder is removed by `staging`.
    """
    found = {STORE: ours.main} | ({FILES: ours.files} if ours.files.is_file() else {})
    views: _Views = {}
    names: list[str] = []
    staged = ours.blobs
    with ExitStack() as locks:
        for schema, path in found.items():
            locks.enter_context(queued(path, _PATIENCE))
            lock = locks.enter_context(contextlib.closing(_open(path, schema)))
            lock.execute("PRAGMA query_only = OFF")  # only then it can keep writers out
            lock.execute("BEGIN IMMEDIATE")
        for schema, path in found.items():
            view = stack.enter_context(contextlib.closing(_open(path, schema)))
            view.execute("BEGIN")
            view.execute("SELECT count(*) FROM sqlite_master").fetchone()  # from now on
            views[schema] = view, path
        if FILES in views:
            names = [name for (name,) in views[FILES][0].execute(_BLOBS)]
            if names:
                staged = staging.enter_context(_staged(ours.blobs, names))
    return views, names, staged


def _open(path: Path, schema: Schema) -> sqlite3.Connection:
    """Open a database of any version, for reading. Raise ForeignDatabase if it is not ours."""
    connection = sqlite3.connect(
        f"{path.as_uri()}?mode=rw", uri=True, timeout=_PATIENCE, isolation_level=None
    )
    try:
        connection.execute("PRAGMA query_only = ON")
        if connection.execute("PRAGMA application_id").fetchone()[0] != schema.application_id:
            raise ForeignDatabase
    except BaseException:
        connection.close()
        raise
    return connection


@contextmanager
def _staged(blobs: Path, names: list[str]) -> Iterator[Path]:
    """Give these contents another name, beside them; yield the folder with these names."""
    folder = blobs / f"backup-{secrets.token_hex(4)}"
    folder.mkdir(mode=0o700)
    try:
        for name in names:
            try:
                os.link(blobs / name, folder / name, follow_symlinks=False)
            except FileNotFoundError:
                raise OurFault(
                    f"the content {name} of a file is missing in {blobs};"
                    " `antiphon store check` shows what else is"
                ) from None
            except OSError:  # a file system without second names
                shutil.copyfile(blobs / name, folder / name)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _copy_database(view: sqlite3.Connection, path: Path, target: Path, progress: Progress) -> None:
    create_file(target)
    made = sqlite3.connect(target, isolation_level=None)
    try:

        def show(_: int, left: int, total: int) -> None:
            progress(path.name, total - left, total)

        view.backup(made, pages=_PAGES, progress=show)
        (found,) = made.execute("PRAGMA quick_check(1)").fetchone()
    finally:
        made.close()
    if found != "ok":
        raise OurFault(f"the copy of {path.name} is damaged ({found}); nothing was kept")
    _sync(target)


def _copy_blob(source: Path, target: Path) -> int:
    target.parent.mkdir(mode=0o700, exist_ok=True)
    with source.open("rb") as content, _new_file(target) as copy:
        shutil.copyfileobj(content, copy, 1024 * 1024)
        copy.flush()
        os.fsync(copy.fileno())
        return copy.tell()


@contextmanager
def _new_file(path: Path) -> Iterator[BinaryIO]:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        yield file


def _publish(made: _Parts, target: _Parts) -> None:
    """Give the copy its names: that of the database, which makes it a store, at last.

    Files get a second name rather than another one: that fails if the name is taken by now.
    """
    published: list[Path] = []
    try:
        if made.blobs.is_dir():
            target.blobs.mkdir(mode=0o700)
            published.append(target.blobs)
            _sync(made.blobs)
            made.blobs.rename(target.blobs)  # an empty folder may be replaced
        for source, path in ((made.files, target.files), (made.main, target.main)):
            if source.is_file():
                _name(source, path)
                published.append(path)
        _sync(target.main.parent)
    except BaseException:
        for path in published:
            shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink()
        raise


def _name(source: Path, path: Path) -> None:
    try:
        os.link(source, path)
    except FileExistsError:
        raise
    except OSError:  # a file system without second names
        source.rename(path)


def _sync(path: Path) -> None:
    if os.name == "nt":  # a folder cannot be opened there
        return
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)

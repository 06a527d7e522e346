"""The working folder of a container on this machine: /mnt/data of its sandbox.

Programs of models write here, so nothing in it is trusted. Rules:

- Every step into the folder is taken from a descriptor of the folder above, and never follows a
  link. A link, a device, a socket or a pipe is never opened.
- A scan has limits: entries, depth, length of a path. What it leaves out is reported.
- What changed is known by size, times and inode; the time of the change of an inode cannot be set
  by a program.

All functions block: call them in a thread.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

__all__ = [
    "MAX_DEPTH",
    "MOUNT",
    "Entry",
    "Scan",
    "Stamp",
    "changes",
    "copy_out",
    "is_storable",
    "place_file",
    "plain_name",
    "remove_file",
    "scan",
]

MOUNT: Final = "/mnt/data"
"""Where the folder is in the sandbox. Paths of container files begin with it."""
MAX_DEPTH: Final = 16
_MAX_ENTRIES: Final = 10_000
_MAX_PATH: Final = 512
_MAX_NAME: Final = 255
_SKIPPED: Final = frozenset({"__pycache__"})
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_WRITE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_PIECE: Final = 1024 * 1024

Stamp = tuple[int, int, int, int]
"""Inode, size, time of the content and time of the inode of a file."""


class Entry(NamedTuple):
    """A plain file in the folder. `path` is absolute in the sandbox."""

    path: str
    size: int
    stamp: Stamp


class Scan(NamedTuple):
    """What is in the folder, and what was left out of the list, with the reason."""

    entries: list[Entry]
    left_out: list[str]


def is_storable(path: str) -> bool:
    """Return whether a path in the sandbox can name a file of a container."""
    if not path.startswith(f"{MOUNT}/") or len(path.encode("utf-8", "replace")) > _MAX_PATH:
        return False
    steps = path[len(MOUNT) + 1 :].split("/")
    return len(steps) <= MAX_DEPTH and all(map(_is_name, steps))


def plain_name(filename: str) -> str:
    """Return a name for an uploaded file that can stand in the folder; the file's own if it can."""
    name = filename.replace("\\", "/").rpartition("/")[2]
    name = "".join(char if char.isprintable() else "_" for char in name).strip()
    while len(name.encode("utf-8", "replace")) > _MAX_NAME:
        name = name[1:]
    return name if _is_name(name) else f"file{'_' * bool(name)}{name.lstrip('.') or ''}"


def _is_name(name: str) -> bool:
    """Return whether a name can be kept: text, no control characters, not hidden."""
    if not name or name.startswith(".") or name in _SKIPPED or not name.isprintable():
        return False
    try:
        return len(name.encode()) <= _MAX_NAME and "/" not in name
    except UnicodeEncodeError:  # bytes that are not UTF-8
        return False


# Looking.


def scan(folder: Path) -> Scan:
    """Return the plain files in the folder, sorted by path, as far as they can be kept."""
    found = Scan([], [])
    root = os.open(folder, _FOLDER)
    try:
        _scan_into(found, root, MOUNT, 1, [_MAX_ENTRIES])
    finally:
        os.close(root)
    found.entries.sort()
    return found


def _scan_into(found: Scan, folder: int, where: str, depth: int, left: list[int]) -> None:
    """Add what is in an open folder; `left` holds how many entries may still be looked at."""
    for entry in _listed(folder):
        if not left[0]:
            found.left_out.append(f"{where}: more than {_MAX_ENTRIES} files and folders")
            return
        left[0] -= 1
        status = _status(entry.name, folder)
        if status is None or entry.name in _SKIPPED or entry.name.startswith("."):
            continue
        shown = f"{where}/{_shown(entry.name)}"
        why = _why_not(entry.name, where, status.st_mode, depth)
        if why:
            found.left_out.append(f"{shown}: {why}")
        elif stat.S_ISDIR(status.st_mode):
            with suppress(OSError):  # it is gone, or another thing by now
                inner = os.open(entry.name, _FOLDER, dir_fd=folder)
                try:
                    _scan_into(found, inner, shown, depth + 1, left)
                finally:
                    os.close(inner)
        else:
            found.entries.append(Entry(shown, status.st_size, _stamp(status)))


def _listed(folder: int) -> list[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        return [entry for entry, _ in zip(entries, range(_MAX_ENTRIES + 1), strict=False)]


def _status(name: str, folder: int) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except OSError:  # a program has removed it meanwhile
        return None


def _why_not(name: str, where: str, mode: int, depth: int) -> str:
    if stat.S_ISLNK(mode):
        return "a link"
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        return "not a plain file"
    if not _is_name(name) or len(f"{where}/{name}".encode()) > _MAX_PATH:
        return "its name cannot be kept"
    if stat.S_ISDIR(mode) and depth >= MAX_DEPTH:
        return f"more than {MAX_DEPTH} folders deep"
    return ""


def _shown(name: str) -> str:
    return name if _is_name(name) else ascii(name)[1:-1][:_MAX_NAME]


def _stamp(status: os.stat_result) -> Stamp:
    return (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


# Reading and writing.


def copy_out(folder: Path, path: str, most: int) -> Iterator[bytes]:
    """Yield the content of a file in pieces, at most so many bytes. Raise OSError."""
    with _parent_of(folder, path, makes=False) as (parent, name):
        file = os.open(name, _READ, dir_fd=parent)
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise OSError(f"{path} is not a plain file")
        left = most
        while left and (piece := os.read(file, min(_PIECE, left))):
            left -= len(piece)
            yield piece
    finally:
        os.close(file)


def place_file(folder: Path, path: str, write: Callable[[int], None]) -> Stamp:
    """Make a file in place of what is there, with what `write` writes. Raise OSError.

    Folders on the way are made; a link or a file that stands in the way is removed.
    """
    with _parent_of(folder, path, makes=True) as (parent, name):
        fresh = f".antiphon-{os.urandom(8).hex()}"
        file = os.open(fresh, _WRITE, 0o666, dir_fd=parent)
        try:
            write(file)
            os.fchmod(file, 0o666)  # the program may run as another user, in this folder alone
            os.rename(fresh, name, src_dir_fd=parent, dst_dir_fd=parent)
            return _stamp(os.fstat(file))
        except BaseException:
            with suppress(OSError):
                os.unlink(fresh, dir_fd=parent)
            raise
        finally:
            os.close(file)


def remove_file(folder: Path, path: str) -> None:
    """Remove a file, if it is there."""
    with suppress(OSError), _parent_of(folder, path, makes=False) as (parent, name):
        os.unlink(name, dir_fd=parent)


@contextmanager
def _parent_of(folder: Path, path: str, *, makes: bool) -> Iterator[tuple[int, str]]:
    """Yield a descriptor of the folder that a path is in, and the last step of the path."""
    if not is_storable(path):
        raise OSError(f"{path!r} is no path of a container")
    *steps, name = path[len(MOUNT) + 1 :].split("/")
    at = os.open(folder, _FOLDER)
    try:
        for step in steps:
            is_made = makes and _make_folder(at, step)
            inner = os.open(step, _FOLDER, dir_fd=at)
            os.close(at)
            at = inner
            if is_made:
                os.fchmod(at, 0o777)
        yield at, name
    finally:
        os.close(at)


def _make_folder(at: int, name: str) -> bool:
    """Make a folder if there is none; return whether it was made."""
    status = _status(name, at)
    if status is not None and stat.S_ISDIR(status.st_mode):
        return False
    if status is not None:
        os.unlink(name, dir_fd=at)
    os.mkdir(name, 0o777, dir_fd=at)
    return True


def changes(entries: list[Entry], known: Mapping[str, Stamp]) -> tuple[list[Entry], list[str]]:
    """Return the files that are new or changed, and the paths of those that are gone."""
    there = {entry.path for entry in entries}
    new = [entry for entry in entries if known.get(entry.path) != entry.stamp]
    return new, [path for path in known if path not in there]

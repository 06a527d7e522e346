"""How is a user's file changed? Completely or not at all, and with a backup.

The new text is written beside the file and takes its place in one step, with the permissions of
the old one; a link stays a link. What was there before is kept beside it as
`NAME.antiphon-backup`, or with a number, if it differs from what is kept already. Nothing here
knows what is in the file.
"""

from __future__ import annotations

import difflib
import os
import re
import stat
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from antiphon.cli.connect.piece import CannotMerge, Piece
from antiphon.cli.errors import CliError

__all__ = ["Change", "apply", "diff_of", "plan_undo", "plan_write"]

_MAX_BYTES: Final = 4 * 1024 * 1024
_MAX_BACKUPS: Final = 100
_BOM: Final = "\ufeff"
_SECRET: Final = re.compile(
    r"""((?<!env_)(?:key|token|secret|password)["']?[ \t]*[=:][ \t]*["']?)
    (?!unused\b|\$\{|\{env:)[^\s"',}]+""",
    re.IGNORECASE | re.VERBOSE,
)
"""What looks like a key after the name of one; group 1 is the name."""
_MASKED: Final = r"\1…"


class Change(msgspec.Struct, frozen=True):
    """A file before and after; None if it does not exist."""

    path: Path
    """The file itself, where the path that was named is a link."""
    before: str | None
    after: str | None
    is_kept: bool = False
    """Whether to keep what was there before."""
    spent: tuple[Path, ...] = ()
    """Backups that hold nothing that the file does not hold."""
    left: tuple[Path, ...] = ()
    """Backups that hold something else, the newest first."""

    @property
    def is_none(self) -> bool:
        """Return whether there is nothing to do."""
        return self.before == self.after


def plan_write(path: Path, piece: Piece) -> Change:
    """Return the change that puts a piece into a file. Raise CannotMerge."""
    path = _resolved(path)
    before = _read(path)
    mark, text = _split(before or "")
    return Change(path, before, mark + piece.merge(text), is_kept=True)


def plan_undo(path: Path, piece: Piece) -> Change:
    """Return the change that takes a piece out of a file. Raise CannotMerge.

    A file that was not there before is not there afterwards, unless it holds something else.
    """
    path = _resolved(path)
    before = _read(path)
    if before is None:
        return Change(path, None, None)
    mark, text = _split(before)
    backups = dict(_kept_texts(path, piece))
    befores = [kept for kept in backups.values() if piece.take_out(kept) == kept]
    clean = piece.take_out(text, befores)
    if clean == text:
        return Change(path, before, before)
    spent = tuple(
        name
        for name, kept in backups.items()
        if kept == clean or piece.has_made(kept, clean) or piece.has_made(kept, "")
    )
    left = tuple(name for name in _there(path) if name not in spent)
    is_gone = not left and not befores and piece.is_blank(clean)
    return Change(path, before, None if is_gone else mark + clean, spent=spent, left=left)


def _resolved(path: Path) -> Path:
    """Return the file that a path leads to, through links."""
    try:
        return path.resolve()
    except (OSError, RuntimeError):  # which of them is a matter of the version
        raise CannotMerge("it is a link that leads in a circle") from None


def _kept_texts(path: Path, piece: Piece) -> Iterator[tuple[Path, str]]:
    """Yield the backups that can be understood, the newest first."""
    for name in _there(path):
        with suppress(CannotMerge):
            text = _split(_read(name) or "")[1]
            piece.take_out(text)
            yield name, text


def _there(path: Path) -> list[Path]:
    """Return the backups of a file, the newest first."""
    return [name for name in _names(path) if name.is_file()][::-1]


def apply(change: Change) -> Path | None:
    """Make the change; return where the old text is kept, if that is needed. Raise CliError."""
    try:
        return _apply(change)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise CliError(f"{change.path} cannot be written: {reason}; nothing was changed") from error


def _apply(change: Change) -> Path | None:
    if change.is_none:
        return None
    path, kept = change.path, None
    if change.before is not None:
        if not path.stat().st_mode & (stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH):
            raise CliError(f"{path} is read-only; nothing was changed")
        if change.is_kept:
            kept = _keep(path, change.before)
    path.parent.mkdir(parents=True, exist_ok=True)
    if change.after is None:
        path.unlink()
    else:
        _replace(path, change.before, change.after)
    for backup in change.spent:
        backup.unlink(missing_ok=True)
    return kept


def diff_of(change: Change) -> str:
    """Return the change as a unified diff, without the keys that are in the file."""
    name = str(change.path)
    lines = difflib.unified_diff(
        (change.before or "").splitlines(),
        (change.after or "").splitlines(),
        os.devnull if change.before is None else name,
        os.devnull if change.after is None else name,
        lineterm="",
    )
    return "".join(f"{_SECRET.sub(_MASKED, line)}\n" for line in lines)


def _read(path: Path) -> str | None:
    """Return a file's text as it is, None if there is no file."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise CannotMerge("it is not a file")
        with path.open("rb") as file:
            data = file.read(_MAX_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise CannotMerge(f"it cannot be read: {(error.strerror or str(error)).lower()}") from error
    if len(data) > _MAX_BYTES:
        raise CannotMerge(f"it is larger than {_MAX_BYTES} bytes")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise CannotMerge("it is not UTF-8 text") from None


def _split(text: str) -> tuple[str, str]:
    """Return the byte order mark, if there is one, and the rest."""
    return (_BOM, text[1:]) if text.startswith(_BOM) else ("", text)


def _names(path: Path) -> Iterator[Path]:
    yield path.with_name(f"{path.name}.antiphon-backup")
    for number in range(2, _MAX_BACKUPS + 1):
        yield path.with_name(f"{path.name}.antiphon-backup-{number}")


def _keep(path: Path, text: str) -> Path:
    """Keep a text beside its file, unless it is kept already; return where."""
    data = text.encode()
    for name in _names(path):
        if name.is_file():
            if name.read_bytes() == data:
                return name
            continue
        mode = stat.S_IMODE(path.stat().st_mode)
        with os.fdopen(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.write(data)
        name.chmod(mode)
        return name
    raise CliError(f"{path} has {_MAX_BACKUPS} backups already; remove those you do not need")


def _replace(path: Path, before: str | None, after: str) -> None:
    """Replace a file's text in one step, unless another program has changed it."""
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(after.encode())
            file.flush()
            os.fsync(file.fileno())
        if before is None:
            Path(name).chmod(0o666 & ~_umask())
        else:
            old = path.stat()
            with suppress(PermissionError, AttributeError):  # not ours to give, or no such thing
                os.chown(name, old.st_uid, old.st_gid)
            Path(name).chmod(stat.S_IMODE(old.st_mode))
        if _read(path) != before:
            raise CliError(f"{path} was changed by another program; nothing was written, try again")
        Path(name).replace(path)
    finally:
        Path(name).unlink(missing_ok=True)


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask

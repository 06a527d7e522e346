"""Where does the editor listen, and how does it know us? Its file states both.

An editor whose extension offers its models listens on a loopback port and writes a file with the
address and a token. Who can write that file receives the conversations, and who can read it can
use the models: so the file must belong to the user of this process and must be closed to all
others, and the address must be one of this machine. The file is read for each connection, because
an editor that starts again has another port.
"""

from __future__ import annotations

import ipaddress
import os
import stat
from pathlib import Path
from typing import Final

import msgspec

from antiphon.protocol.errors import BackendError
from antiphon.transport.secret import Secret

__all__ = ["Editor", "read_editor_file"]

_VERSION: Final = 1
_MAX_BYTES: Final = 64 * 1024
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO
_START: Final = "start the editor, and turn on that it offers its models"


class Editor(msgspec.Struct, frozen=True):
    """An editor that offers its models."""

    host: str
    port: int
    token: Secret
    name: str


class _Written(msgspec.Struct, frozen=True, kw_only=True):
    """The file as it is written."""

    version: int
    address: str
    token: str
    pid: int | None = None
    name: str = ""


def read_editor_file(path: Path) -> Editor:
    """Return what the file states. Raise BackendError if it cannot be used or trusted."""
    try:
        written = msgspec.json.decode(_read(path), type=_Written)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise _unusable(path, f"it is not written as we know it ({error})") from None
    if written.version != _VERSION:
        raise _unusable(path, f"its version is {written.version}, and we know {_VERSION}")
    host, port = _address(path, written.address)
    try:
        token = Secret(written.token)
    except ValueError:
        raise _unusable(path, "it has no token") from None
    return Editor(host, port, token, written.name or "the editor")


def _read(path: Path) -> bytes:
    """Return the content of the file; what was opened is checked, not what the path names."""
    try:
        with open(path, "rb", opener=_open) as file:
            _check_owner(path, os.fstat(file.fileno()))
            data = file.read(_MAX_BYTES + 1)
    except FileNotFoundError:
        raise BackendError(
            f"no editor offers its models: there is no file {path}; {_START}",
            code="upstream_unreachable",
            status=503,
        ) from None
    except OSError as error:
        raise _unusable(path, f"it cannot be read ({(error.strerror or '').lower()})") from None
    if len(data) > _MAX_BYTES:
        raise _unusable(path, f"it is longer than {_MAX_BYTES} bytes")
    return data


def _open(path: str, flags: int) -> int:
    """Open without waiting: opening a pipe without a writer would block."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _check_owner(path: Path, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise _unusable(path, "it is not a file")
    if os.name != "posix":
        return  # the user's own directories are closed to others there
    if found.st_uid != os.geteuid():
        raise _unusable(path, "it belongs to another user")
    if found.st_mode & _OTHERS:
        mode = stat.S_IMODE(found.st_mode)
        raise _unusable(path, f"others can read it (mode {mode:04o}); `chmod 600` closes it")


def _address(path: Path, address: str) -> tuple[str, int]:
    """Return host and port. Only an address of this machine is used, and no name."""
    host, _, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    try:
        is_here = ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_here = False
    if not is_here:
        raise _unusable(path, f"its address {address[:100]!r} is not a loopback address")
    if not (port.isascii() and port.isdecimal() and 0 < int(port[:6]) < 65_536):
        raise _unusable(path, f"its address {address[:100]!r} has no port")
    return host, int(port)


def _unusable(path: Path, why: str) -> BackendError:
    """Return the error for a file that is there but must not be used."""
    return BackendError(f"the editor's file {path} is not used: {why}", code="upstream_auth")

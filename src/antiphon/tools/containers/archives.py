"""Skills as ZIP archives: a folder with a SKILL.md, checked before anything is unpacked.

An archive comes from a caller. Names that lead out of the folder, links, encrypted entries, too
many or too large ones, and contents that are larger than declared are refused. Nothing is
repaired. SKILL.md begins with lines between `---`, of which `name` and `description` are read.

All functions may take some milliseconds for each MiB: call them in a thread.
"""

from __future__ import annotations

import io
import re
import stat
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from antiphon.protocol.errors import InvalidRequest
from antiphon.tools.containers.folder import MAX_DEPTH

__all__ = ["MAX_ARCHIVE", "SkillArchive", "pack", "read_archive"]

_MIB: Final = 1024 * 1024
MAX_ARCHIVE: Final = 16 * _MIB
"""How large an archive may be."""
_MAX_UNPACKED: Final = 64 * _MIB
_MAX_ENTRIES: Final = 1000
_MAX_RATIO: Final = 200
_MAX_HEAD: Final = 16 * 1024
_MAX_NAME: Final = 64
_MAX_ABOUT: Final = 1024
_HEAD: Final = "SKILL.md"
_FIELD: Final = re.compile(r"(name|description)[ \t]*:[ \t]*(.*)")
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class SkillArchive(NamedTuple):
    """A skill that was read: its name, what it is for, and its files by relative path."""

    name: str
    description: str
    files: dict[str, bytes]

    def unpack(self, folder: Path) -> None:
        """Write the files into a new folder, which nothing else writes to."""
        for path, data in self.files.items():
            file = folder / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
            file.chmod(0o755 if data.startswith(b"#!") else 0o644)


def read_archive(data: bytes, param: str) -> SkillArchive:
    """Return the skill in an archive. Raise InvalidRequest if it is not one, or is not safe."""
    if len(data) > MAX_ARCHIVE:
        raise _wrong(param, f"the archive is larger than {MAX_ARCHIVE} bytes")
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            files = dict(_read_all(archive, param))
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise _wrong(param, f"it is not a ZIP archive that can be read ({error})") from None
    files = _without_top(files)
    name, about = _read_head(files.get(_HEAD), param)
    return SkillArchive(name, about, files)


def pack(files: Iterable[tuple[str, bytes]]) -> bytes:
    """Return files that were uploaded one by one as an archive."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, data in files:
            # Without the time, so that the same files make the same archive.
            archive.writestr(zipfile.ZipInfo(path), data, zipfile.ZIP_DEFLATED)
    return packed.getvalue()


def _read_all(archive: zipfile.ZipFile, param: str) -> Iterator[tuple[str, bytes]]:
    entries = archive.infolist()
    total = sum(entry.file_size for entry in entries)
    if len(entries) > _MAX_ENTRIES or total > _MAX_UNPACKED:
        raise _wrong(param, f"it has more than {_MAX_ENTRIES} files or {_MAX_UNPACKED} bytes")
    seen: set[str] = set()
    for entry in entries:
        why = _why_not(entry, seen)
        if why:
            raise _wrong(param, f"{ascii(entry.filename)[:120]}: {why}")
        seen.add(entry.filename.rstrip("/").casefold())
        if not entry.is_dir():
            yield entry.filename, _content(archive, entry, param)


def _why_not(entry: zipfile.ZipInfo, seen: set[str]) -> str:
    path = entry.filename
    steps = path.rstrip("/").split("/")
    if "\\" in path or not path.isprintable() or any(one in ("", ".", "..") for one in steps):
        return "its name leads out of the folder, or cannot be used"
    if len(steps) > MAX_DEPTH or any(len(one.encode()) > 255 for one in steps):
        return "its name is too long"
    if path.rstrip("/").casefold() in seen:
        return "there are two of this name"
    kind = stat.S_IFMT(entry.external_attr >> 16)
    if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
        return "it is a link or a device"
    if entry.flag_bits & 1:
        return "it is encrypted"
    if entry.file_size > _MAX_RATIO * max(entry.compress_size, 1024):
        return "it is compressed more than is taken"
    return ""


def _content(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, param: str) -> bytes:
    with archive.open(entry) as file:
        data = file.read(entry.file_size + 1)
    if len(data) != entry.file_size:
        raise _wrong(param, f"{ascii(entry.filename)[:120]}: it is not as large as it declares")
    return data


def _without_top(files: dict[str, bytes]) -> dict[str, bytes]:
    """Return the files without the one folder that all of them are in, if there is one."""
    if _HEAD in files or not files:
        return files
    tops = {path.partition("/")[0] for path in files}
    if len(tops) > 1:
        return files
    return {path.partition("/")[2]: data for path, data in files.items()}


def _read_head(head: bytes | None, param: str) -> tuple[str, str]:
    if head is None:
        raise _wrong(param, f"there is no {_HEAD} at its top")
    lines = head[:_MAX_HEAD].decode("utf-8", "replace").splitlines()
    fields = dict(_fields(lines))
    name, about = fields.get("name", ""), fields.get("description", "")
    if len(name) > _MAX_NAME or not _NAME.fullmatch(name):
        raise _wrong(param, f"{_HEAD} needs a name of letters, digits, '.', '_' and '-'")
    if not about:
        raise _wrong(param, f"{_HEAD} needs a description")
    return name, about[:_MAX_ABOUT]


def _fields(lines: list[str]) -> Iterator[tuple[str, str]]:
    """Yield the fields between the first two lines `---`; a folded text is put together."""
    if not lines or lines[0].strip() != "---":
        return
    block = iter(lines[1:])
    field = ""
    pieces: list[str] = []
    for line in block:
        if found := _FIELD.fullmatch(line):
            if field:
                yield field, " ".join(pieces).strip()
            field, first = found[1], found[2].strip()
            pieces = [] if first in (">", "|", ">-", "|-") else [_unquoted(first)]
        elif line.strip() == "---":
            break
        elif line[:1].isspace() and field:
            pieces.append(line.strip())
        elif field:
            yield field, " ".join(pieces).strip()
            field = ""
    if field:
        yield field, " ".join(pieces).strip()


def _unquoted(text: str) -> str:
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'" else text


def _wrong(param: str, why: str) -> InvalidRequest:
    return InvalidRequest(f"{param}: {why}", code="invalid_skill", param=param)

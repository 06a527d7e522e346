"""What is inside an office document? A ZIP archive of parts, and the relations between them.

Nothing is unpacked to disk and no archive inside an archive is opened. How much comes out is
counted while it comes out, whatever the archive declares.
"""

from __future__ import annotations

import posixpath
import zipfile
import zlib
from collections.abc import Iterator
from typing import IO, Final, NamedTuple

from antiphon.tools.documents.parsing.frames import Unreadable
from antiphon.tools.documents.parsing.xml_events import Attributes, XmlEvents, read_attributes

__all__ = ["Package", "Relation"]

_PIECE: Final = 256 * 1024
_MAX_PARTS: Final = 20_000
_MAX_RELATIONS: Final = 100_000
# More than this is no document: texts are packed to a tenth, and seldom to a hundredth.
_MAX_RATIO: Final = 200
_RATIO_FROM: Final = 32 * 1024 * 1024
_MIB: Final = 1024 * 1024
_RELATION: Final = "http://schemas.openxmlformats.org/package/2006/relationships Relationship"


class Relation(NamedTuple):
    """Where a part refers to. `kind` is the last word of its type."""

    kind: str
    target: str


class Package:
    """An open archive. `unpacked_bytes` limits all that is read from it."""

    def __init__(self, file: IO[bytes], unpacked_bytes: int) -> None:
        self._most = unpacked_bytes
        self._left = unpacked_bytes
        try:
            self._zip = zipfile.ZipFile(file)
        except (zipfile.BadZipFile, ValueError, OSError, NotImplementedError):
            raise Unreadable("The file is damaged or incomplete.") from None
        self._parts = {entry.filename: entry for entry in self._zip.infolist()}
        if len(self._parts) > _MAX_PARTS:
            raise Unreadable("The file has too many parts to be a document.")

    def __contains__(self, name: object) -> bool:
        return name in self._parts

    def pieces(self, name: str) -> Iterator[bytes]:
        """Yield the content of a part. Raise Unreadable if it is damaged, or a bomb."""
        entry = self._parts.get(name)
        if entry is None:
            raise Unreadable("The file is damaged: a part of it is missing.")
        if entry.flag_bits & 1:
            raise Unreadable("The file is protected by a password.")
        self._check(entry.file_size, entry.compress_size)
        size = 0
        try:
            with self._zip.open(entry) as part:
                while piece := part.read(_PIECE):
                    size += len(piece)
                    self._left -= len(piece)
                    self._check(size, entry.compress_size)
                    yield piece
            if size != entry.file_size:
                raise zipfile.BadZipFile
        except (zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError):
            raise Unreadable("The file is damaged or incomplete.") from None

    def relations(self, name: str) -> dict[str, Relation]:
        """Return the relations of a part, or of the whole package for an empty name, by id."""
        folder, base = posixpath.split(name)
        path = posixpath.join(folder, "_rels", f"{base}.rels")
        if path not in self:
            return {}
        found: dict[str, Relation] = {}

        def note(attributes: Attributes) -> None:
            seen = read_attributes(attributes)
            if seen.get("TargetMode") != "External" and len(found) < _MAX_RELATIONS:
                kind = seen.get("Type", "").rpartition("/")[2]
                target = posixpath.join("/", folder, seen.get("Target", ""))
                found[seen.get("Id", "")] = Relation(kind, posixpath.normpath(target)[1:])

        events = XmlEvents()
        events.starts[_RELATION] = note
        for _ in events.read(self.pieces(path)):
            pass
        return found

    def related(self, name: str, kind: str) -> str | None:
        """Return the first part of this kind that a part refers to."""
        targets = (one.target for one in self.relations(name).values() if one.kind == kind)
        return next((target for target in targets if target in self), None)

    def _check(self, size: int, packed: int) -> None:
        if self._left < 0 or size > self._most:
            most = self._most // _MIB
            raise Unreadable(f"The file is too large: it unpacks to more than {most} MiB.")
        if size > _RATIO_FROM and size > packed * _MAX_RATIO:
            raise Unreadable("The file unpacks to far more than a document of its size can hold.")

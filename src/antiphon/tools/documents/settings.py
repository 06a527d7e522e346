"""What can be set for reading documents: `[documents]`."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

__all__ = ["DocumentSettings"]

_MIB: Final = 1024 * 1024
_Count = Annotated[int, msgspec.Meta(gt=0)]
_Seconds = Annotated[float, msgspec.Meta(gt=0)]


class DocumentSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How much a document may take. Plain text has no limit but that of files."""

    processes: _Count = 2
    """How many documents are parsed at the same time, each in its own process."""
    bytes: _Count = 256 * _MIB
    """How large a document may be."""
    text_bytes: _Count = 64 * _MIB
    """How much text one may have."""
    unpacked_bytes: _Count = 512 * _MIB
    """How much an office document may unpack to."""
    memory_bytes: _Count = 1024 * _MIB
    """How much memory a process may take, with all its libraries."""
    cpu_seconds: _Count = 60
    """How much of a processor's time a document may take."""
    seconds: _Seconds = 120.0
    """How long the parsing of a document may take. Waiting for its reader does not count."""

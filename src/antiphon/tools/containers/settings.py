"""What can be set about containers, the code interpreter and the hosted shell."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

__all__ = ["CodeSettings", "ContainerSettings", "ShellSettings"]

_MIB: Final = 1024 * 1024
_Positive = Annotated[float, msgspec.Meta(gt=0)]
_Count = Annotated[int, msgspec.Meta(ge=1)]


class ContainerSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many containers there are, how long they live, and what they keep: `[containers]`."""

    idle_minutes: Annotated[int, msgspec.Meta(ge=1, le=1440)] = 20
    """A container that was not used for so long has expired, if its caller sets no other time."""
    running: _Count = 8
    """How many sandboxes this process runs at once; the one that was idle longest is closed."""
    running_per_owner: _Count = 4
    """The same for one owner."""
    wait_seconds: _Positive = 60.0
    """How long a call waits for a container that another call uses, or for room to run."""
    file_count: _Count = 500
    """How many files a container keeps."""
    file_bytes: _Count = 64 * _MIB
    """How large a file is that a container keeps."""
    total_bytes: _Count = 512 * _MIB
    """How large all files are that a container keeps."""
    folder: str | None = None
    """Where the working folders are made; None for the folder of the system for such files."""


class CodeSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The code interpreter: `[code_interpreter]`."""

    enabled: bool = True
    """Whether it is offered, if there is a sandbox that holds."""
    inline_image_bytes: _Count = 256 * 1024
    """How large an image is that stands in the item itself; larger ones are files only."""


class ShellSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The shell in a container: `[shell]`."""

    enabled: bool = True
    """Whether it is offered, if there is a sandbox that holds."""
    seconds: _Positive = 120.0
    """How long all commands of a call may run, if the model allows no less."""
    commands: _Count = 32
    """How many commands a call may have."""
    output_chars: _Count = 64 * 1024
    """How many characters of the output of a command are kept, if the model asks for no less."""

"""What can be set for programs that call tools: `[programs]`."""

from __future__ import annotations

from typing import Annotated

import msgspec

__all__ = ["ProgramSettings"]

_Count = Annotated[int, msgspec.Meta(ge=1)]


class ProgramSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Programs of models that call tools: `[programs]`."""

    enabled: bool = True
    """Whether they are run, if there is a sandbox that holds, and quickjs-ng is installed."""
    running: _Count = 4
    """How many programs this process runs at once; others wait."""
    seconds: Annotated[float, msgspec.Meta(gt=0)] = 10.0
    """How long a program may compute, from its beginning or after results have come."""
    memory_bytes: Annotated[int, msgspec.Meta(ge=1024 * 1024)] = 64 * 1024 * 1024
    code_bytes: _Count = 64 * 1024
    """How long a program may be."""
    calls: _Count = 64
    """How many calls of tools a program may make."""

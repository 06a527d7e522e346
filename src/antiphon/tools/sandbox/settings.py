"""What can be set for programs of models: `[sandbox]`."""

from __future__ import annotations

from typing import Literal

from antiphon.tools.sandbox.base import SandboxLimits

__all__ = ["SandboxSettings"]


class SandboxSettings(SandboxLimits, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The limits of sandboxes, and which sandbox with which interpreter is used."""

    engine: Literal["auto", "bwrap+sandlock", "bwrap", "off"] = "auto"
    """`auto` is the strongest that holds here; `off` runs no program at all."""
    python: str | None = None
    """The interpreter of a virtual environment, whose packages the programs get."""

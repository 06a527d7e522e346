"""Who asks: the identity that auth finds, and that a turn carries to its log.

`owner` is what rows in the store belong to: no request sees another owner's data. Everything
else says which of the owner's credentials was used, so that a turn can be ended when its key is
revoked, and charged to it.
"""

from __future__ import annotations

from typing import Final

import msgspec

__all__ = ["LOCAL", "Principal"]


class Principal(msgspec.Struct, frozen=True):
    """Who asks. `key_id` is None without a key, and for a turn that another process began."""

    owner: str
    key_id: str | None = None


LOCAL: Final = Principal("local")
"""On localhost no API key is needed; such requests belong to this principal."""

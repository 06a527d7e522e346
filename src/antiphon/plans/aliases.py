"""Names under which a model can call a tool: letters, digits, `_` and `-`, at most 64 of them.

A name that will do stays as it is. Any other becomes one that is made of it, always the same.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Container
from typing import Final

import msgspec

from antiphon.protocol.errors import InvalidRequest

__all__ = ["free_alias", "is_plain"]

_MAX_ALIAS: Final = 64
_HASH_DIGITS: Final = 8
_FOREIGN: Final = re.compile(r"[^a-zA-Z0-9_-]+")


def is_plain(name: str) -> bool:
    """Return whether every model takes this name."""
    return len(name) <= _MAX_ALIAS and not _FOREIGN.search(name)


def free_alias(kind: str, namespace: str | None, name: str, taken: Container[str]) -> str:
    """Return a name derived from the tool's own that every backend takes and no other tool has."""
    joint = "" if namespace is None or namespace.endswith("_") else "__"
    wished = _FOREIGN.sub("_", f"{namespace or ''}{joint}{name}")
    if is_plain(wished) and wished.strip("_") and wished not in taken:
        return wished
    identity = msgspec.json.encode([kind, namespace, name])
    digits = hashlib.sha256(identity).hexdigest()
    for length in range(_HASH_DIGITS, len(digits)):
        mark = f"_{digits[:length]}"
        alias = wished[: _MAX_ALIAS - len(mark)] + mark
        if alias not in taken:
            return alias
    raise InvalidRequest(f"the tool '{name}' cannot be named", code="invalid_value", param="tools")

"""What becomes of a request for whose caller nothing may be stored?

The rule: what can be answered without storage is answered, and the response is not stored, which
is reported as degraded if the request did not ask for that. What is meaningless without storage is
refused: `background`, `conversation`, a `previous_response_id` that only the store could know, and
tools that keep files. A `previous_response_id` of the same WebSocket is known without the store.
"""

from __future__ import annotations

from collections.abc import Set
from typing import Final

from antiphon.protocol.errors import StorageForbidden
from antiphon.protocol.request import CreateResponse

__all__ = ["NOT_STORED", "forbid_storage", "refuse_chain"]

NOT_STORED: Final = "store: nothing may be stored for this key"
_KEEPING_FILES: Final = frozenset({"code_interpreter", "shell"})
"""Tools whose containers keep files. They matter where they are run by us."""


def forbid_storage(request: CreateResponse, run_here: Set[str]) -> list[str]:
    """Make a request one that is not stored; return what is degraded by that.

    `run_here` are the types of tools that the gateway runs. Raise StorageForbidden.
    """
    if request.background:
        raise _refusal("a background response is stored", "background")
    if request.conversation is not None:
        raise _refusal("a conversation is stored", "conversation")
    for place, tool in enumerate(request.tools or ()):
        kind = tool.get("type")
        if kind in run_here and kind in _KEEPING_FILES:
            raise _refusal(f"the files of {kind} are stored", f"tools[{place}]")
    is_asked_for = request.store is not False
    request.store = False
    return [NOT_STORED] if is_asked_for else []


def refuse_chain() -> StorageForbidden:
    """Return the error for a response that only the store could know."""
    return _refusal(
        "a response can be continued over the same WebSocket only", "previous_response_id"
    )


def _refusal(why: str, param: str) -> StorageForbidden:
    return StorageForbidden(f"{why}, and nothing may be stored for this key", param=param)

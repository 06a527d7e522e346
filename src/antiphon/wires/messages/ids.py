"""Ids in the words of the Messages API, mapped both ways without a table.

    call id of ours    <->  `toolu_` + the call id, other characters than letters, digits and
                            `_` escaped: `-` as `--`, any other byte as `-` and two hex digits
    `m_` + foreign id  <->  an id that another server made and a client sends us

Both directions are injective, and each undoes the other. Anthropic takes only `[a-zA-Z0-9_-]` in
an id, and upstreams use more, such as `functions.Bash:0`. The same call has the same id in every
turn, so a history is rendered the same again.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["call_id_of", "message_id_of", "tool_use_id_of"]

_PREFIX: Final = "toolu_"
_FOREIGN: Final = "m_"
_ESCAPED: Final = re.compile(rb"[^a-zA-Z0-9_]")
_ESCAPE: Final = re.compile(rb"-(-|[0-9a-f]{2})")
_PLAIN: Final = re.compile(r"[a-zA-Z0-9_]+", re.ASCII)
_VALID: Final = re.compile(r"[a-zA-Z0-9_-]+", re.ASCII)
# No id of ours is as long; it bounds how deep ids of ids are looked into.
_LONGEST: Final = 1024


def tool_use_id_of(call_id: str) -> str:
    """Return the id of a `tool_use` block for a call."""
    foreign = call_id.removeprefix(_FOREIGN)
    if foreign != call_id and _VALID.fullmatch(foreign) and _own_call_id(foreign) is None:
        return foreign
    return _PREFIX + _escape(call_id)


def call_id_of(tool_use_id: str) -> str:
    """Return the call id for the id of a `tool_use` block."""
    own = _own_call_id(tool_use_id)
    return _FOREIGN + tool_use_id if own is None else own


def message_id_of(response_id: str) -> str:
    """Return the id of the message that a response is."""
    return "msg_" + response_id.removeprefix("resp_")


def _own_call_id(tool_use_id: str) -> str | None:
    """Return the call id that this id is made of, or None if we did not make it."""
    if not tool_use_id.startswith(_PREFIX) or len(tool_use_id) > _LONGEST:
        return None
    call_id = _unescape(tool_use_id.removeprefix(_PREFIX))
    return call_id if call_id and tool_use_id_of(call_id) == tool_use_id else None


def _escape(text: str) -> str:
    if _PLAIN.fullmatch(text):
        return text
    data = text.encode("utf-8", "surrogatepass")
    return _ESCAPED.sub(lambda found: _escaped(found[0]), data).decode("ascii")


def _escaped(byte: bytes) -> bytes:
    return b"--" if byte == b"-" else b"-%02x" % byte[0]


def _unescape(text: str) -> str | None:
    if _PLAIN.fullmatch(text):
        return text
    try:
        data = _ESCAPE.sub(lambda found: _unescaped(found[1]), text.encode("ascii"))
        return data.decode("utf-8", "surrogatepass")
    except UnicodeError:
        return None


def _unescaped(escape: bytes) -> bytes:
    return b"-" if escape == b"-" else bytes([int(escape, 16)])

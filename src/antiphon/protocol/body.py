"""The JSON of a request body, decoded with suspicion.

A body is refused when it is nested too deep, has too many values, names a field twice, holds
a number that is no JSON number or not 64 bits, or half a surrogate pair. Each of these was
sent to some server to make it stall, crash or disagree with the next one in line.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from antiphon.protocol.errors import InvalidRequest

__all__ = ["MAX_DEPTH", "MAX_NODES", "decode_body"]

MAX_DEPTH: Final = 64
MAX_NODES: Final = 100_000
_INT_LIMIT: Final = 2**63

_decode = msgspec.json.Decoder().decode
# Every string of the text, and whether a colon makes it a name. Possessive: never backtracks.
_STRINGS: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"\s*+(:?)', re.DOTALL)


def decode_body(data: bytes) -> object:
    """Return the value of a JSON text. Raise InvalidRequest if it is malformed or a bomb."""
    try:
        value = _decode(data)
    except RecursionError:
        raise _too_deep() from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"the body is not valid JSON: {error}", code="invalid_json") from None
    names = _count_names(value)
    if names != sum(1 for match in _STRINGS.finditer(data) if match[1]):
        raise InvalidRequest("the body names a field twice", code="duplicate_field")
    return value


def _count_names(value: object) -> int:
    """Return how many fields all objects have together; check depth, size and numbers."""
    names = nodes = depth = 0
    level: list[object] = [value]
    while level:
        depth += 1
        nodes += len(level)
        if depth > MAX_DEPTH:
            raise _too_deep()
        if nodes > MAX_NODES:
            raise InvalidRequest(
                f"the body holds more than {MAX_NODES} values", code="too_many_values"
            )
        below: list[object] = []
        for node in level:
            if isinstance(node, dict):
                names += len(node)
                below.extend(node.values())
            elif isinstance(node, list):
                below.extend(node)
            elif isinstance(node, int) and not -_INT_LIMIT <= node < _INT_LIMIT:
                raise InvalidRequest("a number does not fit into 64 bits", code="invalid_value")
        level = below
    return names


def _too_deep() -> InvalidRequest:
    return InvalidRequest(f"the body is nested deeper than {MAX_DEPTH} levels", code="too_deep")

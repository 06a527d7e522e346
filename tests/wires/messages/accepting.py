"""Whether Anthropic's own types accept the body of a request."""

from __future__ import annotations

from functools import cache
from typing import Any

from anthropic.types.message_create_params import MessageCreateParamsStreaming
from pydantic import TypeAdapter

__all__ = ["accepted"]


def accepted(body: Any) -> Any:
    """Return what the types know of the body. Raise ValidationError if they refuse it.

    What they do not know is missing in the result.
    """
    return _read(_types().validate_python({**body, "stream": True})) | {"stream": body["stream"]}


@cache
def _types() -> TypeAdapter[Any]:
    return TypeAdapter(MessageCreateParamsStreaming)


def _read(value: Any) -> Any:
    """Return the value with lazy lists read, which validates them."""
    if isinstance(value, dict):
        return {name: _read(inner) for name, inner in value.items()}
    if isinstance(value, list) or type(value).__name__ == "ValidatorIterator":
        return [_read(inner) for inner in value]
    return value

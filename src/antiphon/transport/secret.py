"""A key that does not show itself.

The value leaves only through `reveal`, at the place where a header is written. Code that
prints, logs or formats a `Secret` gets three stars.
"""

from __future__ import annotations

import hmac
from typing import Final, NoReturn

__all__ = ["Secret"]

_STARS: Final = "***"
_MIN_REDACTED: Final = 8


class Secret:
    """A key whose repr is `***`. White space around it, as files leave it, is dropped."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        value = value.strip()
        if not value or not value.isascii() or not value.isprintable():
            raise ValueError("a key must be printable ASCII and not empty")
        self._value = value

    def reveal(self) -> str:
        """Return the key itself."""
        return self._value

    def redact(self, text: str) -> str:
        """Return the text without the key: some servers repeat it in their error messages.

        A key of less than eight characters protects nothing (`k`, `local`, `EMPTY`) and may
        stand in any word: without it the message could not be read.
        """
        return text if len(self._value) < _MIN_REDACTED else text.replace(self._value, _STARS)

    def __repr__(self) -> str:
        return _STARS

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return hmac.compare_digest(self._value, other._value)

    def __hash__(self) -> int:
        return hash(self._value)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret is not to be written down")

"""The query of a GET: which names may be in it, and what their values are.

A name that is not known, a value that cannot be and a single value that is given twice are
refused, with the name. Lists are written as OpenAI's SDKs do it, `name[]=a&name[]=b`, or as
`name=a,b`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from antiphon.protocol.errors import invalid
from antiphon.server.app import Call

__all__ = ["Query"]

_MAX_DIGITS: Final = 12
_MAX_VALUES: Final = 100


class Query:
    """The query of a request; `single` and `many` are the names that may be in it."""

    def __init__(self, call: Call, *, single: frozenset[str], many: frozenset[str]) -> None:
        self._values: dict[str, list[str]] = {}
        for raw, value in call.request.query.items():
            name = raw.removesuffix("[]")
            if name in many:
                # A name in brackets has one value, which may have commas, as line items do.
                values = [value] if raw.endswith("[]") else value.split(",")
                self._values.setdefault(name, []).extend(values)
            elif raw in single:
                if raw in self._values:
                    raise invalid(raw, "is given twice")
                self._values[raw] = [value]
            else:
                raise invalid(raw[:64], "is not known here", "unknown_parameter")

    def text(self, name: str) -> str | None:
        """Return a value as it was sent."""
        found = self._values.get(name)
        return found[0] if found else None

    def texts(self, name: str) -> tuple[str, ...]:
        """Return the values of a list, each once."""
        found = self._values.get(name, [])
        if len(found) > _MAX_VALUES:
            raise invalid(name, f"may have {_MAX_VALUES} values at most")
        return tuple(dict.fromkeys(value for value in found if value))

    def number(
        self, name: str, default: int | None = None, *, least: int = 0, most: int | None = None
    ) -> int | None:
        """Return a whole number."""
        text = self.text(name)
        if text is None:
            return default
        is_number = text.isascii() and text.isdecimal() and len(text) <= _MAX_DIGITS
        if not is_number or int(text) < least or (most is not None and int(text) > most):
            bounds = f"from {least} on" if most is None else f"from {least} to {most}"
            raise invalid(name, f"must be a whole number {bounds}")
        return int(text)

    def refuse(self, names: Iterable[str], why: str) -> None:
        """Raise InvalidRequest if one of these is given."""
        for name in names:
            if name in self._values:
                raise invalid(name, why)

    def flag(self, name: str) -> bool:
        """Return whether something is asked for."""
        text = self.text(name)
        if text not in {None, "true", "false"}:
            raise invalid(name, "must be true or false")
        return text == "true"

    def choice(self, name: str, choices: tuple[str, ...], default: str) -> str:
        """Return one of these values."""
        text = self.text(name) or default
        if text not in choices:
            raise invalid(name, f"must be one of {', '.join(filter(None, choices))}")
        return text

    def choices(self, name: str, known: tuple[str, ...]) -> tuple[str, ...]:
        """Return the values of a list, each of which must be known."""
        found = self.texts(name)
        for value in found:
            if value not in known:
                raise invalid(name, f"must hold only {', '.join(known)}")
        return found

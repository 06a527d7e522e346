"""Which profile of a wire fits a server? Found by its name, or guessed from the base URL.

Each wire has profiles of its own. A table names the places that are known: a host
(`api.openai.com`), the end of a host (`.openai.azure.com`) or a port (`:11434`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeVar
from urllib.parse import urlsplit

__all__ = ["UnknownProfile", "find_profile"]

_GENERIC: Final = "generic"
_P = TypeVar("_P")


class UnknownProfile(KeyError):
    """There is no profile of this name."""

    def __init__(self, name: str, known: Mapping[str, object]) -> None:
        super().__init__(name)
        self._known = ", ".join(sorted(known))

    def __str__(self) -> str:
        return f"there is no profile {self.args[0]!r}; the profiles are {self._known}"


def find_profile(which: str, profiles: Mapping[str, _P], places: Mapping[str, str]) -> _P:
    """Return the profile of a name or of a base URL; the generic one for a URL we do not know.

    Raise UnknownProfile for a name that there is no profile of.
    """
    name = _name_at(which, places) if "://" in which else which
    if name not in profiles:
        raise UnknownProfile(name, profiles)
    return profiles[name]


def _name_at(url: str, places: Mapping[str, str]) -> str:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return _GENERIC
    for place, name in places.items():
        if place in (host, f":{port}") or (place[0] == "." and host.endswith(place)):
            return name
    return _GENERIC

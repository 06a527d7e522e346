"""Where do nginx and Caddy come from?

From the system, if they are installed, otherwise from Debian's packages (`tests/debian.py`).

    python -m tests.proxies.install    prints where they are
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from tests import debian
from tests.debian import Missing

__all__ = ["PROXIES", "Missing", "find", "install"]

PROXIES: Final = ("nginx", "caddy")
_KEPT: Final = "proxies"
_VERSION: Final = {"nginx": ("-v",), "caddy": ("version",)}


def find(name: str) -> Path | None:
    """Return the program, if the system or the cache has it."""
    return debian.find(name, name, _KEPT)


def install(name: str) -> Path:
    """Return the program, fetched now if it is not here yet. Raise Missing if it cannot be."""
    return debian.install(name, name, _KEPT, *_VERSION[name])


def main() -> int:
    """Fetch what is missing, and print where each proxy is. Return the exit code."""
    try:
        for name in PROXIES:
            print(install(name))
    except Missing as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

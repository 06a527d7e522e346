"""Why a gateway cannot be built or started. The command line translates these once.

    CallerError
    └── BadSettings    the user's mistake: a flag, a variable or a key of the file
    PeerFault
    └── Unavailable    the machine's or a server's fault: a port, a directory or a store

A bug of ours is any other exception. It is not caught here.
"""

from __future__ import annotations

from antiphon.protocol.errors import CallerError, PeerFault

__all__ = ["BadSettings", "Unavailable", "how_to_install"]


class BadSettings(CallerError):
    """A flag, an environment variable or a key of the file cannot be used. Nothing was tried."""


class Unavailable(PeerFault):
    """A port, a directory or a store that the settings name cannot be used now."""


def how_to_install(extra: str) -> str:
    """Return the command that installs an extra; the package is not on a package index."""
    return f"`pip install '.[{extra}]'` in antiphon's directory"

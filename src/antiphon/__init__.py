"""antiphon: the Responses gateway that never lies.

`import antiphon` is cheap: it binds the version and nothing else. `antiphon.Client`,
`antiphon.AsyncClient`, `antiphon.Provider`, `antiphon.SyncProvider` and `antiphon.AntiphonError`,
the base of every error, are imported when they are first used. The rooms are imported by name
(`antiphon.client`, `antiphon.host`, `antiphon.server`, …); `antiphon.testing` holds the public
fakes.
"""

from __future__ import annotations

from antiphon.version import __version__

TYPE_CHECKING = False
if TYPE_CHECKING:
    from antiphon.client import AsyncClient, Client
    from antiphon.host import Provider, SyncProvider
    from antiphon.protocol.errors import AntiphonError

__all__ = ["AntiphonError", "AsyncClient", "Client", "Provider", "SyncProvider", "__version__"]

_ROOMS = {
    "AntiphonError": "protocol.errors",
    "AsyncClient": "client",
    "Client": "client",
    "Provider": "host",
    "SyncProvider": "host",
}


def __getattr__(name: str) -> object:
    if name not in _ROOMS:
        raise AttributeError(f"module 'antiphon' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"antiphon.{_ROOMS[name]}"), name)

"""Which models do the providers list when a gateway starts? They are shown, not remembered."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from antiphon.gateway.config import Settings
from antiphon.gateway.providers import Source, build_catalog
from antiphon.models.names import is_chat_model
from antiphon.protocol.errors import BackendError
from antiphon.routing.catalog import Catalog

__all__ = ["model_names"]

_LISTING_SECONDS: Final = 0.5


def model_names(
    settings: Settings, sources: Sequence[Source], warn: Callable[[str], None]
) -> list[str]:
    """Return the models that are listed within half a second; warn of each silent provider.

    A thread asks, because a name server that does not answer blocks its caller, and so the end
    of the event loop.
    """
    found: list[_Listing] = []
    # Here and not in the thread: this imports the backends. If the parent forks while a thread
    # imports a module, its workers wait for the lock of that module forever.
    catalog = build_catalog(settings, sources)
    asking = threading.Thread(
        target=lambda: found.append(asyncio.run(_list_models(catalog, sources))), daemon=True
    )
    asking.start()
    asking.join(_LISTING_SECONDS + 0.1)
    listing = found[0] if found else _Listing([], {s.name: "no answer in time" for s in sources})
    for name, problem in listing.problems.items():
        warn(f"Provider {name} does not answer: {problem}.")
    default = settings.default_model
    names = sorted(listing.names, key=lambda name: (name != default, not is_chat_model(name)))
    return names if default is None or default in names else [default, *names]


class _Listing(NamedTuple):
    """What the providers listed when the gateway started."""

    names: list[str]
    problems: dict[str, str]
    """Why a provider listed nothing, by its name."""


async def _list_models(catalog: Catalog, sources: Sequence[Source]) -> _Listing:
    try:
        problems = await catalog.problems(_LISTING_SECONDS)
        silent = {name: problem for name, problem in problems.items() if problem is not None}
        if len(silent) == len(sources):
            return _Listing([], silent)
        async with asyncio.timeout(_LISTING_SECONDS):
            return _Listing([model.id for model in await catalog.models()], silent)
    except (TimeoutError, BackendError):
        return _Listing([], silent)
    finally:
        await catalog.close()

"""Which models do the providers list when a gateway starts? They are shown, not remembered."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

import msgspec

from antiphon.gateway.config import Settings
from antiphon.gateway.providers import Source, build_catalog
from antiphon.models.names import is_chat_model
from antiphon.protocol.errors import BackendError
from antiphon.routing.catalog import Catalog

__all__ = ["model_names"]

_LISTING_SECONDS: Final = 0.5
_WAIT_SECONDS: Final = 0.6


def model_names(
    settings: Settings, sources: Sequence[Source], warn: Callable[[str], None]
) -> list[str]:
    """Return the models that are listed within half a second; warn of each silent provider."""
    ask = _ask_in_thread if settings.workers == 1 else _ask_in_child
    catalog = build_catalog(settings, sources)  # imports the backends, for the workers too
    listing = ask(catalog, sources) or _Listing([], {s.name: "no answer in time" for s in sources})
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


def _ask_in_thread(catalog: Catalog, sources: Sequence[Source]) -> _Listing | None:
    """Return the listing, or None if it takes too long.

    A thread asks, because a name server that does not answer blocks its caller, and so the end
    of the event loop.
    """
    found: list[_Listing] = []
    asking = threading.Thread(
        target=lambda: found.append(asyncio.run(_list_models(catalog, sources))), daemon=True
    )
    asking.start()
    asking.join(_WAIT_SECONDS)
    return found[0] if found else None


def _ask_in_child(catalog: Catalog, sources: Sequence[Source]) -> _Listing | None:
    """Return the listing, or None if it takes too long. Workers are forked after this.

    A child process asks: a lock that a thread holds during the fork, such as that of a module
    that it imports, would stay locked in every worker.
    """
    answer, answer_in = os.pipe()
    pid = os.fork()
    if pid == 0:
        with suppress(BaseException), os.fdopen(answer_in, "wb") as file:
            file.write(msgspec.json.encode(asyncio.run(_list_models(catalog, sources))))
        os._exit(0)
    os.close(answer_in)
    try:
        return msgspec.json.decode(_read_all(answer, _WAIT_SECONDS), type=_Listing)
    except msgspec.DecodeError:
        return None
    finally:
        os.close(answer)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _read_all(pipe: int, seconds: float) -> bytes:
    """Return what is written to the pipe until its end, or until the time is over."""
    deadline = time.monotonic() + seconds
    data = b""
    while (left := deadline - time.monotonic()) > 0 and select.select([pipe], [], [], left)[0]:
        piece = os.read(pipe, 65536)
        if not piece:
            break
        data += piece
    return data


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

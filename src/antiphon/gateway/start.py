"""From settings to a server that runs: the order of things when `antiphon serve` starts.

Everything that can be refused is refused before the first connection: settings, store, keys,
address. Then this process serves, or becomes the parent of several that do. Each of those has
its own event loop, store and backends; nothing of the kind is open when they are forked.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import click
import msgspec

from antiphon.backends.breaker import Breaker
from antiphon.backends.known_models import is_chat_model
from antiphon.cli.errors import BadSettings
from antiphon.gateway.banner import banner
from antiphon.gateway.config import Settings, load
from antiphon.gateway.endpoints import read_endpoints
from antiphon.gateway.listen import bind, metrics_url, resolve, url_of
from antiphon.gateway.log_lines import LineWriter, formatter_for
from antiphon.gateway.places import open_named_store, speaking_of, store_url
from antiphon.gateway.providers import Source, build, file_of, read_sources
from antiphon.gateway.run import ServerSettings, make_app, serve
from antiphon.gateway.sealing import read_seal_keys
from antiphon.gateway.workers import run_workers
from antiphon.protocol.errors import BackendError
from antiphon.routing.catalog import Catalog
from antiphon.server.metrics_board import MetricsBoard, board_directory
from antiphon.server.origin import ANY_ORIGIN, is_origin
from antiphon.store import KeyRecord
from antiphon.store.open import public_url

__all__ = ["start"]

_LISTING_SECONDS: Final = 0.5


def start(flags: Mapping[str, Any]) -> int:
    """Serve until told to stop; return the exit code. Raise CliError if it cannot begin."""
    settings, path = load(flags, os.environ, Path.cwd())
    if settings.local_model and not file_of(settings.local_model).exists():
        _fetch(settings.local_model)
    sources = read_sources(settings, os.environ)
    read_endpoints(settings, os.environ)  # what is wrong with one is told now
    read_seal_keys(settings, os.environ)
    address = resolve(settings.host, settings.port)
    settings = msgspec.structs.replace(
        settings,
        store=store_url(settings.store),
        require_keys=settings.require_keys or not address.is_loopback,
    )
    _log_to(logging.StreamHandler(), settings)
    _check_workers(settings)
    _check_origins(settings)
    with bind(address) as sock, _metrics_socket(settings) as metrics_sock:
        has_keys = asyncio.run(_look_for_keys(settings))
        if not has_keys:
            _check_keyless(settings, is_exposed=not address.is_loopback)
        click.echo(
            banner(
                url_of(sock),
                store=public_url(_store_of(settings)),
                sources=[source.about for source in sources],
                models=_model_names(settings, sources),
                config=path,
                needs_key=settings.require_keys,
                metrics=None if metrics_sock is None else metrics_url(metrics_sock),
            )
        )
        return _run(settings, sources, sock, metrics_sock)


@contextmanager
def _metrics_socket(settings: Settings) -> Iterator[socket.socket | None]:
    """Yield the socket of the metrics' own port, if one is set."""
    if settings.metrics_port is None:
        yield None
        return
    with bind(resolve(settings.metrics_host, settings.metrics_port)) as sock:
        yield sock


def _fetch(local_model: str) -> None:
    """Fetch the file to serve if it is one of the hub."""
    from antiphon.backends.hub import PREFIX
    from antiphon.cli.models import fetch_weights

    if local_model.startswith(PREFIX):
        fetch_weights(local_model)


def _check_origins(settings: Settings) -> None:
    """Raise BadSettings for what is not an origin, or would open a keyless gateway to all pages."""
    for origin in settings.allowed_origins:
        if origin == ANY_ORIGIN:
            if not settings.require_keys:
                raise BadSettings(
                    'allowed_origins = ["*"] lets every web page use this gateway; '
                    "set require_keys = true with it, or list the origins"
                )
        elif not is_origin(origin):
            raise BadSettings(
                f"allowed_origins: {origin!r} is not an origin; "
                "write it as browsers send it, such as http://localhost:3000"
            )


def _check_workers(settings: Settings) -> None:
    if settings.workers == 1:
        return
    if sys.platform == "win32":
        raise BadSettings("--workers needs fork, which Windows does not have; leave it out there")
    if _store_of(settings).startswith("memory:"):
        raise BadSettings(
            "memory: cannot be shared by several workers; pass --store sqlite:PATH or --workers 1"
        )


async def _look_for_keys(settings: Settings) -> bool:
    """Return whether a key is in force.

    The store is opened, written to and closed: one that is full or read-only is reported now.
    """
    store = open_named_store(_store_of(settings))
    try:
        with speaking_of(_store_of(settings)):
            await store.ping()
            return any(map(_is_in_force, await store.list_keys()))
    finally:
        await store.close()


def _model_names(settings: Settings, sources: Sequence[Source]) -> list[str]:
    """Return the names of the models that are known at once; name each provider that is silent.

    A thread asks, because a name server that does not answer blocks its caller, and with it the
    end of the loop.
    """
    found: list[_Listing] = []
    asking = threading.Thread(
        target=lambda: found.append(asyncio.run(_list_models(settings, sources))), daemon=True
    )
    asking.start()
    asking.join(_LISTING_SECONDS + 0.1)
    listing = found[0] if found else _Listing([], {s.name: "no answer in time" for s in sources})
    for name, problem in listing.problems.items():
        click.echo(f"Provider {name} does not answer: {problem}.", err=True)
    default = settings.default_model
    names = sorted(listing.names, key=lambda name: (name != default, not is_chat_model(name)))
    return names if default is None or default in names else [default, *names]


class _Listing(NamedTuple):
    """What the providers said when the gateway started."""

    names: list[str]
    problems: dict[str, str]
    """Why a provider said nothing, by its name."""


async def _list_models(settings: Settings, sources: Sequence[Source]) -> _Listing:
    catalog = _catalog(settings, sources)
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


def _run(
    settings: Settings,
    sources: Sequence[Source],
    sock: socket.socket,
    metrics_sock: socket.socket | None,
) -> int:
    def work(index: int, board: MetricsBoard | None = None) -> None:
        # Not in the parent of several workers: it forks, so it must not have a thread.
        _log_to(LineWriter(sys.stderr), settings)
        try:
            with asyncio.Runner(loop_factory=_loop_factory()) as runner:
                runner.run(_serve(settings, sources, sock, metrics_sock, board))
        finally:
            _log_to(logging.StreamHandler(), settings)  # closes the writer

    if settings.workers == 1:
        work(0)
        return 0
    with board_directory() as directory:
        return run_workers(
            settings.workers,
            lambda index: work(index, MetricsBoard(directory, str(index))),
            drain_seconds=settings.limits.drain_seconds,
        )


def _log_to(handler: logging.Handler, settings: Settings) -> None:
    handler.setFormatter(formatter_for(settings.log_format))
    logging.basicConfig(level=settings.log_level.upper(), handlers=[handler], force=True)


async def _serve(
    settings: Settings,
    sources: Sequence[Source],
    sock: socket.socket,
    metrics_sock: socket.socket | None,
    board: MetricsBoard | None,
) -> None:
    store = open_named_store(_store_of(settings))
    app = await make_app(
        _catalog(settings, sources),
        store,
        ServerSettings(
            dialect=settings.dialect,
            strict=settings.strict,
            reasoning_as=settings.reasoning_as,
            require_keys=settings.require_keys,
            allowed_origins=settings.allowed_origins,
            limits=settings.limits,
            seal_keys=read_seal_keys(settings, os.environ),
            webhooks=tuple(read_endpoints(settings, os.environ)),
            workers=settings.workers,
            board=board,
            id_mark=settings.id_mark,
            rerun_background=settings.rerun_background,
        ),
    )
    await serve(app, sock, lambda: None, metrics_sock)


def _catalog(settings: Settings, sources: Sequence[Source]) -> Catalog:
    breaker = Breaker(time.monotonic)
    backends = {source.name: build(source, settings.upstream_limits, breaker) for source in sources}
    return Catalog(
        backends,
        time.monotonic,
        default_model=settings.default_model,
        models=settings.models,
        breaker=breaker,
    )


def _store_of(settings: Settings) -> str:
    assert settings.store is not None
    return settings.store


def _is_in_force(key: KeyRecord) -> bool:
    return key.revoked_at is None and (key.expires_at is None or time.time() < key.expires_at)


def _check_keyless(settings: Settings, *, is_exposed: bool) -> None:
    """Raise BadSettings if there must be a key, and there is none in the store."""
    store = public_url(_store_of(settings))
    if store.startswith("memory:") and settings.require_keys:
        raise BadSettings(
            f"keys are required at {settings.host}, and memory: never holds one; "
            "pass --store sqlite:PATH and make one with `antiphon keys create`"
        )
    if is_exposed:
        raise BadSettings(
            f"{settings.host} can be reached from elsewhere, and there are no keys in {store}; "
            f"make one with `antiphon keys create --store {store}`"
        )


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop

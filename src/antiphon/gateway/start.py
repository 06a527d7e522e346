"""From settings to a running server: the steps when `antiphon serve` starts.

Everything that can be refused is refused before the first connection: settings, store, keys,
address. Then this process serves, or becomes the parent of several workers. Each process has its
own event loop, store and backends; none of these is open when the workers are forked.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from antiphon.gateway.assemble import ServerSettings, make_app
from antiphon.gateway.banner import banner
from antiphon.gateway.checks import (
    check_issuers,
    check_keyless,
    check_origins,
    check_workers,
    has_valid_key,
)
from antiphon.gateway.config import Settings, load
from antiphon.gateway.containers import open_containers
from antiphon.gateway.discover import model_names
from antiphon.gateway.endpoints import read_endpoints
from antiphon.gateway.errors import BadSettings
from antiphon.gateway.files import open_index
from antiphon.gateway.listen import bind, metrics_url, resolve, ui_url, url_of
from antiphon.gateway.log_lines import LineWriter, formatter_for
from antiphon.gateway.mcp import read_directory
from antiphon.gateway.notify import ServiceManager
from antiphon.gateway.places import open_named_store, store_url
from antiphon.gateway.providers import Source, build_catalog, file_of, is_on_hub, read_sources
from antiphon.gateway.sealing import read_seal_keys
from antiphon.gateway.serve import Overseer, serve
from antiphon.gateway.tls import Certificates, read_certificate
from antiphon.gateway.tool_terms import tool_terms
from antiphon.gateway.tools import open_tools
from antiphon.gateway.workers import run_workers
from antiphon.server.metrics_board import MetricsBoard, board_directory
from antiphon.store.open import public_url
from antiphon.telemetry.open import NotInstalled, open_exporter, open_recorder
from antiphon.telemetry.recorder import Recorder
from antiphon.tools.documents.reader import Documents

__all__ = ["start"]

_log = logging.getLogger(__name__)


def start(
    flags: Mapping[str, Any],
    *,
    show: Callable[[str], None],
    warn: Callable[[str], None],
    fetch_weights: Callable[[str], object],
) -> int:
    """Serve until a signal arrives; return the exit code. Raise BadSettings or Unavailable.

    `show` gets what was started, `warn` what is wrong although the gateway starts, and
    `fetch_weights` the name of a file on the hub that has to be downloaded first.
    """
    settings, path = load(flags, os.environ, Path.cwd())
    local = settings.local_model
    if local and is_on_hub(local) and not file_of(local).exists():
        fetch_weights(local)
    sources = read_sources(settings, os.environ)
    read_endpoints(settings, os.environ)  # only checked here
    read_seal_keys(settings, os.environ)
    read_directory(settings.mcp, os.environ)
    read_certificate(settings)
    address = resolve(settings.host, settings.port)
    store = store_url(settings.store)
    settings = msgspec.structs.replace(
        settings,
        require_keys=settings.require_keys or not address.is_loopback,
        ui=address.is_loopback if settings.ui is None else settings.ui,
    )
    _log_to(logging.StreamHandler(), settings)
    check_workers(settings, store)
    check_origins(settings)
    check_issuers(settings)
    _recorder_of(settings)  # only checked here
    with bind(address) as sock, _metrics_socket(settings) as metrics_sock:
        if not asyncio.run(has_valid_key(store)) and not settings.auth.issuers:
            check_keyless(settings, store, is_exposed=not address.is_loopback)
        show(
            banner(
                url_of(sock, is_secure=settings.tls_cert is not None),
                store=public_url(store),
                sources=[source.about for source in sources],
                models=model_names(settings, sources, warn),
                config=path,
                needs_key=settings.require_keys,
                ui=_ui_of(sock, settings),
                metrics=None if metrics_sock is None else metrics_url(metrics_sock),
            )
        )
        return _Process(settings, store, sources, sock, metrics_sock).run()


def _ui_of(sock: socket.socket, settings: Settings) -> str | None:
    """Return the address of the dashboard, if it is served."""
    return ui_url(sock, is_secure=settings.tls_cert is not None) if settings.ui else None


@contextmanager
def _metrics_socket(settings: Settings) -> Iterator[socket.socket | None]:
    """Yield the socket of the metrics' own port, if one is set."""
    if settings.metrics_port is None:
        yield None
        return
    with bind(resolve(settings.metrics_host, settings.metrics_port)) as sock:
        yield sock


class _Process(msgspec.Struct, frozen=True):
    """What a process needs to serve. It is the same for one process and for each worker."""

    settings: Settings
    store: str
    sources: Sequence[Source]
    sock: socket.socket
    metrics_sock: socket.socket | None

    def run(self) -> int:
        """Serve here, or as the parent of several workers; return the exit code."""
        manager = ServiceManager(os.environ)
        if self.settings.workers == 1:
            self._work(manager, None)
            return 0
        with board_directory() as directory:
            return run_workers(
                self.settings.workers,
                lambda index, line: self._work(line, MetricsBoard(directory, str(index))),
                manager,
                drain_seconds=self.settings.limits.drain_seconds,
            )

    def _work(self, overseer: Overseer, board: MetricsBoard | None) -> None:
        # The parent of several workers must not do this: it forks, so it must not have a thread.
        _log_to(LineWriter(sys.stderr), self.settings)
        try:
            with asyncio.Runner(loop_factory=_loop_factory()) as runner:
                runner.run(self._serve(overseer, board))
        finally:
            _log_to(logging.StreamHandler(), self.settings)  # closes the writer

    async def _serve(self, overseer: Overseer, board: MetricsBoard | None) -> None:
        store = open_named_store(self.store)
        documents = Documents(self.settings.documents)
        index = open_index(self.settings, os.environ, store, documents)
        containers = open_containers(self.settings, store)
        recorder = _recorder_of(self.settings)
        app = await make_app(
            build_catalog(self.settings, self.sources),
            store,
            _server_settings(self.settings, board, recorder),
            await open_tools(self.settings, os.environ, store, index, documents, containers),
            index,
            containers,
        )
        certificate = read_certificate(self.settings)
        tls = None if certificate is None else Certificates(certificate).context
        exporter = None
        if recorder is not None:
            telemetry = self.settings.telemetry
            exporter = open_exporter(recorder, telemetry, os.environ, app.metrics.name_of)
        try:
            await serve(app, self.sock, overseer, self.metrics_sock, tls)
        finally:
            if exporter is not None:
                await asyncio.to_thread(exporter.close)


def _recorder_of(settings: Settings) -> Recorder | None:
    """Return what records traces, if they are to be sent. Raise BadSettings if they cannot be.

    An environment that names a collector is not always meant for us: then it is a warning.
    """
    try:
        return open_recorder(settings.telemetry, os.environ)
    except NotInstalled as error:
        if settings.telemetry.enabled:
            raise BadSettings(str(error)) from None
        _log.warning("%s", error)
        return None


def _server_settings(
    settings: Settings, board: MetricsBoard | None, recorder: Recorder | None
) -> ServerSettings:
    return ServerSettings(
        telemetry=recorder,
        dialect=settings.dialect,
        strict=settings.strict,
        reasoning_as=settings.reasoning_as,
        doors=settings.doors,
        require_keys=settings.require_keys,
        issuers=settings.auth.issuers,
        allowed_origins=settings.allowed_origins,
        limits=settings.limits,
        files=settings.files,
        seal_keys=read_seal_keys(settings, os.environ),
        webhooks=tuple(read_endpoints(settings, os.environ)),
        workers=settings.workers,
        board=board,
        id_mark=settings.id_mark,
        rerun_background=settings.rerun_background,
        ui=bool(settings.ui),
        prompts=settings.prompts,
        input_files=settings.input_files,
        documents=settings.documents,
        tool_terms=tool_terms(settings, read_directory(settings.mcp, os.environ).endpoints),
    )


def _log_to(handler: logging.Handler, settings: Settings) -> None:
    handler.setFormatter(formatter_for(settings.log_format))
    logging.basicConfig(level=settings.log_level.upper(), handlers=[handler], force=True)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop

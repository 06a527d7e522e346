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
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from antiphon.gateway.assemble import ServerSettings, make_app
from antiphon.gateway.banner import banner
from antiphon.gateway.checks import check_keyless, check_workers, has_valid_key
from antiphon.gateway.config import Settings
from antiphon.gateway.containers import container_runners, open_containers
from antiphon.gateway.discover import model_names
from antiphon.gateway.endpoints import read_endpoints
from antiphon.gateway.files import open_index
from antiphon.gateway.listen import bind, metrics_url, resolve, ui_url, url_of
from antiphon.gateway.log_lines import LineWriter, formatter_for
from antiphon.gateway.mcp import read_directory
from antiphon.gateway.notify import ServiceManager
from antiphon.gateway.places import open_named_store, store_url
from antiphon.gateway.providers import build_catalog
from antiphon.gateway.reading import Checked, FetchWeights, read_settings
from antiphon.gateway.reload import Fixtures, Reloader, describe_change, describe_restart
from antiphon.gateway.reload_requests import reload_by_parent, reload_by_signal
from antiphon.gateway.reloadable import compare
from antiphon.gateway.sealing import read_seal_keys
from antiphon.gateway.serve import Overseer, serve
from antiphon.gateway.tls import Certificates
from antiphon.gateway.tool_terms import tool_terms
from antiphon.gateway.tools import open_tools
from antiphon.gateway.workers import run_workers
from antiphon.server.metrics import Metrics
from antiphon.server.metrics_board import MetricsBoard, board_directory
from antiphon.store.open import public_url
from antiphon.telemetry.open import NotInstalled, open_exporter, open_recorder
from antiphon.telemetry.recorder import Recorder
from antiphon.tools.documents.reader import Documents

__all__ = ["start"]

_log = logging.getLogger(__name__)

Reloading = Callable[[Reloader, Metrics], AbstractAsyncContextManager[None]]
"""Lets somebody ask for reloads."""


def start(
    flags: Mapping[str, Any],
    *,
    show: Callable[[str], None],
    warn: Callable[[str], None],
    fetch_weights: FetchWeights,
) -> int:
    """Serve until a signal arrives; return the exit code. Raise BadSettings or Unavailable.

    `show` gets what was started, `warn` what is wrong although the gateway starts, and
    `fetch_weights` the name of a file on the hub that has to be downloaded first.
    """
    directory = Path.cwd()
    checked = read_settings(flags, os.environ, directory, fetch_weights)
    settings, address = checked.settings, checked.address
    store = store_url(settings.store)
    _log_to(logging.StreamHandler(), settings)
    check_workers(settings, store)
    _recorder_of(settings)  # only checked here
    with bind(address) as sock, _metrics_socket(settings) as metrics_sock:
        if not asyncio.run(has_valid_key(store)) and not settings.auth.issuers:
            check_keyless(settings, store, is_exposed=not address.is_loopback)
        show(
            banner(
                url_of(sock, is_secure=settings.tls_cert is not None),
                store=public_url(store),
                sources=[source.about for source in checked.sources],
                models=model_names(settings, checked.sources, warn),
                config=checked.path,
                needs_key=settings.require_keys,
                ui=_ui_of(sock, settings),
                metrics=None if metrics_sock is None else metrics_url(metrics_sock),
            )
        )
        read = partial(read_settings, flags, os.environ, directory)
        return _Process(checked, read, store, sock, metrics_sock).run()


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


class _Process:
    """What a process needs to serve. It is the same for one process and for each worker.

    It is also what the parent of several workers reloads: new workers start with what it holds.
    """

    def __init__(
        self,
        checked: Checked,
        read: Callable[[], Checked],
        store: str,
        sock: socket.socket,
        metrics_sock: socket.socket | None,
    ) -> None:
        self._checked = self._read_last = checked
        self._read = read
        self._store = store
        self._sock = sock
        self._metrics_sock = metrics_sock

    def run(self) -> int:
        """Serve here, or as the parent of several workers; return the exit code."""
        manager = ServiceManager(os.environ)
        settings = self._checked.settings
        if settings.workers == 1:
            self._work(manager, None, partial(reload_by_signal, manager))
            return 0
        with board_directory() as directory:
            return run_workers(
                settings.workers,
                lambda index, line: self._work(
                    line, MetricsBoard(directory, str(index)), partial(reload_by_parent, line)
                ),
                manager,
                drain_seconds=lambda: self._checked.settings.limits.drain_seconds,
                settings=self,
            )

    def read(self) -> str:
        """Read and check the settings again; return their digest. Raise BadSettings."""
        self._read_last = self._read()
        return self._read_last.digest

    def adopt(self) -> str:
        """Let new workers start with what was read last; return a sentence about it."""
        change = compare(self._checked.settings, self._read_last.settings)
        self._checked = msgspec.structs.replace(self._read_last, settings=change.settings)
        logging.getLogger().setLevel(change.settings.log_level.upper())
        done = describe_change(self._checked, change)
        _log.info("%s", done)
        restart = describe_restart(change)
        if restart:
            _log.warning("%s", restart)
        return done

    def _work(self, overseer: Overseer, board: MetricsBoard | None, reloading: Reloading) -> None:
        settings = self._checked.settings
        # The parent of several workers must not do this: it forks, so it must not have a thread.
        _log_to(LineWriter(sys.stderr), settings)
        try:
            with asyncio.Runner(loop_factory=_loop_factory()) as runner:
                runner.run(self._serve(overseer, board, reloading))
        finally:
            _log_to(logging.StreamHandler(), settings)  # closes the writer

    async def _serve(
        self, overseer: Overseer, board: MetricsBoard | None, reloading: Reloading
    ) -> None:
        settings, environ = self._checked.settings, os.environ
        store = open_named_store(self._store)
        documents = Documents(settings.documents)
        index = open_index(settings, environ, store, documents)
        containers = open_containers(settings, store)
        code = container_runners(settings, containers)
        recorder = _recorder_of(settings)
        served = partial(_server_settings, board, recorder)
        app = await make_app(
            build_catalog(settings, self._checked.sources),
            store,
            served(settings),
            await open_tools(settings, environ, store, index, documents, code),
            index,
            containers,
        )
        certificate = self._checked.certificate
        certificates = None if certificate is None else Certificates(certificate)
        fixtures = Fixtures(
            environ=environ,
            read=self._read,
            serve=served,
            documents=documents,
            code=code,
            certificates=certificates,
        )
        reloader = Reloader(app, self._checked, served(settings), fixtures)
        exporter = None
        if recorder is not None:
            exporter = open_exporter(recorder, settings.telemetry, environ, app.metrics.name_of)
        tls = None if certificates is None else certificates.context
        try:
            by = reloading(reloader, app.metrics)
            await serve(app, self._sock, overseer, self._metrics_sock, tls, by)
        finally:
            await reloader.close()
            if exporter is not None:
                await asyncio.to_thread(exporter.close)


def _recorder_of(settings: Settings) -> Recorder | None:
    """Return what records traces, if they are to be sent.

    An environment that names a collector is not always meant for us: if they cannot be sent then,
    it is a warning. Settings that ask for them were refused before.
    """
    try:
        return open_recorder(settings.telemetry, os.environ)
    except NotInstalled as error:
        _log.warning("%s", error)
        return None


def _server_settings(
    board: MetricsBoard | None, recorder: Recorder | None, settings: Settings
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
        on_disconnect=settings.on_disconnect,
        ui=bool(settings.ui),
        keep_upstream_requests=settings.keeps_upstream_requests,
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

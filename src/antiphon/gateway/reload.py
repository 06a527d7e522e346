"""Replace the settings of a running process: all of what a reload changes, or nothing.

    read and check -> build what differs -> swap -> close what is not used now

What was built is not used before all of it is there, and the swap cannot fail. Parts whose
settings are the same stay: connections, embedded models and sessions of tools survive. What was
replaced is closed when the last turn that began with it has ended: the catalog's lease ends then.
"""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from antiphon.backends.base import Backend
from antiphon.gateway.assemble import (
    Parts,
    ServerSettings,
    open_input_files,
    open_issuers,
    use_parts,
)
from antiphon.gateway.config import Settings
from antiphon.gateway.errors import BadSettings
from antiphon.gateway.providers import Source, build_catalog
from antiphon.gateway.reading import Checked
from antiphon.gateway.reloadable import Change, compare
from antiphon.gateway.tls import Certificates
from antiphon.gateway.tools import open_tools
from antiphon.server.app import App
from antiphon.tools.base import ToolRunner
from antiphon.tools.documents.reader import Documents
from antiphon.tools.registry import ToolRegistry

__all__ = ["Fixtures", "Prepared", "Reloader", "describe_change", "describe_restart"]

_log = logging.getLogger(__name__)
_OF_TOOLS: Final = ("mcp", "web_search", "images", "tools", "use_proxies")

Close = Callable[[], Awaitable[None]]


class Fixtures(msgspec.Struct, frozen=True, kw_only=True):
    """What a reload leaves as it is."""

    environ: Mapping[str, str]
    read: Callable[[], Checked]
    """Reads and checks the settings again. Raises BadSettings."""
    serve: Callable[[Settings], ServerSettings]
    """Returns how a gateway with these settings answers."""
    documents: Documents
    code: Sequence[ToolRunner]
    """What runs programs."""
    certificates: Certificates | None


class Prepared(msgspec.Struct, frozen=True, kw_only=True):
    """What a reload has read and built, and is not used yet."""

    checked: Checked
    change: Change
    parts: Parts


class Reloader:
    """Reloads the settings of one process. One reload at a time."""

    def __init__(
        self, app: App, current: Checked, served: ServerSettings, fixtures: Fixtures
    ) -> None:
        self._app = app
        self._settings = current.settings
        self._sources = {source.name: source for source in current.sources}
        self._fixtures = fixtures
        setup = app.engine.setup
        self._parts = Parts(
            settings=served,
            catalog=setup.catalog,
            tools=setup.tools.registry,
            input_files=setup.input_files,
            issuers=app.issuers,
        )
        self._endings: list[weakref.finalize[..., Any]] = []  # Any: takes all kinds of callbacks
        self._closing: set[asyncio.Task[None]] = set()

    async def prepare(self, digest: str | None = None) -> Prepared:
        """Read the settings and build what differs. Raise BadSettings; then nothing has changed.

        `digest` is what must be read, if another process has read it before.
        """
        checked = await asyncio.to_thread(self._fixtures.read)
        if digest not in (None, checked.digest):
            raise BadSettings("the file was changed while it was being read; reload again")
        change = compare(self._settings, checked.settings)
        parts = await self._build(change.settings, checked)
        prepared = Prepared(checked=checked, change=change, parts=parts)
        try:
            # The lists of models are there when the first turn asks for one.
            await parts.catalog.problems()
        except BaseException:
            await self.discard(prepared)
            raise
        return prepared

    async def discard(self, prepared: Prepared) -> None:
        """Close what was built: it will not be used."""
        for close in _closers(prepared.parts, self._parts):
            await close()

    def apply(self, prepared: Prepared) -> None:
        """Use what was built from now on. This cannot fail."""
        former, self._parts = self._parts, prepared.parts
        self._settings = prepared.change.settings
        self._sources = {source.name: source for source in prepared.checked.sources}
        use_parts(self._app, prepared.parts)
        certificate = prepared.checked.certificate
        if self._fixtures.certificates is not None and certificate is not None:
            self._fixtures.certificates.current = certificate
        logging.getLogger().setLevel(self._settings.log_level.upper())
        loop = asyncio.get_running_loop()
        closers = _closers(former, prepared.parts)
        ending = weakref.finalize(
            former.catalog.lease, loop.call_soon_threadsafe, self._close, closers
        )
        ending.atexit = False
        self._endings = [*(one for one in self._endings if one.alive), ending]

    async def close(self) -> None:
        """Close what was replaced, and is not closed yet."""
        for ending in self._endings:
            found = ending.detach()
            if found is not None:
                self._close(found[2][1])
        if self._closing:
            await asyncio.wait(self._closing)

    def _close(self, closers: Sequence[Close]) -> None:
        task = asyncio.get_running_loop().create_task(_close_all(closers))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def _build(self, settings: Settings, checked: Checked) -> Parts:
        """Return the parts for these settings; those that need not differ are the present ones."""
        old, store = self._parts, self._app.engine.store
        served = self._fixtures.serve(settings)
        tools = await self._tools(settings)
        return Parts(
            settings=served,
            catalog=build_catalog(
                settings, checked.sources, old.catalog.board, self._kept(settings, checked)
            ),
            tools=tools,
            input_files=old.input_files
            if served.input_files == old.settings.input_files
            else open_input_files(store, served, self._fixtures.documents),
            issuers=old.issuers
            if served.issuers == old.settings.issuers
            else open_issuers(store, served),
        )

    async def _tools(self, settings: Settings) -> ToolRegistry:
        if all(getattr(settings, name) == getattr(self._settings, name) for name in _OF_TOOLS):
            return self._parts.tools
        return await open_tools(
            settings,
            self._fixtures.environ,
            self._app.engine.store,
            self._app.index,
            self._fixtures.documents,
            self._fixtures.code,
        )

    def _kept(self, settings: Settings, checked: Checked) -> dict[str, Backend]:
        """Return the backends that stay: of providers that are set as they were."""
        old = self._settings
        is_same_road = (settings.upstream_limits, settings.use_proxies) == (
            old.upstream_limits,
            old.use_proxies,
        )
        return {
            source.name: self._parts.catalog.backends[source.name]
            for source in checked.sources
            if _is_same(source, self._sources.get(source.name))
            and (is_same_road or source.provider.wire_api == "local")
        }


def describe_change(checked: Checked, change: Change) -> str:
    """Return a sentence about a reload that was made."""
    where = "the settings" if checked.path is None else str(checked.path)
    changed = f"changed: {', '.join(change.changed)}" if change.changed else "nothing has changed"
    return f"reloaded {where}; {changed}"


def describe_restart(change: Change) -> str | None:
    """Return a sentence about settings that a reload cannot change, if any differ."""
    if not change.restart:
        return None
    return f"these settings differ in the file and need a restart: {', '.join(change.restart)}"


def _is_same(one: Source, other: Source | None) -> bool:
    return other is not None and (one.provider, one.base_url, one.key) == (
        other.provider,
        other.base_url,
        other.key,
    )


def _closers(parts: Parts, used: Parts) -> list[Close]:
    """Return what closes those of the parts that others do not use."""
    backends = set(map(id, used.catalog.backends.values()))
    closers: list[Close] = [
        one.close for one in parts.catalog.backends.values() if id(one) not in backends
    ]
    if parts.tools is not used.tools:
        closers += [one.close for one in parts.tools.runners if one not in used.tools.runners]
    if parts.input_files is not used.input_files:
        closers.append(parts.input_files.fetcher.close)  # documents are read on by others
    if parts.issuers is not None and parts.issuers is not used.issuers:
        closers.append(parts.issuers.close)
    return closers


async def _close_all(closers: Sequence[Close]) -> None:
    for close in closers:
        try:
            await close()
        except Exception:  # noqa: BLE001 - the outermost frame of its task
            _log.exception("what a reload has replaced could not be closed")

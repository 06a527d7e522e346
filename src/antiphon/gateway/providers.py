"""Where do the models come from? The providers of the settings, checked and then built.

Checking comes first and opens nothing; each process then builds backends of its own. A key is
read from the environment variable that the settings name, or printed by the command that they
name, and comes from nowhere else.

A server is reached by `backends.http` over the wire that `wire_api` names: `_WIRES` has them.
Models of an editor are reached by `backends.host`, at the place that a file of the editor names.
"""

from __future__ import annotations

import importlib.util
import re
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from antiphon.backends.base import Backend
from antiphon.backends.breaker import Breaker
from antiphon.gateway.address import EXAMPLE, read_base_url
from antiphon.gateway.config import ProviderSettings, Settings
from antiphon.gateway.errors import BadSettings, how_to_install
from antiphon.gateway.places import data_directory
from antiphon.routing.candidates import Board
from antiphon.routing.catalog import Catalog
from antiphon.routing.settings import BadRoute, check_routes
from antiphon.transport.secret import Secret
from antiphon.transport.token import TokenSource
from antiphon.wires.profiles import UnknownProfile
from antiphon.wires.wire import Wire

__all__ = ["Source", "build", "build_catalog", "file_of", "is_on_hub", "read_key", "read_sources"]

_UPSTREAM: Final = "upstream"
_EMBEDDED: Final = "local"
_EDITOR_FILE: Final = "editor.json"
_LOCAL_ONLY: Final = ("path", "threads", "context")
_SERVER_ONLY: Final = ("base_url", "key_env", "auth", "profile", "account", "hosted")
_FLAGS: Final = {
    "base_url": "--upstream",
    "key_env": "--upstream-key-env",
    "profile": "--profile",
}
# What a base URL looks like, where it does not end in /v1.
_EXAMPLES: Final = {
    "messages": "https://api.anthropic.com",
    "gemini": "https://generativelanguage.googleapis.com/v1beta",
}
# Keys that mean something to some wires alone.
_KEYS_OF_WIRES: Final[Mapping[str, tuple[str, ...]]] = {
    "hosted": ("responses", "messages", "gemini"),
    "cache": ("messages",),
    "betas": ("messages",),
    "max_output_tokens": ("messages",),
}


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """A provider that can be used: its URL is one, its key is there."""

    name: str
    about: str
    provider: ProviderSettings
    base_url: str = ""
    key: Secret | None = None


def read_sources(settings: Settings, environ: Mapping[str, str]) -> list[Source]:
    """Return the providers, that of `--upstream` first; by default the embedded model."""
    sources = _read_all(settings, environ)
    try:
        check_routes(settings.routes, [source.name for source in sources])
    except BadRoute as error:
        raise BadSettings(str(error)) from None
    return sources


def _read_all(settings: Settings, environ: Mapping[str, str]) -> list[Source]:
    sources = []
    if settings.upstream:
        provider = ProviderSettings(
            base_url=settings.upstream,
            key_env=settings.upstream_key_env,
            profile=settings.profile,
        )
        sources.append(_read_server(_UPSTREAM, provider, environ, _FLAGS.__getitem__))
    elif settings.upstream_key_env or settings.profile:
        raise BadSettings("--upstream-key-env and --profile are used only with --upstream URL")
    if settings.local_model:
        embedded = ProviderSettings(wire_api="local", path=settings.local_model)
        sources.append(_read_embedded(_EMBEDDED, embedded))
    for name, provider in settings.providers.items():
        if name == _UPSTREAM and settings.upstream:
            raise BadSettings("[providers.upstream] and --upstream are both set; rename the first")
        sources.append(_read(name, provider, environ))
    return sources or [_read_embedded(_EMBEDDED, ProviderSettings(wire_api="local"))]


def build(source: Source, settings: Settings, breaker: Breaker) -> Backend:
    """Return a backend for the source, connected to nothing yet."""
    provider = source.provider
    match provider.wire_api:
        case "local":
            from antiphon.backends.local import LocalBackend

            path = file_of(provider.path) if provider.path else None
            if provider.context is None:
                return LocalBackend(path, provider.threads)
            return LocalBackend(path, provider.threads, provider.context)
        case "host":
            from antiphon.backends.host import HostBackend

            return HostBackend(
                _editor_file(provider),
                limits=settings.upstream_limits,
                name=source.name,
                breaker=breaker,
            )
        case "scripted":
            from antiphon.backends.scripted import ScriptedBackend

            return ScriptedBackend()
        case _:
            return _build_server(source, settings, breaker)


def _build_server(source: Source, settings: Settings, breaker: Breaker) -> Backend:
    from antiphon.backends.http import HttpBackend

    auth = source.provider.auth
    key = source.key if auth is None else TokenSource(auth.command, auth.refresh_seconds)
    return HttpBackend(
        source.base_url,
        _wire_for(source),
        key=key,
        limits=settings.upstream_limits,
        proxies=settings.use_proxies,
        name=source.name,
        breaker=breaker,
    )


def build_catalog(
    settings: Settings,
    sources: Sequence[Source],
    board: Board | None = None,
    kept: Mapping[str, Backend] = {},
) -> Catalog:
    """Return the catalog of all sources, connected to nothing yet. Each process has its own.

    One that is to replace another has its `board`, and the backends of it that stay: `kept`.
    """
    breaker = Breaker(time.monotonic) if board is None else board.breaker
    backends = {
        source.name: kept.get(source.name) or build(source, settings, breaker) for source in sources
    }
    return Catalog(
        backends,
        time.monotonic,
        default_model=settings.default_model,
        models=settings.models,
        breaker=breaker,
        board=board,
        routes=settings.routes,
        limits={
            source.name: limit for source in sources if (limit := source.provider.max_inflight)
        },
        accounts={
            source.name: account for source in sources if (account := source.provider.account)
        },
    )


def _read(name: str, provider: ProviderSettings, environ: Mapping[str, str]) -> Source:
    where = f"[providers.{name}]"
    match provider.wire_api:
        case "local":
            _refuse(provider, (*_SERVER_ONLY, *_KEYS_OF_WIRES), where)
            return _read_embedded(name, provider)
        case "host":
            _refuse(provider, (*_SERVER_ONLY, *_KEYS_OF_WIRES, "threads", "context"), where)
            about = f"{name}, the models of an editor ({_editor_file(provider)})"
            return Source(name=name, about=about, provider=provider)
        case "scripted":
            _refuse(provider, (*_SERVER_ONLY, *_KEYS_OF_WIRES, *_LOCAL_ONLY), where)
            return Source(name=name, about=f"{name}, which echoes the input", provider=provider)
        case _:
            unread = [key for key in _KEYS_OF_WIRES if provider.wire_api not in _KEYS_OF_WIRES[key]]
            _refuse(provider, (*_LOCAL_ONLY, *unread), where)
            return _read_server(name, provider, environ, lambda key: f"{where} {key}")


def _read_server(
    name: str, provider: ProviderSettings, environ: Mapping[str, str], place: Callable[[str], str]
) -> Source:
    """Return the source of a server. `place` returns where the user has set a key of it."""
    example = _EXAMPLES.get(provider.wire_api, EXAMPLE)
    if not provider.base_url:
        raise BadSettings(f"{place('base_url')} is missing; it looks like {example}")
    base_url = read_base_url(provider.base_url, place("base_url"), example)
    if provider.auth is not None and provider.key_env is not None:
        raise BadSettings(f"{place('key_env')} and auth are both set; a server takes one key")
    source = Source(
        name=name,
        about=f"{name}, {base_url}",
        provider=provider,
        base_url=base_url,
        key=read_key(provider.key_env, environ, place("key_env")),
    )
    try:
        _wire_for(source)
    except UnknownProfile as error:
        its = f"of wire_api = {provider.wire_api!r}"
        raise BadSettings(f"{place('profile')}: {error} ({its})") from None
    return source


def _wire_for(source: Source) -> Wire:
    wire_api = source.provider.wire_api
    if wire_api not in _WIRES:
        raise BadSettings(
            f"[providers.{source.name}]: wire_api = {wire_api!r} is not built yet; "
            f"servers are reached by {', '.join(_WIRES)}"
        )
    return _WIRES[wire_api](source)


def _check_hosted(
    source: Source,
    known: Collection[str],
    others: re.Pattern[str] | None = None,
    hint: str = "",
) -> None:
    """Raise BadSettings for a kind of tool that no server of this wire runs.

    Names of the form `others` are accepted: vendors name new tools so.
    """
    for kind in source.provider.hosted or ():
        if kind not in known and not (others is not None and others.fullmatch(kind)):
            raise BadSettings(
                f"[providers.{source.name}] hosted: no server of wire_api = "
                f"{source.provider.wire_api!r} runs {kind!r}; known are "
                f"{', '.join(sorted(known))} {hint}".rstrip()
            )


def _chat_wire(source: Source) -> Wire:
    from antiphon.wires.chat.profiles import profile_for
    from antiphon.wires.chat.wire import ChatWire

    return ChatWire(profile_for(source.provider.profile or source.base_url))


def _gemini_wire(source: Source) -> Wire:
    from antiphon.wires.gemini.profiles import HOSTED, profile_for
    from antiphon.wires.gemini.wire import GeminiWire

    provider = source.provider
    _check_hosted(source, HOSTED)
    profile = profile_for(provider.profile or source.base_url, provider.hosted)
    return GeminiWire(profile, provider.account or source.name)


def _messages_wire(source: Source) -> Wire:
    from antiphon.wires.messages.profiles import DATED, HOSTED, profile_for
    from antiphon.wires.messages.wire import MessagesWire

    provider = source.provider
    _check_hosted(source, HOSTED, DATED, "and dated types such as web_fetch_20260318")
    return MessagesWire(
        profile_for(provider.profile or source.base_url),
        # Both are in use: https://api.anthropic.com and http://127.0.0.1:8080/v1
        root="" if source.base_url.rstrip("/").endswith("/v1") else "/v1",
        account=provider.account or source.name,
        hosted=provider.hosted or (),
        betas=provider.betas or (),
        is_cached=provider.cache == "auto",
        max_tokens=provider.max_output_tokens,
    )


def _responses_wire(source: Source) -> Wire:
    from antiphon.wires.responses.profiles import HOSTED, VENDOR, profile_for
    from antiphon.wires.responses.wire import ResponsesWire

    provider = source.provider
    _check_hosted(source, HOSTED, VENDOR, "and types of a vendor such as openrouter:web_search")
    return ResponsesWire(
        profile_for(provider.profile or source.base_url),
        hosted=None if provider.hosted is None else frozenset(provider.hosted),
        account=provider.account or source.name,
    )


_WIRES: Final[Mapping[str, Callable[[Source], Wire]]] = {
    "chat": _chat_wire,
    "gemini": _gemini_wire,
    "messages": _messages_wire,
    "responses": _responses_wire,
}


def read_key(name: str | None, environ: Mapping[str, str], what: str) -> Secret | None:
    """Return the key in this environment variable; `what` names the setting in errors."""
    if name is None:
        return None
    if not (name.isascii() and name.isidentifier()):
        # It is not repeated here: it may be the key itself.
        raise BadSettings(f"{what}: name the environment variable that holds the key, not the key")
    value = environ.get(name, "")
    if not value.strip():
        raise BadSettings(
            f"{what}: the environment variable {name} is not set; put the key in it, "
            "or remove this setting if the upstream needs no key"
        )
    try:
        return Secret(value)
    except ValueError as error:
        raise BadSettings(f"{what}: {name} does not hold a key: {error}") from None


def _read_embedded(name: str, provider: ProviderSettings) -> Source:
    from antiphon.backends.weights import weights_path

    if importlib.util.find_spec("xllamacpp") is None:
        raise BadSettings(
            "there is no model to serve; pass --upstream URL, "
            f"or install the embedded one: {how_to_install('local')}"
        )
    if provider.path and not file_of(provider.path).is_file():
        pull = f"; download it with `antiphon models pull {provider.path}`"
        hint = pull if is_on_hub(provider.path) else ""
        raise BadSettings(f"[providers.{name}] path: there is no file {provider.path}{hint}")
    about = "the embedded model"
    if not provider.path and not weights_path().is_file():
        about += (
            "; its weights are downloaded with the first turn, or now by `antiphon models pull`"
        )
    return Source(name=name, about=f"{name}, {about}", provider=provider)


def file_of(path: str) -> Path:
    """Return where a file of weights is, or where it will be if it comes from the hub."""
    from antiphon.backends.hub import read_name

    return read_name(path).path() if is_on_hub(path) else Path(path).expanduser()


def _editor_file(provider: ProviderSettings) -> Path:
    """Return where an editor writes how it is reached."""
    if provider.path:
        return Path(provider.path).expanduser()
    return data_directory() / _EDITOR_FILE


def is_on_hub(path: str) -> bool:
    """Return whether the path names a file on the Hugging Face hub."""
    from antiphon.backends.hub import PREFIX

    return path.startswith(PREFIX)


def _refuse(provider: ProviderSettings, keys: tuple[str, ...], where: str) -> None:
    for key in keys:
        if getattr(provider, key) is not None:
            raise BadSettings(f"{where}: {key} has no meaning for wire_api = {provider.wire_api!r}")

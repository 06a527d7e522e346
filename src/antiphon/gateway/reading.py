"""Read the settings and check all of them, for a start and for a reload alike.

Everything that can be wrong with the settings themselves is found here, before anything is
opened: values, secrets that are missing, certificates, servers of tools. What depends on the
machine (a port, the store) is found by the start.
"""

from __future__ import annotations

import asyncio
import hashlib
import ssl
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from antiphon.engine.keep.webhooks import Endpoint
from antiphon.gateway.checks import check_issuers, check_origins, check_telemetry
from antiphon.gateway.config import Settings, load
from antiphon.gateway.endpoints import read_endpoints
from antiphon.gateway.listen import Address, resolve
from antiphon.gateway.providers import Source, file_of, is_on_hub, read_sources
from antiphon.gateway.sealing import read_seal_keys
from antiphon.gateway.tls import read_certificate
from antiphon.gateway.tools import check_tools

__all__ = ["Checked", "FetchWeights", "read_settings"]

FetchWeights = Callable[[str], object]
"""Downloads a file of the hub, by its name."""


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """Settings that can be used, as far as they can be checked by themselves."""

    settings: Settings
    path: Path | None
    """The file that some of them come from."""
    digest: str
    """Of what was read: the same for the same settings."""
    address: Address
    sources: Sequence[Source]
    endpoints: Sequence[Endpoint]
    certificate: ssl.SSLContext | None


def read_settings(
    flags: Mapping[str, Any],  # Any: each flag has its own type, and config checks them
    environ: Mapping[str, str],
    directory: Path,
    fetch_weights: FetchWeights | None = None,
) -> Checked:
    """Return the settings. Raise BadSettings for the first thing that is wrong with them.

    No event loop may run in the thread of the caller.
    With `fetch_weights`, an embedded model that is not here yet is fetched first.
    """
    settings, path = load(flags, environ, directory)
    digest = hashlib.sha256(msgspec.json.encode(settings)).hexdigest()
    local = settings.local_model
    if fetch_weights and local and is_on_hub(local) and not file_of(local).exists():
        fetch_weights(local)
    sources = read_sources(settings, environ)
    endpoints = read_endpoints(settings, environ)
    read_seal_keys(settings, environ)
    asyncio.run(check_tools(settings, environ))
    certificate = read_certificate(settings)
    address = resolve(settings.host, settings.port)
    settings = msgspec.structs.replace(
        settings,
        require_keys=settings.require_keys or not address.is_loopback,
        ui=address.is_loopback if settings.ui is None else settings.ui,
    )
    check_origins(settings)
    check_issuers(settings)
    check_telemetry(settings, environ)
    return Checked(
        settings=settings,
        path=path,
        digest=digest,
        address=address,
        sources=sources,
        endpoints=tuple(endpoints),
        certificate=certificate,
    )

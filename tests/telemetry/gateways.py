"""A gateway in this process whose traces go to a collector."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from antiphon.backends.base import Backend
from antiphon.gateway.assemble import ServerSettings
from antiphon.telemetry.open import open_exporter, open_recorder
from antiphon.telemetry.settings import TelemetrySettings
from antiphon.testing.gateway import Gateway, serve_gateway
from tests.telemetry.collector import Collector

__all__ = ["traced_gateway"]

_TELEMETRY = TelemetrySettings()
_SETTINGS = ServerSettings()


@asynccontextmanager
async def traced_gateway(
    backend: Backend | Mapping[str, Backend],
    found: Collector,
    monkeypatch: pytest.MonkeyPatch,
    *,
    telemetry: TelemetrySettings = _TELEMETRY,
    settings: ServerSettings = _SETTINGS,
    environ: Mapping[str, str] | None = None,
    **more: Any,  # Any: what `serve_gateway` takes
) -> AsyncIterator[Gateway]:
    """Run it; when it is closed, everything has been sent."""
    variables = {**found.environment, **(environ or {})}
    for name, value in variables.items():
        monkeypatch.setenv(name, value)  # the SDK reads them itself
    recorder = open_recorder(telemetry, variables)
    assert recorder is not None
    settings = msgspec.structs.replace(settings, telemetry=recorder)
    async with serve_gateway(backend, settings=settings, **more) as gateway:
        exporter = open_exporter(recorder, telemetry, variables, gateway.app.metrics.name_of)
        try:
            yield gateway
        finally:
            await asyncio.to_thread(exporter.close, 60.0)

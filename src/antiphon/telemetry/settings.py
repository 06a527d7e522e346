"""What of the telemetry is set here; the rest is in the standard variables `OTEL_*`."""

from __future__ import annotations

from typing import Annotated

import msgspec

__all__ = ["TelemetrySettings"]

_Positive = Annotated[float, msgspec.Meta(ge=0)]


class TelemetrySettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Traces and metrics for an OpenTelemetry collector."""

    enabled: bool | None = None
    """Whether they are sent; None: if the environment names an endpoint."""
    slow_seconds: _Positive = 30.0
    """A request that took longer is kept, whatever the sampler decides."""
    expensive_usd: _Positive = 1.0
    """So is one that cost more."""

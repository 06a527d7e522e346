"""Is telemetry on, and can it be? Imports the SDK only if it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from antiphon.telemetry import names
from antiphon.telemetry.recorder import Recorder
from antiphon.telemetry.settings import TelemetrySettings

if TYPE_CHECKING:
    from antiphon.telemetry.export import Exporter

__all__ = ["NotInstalled", "is_wanted", "open_exporter", "open_recorder"]

_ENDPOINTS: Final = (
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT",
)
_YES: Final = frozenset({"true", "1", "span_only", "span_and_event"})


class NotInstalled(Exception):
    """Telemetry is on, and the extra `otel` is not installed."""

    def __init__(self) -> None:
        super().__init__("telemetry needs the extra otel: pip install 'antiphon[otel]'")


def is_wanted(settings: TelemetrySettings, environ: Mapping[str, str]) -> bool:
    """Return whether traces and metrics are to be sent."""
    if environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return False
    if settings.enabled is not None:
        return settings.enabled
    return any(environ.get(name) for name in _ENDPOINTS)


def open_recorder(settings: TelemetrySettings, environ: Mapping[str, str]) -> Recorder | None:
    """Return what records, if telemetry is on. Raise NotInstalled."""
    if not is_wanted(settings, environ):
        return None
    try:
        import opentelemetry.exporter.otlp.proto.http
        import opentelemetry.sdk  # noqa: F401 - only whether they are there
    except ImportError:
        raise NotInstalled from None
    return Recorder(captures_content=_captures_content(environ))


def open_exporter(
    recorder: Recorder,
    settings: TelemetrySettings,
    environ: Mapping[str, str],
    name_of: Callable[[str], str],
) -> Exporter:
    """Begin to send what is recorded. Close it to have sent everything."""
    from antiphon.telemetry.export import Exporter

    content = _captures_content(environ)
    return Exporter(recorder, settings, environ, name_of, captures_content=content)


def _captures_content(environ: Mapping[str, str]) -> bool:
    return environ.get(names.CAPTURE, "").lower() in _YES

"""How do records reach a collector? In a thread, over OTLP/HTTP, as the environment says.

The standard variables apply: `OTEL_EXPORTER_OTLP_*` (endpoint, headers, timeout, compression,
certificates), `OTEL_SERVICE_NAME`, `OTEL_RESOURCE_ATTRIBUTES`, `OTEL_TRACES_EXPORTER`,
`OTEL_METRICS_EXPORTER`, `OTEL_TRACES_SAMPLER` with its argument, `OTEL_BSP_SCHEDULE_DELAY`,
`OTEL_BSP_MAX_EXPORT_BATCH_SIZE`, `OTEL_METRIC_EXPORT_INTERVAL`, `OTEL_SDK_DISABLED`. A collector
that is away costs records, never a request. Only this module and `spans` import the SDK.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import (
    ConsoleMetricExporter,
    MetricExporter,
    PeriodicExportingMetricReader,
)
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SpanExporter, SpanExportResult

from antiphon.telemetry import names
from antiphon.telemetry.recorder import ChargeRecord, Record, Recorder
from antiphon.telemetry.sampling import sampler_of
from antiphon.telemetry.settings import TelemetrySettings
from antiphon.telemetry.spans import Gatherer, SpanWriter
from antiphon.version import __version__

__all__ = ["Exporter"]

_log = logging.getLogger(__name__)
_DELAY_MS: Final = 5000.0
_BATCH: Final = 512
_SECONDS: Final = (
    0.01,
    0.02,
    0.04,
    0.08,
    0.16,
    0.32,
    0.64,
    1.28,
    2.56,
    5.12,
    10.24,
    20.48,
    40.96,
    81.92,
)
_TOKENS: Final = (
    1,
    4,
    16,
    64,
    256,
    1024,
    4096,
    16384,
    65536,
    262144,
    1048576,
    4194304,
    16777216,
    67108864,
)


class Exporter:
    """Takes the records of a recorder and sends them, until it is closed.

    `name_of` returns the name under which a model is counted, of a closed set.
    """

    def __init__(
        self,
        recorder: Recorder,
        settings: TelemetrySettings,
        environ: Mapping[str, str],
        name_of: Callable[[str], str],
        *,
        captures_content: bool = False,
    ) -> None:
        self._recorder = recorder
        self._batch = max(1, int(_number(environ, "OTEL_BSP_MAX_EXPORT_BATCH_SIZE", _BATCH)))
        self._delay = _number(environ, "OTEL_BSP_SCHEDULE_DELAY", _DELAY_MS) / 1000
        defaults = {SERVICE_NAME: names.SERVICE, "service.version": __version__}
        given = environ.get("OTEL_SERVICE_NAME") or "service.name=" in environ.get(
            "OTEL_RESOURCE_ATTRIBUTES", ""
        )
        if given:
            del defaults[SERVICE_NAME]
        resource = Resource.create(defaults)
        self._spans = _span_exporter(environ)
        self._meters = _Meters(resource, environ, name_of)
        self._gatherer = Gatherer(settings, sampler_of(environ))
        offset = time.time_ns() - int(time.monotonic() * 1_000_000_000)
        self._writer = SpanWriter(resource, offset, captures_content=captures_content)
        self._is_closing = threading.Event()
        self._is_failing = False
        self._reported = 0
        self._thread = threading.Thread(target=self._run, name="telemetry", daemon=True)
        self._thread.start()

    def close(self, patience: float = 5.0) -> None:
        """Send what is left; give up on a collector that does not answer."""
        self._is_closing.set()
        self._thread.join(patience)

    def _run(self) -> None:
        while not self._is_closing.wait(self._delay):
            self._work()
        self._work(is_last=True)
        self._meters.close()
        if self._spans is not None:
            self._spans.shutdown()

    def _work(self, *, is_last: bool = False) -> None:
        try:
            self._take(is_last=is_last)
        except Exception:  # noqa: BLE001 - the outermost frame of the thread
            _log.exception("telemetry failed; what was recorded last is lost")

    def _take(self, *, is_last: bool) -> None:
        ring = self._recorder.records
        records = [ring.popleft() for _ in range(len(ring))]
        self._meters.note(records)
        turns = self._gatherer.take(records, time.monotonic())
        if is_last:
            turns += self._gatherer.rest()
        if self._spans is not None:
            spans = [span for turn in turns for span in self._writer.write(turn)]
            for start in range(0, len(spans), self._batch):
                self._send(self._spans, spans[start : start + self._batch])
        self._report_dropped()

    def _send(self, exporter: SpanExporter, spans: Sequence[ReadableSpan]) -> None:
        has_failed = exporter.export(spans) is not SpanExportResult.SUCCESS
        if has_failed and not self._is_failing:
            _log.warning("the collector does not take spans; they are dropped until it does")
        if self._is_failing and not has_failed:
            _log.warning("the collector takes spans again")
        self._is_failing = has_failed

    def _report_dropped(self) -> None:
        dropped = self._recorder.dropped
        if dropped > self._reported:
            more, self._reported = dropped - self._reported, dropped
            _log.warning("%d records were dropped: telemetry does not keep up", more)


class _Meters:
    """The metrics of calls of models. They count every call, whatever the sampler decides."""

    def __init__(
        self, resource: Resource, environ: Mapping[str, str], name_of: Callable[[str], str]
    ) -> None:
        self._name_of = name_of
        exporter = _metric_exporter(environ)
        readers = [] if exporter is None else [PeriodicExportingMetricReader(exporter)]
        self._provider = MeterProvider(readers, resource, shutdown_on_exit=False)
        meter = self._provider.get_meter(names.SCOPE, __version__)
        make = meter.create_histogram
        self._duration = make(names.DURATION, "s", explicit_bucket_boundaries_advisory=_SECONDS)
        self._first = make(names.TIME_TO_FIRST, "s", explicit_bucket_boundaries_advisory=_SECONDS)
        self._tokens = make(
            names.TOKEN_USAGE, "{token}", explicit_bucket_boundaries_advisory=_TOKENS
        )

    def note(self, records: Sequence[Record]) -> None:
        """Count the calls of models among these."""
        for record in records:
            if isinstance(record, ChargeRecord) and record.wanted.kind in ("model", "embedding"):
                self._note_charge(record)

    def _note_charge(self, record: ChargeRecord) -> None:
        wanted, settlement = record.wanted, record.settlement
        labels = {
            names.OPERATION: names.CHAT if wanted.kind == "model" else names.EMBEDDINGS,
            names.PROVIDER: wanted.provider,
            names.REQUEST_MODEL: self._name_of(record.model),
            names.RESPONSE_MODEL: self._name_of(wanted.served),
        }
        for kind, count in (
            ("input", settlement.used.input_total),
            ("output", settlement.used.output_total),
        ):
            self._tokens.record(count, {**labels, names.TOKEN_TYPE: kind})
        if record.first is not None:
            self._first.record(record.first - record.started, labels)
        if settlement.outcome in ("failed", "released"):
            labels[names.ERROR_TYPE] = settlement.outcome
        self._duration.record(record.ended - record.started, labels)

    def close(self) -> None:
        """Send what was counted last."""
        self._provider.shutdown()


def _span_exporter(environ: Mapping[str, str]) -> SpanExporter | None:
    match environ.get("OTEL_TRACES_EXPORTER", "otlp"):
        case "none":
            return None
        case "console":
            return ConsoleSpanExporter()
    return OTLPSpanExporter()


def _metric_exporter(environ: Mapping[str, str]) -> MetricExporter | None:
    match environ.get("OTEL_METRICS_EXPORTER", "otlp"):
        case "none":
            return None
        case "console":
            return ConsoleMetricExporter()
    return OTLPMetricExporter()


def _number(environ: Mapping[str, str], name: str, default: float) -> float:
    try:
        return float(environ.get(name) or default)
    except ValueError:
        _log.warning("%s is not a number; %g is used", name, default)
        return default

"""A collector for tests: takes OTLP over HTTP and decodes the protobuf."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

__all__ = ["Collector", "attributes_of", "collector"]


class Collector:
    """What has arrived so far."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.traces: list[ExportTraceServiceRequest] = []
        self.metrics: list[ExportMetricsServiceRequest] = []
        self.raw = b""
        """Everything that was sent, decompressed."""
        self.headers: list[dict[str, str]] = []

    @property
    def environment(self) -> dict[str, str]:
        """The variables that let a gateway send here, soon and often."""
        return {
            "OTEL_EXPORTER_OTLP_ENDPOINT": self.url,
            "OTEL_BSP_SCHEDULE_DELAY": "50",
            "OTEL_METRIC_EXPORT_INTERVAL": "200",
        }

    @property
    def spans(self) -> list[Span]:
        """All spans, in the order in which they were sent."""
        return [
            span
            for request in self.traces
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    def resources(self) -> list[dict[str, Any]]:
        """The attributes of the resources that have sent spans."""
        found = [one.resource for request in self.traces for one in request.resource_spans]
        return [attributes_of(resource) for resource in found]

    def points(self, name: str) -> list[Any]:
        """The data points of a histogram in the last request that has it."""
        found: list[Any] = []
        for request in self.metrics:
            for resource in request.resource_metrics:
                for scope in resource.scope_metrics:
                    for metric in scope.metrics:
                        if metric.name == name:
                            found = list(metric.histogram.data_points)
        return found


def attributes_of(thing: Any) -> dict[str, Any]:  # Any: a span, a resource or a data point
    """Return the attributes as plain values."""
    return {one.key: _value_of(one.value) for one in thing.attributes}


def _value_of(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value_of(one) for one in value.array_value.values]
    return getattr(value, kind)


@contextmanager
def collector() -> Iterator[Collector]:
    """Run a collector on a free port."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            found.raw += body
            found.headers.append(dict(self.headers))
            if self.path == "/v1/traces":
                found.traces.append(ExportTraceServiceRequest.FromString(body))
            elif self.path == "/v1/metrics":
                found.metrics.append(ExportMetricsServiceRequest.FromString(body))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    found = Collector(f"http://127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield found
    finally:
        server.shutdown()
        thread.join()
        server.server_close()

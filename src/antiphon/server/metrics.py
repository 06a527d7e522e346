"""What the server counts, for Prometheus.

Counting is a dict lookup and an addition, so it can stand on the hot road. The Prometheus
library is imported when somebody asks.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from antiphon.protocol.response import Response

if TYPE_CHECKING:
    from prometheus_client import Metric

__all__ = ["Metrics"]

_BUCKETS: Final = (0.005, 0.025, 0.1, 0.25, 1.0, 2.5, 10.0, 30.0, 120.0, 600.0)


class Metrics:
    """Counts of one process. `worker` labels them where several share a port."""

    def __init__(self, worker: str = "0") -> None:
        self._worker = worker
        self._requests: dict[tuple[str, int], int] = defaultdict(int)
        self._responses: dict[str, int] = defaultdict(int)
        self._tokens: dict[str, int] = defaultdict(int)
        self._degraded = 0
        self._buckets = [0] * (len(_BUCKETS) + 1)
        self._seconds = 0.0
        self.turns = 0
        """Turns that run right now, and background ones that run or wait."""
        self.background = 0

    def note_request(self, route: str, status: int, seconds: float) -> None:
        """Count a request that was answered."""
        self._requests[route, status] += 1
        self._seconds += seconds
        self._buckets[bisect_left(_BUCKETS, seconds)] += 1

    def note_response(self, response: Response) -> None:
        """Count a response that ended, and its tokens."""
        self._responses[response.status] += 1
        if response.antiphon and response.antiphon.degraded:
            self._degraded += 1
        usage = response.usage
        if usage is None:
            return
        tokens = self._tokens
        tokens["input"] += usage.input_tokens
        tokens["cached"] += usage.input_tokens_details.cached_tokens
        tokens["output"] += usage.output_tokens
        tokens["reasoning"] += usage.output_tokens_details.reasoning_tokens

    def render(self) -> bytes:
        """Return everything in Prometheus' text format."""
        from prometheus_client import CollectorRegistry, generate_latest

        registry = CollectorRegistry(auto_describe=False)
        registry.register(self)
        return generate_latest(registry)

    def collect(self) -> Iterator[Metric]:
        """Yield the metric families; this is how the Prometheus library asks."""
        from prometheus_client.core import (
            CounterMetricFamily,
            GaugeMetricFamily,
            HistogramMetricFamily,
        )

        mine = [self._worker]
        requests = CounterMetricFamily(
            "antiphon_requests", "HTTP requests answered.", labels=["worker", "route", "status"]
        )
        for (route, status), count in self._requests.items():
            requests.add_metric([*mine, route, str(status)], count)
        yield requests
        responses = CounterMetricFamily(
            "antiphon_responses", "Responses by how they ended.", labels=["worker", "status"]
        )
        for ending, count in self._responses.items():
            responses.add_metric([*mine, ending], count)
        yield responses
        tokens = CounterMetricFamily(
            "antiphon_tokens", "Tokens by kind, estimates included.", labels=["worker", "kind"]
        )
        for kind, count in self._tokens.items():
            tokens.add_metric([*mine, kind], count)
        yield tokens
        degraded = CounterMetricFamily(
            "antiphon_degraded", "Responses that could not honour everything.", labels=["worker"]
        )
        degraded.add_metric(mine, self._degraded)
        yield degraded
        turns = GaugeMetricFamily("antiphon_turns", "Turns that run now.", labels=["worker"])
        turns.add_metric(mine, self.turns)
        yield turns
        background = GaugeMetricFamily(
            "antiphon_background_turns",
            "Background turns that run or wait now.",
            labels=["worker"],
        )
        background.add_metric(mine, self.background)
        yield background
        seconds = HistogramMetricFamily(
            "antiphon_request_seconds",
            "Time from request to the end of the answer.",
            labels=["worker"],
        )
        seconds.add_metric(mine, self._cumulated(), self._seconds)
        yield seconds

    def _cumulated(self) -> list[tuple[str, float]]:
        total = 0
        buckets: list[tuple[str, float]] = []
        for edge, count in zip((*map(str, _BUCKETS), "+Inf"), self._buckets, strict=True):
            total += count
            buckets.append((edge, total))
        return buckets

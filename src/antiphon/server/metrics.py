"""What the server counts, for Prometheus.

Counting is a dict lookup and an addition, so that it can be done for every request. The
Prometheus library is imported when the counts are asked for. Where several workers share a port,
the answer is the sum over all of them.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from antiphon.protocol.response import Response, Usage
from antiphon.routing.candidates import Board
from antiphon.server.metrics_board import Counts, MetricsBoard, add_up

if TYPE_CHECKING:
    from prometheus_client import Metric

__all__ = ["Metrics"]

_log = logging.getLogger(__name__)
_BUCKETS: Final = (0.005, 0.025, 0.1, 0.25, 1.0, 2.5, 10.0, 30.0, 120.0, 600.0)


class Metrics:
    """The counts of this process. `board` is where other workers leave theirs, if there are any.

    `routing` counts what was decided about deployments.
    """

    def __init__(self, board: MetricsBoard | None = None, routing: Board | None = None) -> None:
        self._board = board
        self._routing = routing
        self._is_shared = True
        # A worker that takes the place of a dead one goes on from there: counters never fall.
        before = board.read_own() if board else Counts()
        self._requests: dict[tuple[str, int], int] = defaultdict(int)
        for name, count in before.requests.items():
            route, _, status = name.rpartition(" ")
            self._requests[route, int(status)] = count
        self._responses: dict[str, int] = defaultdict(int, before.responses)
        self._tokens: dict[str, int] = defaultdict(int, before.tokens)
        self._calls: dict[str, int] = defaultdict(int, before.calls)
        self._call_seconds: dict[str, float] = defaultdict(float, before.call_seconds)
        self._degraded = before.degraded
        self._buckets = before.buckets or [0] * (len(_BUCKETS) + 1)
        self._seconds = before.seconds
        self._before = before
        self.turns = 0
        """Turns that run right now, and background ones that run or wait."""
        self.background = 0
        self.sandboxes = _none
        """Returns how many sandboxes run right now."""

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
        if response.usage is not None:
            self.note_usage(response.usage)

    def note_call(self, kind: str, ending: str, seconds: float) -> None:
        """Count a call of a hosted tool that ended, and how long it took."""
        self._calls[f"{kind} {ending}"] += 1
        self._call_seconds[kind] += seconds

    def note_usage(self, usage: Usage) -> None:
        """Count the tokens of one call of a model."""
        tokens = self._tokens
        tokens["input"] += usage.input_tokens
        tokens["cached"] += usage.input_tokens_details.cached_tokens
        tokens["output"] += usage.output_tokens
        tokens["reasoning"] += usage.output_tokens_details.reasoning_tokens

    def share(self) -> None:
        """Leave the counts where the other workers find them; log once that it is impossible."""
        if self._board is None:
            return
        try:
            self._board.write(self._counts())
        except OSError as error:  # the disk is full, or the directory was removed
            if self._is_shared:
                _log.warning("the other workers do not get the counts of this one: %s", error)
            self._is_shared = False
        else:
            self._is_shared = True

    def render(self) -> bytes:
        """Return the counts of all workers in Prometheus' text format."""
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

        total = self._total()
        requests = CounterMetricFamily(
            "antiphon_requests", "HTTP requests answered.", labels=["route", "status"]
        )
        for name, count in total.requests.items():
            requests.add_metric(name.rpartition(" ")[::2], count)
        yield requests
        responses = CounterMetricFamily(
            "antiphon_responses", "Responses by how they ended.", labels=["status"]
        )
        for ending, count in total.responses.items():
            responses.add_metric([ending], count)
        yield responses
        tokens = CounterMetricFamily(
            "antiphon_tokens", "Tokens by kind, estimates included.", labels=["kind"]
        )
        for kind, count in total.tokens.items():
            tokens.add_metric([kind], count)
        yield tokens
        yield CounterMetricFamily(
            "antiphon_degraded",
            "Responses that could not honour everything.",
            value=total.degraded,
        )
        yield GaugeMetricFamily("antiphon_turns", "Turns that run now.", value=total.turns)
        yield GaugeMetricFamily(
            "antiphon_background_turns",
            "Background turns that run or wait now.",
            value=total.background,
        )
        yield GaugeMetricFamily(
            "antiphon_sandboxes", "Sandboxes that run now.", value=total.sandboxes
        )
        yield HistogramMetricFamily(
            "antiphon_request_seconds",
            "Time from request to the end of the answer.",
            buckets=_cumulated(total.buckets),
            sum_value=total.seconds,
        )
        yield from _collect_calls(total)
        yield from self._collect_routing(total)

    def _collect_routing(self, total: Counts) -> Iterator[Metric]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        choices = CounterMetricFamily(
            "antiphon_routed",
            "Requests sent to a provider, by why it was chosen.",
            labels=["provider", "reason"],
        )
        fallbacks = CounterMetricFamily(
            "antiphon_fallbacks",
            "Requests that another deployment got after this provider failed, by the fault.",
            labels=["provider", "reason"],
        )
        opens = CounterMetricFamily(
            "antiphon_breaker_opens", "How often a circuit breaker opened.", labels=["provider"]
        )
        state = GaugeMetricFamily(
            "antiphon_breakers_open", "Deployments with an open breaker.", labels=["provider"]
        )
        for family, counts in ((choices, total.choices), (fallbacks, total.fallbacks)):
            for name, count in counts.items():
                family.add_metric(name.rpartition(" ")[::2], count)
        for name, count in total.breaker_opens.items():
            opens.add_metric([name], count)
        for name, count in total.open_deployments.items():
            state.add_metric([name], count)
        yield from (choices, fallbacks, opens, state)

    def _routing_counts(self) -> dict[str, dict[str, int]]:
        """Return what this worker, and the one it took the place of, has decided."""
        if self._routing is None:
            return {}
        tally, before = self._routing.tally, self._before
        choices = {f"{provider} {why}": n for (provider, why), n in tally.choices.items()}
        falls = {f"{provider} {why}": n for (provider, why), n in tally.fallbacks.items()}
        return {
            "choices": _added(before.choices, choices),
            "fallbacks": _added(before.fallbacks, falls),
            "breaker_opens": _added(before.breaker_opens, tally.opens),
            "open_deployments": self._routing.open_deployments(),
        }

    def _counts(self) -> Counts:
        return Counts(
            requests={f"{route} {status}": n for (route, status), n in self._requests.items()},
            responses=dict(self._responses),
            tokens=dict(self._tokens),
            calls=dict(self._calls),
            call_seconds=dict(self._call_seconds),
            degraded=self._degraded,
            buckets=self._buckets,
            seconds=self._seconds,
            turns=self.turns,
            background=self.background,
            sandboxes=self.sandboxes(),
            **self._routing_counts(),
        )

    def _total(self) -> Counts:
        if self._board is None:
            return self._counts()
        self.share()  # so that what was shown once is not lost with this process
        return add_up([self._counts(), *self._board.read_others()])


def _collect_calls(total: Counts) -> Iterator[Metric]:
    from prometheus_client.core import CounterMetricFamily

    calls = CounterMetricFamily(
        "antiphon_hosted_calls",
        "Calls of hosted tools, by the kind of tool and how they ended.",
        labels=["kind", "ending"],
    )
    for name, count in total.calls.items():
        calls.add_metric(name.rpartition(" ")[::2], count)
    seconds = CounterMetricFamily(
        "antiphon_hosted_call_seconds", "How long hosted tools ran.", labels=["kind"]
    )
    for kind, sum_of in total.call_seconds.items():
        seconds.add_metric([kind], sum_of)
    yield from (calls, seconds)


def _none() -> int:
    return 0


def _added(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {name: one.get(name, 0) + other.get(name, 0) for name in {**one, **other}}


def _cumulated(buckets: list[int]) -> list[tuple[str, float]]:
    total = 0
    cumulated: list[tuple[str, float]] = []
    for edge, count in zip((*map(str, _BUCKETS), "+Inf"), buckets, strict=True):
        total += count
        cumulated.append((edge, total))
    return cumulated

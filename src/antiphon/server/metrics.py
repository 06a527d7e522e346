"""What the server counts, for Prometheus.

Counting is a dict lookup and an addition, so that it can be done for every request and every call
of a model. The Prometheus library is imported when the counts are asked for. Where several workers
share a port, the answer is the sum over all of them. Which metrics there are is in
`metrics_table`; what others count themselves, such as the store, is read from `sources`.
"""

from __future__ import annotations

import logging
import platform
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final

from antiphon.engine.run.turn_charges import HeldCharge, TurnCharges
from antiphon.protocol.response import Response
from antiphon.protocol.token_counts import TokenCounts
from antiphon.routing.candidates import Board
from antiphon.server.metrics_board import Counts, Labels, MetricsBoard, add_up
from antiphon.server.metrics_table import EDGES, FAMILIES, Family
from antiphon.server.model_names import ModelNames
from antiphon.store.base.ledger import Refused, Settlement
from antiphon.store.pulse import Pulse
from antiphon.version import __version__

if TYPE_CHECKING:
    from prometheus_client import Metric

__all__ = ["Metrics", "Source", "read_pulse", "read_routing"]

_log = logging.getLogger(__name__)
_NANO: Final = 1e-9
# Output that came at once has no rate of its own: that of the whole call is counted.
_AT_ONCE_MS: Final = 10
_MODEL_KINDS: Final = frozenset({"model", "embedding"})

Source = Callable[[], Counts]
"""Returns what another part of this process has counted so far."""


class Metrics:
    """The counts of this process. `board` is where other workers leave theirs, if there are any.

    `names` decides under which name a model is counted. It is a `ChargeWatcher`: tokens, cost and
    upstreams are counted when a call of a model ends.
    """

    def __init__(self, board: MetricsBoard | None = None, names: ModelNames | None = None) -> None:
        self._board = board
        self._is_shared = True
        self._names = names or ModelNames(lambda model: model)
        if board is not None:
            self._names.others = lambda: _models_in(board.read_others())
        # A worker that takes the place of a dead one goes on from there: counters never fall.
        before = board.read_own() if board else Counts()
        self._values: dict[str, dict[Labels, float]] = {
            family.name: defaultdict(float, before.values.get(family.name, {}))
            for family in FAMILIES
            if family.kind == "counter"
        }
        self._histograms: dict[str, dict[Labels, list[float]]] = {
            family.name: defaultdict(
                partial(_empty_buckets, family), before.histograms.get(family.name, {})
            )
            for family in FAMILIES
            if family.kind == "histogram"
        }
        self._open: dict[HeldCharge, None] = {}
        self.sources: list[Source] = [self._read_gauges]
        """What is added to the counts of this object."""
        self.turns = 0
        """Turns that run right now, and background ones that run or wait."""
        self.background = 0
        self.is_reload_refused = False
        """Whether the settings are older than those that the last reload has read."""
        self.sandboxes = _none
        """Returns how many sandboxes run right now."""
        self.sandbox_state = _no_state
        """Returns what the probe of the sandbox is doing or has found."""

    def name_of(self, model: str) -> str:
        """Return the name under which a model is counted."""
        return self._names.name_of(model)

    # What happens.

    def note_request(self, route: str, status: int, seconds: float) -> None:
        """Count a request that was answered."""
        self._values["antiphon_requests"][route, str(status)] += 1
        self._observe("antiphon_request_seconds", (), seconds)

    def note_reload(self, *, is_applied: bool) -> None:
        """Count a reload of the settings."""
        self._values["antiphon_reloads"]["applied" if is_applied else "refused",] += 1
        self.is_reload_refused = not is_applied

    def note_response(self, response: Response) -> None:
        """Count a response that ended."""
        model = self._names.name_of(response.model)
        self._values["antiphon_responses"][response.status, model] += 1
        if response.antiphon and response.antiphon.degraded:
            self._values["antiphon_degraded"][()] += 1

    def note_call(self, kind: str, ending: str, seconds: float, name: str = "") -> None:
        """Count a call of a hosted tool that ended, and how long it took."""
        self._values["antiphon_hosted_calls"][kind, ending] += 1
        self._values["antiphon_hosted_call_seconds"][kind,] += seconds

    def note_reserved(self, charges: TurnCharges, charge: HeldCharge) -> None:
        """Count a charge as held."""
        self._open[charge] = None

    def note_refused(self, refused: Refused) -> None:
        """Count a call that there was no room for."""
        self._values["antiphon_budget_refusals"][refused.scope,] += 1

    def note_settled(
        self, charges: TurnCharges, charge: HeldCharge, settlement: Settlement
    ) -> None:
        """Count what a call came to."""
        self._open.pop(charge, None)
        wanted, used = charge.wanted, settlement.used
        model = self._names.name_of(charges.model)
        if wanted.kind in _MODEL_KINDS:
            backend = wanted.provider
            self._values["antiphon_upstream_requests"][backend, settlement.outcome] += 1
            self._observe("antiphon_upstream_seconds", (backend,), settlement.total_ms / 1000)
            self._note_speed(model, charges, charge, settlement)
            self._note_tokens(model, settlement.basis, used)
        if settlement.cost:
            cost = settlement.cost * _NANO
            self._values["antiphon_cost_dollars"][model, settlement.basis] += cost
        if used.total > charge.held.total:
            self._values["antiphon_ledger_overruns"][()] += 1

    def _note_tokens(self, model: str, basis: str, used: TokenCounts) -> None:
        tokens = self._values["antiphon_tokens"]
        tokens["input", model, basis] += used.input_total
        tokens["cached", model, basis] += used.cached
        tokens["cache_write", model, basis] += used.cache_write
        tokens["output", model, basis] += used.output_total
        tokens["reasoning", model, basis] += used.reasoning

    def _note_speed(
        self, model: str, charges: TurnCharges, charge: HeldCharge, settlement: Settlement
    ) -> None:
        if charge.first is None or settlement.first_ms is None:
            return
        if not charges.has_output:
            waited = charge.first - charges.started
            self._observe("antiphon_turn_first_seconds", (model,), waited)
        tokens, milliseconds = settlement.used.output_total, settlement.total_ms
        if milliseconds - settlement.first_ms >= _AT_ONCE_MS:
            milliseconds -= settlement.first_ms
        if tokens and milliseconds > 0:
            rate = tokens * 1000 / milliseconds
            self._observe("antiphon_output_tokens_per_second", (model,), rate)

    def _observe(self, name: str, labels: Labels, value: float) -> None:
        buckets = self._histograms[name][labels]
        buckets[bisect_left(EDGES[name], value)] += 1
        buckets[-1] += value

    # How it is shown.

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
        total = self.total()
        for family in FAMILIES:
            match family.kind:
                case "histogram":
                    yield _histogram(family, total.histograms.get(family.name, {}))
                case "info":
                    yield _build_info(family)
                case _:
                    yield _values(family, total.values.get(family.name, {}))

    def _read_gauges(self) -> Counts:
        held = (charge.held_cost for charge in list(self._open))
        return Counts(
            values={
                "antiphon_reload_refused": {(): int(self.is_reload_refused)},
                "antiphon_turns": {(): self.turns},
                "antiphon_background_turns": {(): self.background},
                "antiphon_sandboxes": {(): self.sandboxes()},
                "antiphon_sandbox_workers": {(self.sandbox_state(),): 1},
                "antiphon_ledger_open_charges": {(): len(self._open)},
                "antiphon_ledger_held_dollars": {(): sum(cost or 0 for cost in held) * _NANO},
            }
        )

    def _counts(self) -> Counts:
        own = Counts(values=self._values, histograms=self._histograms)
        return add_up([own, *(read() for read in self.sources)])

    def total(self) -> Counts:
        """Return the counts of all workers."""
        if self._board is None:
            return self._counts()
        self.share()  # so that what was shown once is not lost with this process
        return add_up([self._counts(), *self._board.read_others()])


def read_pulse(pulse: Pulse) -> Counts:
    """Return what a store has counted of its commits."""
    return Counts(
        values={"antiphon_store_queue_depth": {(): pulse.waiting()}},
        histograms={
            "antiphon_store_commit_seconds": {(): list(pulse.seconds)},
            "antiphon_store_group_size": {(): list(pulse.sizes)},
        },
    )


def read_routing(board: Board) -> Counts:
    """Return what was decided about deployments."""
    tally = board.tally
    return Counts(
        values={
            "antiphon_routed": {pair: float(count) for pair, count in tally.choices.items()},
            "antiphon_fallbacks": {pair: float(count) for pair, count in tally.fallbacks.items()},
            "antiphon_breaker_opens": {(name,): count for name, count in tally.opens.items()},
            "antiphon_breakers_open": {
                (name,): count for name, count in board.open_deployments().items()
            },
        }
    )


def _models_in(parts: list[Counts]) -> set[str]:
    """Return the models that other workers count."""
    found = (part.values.get("antiphon_responses", {}) for part in parts)
    tokens = (part.values.get("antiphon_tokens", {}) for part in parts)
    names = {model for values in found for _, model in values}
    return names | {model for values in tokens for _, model, _ in values}


def _values(family: Family, values: dict[Labels, float]) -> Metric:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    make = GaugeMetricFamily if family.kind == "gauge" else CounterMetricFamily
    shown: Metric = make(family.name, family.help, labels=family.labels)
    if not family.labels:
        values = {(): 0.0} | values
    for labels, value in values.items():
        shown.add_metric(labels, value)  # type: ignore[attr-defined]  # both kinds have it
    return shown


def _histogram(family: Family, values: dict[Labels, list[float]]) -> Metric:
    from prometheus_client.core import HistogramMetricFamily

    shown = HistogramMetricFamily(family.name, family.help, labels=family.labels)
    if not family.labels and not values:
        values = {(): _empty_buckets(family)}
    for labels, (*buckets, sum_of) in values.items():
        shown.add_metric(labels, _cumulated(family.edges, buckets), sum_of)
    return shown


def _build_info(family: Family) -> Metric:
    """Return the version, as it is: it is no number that workers could add up."""
    from prometheus_client.core import InfoMetricFamily

    names = dict(zip(family.labels, (__version__, platform.python_version()), strict=True))
    return InfoMetricFamily(family.name, family.help, value=names)


def _empty_buckets(family: Family) -> list[float]:
    return [0.0] * (len(family.edges) + 2)


def _none() -> int:
    return 0


def _no_state() -> str:
    return "none"


def _cumulated(edges: tuple[float, ...], buckets: list[float]) -> list[tuple[str, float]]:
    total = 0.0
    cumulated: list[tuple[str, float]] = []
    for edge, count in zip((*map(str, edges), "+Inf"), buckets, strict=True):
        total += count
        cumulated.append((edge, total))
    return cumulated

"""Which metrics does the gateway have? One table, for the code, the docs and the dashboard.

Label sets are closed. Names that callers choose never become labels as they are: a model that
neither the settings nor a provider names is counted as `other`, and there are no labels for keys,
users or responses. What a single key has used is in the ledger.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

from antiphon.store.pulse import COMMIT_EDGES, GROUP_EDGES

__all__ = ["EDGES", "FAMILIES", "Family"]

_REQUEST: Final = (0.005, 0.025, 0.1, 0.25, 1.0, 2.5, 10.0, 30.0, 120.0, 600.0)
_FIRST: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 120.0)
_RATE: Final = (1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 1000.0)


class Family(NamedTuple):
    """One metric. A counter is shown with `_total` after its name."""

    name: str
    kind: Literal["counter", "gauge", "histogram", "info"]
    help: str
    labels: tuple[str, ...] = ()
    edges: tuple[float, ...] = ()
    """The upper edges of the buckets of a histogram."""
    unit: str = "short"
    """The unit in Grafana's words."""

    @property
    def shown(self) -> str:
        """The name of its samples, or of those that are summed up from."""
        return f"{self.name}_total" if self.kind == "counter" else self.name


FAMILIES: Final = (
    Family("antiphon_build", "info", "The version that runs.", ("version", "python")),
    Family(
        "antiphon_reloads",
        "counter",
        "Reloads of the settings, in each worker, by outcome: applied or refused.",
        ("outcome",),
    ),
    Family("antiphon_reload_refused", "gauge", "Workers whose last reload was refused."),
    # Requests and turns.
    Family("antiphon_requests", "counter", "HTTP requests answered.", ("route", "status")),
    Family(
        "antiphon_request_seconds",
        "histogram",
        "Time from request to the end of the answer.",
        edges=_REQUEST,
        unit="s",
    ),
    Family("antiphon_responses", "counter", "Responses by how they ended.", ("status", "model")),
    Family(
        "antiphon_turn_first_seconds",
        "histogram",
        "Time from the beginning of a turn to the first output of its model.",
        ("model",),
        _FIRST,
        "s",
    ),
    Family(
        "antiphon_output_tokens_per_second",
        "histogram",
        "Output tokens per second of one call of a model, from its first output on.",
        ("model",),
        _RATE,
    ),
    Family("antiphon_degraded", "counter", "Responses that could not honour everything."),
    Family("antiphon_turns", "gauge", "Turns that run now."),
    Family("antiphon_background_turns", "gauge", "Background turns that run or wait now."),
    # What was used.
    Family(
        "antiphon_tokens",
        "counter",
        "Tokens by kind and by where the figure comes from. Cached and cache_write are parts of "
        "input, reasoning is a part of output.",
        ("kind", "model", "basis"),
    ),
    Family(
        "antiphon_cost_dollars",
        "counter",
        "Dollars spent on calls whose price is known.",
        ("model", "basis"),
        unit="currencyUSD",
    ),
    Family("antiphon_ledger_open_charges", "gauge", "Charges that are held now."),
    Family(
        "antiphon_ledger_held_dollars",
        "gauge",
        "Dollars that are held now for calls whose price is known.",
        unit="currencyUSD",
    ),
    Family("antiphon_ledger_overruns", "counter", "Charges that used more than was held."),
    Family(
        "antiphon_budget_refusals",
        "counter",
        "Calls that a budget or limit had no room for.",
        ("scope",),
    ),
    # Upstreams.
    Family(
        "antiphon_upstream_requests",
        "counter",
        "Calls of models by provider and by how they ended.",
        ("backend", "outcome"),
    ),
    Family(
        "antiphon_upstream_seconds",
        "histogram",
        "How long calls of models took.",
        ("backend",),
        _REQUEST,
        "s",
    ),
    Family(
        "antiphon_routed",
        "counter",
        "Requests sent to a provider, by why it was chosen.",
        ("provider", "reason"),
    ),
    Family(
        "antiphon_fallbacks",
        "counter",
        "Requests that another deployment got after this provider failed, by the fault.",
        ("provider", "reason"),
    ),
    Family(
        "antiphon_breaker_opens", "counter", "How often a circuit breaker opened.", ("provider",)
    ),
    Family("antiphon_breakers_open", "gauge", "Deployments with an open breaker.", ("provider",)),
    # Hosted tools.
    Family(
        "antiphon_hosted_calls",
        "counter",
        "Calls of hosted tools, by the kind of tool and how they ended.",
        ("kind", "ending"),
    ),
    Family(
        "antiphon_hosted_call_seconds",
        "counter",
        "How long hosted tools ran.",
        ("kind",),
        unit="s",
    ),
    Family("antiphon_sandboxes", "gauge", "Sandboxes that run now."),
    Family(
        "antiphon_sandbox_workers",
        "gauge",
        "Workers by what the probe of the sandbox found.",
        ("state",),
    ),
    # The store.
    Family(
        "antiphon_store_commit_seconds",
        "histogram",
        "How long a commit of the store took.",
        edges=COMMIT_EDGES,
        unit="s",
    ),
    Family(
        "antiphon_store_group_size",
        "histogram",
        "How many changes shared a commit.",
        edges=GROUP_EDGES,
    ),
    Family("antiphon_store_queue_depth", "gauge", "Changes that wait to be written now."),
)

EDGES: Final = {family.name: family.edges for family in FAMILIES}
"""The upper edges of the buckets of each histogram."""

"""Print the Grafana dashboard, made from the table of metrics.

    python -m tests.dashboard > docs/howto/grafana.json

Each metric has a panel: rates of counters, values of gauges, quantiles of histograms.
"""

from __future__ import annotations

import json
import sys
from typing import Any, Final

from antiphon.server.metrics_table import FAMILIES, Family

__all__ = ["dashboard"]

_WIDTH, _HEIGHT = 8, 7
_COLUMNS: Final = 3
_QUANTILES: Final = (0.5, 0.95, 0.99)
_SELECT: Final = '{instance=~"$instance"}'
_SOURCE: Final = {"type": "prometheus", "uid": "${source}"}

Json = dict[str, Any]
"""Any: whatever Grafana's format has."""


def _targets(family: Family) -> list[Json]:
    by = f" by ({', '.join(family.labels)})" if family.labels else ""
    legend = " ".join(f"{{{{{label}}}}}" for label in family.labels) or family.name
    match family.kind:
        case "counter":
            found = [(f"sum{by} (rate({family.shown}{_SELECT}[$__rate_interval]))", legend)]
        case "gauge":
            found = [(f"sum{by} ({family.shown}{_SELECT})", legend)]
        case "info":
            found = [(f"count{by} ({family.name}_info{_SELECT})", legend)]
        case "histogram":
            le = ", ".join(("le", *family.labels))
            rate = f"sum by ({le}) (rate({family.name}_bucket{_SELECT}[$__rate_interval]))"
            found = [
                (f"histogram_quantile({share}, {rate})", f"p{share * 100:g} {legend}")
                for share in _QUANTILES
            ]
    return [
        {"refId": chr(ord("A") + place), "expr": expr, "legendFormat": shown, "datasource": _SOURCE}
        for place, (expr, shown) in enumerate(found)
    ]


def _unit(family: Family) -> str:
    if family.kind == "counter":
        return {"short": "cps", "s": "s", "currencyUSD": "currencyUSD"}[family.unit]
    return family.unit


def _panel(place: int, family: Family) -> Json:
    title = family.help.split(". ")[0].rstrip(".")
    if family.kind == "counter":
        title += ", per second"
    return {
        "id": place + 1,
        "type": "timeseries",
        "title": title,
        "description": f"{family.shown}: {family.help}",
        "datasource": _SOURCE,
        "gridPos": {
            "x": place % _COLUMNS * _WIDTH,
            "y": place // _COLUMNS * _HEIGHT,
            "w": _WIDTH,
            "h": _HEIGHT,
        },
        "fieldConfig": {"defaults": {"unit": _unit(family), "min": 0}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}},
        "targets": _targets(family),
    }


def _variable(name: str, label: str, **more: Any) -> Json:
    return {"name": name, "label": label, **more}


def dashboard() -> Json:
    """Return the whole dashboard."""
    return {
        "uid": "antiphon",
        "title": "antiphon",
        "tags": ["antiphon"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {
            "list": [
                _variable("source", "Prometheus", type="datasource", query="prometheus"),
                _variable(
                    "instance",
                    "Node",
                    type="query",
                    datasource=_SOURCE,
                    query="label_values(antiphon_build_info, instance)",
                    includeAll=True,
                    multi=True,
                    allValue=".*",
                    refresh=2,
                ),
            ]
        },
        "panels": [_panel(place, family) for place, family in enumerate(FAMILIES)],
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(dashboard(), indent=2) + "\n")

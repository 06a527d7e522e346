"""The dashboard for Grafana is what its script prints, and asks only for metrics that exist."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

from antiphon.backends.scripted import ScriptedBackend
from antiphon.server.metrics_table import FAMILIES
from antiphon.testing.gateway import serve_gateway
from tests.asking import ask
from tests.scraping import samples_of

ROOT = Path(__file__).parents[1]
DASHBOARD = ROOT / "docs" / "howto" / "grafana.json"


def test_the_file_is_what_the_script_prints() -> None:
    command = [sys.executable, "-m", "tests.dashboard"]
    printed = subprocess.run(
        command, capture_output=True, text=True, check=True, timeout=120, cwd=ROOT
    )
    assert DASHBOARD.read_text() == printed.stdout


def _expressions() -> list[str]:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    return [target["expr"] for panel in panels for target in panel["targets"]]


def test_every_metric_has_a_panel_and_every_panel_a_place() -> None:
    asked = {name for expr in _expressions() for name in re.findall(r"antiphon_\w+", expr)}
    for family in FAMILIES:
        names = {family.shown, f"{family.name}_bucket", f"{family.name}_info"}
        assert names & asked, family.name
    panels = json.loads(DASHBOARD.read_text())["panels"]
    places = {(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels}
    assert len(places) == len(panels) == len(FAMILIES)


async def test_every_expression_names_a_metric_and_labels_that_exist() -> None:
    async with serve_gateway(ScriptedBackend()) as gateway:
        await ask(gateway, input="hi")
        shown = gateway.app.metrics.render().decode()
    exported = {sample.name for sample in samples_of(shown)}
    # Those that have counted nothing yet have a head and no samples.
    heads = set(re.findall(r"^# TYPE (\S+) ", shown, re.MULTILINE))
    labels = {label for family in FAMILIES for label in family.labels} | {"le", "instance"}
    expressions = _expressions()
    assert expressions
    for expr in expressions:
        for name in re.findall(r"antiphon_\w+", expr):
            assert name in exported | heads or name.removesuffix("_bucket") in heads, name
        for group in re.findall(r"by \(([^)]*)\)", expr):
            assert set(group.split(", ")) <= labels, expr

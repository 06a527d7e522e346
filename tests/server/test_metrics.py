"""What the server counts."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from antiphon.backends.scripted import ScriptedBackend, Step
from antiphon.gateway.assemble import ServerSettings
from antiphon.protocol.deltas import Stopped, TextGrew, UsageKnown
from antiphon.protocol.errors import BackendError
from antiphon.protocol.response import InputDetails, OutputDetails, Response, Usage
from antiphon.server.auth import new_key
from antiphon.server.metrics import Metrics
from antiphon.server.metrics_board import MetricsBoard, board_directory
from antiphon.server.metrics_table import FAMILIES
from antiphon.server.model_names import MOST_NAMES, OTHER, ModelNames
from antiphon.store.base.ledger import Budget
from antiphon.store.memory import MemoryStore
from antiphon.testing import serve_gateway
from tests.asking import ask, request
from tests.scraping import samples_of, value_of


@pytest.mark.parametrize(
    ("seconds", "within"), [(0.0, "0.005"), (0.005, "0.005"), (0.0051, "0.025"), (601.0, "+Inf")]
)
def test_a_request_is_counted_from_the_first_bucket_on_that_holds_it(
    seconds: float, within: str
) -> None:
    metrics = Metrics()
    metrics.note_request("/v1/responses", 200, seconds)

    buckets = [line for line in metrics.render().decode().splitlines() if "_bucket{" in line]
    first = next(line for line in buckets if line.endswith(" 1.0"))
    assert f'le="{within}"' in first


def test_requests_are_counted_by_route_and_status() -> None:
    metrics = Metrics()
    for status in (200, 404, 200):
        metrics.note_request("/v1/models", status, 0.1)

    told = metrics.render().decode()
    assert 'requests_total{route="/v1/models",status="200"} 2.0' in told
    assert 'requests_total{route="/v1/models",status="404"} 1.0' in told


def _requests(metrics: Metrics) -> float:
    lines = metrics.render().decode().splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith("antiphon_requests_t"))


def test_every_worker_answers_with_the_sum_over_all_workers(tmp_path: Path) -> None:
    workers = [Metrics(MetricsBoard(tmp_path, name)) for name in "01"]
    for times, metrics in enumerate(workers, start=1):
        for _ in range(times):
            metrics.note_request("/v1/responses", 200, 0.1)
        metrics.share()
    assert [_requests(metrics) for metrics in workers] == [3.0, 3.0]


def test_a_worker_that_cannot_share_its_counts_still_answers(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    board = tmp_path / "board"
    board.mkdir()
    metrics = Metrics(MetricsBoard(board, "0"))
    metrics.note_request("/v1/responses", 200, 0.1)
    metrics.share()
    (board / "worker-0").unlink()
    board.rmdir()

    assert [_requests(metrics), _requests(metrics)] == [1.0, 1.0]
    [line] = caplog.messages  # once, not at every try
    assert line.startswith("the other workers do not get the counts of this one: ")


def test_the_successor_of_a_dead_worker_goes_on_from_its_counters(tmp_path: Path) -> None:
    first = Metrics(MetricsBoard(tmp_path, "0"))
    first.note_request("/v1/responses", 200, 0.1)
    first.turns = 5
    assert _requests(first) == 1.0
    second = Metrics(MetricsBoard(tmp_path, "0"))
    second.note_request("/v1/responses", 200, 0.1)
    assert _requests(second) == 2.0
    assert "antiphon_turns 0.0" in second.render().decode()


def test_the_states_of_the_sandbox_are_counted_over_all_workers(tmp_path: Path) -> None:
    states = ["usable", "usable", "probing"]
    workers = [Metrics(MetricsBoard(tmp_path, str(number))) for number in range(len(states))]
    for metrics, state in zip(workers, states, strict=True):
        metrics.sandbox_state = lambda state=state: state  # type: ignore[misc]  # bound now
        metrics.share()
    shown = workers[0].render().decode()
    assert 'antiphon_sandbox_workers{state="usable"} 2.0' in shown
    assert 'antiphon_sandbox_workers{state="probing"} 1.0' in shown


unix_only = pytest.mark.skipif(sys.platform == "win32", reason="there are no workers")


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@unix_only
def test_the_directory_of_a_gateway_that_is_gone_is_removed(temporary: Path) -> None:
    left = temporary / "antiphon-metrics-left"
    left.mkdir()
    (left / "in-use").touch()
    (left / "worker-0").touch()
    with board_directory() as own:
        assert list(temporary.iterdir()) == [own]
    assert list(temporary.iterdir()) == []


@unix_only
def test_the_directory_of_a_gateway_that_runs_is_not_removed(temporary: Path) -> None:
    with board_directory() as first, board_directory() as second:
        assert set(temporary.iterdir()) == {first, second}


@unix_only
def test_a_directory_that_is_not_locked_yet_is_not_removed(temporary: Path) -> None:
    begun = temporary / "antiphon-metrics-begun"
    begun.mkdir()
    (begun / "new").touch()
    with board_directory():
        assert begun.exists()


async def test_a_key_does_not_read_the_metrics_of_all_owners() -> None:
    store = MemoryStore()
    key, record = new_key("ann", 0)
    await store.add_key(record)
    headers = {"Authorization": f"Bearer {key}"}
    for settings in (ServerSettings(), ServerSettings(require_keys=True)):
        async with serve_gateway(ScriptedBackend(), store=store, settings=settings) as gateway:
            refused = await request(gateway, "GET", "/../metrics", headers=headers)
        assert refused.status == 403
        assert refused.error["code"] == "insufficient_permissions"
        assert "role admin or metrics" in refused.error["message"]


async def test_a_keyless_gateway_shows_its_metrics_to_its_one_user() -> None:
    async with serve_gateway(ScriptedBackend()) as gateway:
        answer = await request(gateway, "GET", "/../metrics")
    assert answer.status == 200
    assert b"antiphon_request_seconds_bucket" in answer.body


def test_names_that_callers_invent_are_counted_as_other() -> None:
    names = ModelNames(lambda model: model if model == "known" else None)
    assert [names.name_of(name) for name in ("known", "typo", "typo-2")] == ["known", OTHER, OTHER]


def test_a_pattern_of_the_settings_is_one_name() -> None:
    names = ModelNames(lambda model: "gpt-*" if model.startswith("gpt-") else None)
    assert {names.name_of(f"gpt-{number}") for number in range(1000)} == {"gpt-*"}


def test_at_most_so_many_names_have_places_of_their_own(tmp_path: Path) -> None:
    workers = [ModelNames(lambda model: model) for _ in "01"]
    boards = [Metrics(MetricsBoard(tmp_path, str(n)), one) for n, one in enumerate(workers)]
    found = set()
    for number in range(3 * MOST_NAMES):
        metrics = boards[number % 2]
        metrics.note_response(Response(model=f"model-{number}"))
        metrics.share()
    for sample in samples_of(boards[0].render()):
        found.add(sample.labels.get("model", OTHER))
    assert len(found) == MOST_NAMES + 1
    assert value_of(boards[0].render(), "antiphon_responses_total") == 3 * MOST_NAMES


def test_no_label_names_a_key_a_user_or_a_response() -> None:
    labels = {label for family in FAMILIES for label in family.labels}
    assert labels == {
        *("route", "status", "model", "kind", "basis", "scope", "backend", "outcome"),
        *("provider", "reason", "ending", "state", "version", "python"),
    }


async def test_every_metric_of_the_table_is_shown_and_no_other() -> None:
    async with serve_gateway(ScriptedBackend()) as gateway:
        shown = text_string_to_metric_families(gateway.app.metrics.render().decode())
        found = {(family.name, family.type) for family in shown}
    kinds = {"info": "gauge"}
    names = {"antiphon_build": "antiphon_build_info"}
    wanted = {(names.get(one.name, one.name), kinds.get(one.kind, one.kind)) for one in FAMILIES}
    assert found == wanted


async def test_the_tokens_are_those_of_the_usage_with_their_basis() -> None:
    counted = Usage(
        input_tokens=10,
        input_tokens_details=InputDetails(cached_tokens=4, cache_write_tokens=1),
        output_tokens=7,
        output_tokens_details=OutputDetails(reasoning_tokens=5),
    )
    script: list[Step] = [TextGrew("hello"), UsageKnown(counted), Stopped("stop")]
    async with serve_gateway(ScriptedBackend([script])) as gateway:
        await ask(gateway, input="hi")
        text = gateway.app.metrics.render()
    kinds = {"input": 10, "cached": 4, "cache_write": 1, "output": 7, "reasoning": 5}
    for kind, count in kinds.items():
        labels = {"kind": kind, "basis": "reported", "model": "scripted"}
        assert value_of(text, "antiphon_tokens_total", **labels) == count, kind
    assert value_of(text, "antiphon_tokens_total", basis="counted") == 0


async def test_a_refusal_of_an_upstream_is_counted_with_its_outcome() -> None:
    refusal = BackendError("no", code="upstream_refused", status=400)
    refusal.upstream_status = 400
    async with serve_gateway(ScriptedBackend([[refusal]])) as gateway:
        await ask(gateway, input="hi")
        text = gateway.app.metrics.render()
    outcomes = {
        one.labels["outcome"]: one.value
        for one in samples_of(text)
        if one.name == "antiphon_upstream_requests_total"
    }
    assert outcomes == {"released": 1}
    assert value_of(text, "antiphon_ledger_open_charges") == 0


async def test_a_call_that_a_budget_has_no_room_for_is_counted_by_scope() -> None:
    store = MemoryStore()
    await store.ledger.put_budget(
        Budget(id="b", scope="project", scope_id="local", unit="tokens", period="total", ceiling=1)
    )
    async with serve_gateway(ScriptedBackend(), store=store) as gateway:
        answer = await ask(gateway, input="hi")
        text = gateway.app.metrics.render()
    assert answer.status == 429
    assert value_of(text, "antiphon_budget_refusals_total", scope="project") == 1
    assert value_of(text, "antiphon_budget_refusals_total") == 1
    assert value_of(text, "antiphon_ledger_open_charges") == 0


def test_the_page_lists_every_metric_with_its_labels() -> None:
    page = (Path(__file__).parents[2] / "docs" / "howto" / "observe.md").read_text()
    rows = [line.split("|")[1:4] for line in page.splitlines() if line.startswith("| `antiphon_")]
    listed = {name.strip(" `"): labels.strip().replace("`", "") for name, labels, _ in rows}
    names = {"antiphon_build": "antiphon_build_info"}
    assert listed == {names.get(one.name, one.shown): ", ".join(one.labels) for one in FAMILIES}

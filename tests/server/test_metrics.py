"""What the server counts."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import pytest

from antiphon.backends.scripted import ScriptedBackend
from antiphon.gateway.assemble import ServerSettings
from antiphon.server.auth import new_key
from antiphon.server.metrics import Metrics
from antiphon.server.metrics_board import MetricsBoard, board_directory
from antiphon.store.memory import MemoryStore
from antiphon.testing import serve_gateway
from tests.asking import request


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
        assert "metrics_port" in refused.error["message"]


async def test_a_keyless_gateway_shows_its_metrics_to_its_one_user() -> None:
    async with serve_gateway(ScriptedBackend()) as gateway:
        answer = await request(gateway, "GET", "/../metrics")
    assert answer.status == 200
    assert b"antiphon_request_seconds_bucket" in answer.body

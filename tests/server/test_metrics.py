"""What the server counts."""

from __future__ import annotations

import pytest

from antiphon.server.metrics import Metrics


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
    metrics = Metrics("3")
    for status in (200, 404, 200):
        metrics.note_request("/v1/models", status, 0.1)

    told = metrics.render().decode()
    assert 'requests_total{route="/v1/models",status="200",worker="3"} 2.0' in told
    assert 'requests_total{route="/v1/models",status="404",worker="3"} 1.0' in told

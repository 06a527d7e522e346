"""Trace context: what is read from a caller's headers, and what goes on."""

from __future__ import annotations

import pytest

from antiphon.transport.tracing import begin_trace, read_parent, trace_headers

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = "b7ad6b7169203331"


@pytest.mark.parametrize("flags", ["00", "01", "03"])
def test_a_valid_parent_is_continued(flags: str) -> None:
    trace = read_parent(f"00-{TRACE}-{PARENT}-{flags}", "vendor=value")
    assert f"{trace.trace_id:032x}" == TRACE
    assert f"{trace.parent_id:016x}" == PARENT
    assert trace.is_sampled is (flags != "00")
    assert trace.state == "vendor=value"


@pytest.mark.parametrize(
    "parent",
    [
        None,
        "",
        "x",
        f"ff-{TRACE}-{PARENT}-01",
        f"00-{TRACE}-{PARENT}-01-more",
        f"00-{TRACE.upper()}-{PARENT}-01",
        f"00-{'0' * 32}-{PARENT}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE}-{PARENT}",
    ],
)
def test_an_invalid_parent_begins_a_new_trace(parent: str | None) -> None:
    first, second = read_parent(parent, "vendor=value"), read_parent(parent)
    assert first.parent_id == 0
    assert first.is_sampled is None
    assert first.state == ""
    assert first.trace_id != second.trace_id != int(TRACE, 16)


def test_a_later_version_is_read_as_far_as_it_is_known() -> None:
    assert f"{read_parent(f'01-{TRACE}-{PARENT}-01-more').trace_id:032x}" == TRACE


async def test_the_headers_for_an_upstream_name_the_call() -> None:
    assert trace_headers() == {}
    trace = read_parent(f"00-{TRACE}-{PARENT}-00", "vendor=value")
    begin_trace(trace)
    trace.call_id = 7
    assert trace_headers() == {
        "traceparent": f"00-{TRACE}-0000000000000007-00",
        "tracestate": "vendor=value",
    }

"""Traces of tools and of upstreams over HTTP, and what recording costs on the path of a turn."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from types import FrameType

import pytest

import antiphon.telemetry
from antiphon.backends.chat import ChatBackend
from antiphon.backends.scripted import ScriptedBackend
from antiphon.gateway.assemble import ServerSettings
from antiphon.telemetry.open import NotInstalled, open_recorder
from antiphon.telemetry.recorder import ChargeRecord, Recorder, RequestRecord
from antiphon.telemetry.settings import TelemetrySettings
from antiphon.testing.gateway import serve_gateway
from antiphon.testing.tools import ScriptedTool
from antiphon.testing.upstream import ScriptedUpstream
from tests.asking import ask
from tests.cli.processes import ECHO, serve
from tests.engine.run.test_hosted import LOOK, MCP, calling, saying
from tests.gateway.test_workers import ask_often
from tests.telemetry.collector import attributes_of, collector
from tests.telemetry.gateways import traced_gateway

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = "b7ad6b7169203331"
HEADERS = {"traceparent": f"00-{TRACE}-{PARENT}-01", "tracestate": "vendor=value"}
_ROOM = str(Path(antiphon.telemetry.__file__).parent)


async def test_a_hosted_call_is_under_the_call_of_the_model_that_asked_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    backend = ScriptedBackend([calling(LOOK), saying("ok")])
    with collector() as found:
        async with traced_gateway(backend, found, monkeypatch, tools=[ScriptedTool()]) as gateway:
            await ask(gateway, HEADERS, input="hi", tools=[MCP])
    spans = {span.span_id: span for span in found.spans}
    [tool] = [span for span in found.spans if span.name.startswith("execute_tool ")]
    rounds = [span for span in found.spans if span.name.startswith("chat ")]
    assert len(rounds) == 2
    assert {span.trace_id.hex() for span in found.spans} == {TRACE}
    asked = spans[tool.parent_span_id]
    assert attributes_of(asked)["antiphon.round"] == 0
    assert attributes_of(asked)["gen_ai.response.finish_reasons"] == ["stop"]
    given = attributes_of(tool)
    assert given["gen_ai.operation.name"] == "execute_tool"
    assert given["gen_ai.tool.type"] == "mcp"
    assert given["antiphon.tool.ending"] == "completed"
    assert tool.name == f"execute_tool {given['gen_ai.tool.name']}"


async def test_an_upstream_gets_the_id_of_its_call(monkeypatch: pytest.MonkeyPatch) -> None:
    async with ScriptedUpstream() as upstream:
        backend = ChatBackend(upstream.base_url)
        with collector() as found:
            async with traced_gateway(backend, found, monkeypatch, default_model="echo") as gateway:
                await ask(gateway, HEADERS, input="hi")
                await ask(gateway, input="hi")
    given = [one.headers["traceparent"] for one in upstream.requests]
    calls = [span for span in found.spans if span.name.startswith("chat ")]
    wanted = [f"00-{span.trace_id.hex()}-{span.span_id.hex()}-01" for span in calls]
    assert given == wanted
    assert given[0].startswith(f"00-{TRACE}-")
    assert not given[1].startswith(f"00-{TRACE}-")
    assert upstream.requests[0].headers["tracestate"] == "vendor=value"
    assert "tracestate" not in upstream.requests[1].headers


async def test_without_telemetry_an_upstream_gets_no_trace() -> None:
    async with ScriptedUpstream() as upstream:
        backend = ChatBackend(upstream.base_url)
        async with serve_gateway(backend, default_model="echo") as gateway:
            await ask(gateway, HEADERS, input="hi")
    assert "traceparent" not in upstream.requests[0].headers


class _Steps:
    """Counts the functions of the telemetry, and of the SDK, that run in this thread."""

    def __init__(self) -> None:
        self.own: list[str] = []
        self.sdk: list[str] = []
        self._thread = threading.get_ident()

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        if event != "call" or threading.get_ident() != self._thread:
            return
        name = frame.f_code.co_filename
        if name.startswith(_ROOM):
            self.own.append(frame.f_code.co_name)
        elif "opentelemetry" in name:
            self.sdk.append(frame.f_code.co_name)


async def test_a_turn_takes_few_steps_to_record_and_none_of_the_sdk() -> None:
    recorder, steps = Recorder(), _Steps()
    settings = ServerSettings(telemetry=recorder)
    try:
        async with serve_gateway(ScriptedBackend(), settings=settings) as gateway:
            sys.setprofile(steps)
            await ask(gateway, input="one two three four five six seven", stream=True)
    finally:
        sys.setprofile(None)
    assert steps.sdk == []
    # However long the answer is: nothing is done for a token.
    assert sorted(steps.own) == sorted(
        [
            *("begin", "note_reserved", "note_settled", "_add", "note_response", "end", "_add"),
        ]
    )
    assert [type(record) for record in recorder.records] == [ChargeRecord, RequestRecord]


async def test_a_full_ring_drops_records_and_counts_them() -> None:
    recorder = Recorder(most=3)
    settings = ServerSettings(telemetry=recorder)
    async with serve_gateway(ScriptedBackend(), settings=settings) as gateway:
        for _ in range(3):
            assert (await ask(gateway, input="hi")).status == 200
    assert len(recorder.records) == 3
    assert recorder.dropped == 3


@pytest.mark.skipif(sys.platform == "win32", reason="there is no fork")
async def test_all_workers_of_a_real_gateway_send_their_traces(tmp_path: Path) -> None:
    with (
        collector() as found,
        serve("--workers", "2", home=tmp_path, config=ECHO, extra=found.environment) as served,
    ):
        await ask_often(served, 6)
        assert served.stop() == 0
    names = [span.name for span in found.spans]
    assert names.count("POST /v1/responses") == 6
    assert names.count("chat scripted") == 6
    assert found.points("gen_ai.client.operation.duration")


def test_telemetry_that_is_on_without_the_extra_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk", None)
    with pytest.raises(NotInstalled, match=r"antiphon\[otel\]"):
        open_recorder(TelemetrySettings(enabled=True), {})
    assert open_recorder(TelemetrySettings(), {}) is None
    off = {"OTEL_SDK_DISABLED": "true", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://x"}
    assert open_recorder(TelemetrySettings(), off) is None

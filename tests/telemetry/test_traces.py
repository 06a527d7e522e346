"""What a collector gets: spans, their names, parents and attributes, and metrics."""

from __future__ import annotations

import json

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from antiphon.backends.scripted import ScriptedBackend, Step
from antiphon.protocol.deltas import Stopped, TextGrew, UsageKnown
from antiphon.protocol.errors import BackendError
from antiphon.protocol.response import InputDetails, Usage
from antiphon.telemetry.settings import TelemetrySettings
from tests.asking import ask, request
from tests.telemetry.collector import Collector, attributes_of, collector
from tests.telemetry.gateways import traced_gateway

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = "b7ad6b7169203331"
COUNTED = Usage(
    input_tokens=10,
    input_tokens_details=InputDetails(cached_tokens=4),
    output_tokens=3,
)
SCRIPT: list[Step] = [TextGrew("secret answer"), UsageKnown(COUNTED), Stopped("stop")]


def _named(found: Collector, start: str) -> list[Span]:
    return [span for span in found.spans if span.name.startswith(start)]


async def test_a_turn_is_a_server_span_with_a_client_span_for_each_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    headers = {"traceparent": f"00-{TRACE}-{PARENT}-01"}
    with collector() as found:
        async with traced_gateway(ScriptedBackend([SCRIPT]), found, monkeypatch) as gateway:
            answer = await ask(gateway, headers, input="secret question", model="echo")
    [server], [chat] = _named(found, "POST /v1/responses"), _named(found, "chat echo")
    assert len(found.spans) == 2
    assert (server.kind, chat.kind) == (Span.SPAN_KIND_SERVER, Span.SPAN_KIND_CLIENT)
    assert {server.trace_id.hex(), chat.trace_id.hex()} == {TRACE}
    assert server.parent_span_id.hex() == PARENT
    assert chat.parent_span_id == server.span_id
    assert server.start_time_unix_nano <= chat.start_time_unix_nano
    assert chat.start_time_unix_nano <= chat.end_time_unix_nano <= server.end_time_unix_nano
    given = attributes_of(server)
    assert (given["http.route"], given["http.response.status_code"]) == ("/v1/responses", 200)
    assert given["gen_ai.response.id"] == answer.json["id"]
    shown = attributes_of(chat)
    assert shown.pop("gen_ai.response.time_to_first_chunk") >= 0
    assert shown == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "test",
        "gen_ai.request.model": "echo",
        "gen_ai.response.model": "echo",
        "gen_ai.response.id": answer.json["id"],
        "gen_ai.response.finish_reasons": ["stop"],
        "gen_ai.output.type": "text",
        "gen_ai.usage.input_tokens": 10,
        "gen_ai.usage.output_tokens": 3,
        "gen_ai.usage.cache_read.input_tokens": 4,
        "gen_ai.usage.cache_creation.input_tokens": 0,
        "gen_ai.usage.reasoning.output_tokens": 0,
        "antiphon.project": "local",
        "antiphon.round": 0,
        "antiphon.outcome": "completed",
        "antiphon.basis": "reported",
    }
    assert b"secret" not in found.raw
    assert {one["service.name"] for one in found.resources()} == {"antiphon"}


async def test_the_metrics_count_every_call(monkeypatch: pytest.MonkeyPatch) -> None:
    with collector() as found:
        backend = ScriptedBackend([SCRIPT] * 3)
        never = {"OTEL_TRACES_SAMPLER": "always_off"}
        async with traced_gateway(backend, found, monkeypatch, environ=never) as gateway:
            for _ in range(3):
                await ask(gateway, input="hi", model="echo")
    assert found.spans == []
    sums = {
        attributes_of(point)["gen_ai.token.type"]: (point.count, point.sum)
        for point in found.points("gen_ai.client.token.usage")
    }
    assert sums == {"input": (3, 30), "output": (3, 9)}
    [duration] = found.points("gen_ai.client.operation.duration")
    assert duration.count == 3
    assert attributes_of(duration)["gen_ai.request.model"] == "echo"


async def test_what_failed_is_kept_whatever_the_sampler_decides(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with collector() as found:
        broken: list[Step] = [TextGrew("half"), BackendError("gone", code="upstream_closed")]
        backend = ScriptedBackend([SCRIPT, broken, SCRIPT])
        never = {"OTEL_TRACES_SAMPLER": "always_off"}
        async with traced_gateway(backend, found, monkeypatch, environ=never) as gateway:
            for _ in range(3):
                await ask(gateway, input="hi", stream=True)
    [server], [chat] = _named(found, "POST"), _named(found, "chat")
    assert server.status.code == chat.status.code == Status.STATUS_CODE_ERROR
    assert attributes_of(server)["error.type"] == "upstream_closed"
    assert attributes_of(server)["antiphon.ending"] == "failed"


async def test_what_is_slow_or_expensive_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    for kept, settings in (
        (1, TelemetrySettings(slow_seconds=0.0)),
        (0, TelemetrySettings(slow_seconds=600.0)),
    ):
        with collector() as found:
            async with traced_gateway(
                ScriptedBackend(),
                found,
                monkeypatch,
                telemetry=settings,
                environ={"OTEL_TRACES_SAMPLER": "always_off"},
            ) as gateway:
                await ask(gateway, input="hi")
        assert len(_named(found, "POST")) == kept


async def test_a_caller_that_does_not_record_is_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    with collector() as found:
        async with traced_gateway(ScriptedBackend(), found, monkeypatch) as gateway:
            for flags in ("00", "01"):
                headers = {"traceparent": f"00-{TRACE}-{PARENT}-{flags}"}
                await ask(gateway, headers, input="hi")
    assert len(_named(found, "POST")) == 1


async def test_probes_have_no_spans(monkeypatch: pytest.MonkeyPatch) -> None:
    with collector() as found:
        async with traced_gateway(ScriptedBackend(), found, monkeypatch) as gateway:
            await request(gateway, "GET", "/../healthz")
            await request(gateway, "GET", "/models")
    assert [span.name for span in found.spans] == ["GET /v1/models"]


async def test_content_is_captured_only_if_it_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    variable = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
    with collector() as found:
        async with traced_gateway(
            ScriptedBackend([SCRIPT]), found, monkeypatch, environ={variable: "true"}
        ) as gateway:
            await ask(gateway, input="secret question", instructions="be brief")
    [chat] = _named(found, "chat")
    shown = attributes_of(chat)
    assert json.loads(shown["gen_ai.input.messages"]) == [
        {"role": "user", "parts": [{"type": "text", "content": "secret question"}]}
    ]
    assert json.loads(shown["gen_ai.output.messages"]) == [
        {"role": "assistant", "parts": [{"type": "text", "content": "secret answer"}]}
    ]
    instructions = json.loads(shown["gen_ai.system_instructions"])
    assert instructions == [{"type": "text", "content": "be brief"}]


async def test_standard_variables_apply(monkeypatch: pytest.MonkeyPatch) -> None:
    variables = {
        "OTEL_SERVICE_NAME": "gate",
        "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment.name=blue",
        "OTEL_EXPORTER_OTLP_HEADERS": "x-tenant=seven",
        "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip",
        "OTEL_METRICS_EXPORTER": "none",
    }
    with collector() as found:
        async with traced_gateway(
            ScriptedBackend(), found, monkeypatch, environ=variables
        ) as gateway:
            await ask(gateway, input="hi")
    assert found.spans
    assert found.metrics == []
    for resource in found.resources():
        assert resource["service.name"] == "gate"
        assert resource["deployment.environment.name"] == "blue"
    for headers in found.headers:
        assert headers["x-tenant"] == "seven"
        assert headers["Content-Encoding"] == "gzip"


async def test_a_collector_that_is_away_costs_no_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with collector() as found:
        pass  # it is closed
    environ = {"OTEL_EXPORTER_OTLP_TIMEOUT": "1"}
    async with traced_gateway(ScriptedBackend(), found, monkeypatch, environ=environ) as gateway:
        answers = [await ask(gateway, input="hi") for _ in range(3)]
    assert [answer.status for answer in answers] == [200] * 3


async def test_a_background_turn_is_in_the_trace_of_its_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    headers = {"traceparent": f"00-{TRACE}-{PARENT}-01"}
    with collector() as found:
        async with traced_gateway(ScriptedBackend([SCRIPT]), found, monkeypatch) as gateway:
            await ask(gateway, headers, input="hi", background=True)
            await gateway.app.engine.background.drain(60.0)
    names = {span.name: span for span in found.spans}
    assert set(names) == {"POST /v1/responses", "BACKGROUND /v1/responses", "chat scripted"}
    assert {span.trace_id.hex() for span in found.spans} == {TRACE}
    first, later = names["POST /v1/responses"], names["BACKGROUND /v1/responses"]
    assert first.parent_span_id.hex() == PARENT
    assert later.parent_span_id == first.span_id
    assert attributes_of(later)["antiphon.ending"] == "completed"

"""The log line of each request: what it holds, and what it never holds."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from decimal import Decimal
from typing import Any, Final
from urllib.parse import urlsplit

import aiohttp
import pytest

from antiphon.backends.chat import ChatBackend
from antiphon.backends.scripted import ScriptedBackend, Step
from antiphon.models.prices import PriceSettings
from antiphon.protocol.deltas import Degraded, Stopped, TextGrew
from antiphon.routing.describe import ModelSettings
from antiphon.testing import Cut, Script, ScriptedUpstream, Stall, Status, serve_gateway
from antiphon.testing.gateway import Gateway
from tests.asking import ask, ask_stream, request

SECRET: Final = "canary-7c1f"


class Lines(logging.Handler):
    """Collects log records, and lets a test wait for the next one of a kind."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.records: list[logging.LogRecord] = []
        self._changed = asyncio.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)
        self._changed.set()

    async def requests(self, method: str, count: int = 1) -> list[dict[str, Any]]:
        """Return the fields of all lines of a method, once there are so many."""
        async with asyncio.timeout(30):
            while len(found := self._of(method)) < count:
                self._changed.clear()
                await self._changed.wait()
        return found

    def _of(self, method: str) -> list[dict[str, Any]]:
        fields = [getattr(record, "fields", {}) for record in self.records]
        return [found for found in fields if found.get("method") == method]

    def text(self) -> str:
        """Return everything that was logged."""
        return "\n".join(f"{r.getMessage()} {getattr(r, 'fields', '')}" for r in self.records)


@pytest.fixture
def lines() -> Iterator[Lines]:
    logger, lines = logging.getLogger("antiphon"), Lines()
    before = logger.level
    logger.addHandler(lines)
    logger.setLevel(logging.DEBUG)
    yield lines
    logger.removeHandler(lines)
    logger.setLevel(before)


async def test_a_whole_answer_is_one_line_with_tokens_and_times(lines: Lines) -> None:
    async with serve_gateway({"near": ScriptedBackend()}) as gateway:
        answer = await ask(gateway, {"x-request-id": "mine-1"}, model="echo", input="two words")
        [line] = await lines.requests("POST")
    usage = answer.json["usage"]
    assert line.pop("total_ms") > 0
    assert line == {
        "method": "POST",
        "route": "/v1/responses",
        "status": 200,
        "ending": "completed",
        "model": "echo",
        "upstream": "near",
        "input_tokens": usage["input_tokens"],
        "output_tokens": usage["output_tokens"],
        "basis": "reported",
        "request": "mine-1",
        "response": answer.json["id"],
    }


async def test_a_stream_has_the_time_of_its_first_event(lines: Lines) -> None:
    async with serve_gateway(ScriptedBackend()) as gateway:
        await ask_stream(gateway, model="echo", input="hi")
        [line] = await lines.requests("POST")
    assert 0 < line["first_event_ms"] <= line["total_ms"]
    assert line["ending"] == "completed"


async def test_a_refused_request_has_its_error_code(lines: Lines) -> None:
    async with serve_gateway(ScriptedBackend()) as gateway:
        await ask(gateway, model="nothing-like-it", input="hi")
        [line] = await lines.requests("POST")
    assert (line["status"], line["error"]) == (404, "model_not_found")
    assert "ending" not in line


async def test_a_websocket_has_a_line_for_each_turn(lines: Lines) -> None:
    async with serve_gateway(ScriptedBackend()) as gateway:
        await _converse(gateway, ["one", "two"])
        found = await lines.requests("WEBSOCKET", 2)
    assert [line["ending"] for line in found] == ["completed", "completed"]
    assert all(line["first_event_ms"] <= line["total_ms"] for line in found)


async def test_a_background_turn_has_a_line_when_it_ends(lines: Lines) -> None:
    async with serve_gateway({"near": ScriptedBackend()}) as gateway:
        answer = await ask(gateway, model="echo", input="hi", background=True)
        [ended] = await lines.requests("BACKGROUND")
        [posted] = await lines.requests("POST")
    assert posted["ending"] == "queued"
    assert (ended["ending"], ended["upstream"]) == ("completed", "near")
    assert ended["response"] == posted["response"] == answer.json["id"]
    assert ended["request"] == posted["request"]


async def test_a_background_turn_is_timed_in_milliseconds(lines: Lines) -> None:
    async with serve_gateway(ScriptedBackend()) as gateway:
        for _ in range(3):
            await ask(gateway, model="echo", input="hi", background=True)
        ended = await lines.requests("BACKGROUND", 3)
    # Whole seconds would be 0 or 1000.
    assert all(line["total_ms"] % 1000 for line in ended)


async def test_a_frame_that_is_refused_has_a_line(lines: Lines) -> None:
    async with (
        serve_gateway(ScriptedBackend()) as gateway,
        aiohttp.ClientSession() as session,
        session.ws_connect(f"{gateway.base_url}/responses") as socket,
    ):
        for send in (socket.send_str("{"), socket.send_bytes(b"{}"), socket.send_json({})):
            await send
            await socket.receive_json(timeout=30)
        found = await lines.requests("WEBSOCKET", 3)
    assert [(line["status"], line["error"]) for line in found] == [
        (400, "invalid_json"),
        (400, "binary_frame"),
        (400, "unknown_event_type"),
    ]


async def test_a_websocket_is_logged_as_101_however_it_ends(lines: Lines) -> None:
    async with serve_gateway(ScriptedBackend()) as gateway:
        address = urlsplit(gateway.base_url)
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
        writer.write(
            f"GET /v1/responses HTTP/1.1\r\nHost: {address.netloc}\r\nUpgrade: websocket\r\n"
            "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
            "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n".encode()
        )
        await reader.readuntil(b"\r\n\r\n")
        writer.transport.abort()  # gone, without a close frame
        [line] = await lines.requests("GET")
    assert line["status"] == 101


async def test_a_compaction_is_logged_with_its_model_and_tokens(lines: Lines) -> None:
    async with serve_gateway({"near": ScriptedBackend()}) as gateway:
        await request(gateway, "POST", "/responses/compact", {"model": "echo", "input": "hi"})
        [line] = await lines.requests("POST")
    assert (line["model"], line["upstream"]) == ("echo", "near")
    assert line["input_tokens"] > 0


async def test_a_client_that_leaves_is_logged_with_the_cancelled_turn(lines: Lines) -> None:
    script = Script(text=["One ", "two."], faults=[Stall(after=2)])
    async with (
        ScriptedUpstream(script) as upstream,
        serve_gateway(ChatBackend(upstream.base_url)) as gateway,
        aiohttp.ClientSession() as session,
    ):
        body = {"model": "echo", "input": "hi", "stream": True}
        answer = await session.post(f"{gateway.base_url}/responses", json=body)
        await (await upstream.received()).stalled.wait()
        answer.close()
        [line] = await lines.requests("POST")
    assert (line["status"], line["ending"]) == (200, "cancelled")


async def test_no_line_holds_what_was_asked_or_answered(lines: Lines) -> None:
    failing = Script(faults=[Status(500, message=f"the prompt was {SECRET}")])
    cut = Script(text=[f"{SECRET} ", "more"], faults=[Cut(after=2)])
    async with (
        ScriptedUpstream([Script(text=SECRET), failing, failing, failing, cut]) as upstream,
        serve_gateway(ChatBackend(upstream.base_url, sleep=_at_once)) as gateway,
    ):
        for _ in range(3):
            await ask_stream_or_error(gateway, "echo")
        await request(gateway, "POST", "/responses", b'{"' + SECRET.encode())
        await request(gateway, "GET", f"/{SECRET}")
    assert len(await lines.requests("POST")) == 4
    assert SECRET not in lines.text()


async def test_upstream_failures_are_warnings_with_their_cause(lines: Lines) -> None:
    async with (
        ScriptedUpstream([Script(faults=[Status(500)]), Script(text="fine")]) as upstream,
        serve_gateway(
            {"far": ChatBackend(upstream.base_url, name="far", sleep=_at_once)}
        ) as gateway,
    ):
        answer = await ask(gateway, model="echo", input="hi")
    assert answer.status == 200
    [warning] = [record for record in lines.records if record.levelno == logging.WARNING]
    assert warning.getMessage().startswith("upstream far/echo failed at attempt 1: ")
    assert "next attempt in" in warning.getMessage()


async def test_a_refusal_is_logged_with_the_status_of_the_upstream(lines: Lines) -> None:
    async with (
        ScriptedUpstream(Script(faults=[Status(502)])) as upstream,
        serve_gateway(ChatBackend(upstream.base_url, sleep=_at_once)) as gateway,
    ):
        await ask(gateway, model="echo", input="hi")
    assert "HTTP 502 from the upstream, HTTP 502 for the caller" in lines.text()


@pytest.mark.parametrize("code", [f"the prompt was {SECRET}", f"{SECRET}\nINFO forged"])
async def test_an_upstreams_code_is_logged_only_if_it_is_a_word(lines: Lines, code: str) -> None:
    scripts = [
        Script(faults=[Status(400, error_code=code)]),
        Script(faults=[Status(400, error_code="content_policy.violated")]),
    ]
    async with (
        ScriptedUpstream(scripts) as upstream,
        serve_gateway(ChatBackend(upstream.base_url)) as gateway,
    ):
        await ask(gateway, model="echo", input="hi")
        await ask(gateway, model="echo", input="hi")
        first, second = await lines.requests("POST", 2)
    assert SECRET not in lines.text()
    assert (first["error"], second["error"]) == ("upstream_refused", "content_policy.violated")


async def test_a_model_name_cannot_forge_a_line(lines: Lines) -> None:
    async with serve_gateway(ScriptedBackend()) as gateway:
        await ask(gateway, model="echo\n2026-01-01T00:00:00.000Z INFO forged", input="hi")
        await lines.requests("POST")
    assert all("\n" not in record.getMessage() for record in lines.records)


async def ask_stream_or_error(gateway: Gateway, model: str) -> None:
    body = {"model": model, "input": SECRET, "stream": True}
    answer = await request(gateway, "POST", "/responses", body)
    assert answer.status in (200, 502)


async def _converse(gateway: Gateway, texts: list[str]) -> None:
    async with (
        aiohttp.ClientSession() as session,
        session.ws_connect(f"{gateway.base_url}/responses") as socket,
    ):
        for text in texts:
            await socket.send_json({"type": "response.create", "model": "echo", "input": text})
            while (await socket.receive_json(timeout=30))["type"] != "response.completed":
                pass


async def _at_once(seconds: float) -> None:
    """Wait for nothing."""


async def test_a_line_has_the_cost_and_its_basis(lines: Lines) -> None:
    price = ModelSettings(price=PriceSettings(input=Decimal(1), output=Decimal(2)))
    async with serve_gateway(ScriptedBackend(), models={"echo": price}) as gateway:
        answer = await ask(gateway, model="echo", input="two words")
        [line] = await lines.requests("POST")
    assert line["cost_usd"] == answer.json["antiphon"]["cost"]["usd"]
    assert line["basis"] == answer.json["antiphon"]["cost"]["basis"]


async def test_a_line_has_how_many_things_could_not_be_honoured(lines: Lines) -> None:
    script: list[Step] = [Degraded("seed: not known"), TextGrew("ok"), Stopped("stop")]
    async with serve_gateway(ScriptedBackend([script])) as gateway:
        answer = await ask(gateway, input="hi")
        [line] = await lines.requests("POST")
    assert line["degraded"] == len(answer.json["antiphon"]["degraded"]) == 1
    assert "seed" not in lines.text()

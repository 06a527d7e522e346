"""Credentials of tools are in no trace, no metric and no list of requests, content or not."""

from __future__ import annotations

from pathlib import Path

import pytest

from antiphon.gateway.mcp import open_mcp
from antiphon.store.sqlite import SqliteStore
from antiphon.tools.base import ToolLimits
from antiphon.tools.mcp.settings import McpServer, McpSettings
from tests.asking import ask, ask_stream, request
from tests.telemetry.collector import collector
from tests.telemetry.gateways import traced_gateway
from tests.tools.mcp.gateways import model, tool
from tests.tools.mcp.hostile import Hostile, result

TOKEN = "sk-callers-token-123456"
HEADER = "callers-header-987654"
OURS = "operators-token-5555555"
SECRETS = (TOKEN, HEADER, OURS)
CAPTURE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
ECHO = result({"content": [{"type": "text", "text": f"you sent {SECRETS}"}]})


@pytest.mark.parametrize("captures", ["true", "false"])
async def test_credentials_of_tools_are_in_no_trace_and_no_list_of_requests(
    captures: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hostile = Hostile(calling=ECHO)
    store = SqliteStore(tmp_path / "antiphon.db")
    given = tool("x", authorization=TOKEN, headers={"X-Key": HEADER}, require_approval="never")
    said: list[str] = []
    with collector() as found:
        async with hostile.serve():
            server = McpServer(
                url=hostile.url, caller_headers=True, header_envs={"X-Our-Token": "OURS"}
            )
            mcp = McpSettings(servers={"x": server})
            runner = await open_mcp(mcp, {"OURS": OURS}, store, "ap-")
            assert runner is not None
            async with traced_gateway(
                model(("x__echo", {})),
                found,
                monkeypatch,
                environ={CAPTURE: captures},
                store=store,
                tools=[runner],
                tool_limits=ToolLimits(list_seconds=60),
            ) as gateway:
                for body in ({}, {"store": False}, {"background": True}):
                    assert (await ask(gateway, tools=[given], **body)).status == 200
                await gateway.app.engine.background.drain(60.0)
                await ask_stream(gateway, tools=[given])
                for path in ("requests", "charges", "usage"):
                    listed = await request(gateway, "GET", f"/organization/antiphon/{path}")
                    said.append(listed.body.decode())
    await store.close()
    assert hostile.raw.requests[-1].headers["authorization"] == f"Bearer {TOKEN}"
    assert found.spans, "there are traces to look into"
    assert (b"you sent" in found.raw) == (captures == "true")
    assert '"object":"list"' in said[0] and "resp_" in said[0]
    for secret in SECRETS:
        assert secret.encode() not in found.raw
        assert not any(secret in text for text in said)

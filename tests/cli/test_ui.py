"""`antiphon ui`: the address of a dashboard that is really served."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from antiphon.backends.scripted import ScriptedBackend
from antiphon.cli.ui import command
from antiphon.gateway.assemble import ServerSettings
from antiphon.testing.gateway import serve_gateway
from tests.cli.processes import ECHO, serve
from tests.cli.processes import command as command_line


async def run(base_url: str, *arguments: str) -> Result:
    words = ["--base-url", base_url, *arguments]
    return await asyncio.to_thread(CliRunner().invoke, command, words)


async def test_it_prints_the_address() -> None:
    async with serve_gateway(ScriptedBackend(), settings=ServerSettings(ui=True)) as gateway:
        result = await run(gateway.base_url, "--print")
    assert result.exit_code == 0
    assert result.output.strip() == gateway.base_url.removesuffix("/v1") + "/ui"


async def test_a_gateway_without_it_is_named_with_the_setting() -> None:
    async with serve_gateway(ScriptedBackend()) as gateway:
        result = await run(gateway.base_url, "--print")
    assert result.exit_code == 1
    assert "ui = true" in result.output


async def test_without_a_gateway_it_says_how_to_start_one() -> None:
    result = await run("http://127.0.0.1:9/v1", "--print")
    assert result.exit_code == 1
    assert "antiphon serve" in result.output
    assert "/ui: Connection refused;" in result.output
    assert (await run("file:///etc", "--print")).exit_code == 1


@pytest.mark.parametrize(
    ("host", "setting", "is_served"),
    [
        ("127.0.0.1", "", True),
        ("127.0.0.1", "ui = false\n", False),
        ("0.0.0.0", "", False),
        ("0.0.0.0", "ui = true\n", True),
    ],
)
def test_it_is_served_on_loopback_or_where_it_is_set(
    tmp_path: Path, host: str, setting: str, is_served: bool
) -> None:
    if host == "0.0.0.0":
        command_line("keys", "create", home=tmp_path)
    with serve("--host", host, home=tmp_path, config=setting + ECHO) as served:
        found = command_line("ui", "--print", "--base-url", served.base_url, home=tmp_path)
    assert (found.returncode == 0) == is_served, found.stderr
    assert ("is not served" in found.stderr) == (not is_served)

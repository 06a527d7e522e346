"""`antiphon tools`: what is configured, whether it answers, and one call."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from antiphon.cli import main
from tests.postgres import fresh_database
from tests.tools.mcp.servers import DESK, calls_in, free_port


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "antiphon.toml"
    args = json.dumps([str(DESK), str(tmp_path / "calls"), "stdio"])
    path.write_text(
        '[mcp]\nallow_urls = ["https://*.example.com/*"]\n'
        f'[mcp.servers.desk]\ncommand = "{sys.executable}"\nargs = {args}\n'
        'connect_seconds = 60\nallowed_tools = ["add", "peek"]\n'
    )
    return path


@pytest.fixture
def postgres() -> Iterator[str]:
    with asyncio.Runner() as loop:
        made = fresh_database()
        yield loop.run(made.__aenter__())
        loop.run(made.__aexit__(None, None, None))


def test_the_settings_are_shown_without_connecting(
    runner: CliRunner, config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DESK_TOKEN", "sk-very-secret")
    monkeypatch.setenv("PATH", "/nowhere")
    with config.open("a") as file:
        file.write('[mcp.servers.web]\nurl = "https://a.example/mcp?key=abc"\n')
        file.write('key_env = "DESK_TOKEN"\ntrust_read_only = true\n')
    result = runner.invoke(main, ["tools", "--config", str(config)])
    assert result.exit_code == 0, result.output
    first, desk, web, urls, *others = result.stdout.splitlines()
    assert [line.partition(":")[0] for line in others[:3]] == [
        "web_search  not configured",
        "file_search  words alone",
        "image_generation  not configured",
    ]
    assert others[3:] == [
        "code_interpreter  60 s for a call",
        "shell  120 s for a call, 32 commands",
        "programmatic_tool_calling  10 s for a run, 64 calls of tools",
        "  sandbox  engine auto, Python of the gateway, standard library only, "
        "1024 MiB of memory, 1024 MiB of files, 32 processes",
        "    no program is run: bubblewrap (Debian: apt install bubblewrap) is not installed",
        "  containers  8 run at once, 4 for one owner; they expire after 20 minutes",
        "tool_search  always on",
    ]
    assert first.startswith("mcp  2 servers, library installed")
    assert "process" in desk and "tools add, peek" in desk
    assert "https://a.example/mcp, streamable-http, sends Authorization" in web
    assert "read-only tools are trusted" in web
    assert urls.endswith("https://*.example.com/*")
    assert "sk-very-secret" not in result.output and "key=abc" not in result.output
    assert calls_in(tmp_path / "calls") == []


def test_search_and_images_are_shown_without_their_keys(
    runner: CliRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "antiphon.toml"
    path.write_text(
        '[web_search]\nprovider = "brave"\nkey_env = "SEARCH_KEY"\nopen_pages = "off"\n'
        '[images]\nbase_url = "https://images.example/v1"\nkey_env = "IMAGE_KEY"\nmodel = "m"\n'
    )
    missing = runner.invoke(main, ["tools", "--config", str(path)])
    assert missing.exit_code == 2
    assert "SEARCH_KEY" in missing.output
    monkeypatch.setenv("SEARCH_KEY", "sk-search-secret")
    monkeypatch.setenv("IMAGE_KEY", "sk-image-secret")
    result = runner.invoke(main, ["tools", "--config", str(path)])
    shown = [line for line in result.stdout.splitlines() if line.startswith(("web", "image"))]
    assert shown == [
        "web_search  brave, key from SEARCH_KEY, pages: off",
        "image_generation  https://images.example/v1, m, key from IMAGE_KEY",
    ]
    assert "secret" not in result.output


def test_a_check_lists_the_tools_and_calls_none(
    runner: CliRunner, config: Path, tmp_path: Path
) -> None:
    result = runner.invoke(main, ["tools", "--check", "--config", str(config)])
    assert result.exit_code == 0, result.output
    assert "desk: 6 tools" in result.stdout
    assert "  add  Adds two whole numbers." in result.stdout
    assert "  peek (read-only)  Looks into the drawer." in result.stdout
    assert "  fail (not allowed)  Fails." in result.stdout
    assert calls_in(tmp_path / "calls") == []


def test_a_check_shows_what_compares_vectors(runner: CliRunner, tmp_path: Path) -> None:
    path = tmp_path / "antiphon.toml"
    path.write_text(
        '[file_search]\nembedding = "upstream"\nbase_url = "https://e.example/v1?key=secret"\n'
        'model = "m"\n[sandbox]\nengine = "off"\n'
    )
    result = runner.invoke(main, ["tools", "--check", "--config", str(path)])
    assert result.exit_code == 0, result.output
    lines = [line for line in result.stdout.splitlines() if line.startswith("file_search")]
    assert lines == [
        "file_search  words, and vectors of embedding upstream, https://e.example/v1, m",
        "file_search vectors: numpy, exact, in memory",
    ]
    assert "secret" not in result.output


def test_a_check_asks_the_database_what_compares_vectors(
    runner: CliRunner, tmp_path: Path, postgres: str
) -> None:
    path = tmp_path / "antiphon.toml"
    path.write_text(f'store = "{postgres}"\n[sandbox]\nengine = "off"\n')
    result = runner.invoke(main, ["tools", "--check", "--config", str(path)])
    assert result.exit_code == 0, result.output
    assert "file_search  words alone: [file_search] embedding = 'none'" in result.stdout
    engine = re.search("^file_search vectors: (.*)$", result.stdout, re.M)
    assert engine is not None
    assert re.match(r"pgvector [0-9.]+, exact, in the database$|numpy, .*; the ", engine[1])


def test_tools_that_are_off_are_shown_so(runner: CliRunner, tmp_path: Path) -> None:
    path = tmp_path / "antiphon.toml"
    path.write_text(
        '[code_interpreter]\nenabled = false\n[shell]\nenabled = false\n[sandbox]\nengine = "off"\n'
        "[programs]\nenabled = false\n"
    )
    result = runner.invoke(main, ["tools", "--check", "--config", str(path)])
    assert result.exit_code == 0, result.output
    assert "code_interpreter  off: [code_interpreter] enabled = false" in result.stdout
    assert "shell  off: [shell] enabled = false" in result.stdout
    assert "programmatic_tool_calling  off: [programs] enabled = false" in result.stdout
    assert "sandbox in use: none: no program is run" in result.stdout


def test_a_check_fails_if_a_server_cannot_be_used(runner: CliRunner, tmp_path: Path) -> None:
    path = tmp_path / "antiphon.toml"
    path.write_text(f'[mcp.servers.gone]\nurl = "http://127.0.0.1:{free_port()}/mcp"\n')
    result = runner.invoke(main, ["tools", "--check", "--config", str(path)])
    assert result.exit_code == 1
    assert "gone: the server cannot be reached" in result.stdout


def test_a_tool_is_called_when_that_is_asked_for(
    runner: CliRunner, config: Path, tmp_path: Path
) -> None:
    given = ["--call", "desk.add", "--arguments", '{"a": 2, "b": 3}', "--config", str(config)]
    result = runner.invoke(main, ["tools", *given])
    assert (result.exit_code, result.stdout) == (0, "5\n")
    assert len(calls_in(tmp_path / "calls")) == 1
    failed = runner.invoke(main, ["tools", "--call", "desk.fail", "--config", str(config)])
    assert failed.exit_code == 1


@pytest.mark.parametrize(
    "flags", [["--call", "desk"], ["--call", "x.y"], ["--call", "desk.add", "--arguments", "[1]"]]
)
def test_a_call_that_makes_no_sense_is_refused(
    flags: list[str], runner: CliRunner, config: Path
) -> None:
    assert runner.invoke(main, ["tools", *flags, "--config", str(config)]).exit_code == 2


def test_settings_that_cannot_be_used_are_refused(runner: CliRunner, tmp_path: Path) -> None:
    path = tmp_path / "antiphon.toml"
    path.write_text('[mcp.servers.x]\nurl = "https://a/"\nkey_env = "NOT_SET"\n')
    result = runner.invoke(main, ["tools", "--config", str(path)])
    assert result.exit_code == 2
    assert "NOT_SET, which is not set" in result.output
    path.write_text('[mcp.servers.x]\nurls = "https://a/"\n')
    result = runner.invoke(main, ["tools", "--config", str(path)])
    assert "[mcp.servers.x]: there is no key 'urls'" in result.output

"""`antiphon health`: the exit code and the words for each state of a gateway."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import pytest
from click.testing import CliRunner, Result

from antiphon.cli import main
from tests.cli.canned import Canned, canned_server
from tests.cli.processes import Served, closed_port, command, serve
from tests.transport.certificates import Authority


def _health(runner: CliRunner, *arguments: str) -> Result:
    return runner.invoke(main, ["health", *arguments])


def _root(served: Served) -> str:
    return served.base_url.removesuffix("/v1")


def test_a_gateway_that_is_ready_is_0(runner: CliRunner, echo: Served) -> None:
    found = _health(runner, "--url", _root(echo))
    assert (found.exit_code, found.stdout) == (0, "ready\n")


def test_the_settings_say_where_the_gateway_is(echo: Served, tmp_path: Path) -> None:
    port = str(urlsplit(echo.base_url).port)
    found = command("health", home=tmp_path, extra={"ANTIPHON_PORT": port})
    assert (found.returncode, found.stdout) == (0, "ready\n")


def test_an_upstream_that_is_away_is_1_with_the_reason(runner: CliRunner, tmp_path: Path) -> None:
    with closed_port() as port:
        config = f'[providers.far]\nbase_url = "http://127.0.0.1:{port}/v1"\n'
        with serve("--store", "memory:", home=tmp_path, config=config) as served:
            found = _health(runner, "--url", _root(served))
    assert found.exit_code == 1
    assert "not ready: no upstream can serve: far" in found.stderr


def test_no_gateway_is_1(runner: CliRunner) -> None:
    with closed_port() as port:
        found = _health(runner, "--url", f"http://127.0.0.1:{port}")
    assert found.exit_code == 1
    assert f"not ready: http://127.0.0.1:{port}:" in found.stderr


def test_another_server_is_1(runner: CliRunner) -> None:
    with canned_server(lambda *_: Canned(200, b"<html>")) as url:
        found = _health(runner, "--url", url)
    assert found.exit_code == 1
    assert "not ready" in found.stderr


@pytest.mark.parametrize("url", ["127.0.0.1:4680", "ftp://x", "http://x:0", "http://["])
def test_what_is_no_url_is_2(runner: CliRunner, url: str) -> None:
    assert _health(runner, "--url", url).exit_code == 2


def test_a_free_port_cannot_be_guessed(runner: CliRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTIPHON_PORT", "0")
    found = _health(runner)
    assert found.exit_code == 2
    assert "pass --url" in found.stderr


def test_the_certificate_matters_only_elsewhere(runner: CliRunner, tmp_path: Path) -> None:
    files = Authority(tmp_path).issue("gateway.example")
    with serve("--store", "memory:", "--tls-cert", str(files), home=tmp_path) as served:
        port = str(urlsplit(served.base_url).port)
        extra = {"ANTIPHON_PORT": port, "ANTIPHON_TLS_CERT": str(files)}
        own = command("health", home=tmp_path, extra=extra)
        assert (own.returncode, own.stdout) == (0, "ready\n")
        other = _health(runner, "--url", f"https://127.0.0.1:{port}")
        assert other.exit_code == 1
        assert "the certificate is not valid" in other.stderr

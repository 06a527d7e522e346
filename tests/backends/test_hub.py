"""Fetching weights from the hub: checked, resumed, and without giving the key away."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from antiphon.backends.hub import HubFile, pull_file, read_name
from antiphon.backends.weights import WeightsUnavailable
from antiphon.cli import main

DATA = bytes(range(256)) * 12_000
FILE = HubFile("owner/repo", "main", "model.Q4.gguf")


class Hub(ThreadingHTTPServer):
    """A hub with one file: its route answers with a redirect to a store of files."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.digest = hashlib.sha256(DATA).hexdigest()
        self.cut_after: list[int] = []
        """How many bytes the next downloads send before they break off."""
        self.token = ""
        self.honours_ranges = True
        self.seen: list[tuple[str, str, dict[str, str]]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: Hub

    def log_message(self, format: str, *args: Any) -> None:
        """Keep quiet."""

    def do_HEAD(self) -> None:
        self._route()

    def do_GET(self) -> None:
        self._route()

    def _route(self) -> None:
        hub = self.server
        hub.seen.append((self.command, self.path, dict(self.headers)))
        if self.path == "/owner/repo/resolve/main/model.Q4.gguf":
            if hub.token and self.headers.get("Authorization") != f"Bearer {hub.token}":
                self.send_error(401)
                return
            self.send_response(302)
            self.send_header("Location", f"{hub.url.replace('127.0.0.1', 'localhost')}/store")
            self.send_header("X-Linked-Size", str(len(DATA)))
            self.send_header("X-Linked-Etag", f'"{hub.digest}"')
            self.send_header("Content-Length", "0")
            self.end_headers()
        elif self.path == "/store":
            self._send()
        else:
            self.send_error(404)

    def _send(self) -> None:
        begin = 0
        if self.server.honours_ranges and "Range" in self.headers:
            begin = int(self.headers["Range"].removeprefix("bytes=").removesuffix("-"))
        self.send_response(206 if begin else 200)
        self.send_header("Content-Length", str(len(DATA) - begin))
        self.end_headers()
        end = len(DATA)
        if self.server.cut_after:
            end = begin + self.server.cut_after.pop(0)
        self.wfile.write(DATA[begin:end])
        if end < len(DATA):
            self.close_connection = True
            self.connection.close()


@pytest.fixture
def hub() -> Iterator[Hub]:
    server = Hub()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def pull(hub: Hub, directory: Path, **environ: str) -> Path:
    return pull_file(
        FILE,
        lambda step, done, total: None,
        environ={"HF_ENDPOINT": hub.url, **environ},
        directory=directory,
    )


def test_a_file_is_fetched_once_and_checked(hub: Hub, tmp_path: Path) -> None:
    path = pull(hub, tmp_path)
    assert path.read_bytes() == DATA
    asked = len(hub.seen)
    assert pull(hub, tmp_path) == path
    assert len(hub.seen) == asked


def test_a_download_that_breaks_off_goes_on_where_it_ended(hub: Hub, tmp_path: Path) -> None:
    hub.cut_after = [1_000_000, 1_000_000]
    assert pull(hub, tmp_path).read_bytes() == DATA
    ranges = [head.get("Range", "") for method, path, head in hub.seen if path == "/store"]
    begins = [int(text.removeprefix("bytes=").removesuffix("-")) for text in ranges]
    assert begins[0] == 0
    assert 0 < begins[1] < begins[2] < len(DATA)


def test_a_later_run_resumes_what_an_earlier_one_left(hub: Hub, tmp_path: Path) -> None:
    hub.cut_after = [500_000] * 5
    with pytest.raises(WeightsUnavailable, match="the next try goes on where this one ended"):
        pull(hub, tmp_path)
    assert pull(hub, tmp_path).read_bytes() == DATA
    last = [head["Range"] for _, path, head in hub.seen if path == "/store"][-1]
    assert last != "bytes=0-"


def test_a_store_that_ignores_ranges_is_read_from_the_start(hub: Hub, tmp_path: Path) -> None:
    hub.honours_ranges = False
    hub.cut_after = [700_000]
    assert pull(hub, tmp_path).read_bytes() == DATA


def test_a_file_with_another_digest_is_refused_and_removed(hub: Hub, tmp_path: Path) -> None:
    hub.digest = "0" * 64
    with pytest.raises(WeightsUnavailable, match="is not the one the hub names"):
        pull(hub, tmp_path)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_the_key_goes_to_the_hub_and_not_to_the_store(hub: Hub, tmp_path: Path) -> None:
    hub.token = "hf_canary"
    with pytest.raises(WeightsUnavailable, match="set HF_TOKEN"):
        pull(hub, tmp_path)
    pull(hub, tmp_path, HF_TOKEN="hf_canary")
    [stored] = [head for _, path, head in hub.seen if path == "/store"]
    assert "Authorization" not in stored


@pytest.mark.parametrize("name", ["hf:owner/model.gguf", "hf:o/r/../x.gguf", "hf:o/r/x.bin", "o/r"])
def test_a_name_that_means_no_file_is_refused(name: str) -> None:
    with pytest.raises(WeightsUnavailable, match="hf:OWNER/REPO/FILE"):
        read_name(name)


def test_a_name_may_have_a_revision_and_folders() -> None:
    assert read_name("hf:o/r@v1/sub/x.gguf") == HubFile("o/r", "v1", "sub/x.gguf")


def test_pull_prints_how_to_serve_the_model(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", hub.url)
    monkeypatch.setenv("ANTIPHON_CACHE", str(tmp_path))
    name = "hf:owner/repo/model.Q4.gguf"
    result = CliRunner().invoke(main, ["models", "pull", name])
    assert result.exit_code == 0, result.output
    assert f"antiphon serve --local-model {name}" in result.output

    refused = CliRunner().invoke(main, ["models", "pull", "hf:owner/repo/other.gguf"])
    assert refused.exit_code == 1
    assert "the hub refuses owner/repo/other.gguf (HTTP 404)" in refused.output

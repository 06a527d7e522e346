"""`antiphon serve --local-model hf:…`: one command from a hub to an answer."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec
import pytest

from antiphon.backends.weights import ensure_weights
from antiphon.cli.remote import Remote, Server
from tests.cli.processes import serve

pytestmark = pytest.mark.slow


@pytest.fixture
def hub() -> Iterator[str]:
    """Yield the URL of a hub that has the embedded model's weights under a name of its own."""
    weights = ensure_weights()
    digest = hashlib.sha256(weights.read_bytes()).hexdigest()

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:
            """Keep quiet."""

        def do_HEAD(self) -> None:
            self.send_response(200)
            self.send_header("ETag", f'"{digest}"')
            self.send_header("Content-Length", str(weights.stat().st_size))
            self.end_headers()

        def do_GET(self) -> None:
            self.do_HEAD()
            with weights.open("rb") as file:
                while block := file.read(1024 * 1024):
                    self.wfile.write(block)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


async def test_a_model_of_the_hub_is_fetched_and_answers(hub: str, tmp_path: Path) -> None:
    extra = {"HF_ENDPOINT": hub, "ANTIPHON_CACHE": str(tmp_path / "cache"), "NO_PROXY": "*"}
    with serve(
        "--local-model",
        "hf:someone/some-model/tiny.gguf",
        "--store",
        "memory:",
        home=tmp_path,
        config="",
        extra=extra,
    ) as served:
        async with Remote(Server(served.base_url, None)) as remote:
            body = {"model": "tiny", "input": "Say hello.", "max_output_tokens": 8}
            reply = await remote.fetch("POST", "/responses", msgspec.json.encode(body))
            listed = await remote.fetch("GET", "/models/tiny")
    answer = msgspec.json.decode(reply.body)
    assert answer["status"] in ("completed", "incomplete"), answer
    assert answer["usage"]["output_tokens"] > 0
    assert msgspec.json.decode(listed.body)["capabilities"]["function_calling"] is False

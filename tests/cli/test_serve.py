"""`antiphon serve` as a process: what it refuses, what it says, and how it ends."""

from __future__ import annotations

import asyncio
import importlib.util
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from antiphon.cli import main
from antiphon.cli.remote import Remote, Server
from antiphon.protocol.codec import decode_event
from antiphon.protocol.machines.accumulator import ResponseAccumulator
from antiphon.testing import Script, ScriptedUpstream, Stall, Status
from antiphon.transport.secret import Secret
from tests.cli.processes import (
    ECHO,
    WATCHDOG_SECONDS,
    Served,
    closed_port,
    command,
    serve,
    start,
)
from tests.sandboxes import engine

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="sends POSIX signals")

_SLOW = Script(text=["One ", "two ", "three."], faults=[Stall(after=2)])


async def _post(base_url: str, body: dict[str, Any], key: Secret | None = None) -> tuple[int, Any]:
    async with Remote(Server(base_url, key)) as remote:
        reply = await remote.fetch("POST", "/responses", msgspec.json.encode(body))
        return reply.head.status, msgspec.json.decode(reply.body)


async def _get(base_url: str, path: str, key: Secret | None = None) -> tuple[int, Any]:
    async with Remote(Server(base_url, key)) as remote:
        reply = await remote.fetch("GET", path)
        return reply.head.status, msgspec.json.decode(reply.body)


async def test_it_answers_at_the_address_it_prints(echo: Served) -> None:
    status, response = await _post(echo.base_url, {"input": "hello there"})
    assert status == 200
    assert response["output"][0]["content"][0]["text"] == "hello there"


def test_the_printed_command_works_as_pasted(tmp_path: Path) -> None:
    if shutil.which("curl") is None:
        pytest.skip("there is no curl here")
    with serve("--store", "memory:", home=tmp_path) as served:
        assert served.process.stdout is not None
        lines = iter(served.process.stdout.readline, "")
        pasted = next(line for line in lines if line.strip().startswith("curl "))
        done = subprocess.run(
            pasted.strip() + " --silent --noproxy '*'", shell=True, capture_output=True, check=True
        )
    response = msgspec.json.decode(done.stdout)
    assert response["model"] == "scripted"
    assert response["output"][0]["content"][0]["text"] == "Say hello."


def test_without_a_model_it_says_what_to_pass(
    runner: CliRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    result = runner.invoke(main, ["serve"])
    assert result.exit_code == 2
    assert "pass --upstream URL" in result.stderr
    assert "pip install '.[local]'" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["--upstream", "localhost:1/v1"], 2, "does not begin with http:// or https://"),
        (
            ["--upstream", "http://127.0.0.1:9/v1", "--upstream-key-env", "NOPE"],
            2,
            "NOPE is not set",
        ),
        (["--store", "redis://x"], 2, "--store: redis: is no store that antiphon knows"),
        (["--store", "postgresql://u:p@h:99999/db"], 2, "--store: the port of the database"),
        (["--store", "memory:", "--workers", "2"], 2, "cannot be shared by several workers"),
        (["--host", "0.0.0.0", "--store", "memory:"], 2, "antiphon keys create"),
        (["--config", "keys.toml", "--store", "memory:"], 2, "memory: cannot keep keys"),
        (["--config", "all.toml"], 2, "lets every web page use this gateway; set require_keys"),
        (["--config", "page.toml"], 2, "'localhost:3000/' is not an origin"),
        (["--config", "gone.toml"], 2, "gone.toml cannot be read"),
        (["--port", "70000"], 2, "70000 is not in the range"),
        (["--host", "x" * 64], 2, "is not a known name or address"),
    ],
)
def test_what_cannot_be_served_is_one_sentence(
    runner: CliRunner, tmp_path: Path, arguments: list[str], code: int, sentence: str
) -> None:
    (tmp_path / "antiphon.toml").write_text(ECHO)
    (tmp_path / "keys.toml").write_text("require_keys = true\n" + ECHO)
    (tmp_path / "all.toml").write_text('allowed_origins = ["*"]\n' + ECHO)
    (tmp_path / "page.toml").write_text('allowed_origins = ["localhost:3000/"]\n' + ECHO)
    result = runner.invoke(main, ["serve", "--port", "0", *arguments])
    assert result.exit_code == code
    assert sentence in result.stderr
    assert "Traceback" not in result.stderr


def test_a_port_in_use_is_told(runner: CliRunner, tmp_path: Path) -> None:
    (tmp_path / "antiphon.toml").write_text(ECHO)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        result = runner.invoke(main, ["serve", "--port", port, "--store", "memory:"])
    assert result.exit_code == 1
    assert f"port {port} is in use" in result.stderr


def test_elsewhere_than_on_loopback_it_wants_a_key_in_the_store(tmp_path: Path) -> None:
    refused = command(
        "serve",
        "--host",
        "0.0.0.0",
        "--port",
        "0",
        "--upstream",
        "http://127.0.0.1:9/v1",
        home=tmp_path,
    )
    assert refused.returncode == 2
    assert "antiphon keys create" in refused.stderr


async def test_elsewhere_with_keys_every_request_needs_one(tmp_path: Path) -> None:
    key = Secret(command("keys", "create", home=tmp_path).stdout)
    with serve("--host", "0.0.0.0", home=tmp_path) as served:
        assert (await _post(served.base_url, {"input": "hi"}))[0] == 401
        status, response = await _post(served.base_url, {"input": "hi"}, key)
    assert status == 200
    assert response["status"] == "completed"


async def test_the_environment_reaches_the_server(tmp_path: Path) -> None:
    extra = {"ANTIPHON_STORE": "memory:", "ANTIPHON_DEFAULT_MODEL": "echo"}
    with serve(home=tmp_path, extra=extra) as served:
        _, response = await _post(served.base_url, {"input": "hi"})
    assert response["model"] == "echo"


async def test_what_the_file_says_of_a_model_reaches_clients(tmp_path: Path) -> None:
    told = '[models."echo"]\ncontext_length = 4096\n'
    with serve("--store", "memory:", home=tmp_path, config=ECHO + told) as served:
        _, model = await _get(served.base_url, "/models/echo")
    assert model["context_length"] == 4096


async def test_the_default_store_outlives_the_process(tmp_path: Path) -> None:
    with serve(home=tmp_path) as served:
        _, response = await _post(served.base_url, {"input": "hi"})
        assert served.stop() == 0
    with serve(home=tmp_path) as served:
        status, kept = await _get(served.base_url, f"/responses/{response['id']}")
    assert (status, kept["output"]) == (200, response["output"])


async def test_an_upstream_that_is_away_is_told_and_served_all_the_same(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with serve(
        "--upstream", f"http://127.0.0.1:{port}/v1", "--store", "memory:", home=tmp_path, config=""
    ) as served:
        status, body = await _post(served.base_url, {"model": "m", "input": "hi"})
        assert "Provider upstream does not answer: " in served.errors.read_text()
    assert (status, body["error"]["code"]) == (502, "upstream_unreachable")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_lets_running_turns_finish(tmp_path: Path, number: signal.Signals) -> None:
    async with ScriptedUpstream(_SLOW) as upstream, _in_front_of(upstream, tmp_path) as served:
        turn = asyncio.create_task(_stream(served.base_url))
        await (await upstream.received()).stalled.wait()
        served.process.send_signal(number)
        await _until_not_ready(served.base_url)
        upstream.release()
        assert await turn == ("completed", "One two three.")
        assert await asyncio.to_thread(served.process.wait, WATCHDOG_SECONDS) == 0


async def test_a_second_signal_stops_waiting(tmp_path: Path) -> None:
    async with ScriptedUpstream(_SLOW) as upstream, _in_front_of(upstream, tmp_path) as served:
        turn = asyncio.create_task(_stream(served.base_url))
        await (await upstream.received()).stalled.wait()
        served.process.send_signal(signal.SIGTERM)
        await _until_not_ready(served.base_url)
        served.process.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(served.process.wait, WATCHDOG_SECONDS) == 0
        await asyncio.gather(turn, return_exceptions=True)


async def test_what_was_cut_off_by_a_kill_is_failed_after_the_restart(tmp_path: Path) -> None:
    async with ScriptedUpstream(_SLOW) as upstream:
        async with _in_front_of(upstream, tmp_path) as served:
            begun: asyncio.Future[str] = asyncio.get_running_loop().create_future()
            turn = asyncio.create_task(_stream(served.base_url, begun))
            response_id = await begun
            # Whoever sees the response in the store sees what is on the disk.
            assert (await _get(served.base_url, f"/responses/{response_id}"))[0] == 200
            served.process.kill()
            await asyncio.to_thread(served.process.wait, WATCHDOG_SECONDS)
            await asyncio.gather(turn, return_exceptions=True)
        async with _in_front_of(upstream, tmp_path) as served:
            status, response = await _get(served.base_url, f"/responses/{response_id}")
    assert status == 200
    assert response["status"] == "failed"
    assert response["error"]["code"] == "server_restarted"


@asynccontextmanager
async def _in_front_of(upstream: ScriptedUpstream, home: Path) -> AsyncIterator[Served]:
    """Run a gateway before an upstream of this process, whose loop must go on meanwhile."""
    arguments = ("--upstream", upstream.base_url, "--store", "sqlite:x.db")
    served = await asyncio.to_thread(lambda: start(*arguments, home=home))
    assert served.process.stdout is not None
    try:
        async with asyncio.timeout(WATCHDOG_SECONDS):
            yield served
    finally:
        if served.process.poll() is None:
            served.process.kill()
        await asyncio.to_thread(served.process.wait)
        served.process.stdout.close()


async def _stream(base_url: str, begun: asyncio.Future[str] | None = None) -> tuple[str, str]:
    """Run a turn as a stream; return how it ended and its text."""
    accumulator = ResponseAccumulator()
    async with Remote(Server(base_url)) as remote:
        body = msgspec.json.encode({"input": "Count.", "stream": True})
        async with await remote.stream(body) as stream:
            async for frame in remote.frames_of(stream):
                if frame.data != b"[DONE]":
                    accumulator.feed(decode_event(frame.data))
                if begun is not None and not begun.done() and accumulator.response is not None:
                    begun.set_result(accumulator.response.id)
    response = accumulator.finish()
    return response.status, response.output_text


async def _until_not_ready(base_url: str) -> None:
    """Wait until the server says that it is going away."""
    root = re.sub(r"/v1$", "", base_url)
    while (await _get(root, "/readyz"))[0] == 200:  # noqa: ASYNC110 - it tells only who asks
        await asyncio.sleep(0.01)


async def test_each_provider_that_does_not_answer_is_named_at_start(tmp_path: Path) -> None:
    with closed_port() as port:
        away = f'[providers.away]\nbase_url = "http://127.0.0.1:{port}/v1"\n'
        with serve("--store", "memory:", home=tmp_path, config=ECHO + away) as served:
            status, _ = await _post(served.base_url, {"model": "echo", "input": "hi"})
            errors = served.errors.read_text()
    assert status == 200
    assert re.search(r"^Provider away does not answer: ", errors, re.MULTILINE)


async def test_a_gateway_whose_upstream_is_away_is_not_ready(tmp_path: Path) -> None:
    with closed_port() as port:
        upstream = f"http://127.0.0.1:{port}/v1"
        with serve(
            "--upstream", upstream, "--store", "memory:", home=tmp_path, config=""
        ) as served:
            base = served.base_url.removesuffix("/v1")
            status, body = await _get(base, "/readyz")
            alive, _ = await _get(base, "/healthz")
            assert served.stop() == 0
    assert (status, body["error"]["code"]) == (503, "no_upstream")
    assert body["error"]["message"] == "no upstream can serve: upstream; the log has the reasons"
    assert "cannot be reached: connection refused" in served.errors.read_text()
    assert alive == 200


async def test_a_gateway_is_ready_while_one_of_its_upstreams_answers(tmp_path: Path) -> None:
    with closed_port() as port:
        away = f'[providers.away]\nbase_url = "http://127.0.0.1:{port}/v1"\n'
        with serve("--store", "memory:", home=tmp_path, config=ECHO + away) as served:
            status, _ = await _get(served.base_url.removesuffix("/v1"), "/readyz")
    assert status == 200


async def test_a_gateway_whose_upstream_fails_every_request_is_not_ready(tmp_path: Path) -> None:
    down = Script(faults=[Status(500, error_code="insufficient_quota")])
    async with (
        ScriptedUpstream([down] * 9) as upstream,
        _in_front_of(upstream, tmp_path) as served,
    ):
        base = served.base_url.removesuffix("/v1")
        before, _ = await _get(base, "/readyz")
        await _post(served.base_url, {"model": "echo", "input": "hi"})
        after, body = await _get(base, "/readyz")
    assert (before, after) == (200, 503)
    assert body["error"]["code"] == "no_upstream"


async def test_requests_are_logged_as_text_or_as_json(tmp_path: Path) -> None:
    stamp = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"
    with serve("--store", "memory:", home=tmp_path) as served:
        await _post(served.base_url, {"input": "hi"})
        assert served.stop() == 0
        [line] = [line for line in served.errors.read_text().splitlines() if " POST " in line]
    assert re.match(rf"{stamp} INFO    POST /v1/responses 200 completed model=scripted ", line)

    with serve("--store", "memory:", "--log-format", "json", home=tmp_path) as served:
        await _post(served.base_url, {"input": "hi"})
        assert served.stop() == 0
        lines = [msgspec.json.decode(line) for line in served.errors.read_text().splitlines()]
    [posted] = [line for line in lines if line.get("method") == "POST"]
    assert re.fullmatch(stamp, posted["time"])
    assert (posted["route"], posted["status"], posted["level"]) == ("/v1/responses", 200, "info")


async def test_the_sandbox_is_attacked_before_the_first_request(tmp_path: Path) -> None:
    engine("bwrap+sandlock")
    with serve("--store", "memory:", home=tmp_path) as served:
        lines = await _metrics(served.base_url)
        while 'antiphon_sandbox_workers{state="usable"} 1.0' not in lines:
            assert 'antiphon_sandbox_workers{state="unusable"} 1.0' not in lines
            await asyncio.sleep(0.05)
            lines = await _metrics(served.base_url)
        assert served.stop() == 0
    # A thread writes the log; all of it is there when the process has ended.
    assert "sandbox bwrap+sandlock: held against 12 attacks" in served.errors.read_text()


async def test_a_gateway_that_is_stopped_while_it_attacks_leaves_nothing(tmp_path: Path) -> None:
    engine("bwrap+sandlock")
    folder = tmp_path / "temporary"
    folder.mkdir()
    extra = {"TMPDIR": str(folder)}
    with serve("--store", "memory:", home=tmp_path, extra=extra) as served:
        while not list(folder.glob("antiphon-container-*")):  # noqa: ASYNC110 - no event from there
            await asyncio.sleep(0.001)
        assert served.stop() == 0
    assert "Traceback" not in served.errors.read_text()
    assert list(folder.glob("antiphon-*")) == []


async def _metrics(base_url: str) -> list[str]:
    async with Remote(Server(re.sub(r"/v1$", "", base_url), None)) as remote:
        return (await remote.fetch("GET", "/metrics")).body.decode().splitlines()

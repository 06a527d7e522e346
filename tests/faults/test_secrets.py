"""Keys, cookies and bodies: never in a log, never in an error, never where they do not belong."""

from __future__ import annotations

import ast
import asyncio
import logging
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

import antiphon
from antiphon.backends.base import DeltaSink
from antiphon.backends.scripted import ScriptedBackend, Step
from antiphon.gateway.assemble import ServerSettings
from antiphon.protocol.deltas import TextGrew
from antiphon.server.auth import new_key
from antiphon.store.memory import MemoryStore
from antiphon.telemetry.open import open_exporter
from antiphon.telemetry.recorder import Recorder
from antiphon.telemetry.settings import TelemetrySettings
from antiphon.testing import (
    Cut,
    ErrorChunk,
    Fault,
    Garbage,
    Html,
    Reset,
    Script,
    Stall,
    Status,
)
from antiphon.testing.gateway import Gateway, serve_gateway
from tests.asking import ask, ask_stream, request, terminal
from tests.faults.house import KEY, PATIENCE, open_house, settled
from tests.faults.listening import listen
from tests.telemetry.collector import collector

PROMPT = "my-secret-prompt"
TOKEN = "sk-the-callers-own-key"
COOKIE = "session=the-callers-cookie"
HEADERS = {"Authorization": f"Bearer {TOKEN}", "Cookie": COOKIE}
SECRETS = (KEY, PROMPT, TOKEN, COOKIE)

FAULTS: dict[str, list[Fault]] = {
    "none": [],
    "500": [Status(500, message=f"no {KEY}")],
    "400": [Status(400, message=f"no {KEY}", error_code="bad")],
    "401": [Status(401, message=f"Incorrect API key provided: {KEY}")],
    "403": [Status(403, message=f"key {KEY} may not")],
    "404": [Status(404, body=b"key " + KEY.encode())],
    "429": [Status(429, message=f"{KEY} is too fast")],
    "html": [Html()],
    "reset": [Reset(3)],
    "cut": [Cut(3)],
    "garbage": [Garbage(3)],
    "error": [ErrorChunk(3, {"message": f"out of luck, {KEY}", "code": 500})],
}


def leaks(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the lines of the log that hold a secret, tracebacks included."""
    return [line for line in caplog.text.splitlines() if any(name in line for name in SECRETS)]


@pytest.mark.parametrize("faults", FAULTS.values(), ids=list(FAULTS))
async def test_no_secret_is_in_a_log_or_an_error_whatever_the_upstream_does(
    faults: list[Fault], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with open_house(Script(text="one two three", faults=faults)) as house:
        plain = await ask(house.gateway, HEADERS, input=PROMPT)
        streamed = await ask(house.gateway, HEADERS, input=PROMPT, stream=True)

    assert leaks(caplog) == []
    for answer in (plain, streamed):
        said = answer.body.decode() + str(dict(answer.headers))
        assert [name for name in SECRETS if name in said] == []


@pytest.mark.parametrize("faults", FAULTS.values(), ids=list(FAULTS))
async def test_no_secret_is_in_a_trace_whatever_the_upstream_does(
    faults: list[Fault], monkeypatch: pytest.MonkeyPatch
) -> None:
    with collector() as found:
        for name, value in found.environment.items():
            monkeypatch.setenv(name, value)
        recorder = Recorder()
        settings = ServerSettings(telemetry=recorder)
        script = Script(text="my-secret-answer two three", faults=faults)
        async with open_house(script, settings=settings) as house:
            for stream in (False, True):
                await ask(house.gateway, HEADERS, input=PROMPT, instructions=PROMPT, stream=stream)
            await request(house.gateway, "GET", f"/responses/{TOKEN}", headers=HEADERS)
            name_of = house.gateway.app.metrics.name_of
        exporter = open_exporter(recorder, TelemetrySettings(), found.environment, name_of)
        await asyncio.to_thread(exporter.close, 60.0)
    assert len([span for span in found.spans if span.name == "POST /v1/responses"]) == 2
    assert found.metrics
    for secret in (*SECRETS, "my-secret-answer", "secret"):
        assert secret.encode() not in found.raw


async def test_the_upstream_gets_its_own_key_and_nothing_of_the_callers() -> None:
    async with open_house(Script(text="ok")) as house:
        await ask(house.gateway, HEADERS | {"X-Team": "blue"}, input=PROMPT)
        received = house.upstream.requests[0]

    assert received.headers["authorization"] == f"Bearer {KEY}"
    assert TOKEN not in str(received.headers)
    assert received.headers.keys().isdisjoint({"cookie", "x-team"})


@pytest.mark.parametrize(
    "body", [b"{", b'{"input": ["%b"]}', b'{"model": "%b"}', b'{"tools": "%b", "input": "%b"}']
)
async def test_a_body_that_is_refused_is_not_logged(
    body: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with open_house() as house:
        data = body.replace(b"%b", PROMPT.encode())
        await request(house.gateway, "POST", "/responses", data, HEADERS)

    assert leaks(caplog) == []


@pytest.mark.parametrize(
    "head",
    [
        f"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\x00\r\n\r\n",
        f"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nCookie {COOKIE}: x\r\n\r\n",
        f"GET /v1/models HTTP/9.9\r\nAuthorization: {TOKEN}\r\n\r\n",
        f"{TOKEN} {PROMPT}\r\n\r\n",
    ],
    ids=["header", "name", "version", "line"],
)
async def test_broken_http_is_refused_without_a_word_in_the_log(
    head: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with open_house() as house:
        reader, writer = await asyncio.open_connection(*house.gateway.address)
        writer.write(head.encode())
        answer = await asyncio.wait_for(reader.read(), PATIENCE)
        writer.close()

    assert answer.split()[1] == b"400"
    assert leaks(caplog) == []
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_a_wrong_key_is_neither_logged_nor_repeated(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    store = MemoryStore()
    key, record = new_key("ann", 1)
    await store.add_key(record)
    settings = ServerSettings(require_keys=True)
    async with serve_gateway(ScriptedBackend(), store=store, settings=settings) as gateway:
        right = await ask(gateway, {"Authorization": f"Bearer {key}"})
        wrong = await ask(gateway, {"Authorization": f"Bearer {key}x"})

    assert (right.status, wrong.status) == (200, 401)
    assert key not in caplog.text + wrong.body.decode() + str(dict(wrong.headers))


async def test_a_client_who_leaves_leaves_no_secret_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    async with open_house(Script(text="one two three", faults=[Stall(3)])) as house:
        tasks = asyncio.all_tasks()
        async with listen(house.gateway.base_url, input=PROMPT) as listener:
            await listener.until_text("one two")
            listener.leave()
        await settled(house.gateway, tasks)

    assert leaks(caplog) == []


@pytest.mark.requirement("003-errors-3")
async def test_a_bug_of_ours_is_logged_without_what_was_said(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Buggy(ScriptedBackend):
        async def play(self, steps: Iterable[Step], sink: DeltaSink) -> None:
            if not sink.push([TextGrew("so far ")]):
                await sink.drained()
            raise ZeroDivisionError

    caplog.set_level(logging.DEBUG)
    async with serve_gateway(Buggy()) as gateway:
        events = await ask_stream(gateway, HEADERS, input=PROMPT)

    assert terminal(events).status == "failed"
    assert "ZeroDivisionError" in caplog.text
    assert leaks(caplog) == []


async def test_metrics_and_models_show_no_secret() -> None:
    async with open_house(Script(text="ok")) as house:
        await ask(house.gateway, HEADERS, input=PROMPT)
        shown = await _everything_shown(house.gateway)

    assert [name for name in SECRETS if name in shown] == []


async def _everything_shown(gateway: Gateway) -> str:
    paths = ["/../metrics", "/models", "/../openapi.json", "/../healthz", "/../readyz"]
    return "".join([(await request(gateway, "GET", path)).body.decode() for path in paths])


def test_nothing_of_ours_evaluates_or_unpickles() -> None:
    """Except for the program that runs in a sandbox, and exists to run code of models."""
    sources = [path for path in _sources() if path.parts[-2:] != ("sandbox", "kernel.py")]
    found = [f"{path.name}: {name}" for path in sources for name in _names(path)]
    forbidden = {"eval", "exec", "compile", "pickle", "marshal", "shelve", "os.system"}

    assert [entry for entry in found if entry.split(": ")[1] in forbidden] == []


def _sources() -> list[Path]:
    assert antiphon.__file__ is not None
    return sorted(Path(antiphon.__file__).parent.rglob("*.py"))


def _names(path: Path) -> Iterator[str]:
    """Yield the names of modules that are imported and functions that are called."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""
        elif isinstance(node, ast.Call):
            yield ast.unparse(node.func)

"""A reload changes all of what it can, or nothing, and no turn notices it."""

from __future__ import annotations

import asyncio
import os
import pty
import re
import signal
import ssl
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from antiphon.testing import Script, ScriptedUpstream
from antiphon.testing.faults import Stall, Status
from tests.cli.processes import ECHO, WATCHDOG_SECONDS, environment
from tests.gateway.reloading import Reloaded, provider, reloaded
from tests.scraping import value_of
from tests.transport.certificates import Authority

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGHUP"),
]

_FAST = '[routes.fast]\ndeployments = [{ provider = "echo", model = "echo" }]\n'
_WRONG = {
    "not TOML": ("a = = b", "is not TOML"),
    "an unknown key": ("prot = 1\n" + ECHO, "there is no key 'prot'; did you mean port?"),
    "a value of another type": ('strict = "maybe"\n' + ECHO, "strict"),
    "a limit of nothing": (ECHO + "[limits]\nturns = 0\n", "turns must be above 0"),
    "a provider without its key": (
        ECHO + '[providers.p]\nbase_url = "http://127.0.0.1:9/v1"\nkey_env = "NO_SUCH_KEY"\n',
        "the environment variable NO_SUCH_KEY is not set",
    ),
    "a provider without a place": (ECHO + "[providers.p]\n", "[providers.p] base_url is missing"),
    "a route without a provider": (
        ECHO + '[routes.r]\ndeployments = [{ provider = "missing", model = "m" }]\n',
        "missing",
    ),
    "a bad price": (ECHO + '[models.echo]\nprice = { input = "dear" }\n', "input"),
    "a webhook without its secret": (
        ECHO + '[[webhooks]]\nurl = "https://example.com"\nsecret_env = "NO_SUCH_SECRET"\n',
        "the environment variable NO_SUCH_SECRET is not set",
    ),
    "an issuer without a project": (
        ECHO + '[[auth.issuers]]\nissuer = "https://example.com"\naudience = "me"\n',
        "set project or project_claim",
    ),
    "a search without its place": (
        ECHO + '[web_search]\nprovider = "searxng"\n',
        "[web_search] base_url is missing",
    ),
    "a bad place": (ECHO + '[input_files]\nopen_places = ["here"]\n', "is not host:port"),
    "a bad origin": ('allowed_origins = ["here"]\n' + ECHO, "'here' is not an origin"),
    "a bad certificate": ('tls_cert = "antiphon.toml"\n' + ECHO, "holds no certificate"),
    "a missing file": (None, "cannot be read"),
}


@pytest.mark.parametrize("workers", ["1", "2"])
async def test_a_wrong_file_changes_nothing(tmp_path: Path, workers: str) -> None:
    config = tmp_path / "antiphon.toml"
    flags = ("--config", str(config), "--workers", workers)
    async with reloaded(tmp_path, ECHO + _FAST, *flags) as gateway:
        before = await gateway.models()
        reported = []
        for name, (wrong, reason) in _WRONG.items():
            if wrong is None:
                config.unlink()
            status = await gateway.reload(wrong)
            assert "refused, and all settings stay as they were: " in status, name
            assert reason in status, (name, status)
            reported.append(status)
            assert await gateway.models() == before, name
        assert (await gateway.ask("fast")).status == 200
        counts = await gateway.metrics()
        assert value_of(counts, "antiphon_reload_refused") == int(workers)
        refused = len(_WRONG) * int(workers)
        assert value_of(counts, "antiphon_reloads_total", outcome="refused") == refused
        assert "nothing has changed" in await gateway.reload(ECHO + _FAST)
        assert value_of(await gateway.metrics(), "antiphon_reload_refused") == 0
    assert [line for line in reported if line not in gateway.log] == []


async def test_new_turns_use_the_new_models_and_running_ones_end_with_theirs(
    tmp_path: Path,
) -> None:
    held = Script(text="one two three four", faults=[Stall(after=2)])
    async with (
        ScriptedUpstream(held, models=["old"]) as old,
        ScriptedUpstream(Script(text="from the new one"), models=["new"]) as new,
        reloaded(tmp_path, provider("a", old.base_url)) as gateway,
    ):
        assert await gateway.models() == {"old"}
        streaming = asyncio.create_task(_stream(gateway, "old"))
        await (await old.received()).stalled.wait()

        status = await gateway.reload(provider("b", new.base_url))
        assert status.endswith("changed: providers")
        assert await gateway.models() == {"new"}
        gone = await gateway.ask("old")
        assert (gone.status, gone.error["code"]) == (404, "model_not_found")
        answer = await gateway.ask("new")
        assert answer.json["output"][0]["content"][0]["text"] == "from the new one"

        assert not streaming.done()
        old.release()
        events = await streaming
        assert events[-1]["type"] == "response.completed"
        assert events[-1]["response"]["output"][0]["content"][0]["text"] == "one two three four"
        stored = await gateway.request("GET", f"/responses/{events[-1]['response']['id']}")
        assert stored.json["status"] == "completed"
        # The old provider is not used now, so its connections are closed.
        async with asyncio.timeout(WATCHDOG_SECONDS):
            await old.deserted()


async def test_a_stop_after_a_reload_lets_turns_of_before_finish(tmp_path: Path) -> None:
    held = Script(text="one two three four", faults=[Stall(after=2)])
    async with (
        ScriptedUpstream(held, models=["old"]) as old,
        ScriptedUpstream(models=["new"]) as new,
        reloaded(tmp_path, provider("a", old.base_url)) as gateway,
    ):
        streaming = asyncio.create_task(_stream(gateway, "old"))
        await (await old.received()).stalled.wait()
        await gateway.reload(provider("b", new.base_url))
        stopping = asyncio.create_task(asyncio.to_thread(gateway.served.stop))
        await asyncio.to_thread(gateway.wait_for, "STOPPING=1")
        old.release()
        events = await streaming
        assert events[-1]["type"] == "response.completed"
        assert await stopping == 0


async def test_a_turn_between_two_requests_to_its_model_keeps_its_provider(tmp_path: Path) -> None:
    busy = Status(503, headers={"Retry-After": "1"})
    scripts = [Script(faults=[busy]), Script(text="the second try")]
    async with (
        ScriptedUpstream(scripts, models=["m"]) as old,
        ScriptedUpstream(Script(text="elsewhere"), models=["m"]) as new,
        reloaded(tmp_path, provider("a", old.base_url)) as gateway,
    ):
        asking = asyncio.create_task(gateway.ask("m"))
        await old.received()
        await gateway.reload(provider("b", new.base_url))
        answer = await asking
        assert answer.json["output"][0]["content"][0]["text"] == "the second try"
        assert not new.requests


@pytest.mark.parametrize("workers", ["1", "2"])
async def test_reloads_under_load_lose_no_turn(tmp_path: Path, workers: str) -> None:
    async with (
        ScriptedUpstream(Script(text="word " * 20, delay=0.002), remember=False) as one,
        ScriptedUpstream(Script(text="word " * 20, delay=0.002), remember=False) as other,
        reloaded(tmp_path, provider("a", one.base_url), "--workers", workers) as gateway,
    ):
        stop = asyncio.Event()
        asking = [asyncio.create_task(_ask_until(gateway, stop)) for _ in range(6)]
        for turn in range(6):
            upstream = (other, one)[turn % 2]
            assert "changed: providers" in await gateway.reload(provider("a", upstream.base_url))
            # Some turns of each set of settings, before the next.
            assert (await gateway.ask()).status == 200
        stop.set()
        counts = await asyncio.gather(*asking)
        assert min(counts) >= 1
        metrics = await gateway.metrics()
        assert value_of(metrics, "antiphon_reloads_total", outcome="applied") == 6 * int(workers)
        assert value_of(metrics, "antiphon_responses_total", status="failed") == 0


async def test_all_workers_reload_and_so_does_one_that_comes_later(tmp_path: Path) -> None:
    async with reloaded(tmp_path, ECHO, "--workers", "2") as gateway:
        assert "changed: routes" in await gateway.reload(ECHO + _FAST)
        assert [(await gateway.ask("fast")).status for _ in range(8)] == [200] * 8
        before = gateway.workers()
        os.kill(min(before), signal.SIGKILL)
        async with asyncio.timeout(WATCHDOG_SECONDS):
            while not gateway.workers() - before:  # noqa: ASYNC110 # nothing says when
                await asyncio.sleep(0.05)
        assert "nothing has changed" in await gateway.reload()  # answered by both workers
        assert [(await gateway.ask("fast")).status for _ in range(8)] == [200] * 8


async def test_what_needs_a_restart_is_reported_and_stays(tmp_path: Path) -> None:
    async with reloaded(tmp_path, ECHO) as gateway:
        more = 'workers = 3\nstore = "memory:"\nid_mark = "eu"\n'
        limits = "[limits]\nheader_count = 50\nbody_bytes = 200\n"
        status = await gateway.reload(more + ECHO + _FAST + limits)
        assert status.endswith("changed: limits, routes")
        said = "need a restart: store, id_mark, workers, limits.header_count"
        answer = await gateway.ask("fast")
        assert answer.status == 200 and not answer.json["id"].startswith("resp_eu")
        assert (await gateway.ask("fast", input="x" * 300)).status == 413
        await gateway.reload(more + ECHO + limits)
    assert gateway.log.count(said) == 2  # it still differed


async def test_rules_of_the_gateway_change_with_a_reload(tmp_path: Path) -> None:
    page = {"Origin": "http://localhost:3000"}
    prompt = '[prompts.pmpt_1]\ninstructions = "be kind"\n'
    named = {"input": "hi", "prompt": {"id": "pmpt_1"}}
    async with reloaded(tmp_path, ECHO) as gateway:
        assert (await gateway.request("POST", "/responses", named)).status == 404
        rules = 'allowed_origins = ["http://localhost:3000"]\ndefault_model = "echo"\n'
        status = await gateway.reload(rules + 'dialect = "open-responses"\n' + ECHO + prompt)
        assert status.endswith("changed: default_model, dialect, allowed_origins, prompts")
        assert (await gateway.request("POST", "/responses", named)).status == 200
        url = f"{gateway.base_url}/models"
        async with aiohttp.ClientSession(headers=page) as session, session.get(url) as got:
            assert got.headers["Access-Control-Allow-Origin"] == page["Origin"]


async def test_hosted_tools_come_and_go_with_a_reload(tmp_path: Path) -> None:
    search = '[web_search]\nprovider = "searxng"\nbase_url = "http://127.0.0.1:9"\n'
    tools = [{"type": "web_search"}]
    async with reloaded(tmp_path, ECHO) as gateway:
        assert "web_search" in (await gateway.ask(tools=tools)).headers["x-antiphon-degraded"]
        assert (await gateway.reload(ECHO + search)).endswith("changed: web_search")
        assert "x-antiphon-degraded" not in (await gateway.ask(tools=tools)).headers
        assert (await gateway.reload(ECHO)).endswith("changed: web_search")
        assert "web_search" in (await gateway.ask(tools=tools)).headers["x-antiphon-degraded"]


async def test_tokens_of_an_issuer_are_checked_after_a_reload(tmp_path: Path) -> None:
    issuer = """[[auth.issuers]]
issuer = "https://login.example"
audience = "antiphon"
project = "lab"
"""
    bearer = {"Authorization": "Bearer not.a.token"}
    async with (
        reloaded(tmp_path, ECHO) as gateway,
        aiohttp.ClientSession(headers=bearer) as session,
    ):
        url = f"{gateway.base_url}/models"
        assert (await session.get(url)).status == 200  # any placeholder, as clients send it
        assert (await gateway.reload(ECHO + issuer)).endswith("changed: auth")
        assert (await session.get(url)).status == 401
        assert (await gateway.reload(ECHO)).endswith("changed: auth")
        assert (await session.get(url)).status == 200


async def test_webhooks_of_a_reload_are_used(tmp_path: Path) -> None:
    received: asyncio.Queue[bytes] = asyncio.Queue()

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(
            int(line.split(b":")[1])
            for line in head.lower().split(b"\r\n")
            if line.startswith(b"content-length:")
        )
        received.put_nowait(await reader.readexactly(length))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(take, "127.0.0.1", 0)
    place = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    secret = "whsec_" + "c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0"
    hook = f'[[webhooks]]\nurl = "{place}"\nsecret_env = "HOOK"\nallow_private = true\n'
    async with server, reloaded(tmp_path, ECHO, extra={"HOOK": secret}) as gateway:
        assert "changed: webhooks" in await gateway.reload(ECHO + hook)
        made = (await gateway.ask(background=True)).json["id"]
        async with asyncio.timeout(WATCHDOG_SECONDS):
            notice = msgspec.json.decode(await received.get())
        assert (notice["type"], notice["data"]["id"]) == ("response.completed", made)


async def test_new_connections_get_the_new_certificate(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate = tmp_path / "served.pem"
    certificate.write_bytes(authority.issue("127.0.0.1", name="first").read_bytes())
    trust = ssl.create_default_context(cafile=str(authority.path))
    async with reloaded(tmp_path, ECHO, "--tls-cert", str(certificate)) as gateway:
        first = await _certificate(gateway, trust)
        connector = aiohttp.TCPConnector(ssl=trust)
        async with aiohttp.ClientSession(connector=connector) as kept:
            assert (await kept.get(f"{gateway.base_url}/models")).status == 200

            certificate.write_text("broken")
            assert "served.pem holds no certificate" in await gateway.reload()
            assert await _certificate(gateway, trust) == first

            certificate.write_bytes(authority.issue("127.0.0.1", name="second").read_bytes())
            assert "nothing has changed" in await gateway.reload()
            assert await _certificate(gateway, trust) != first
            # The connection that was open goes on with the old certificate.
            assert (await kept.get(f"{gateway.base_url}/models")).status == 200


@pytest.mark.parametrize("workers", ["1", "2"])
async def test_a_gateway_whose_terminal_is_closed_ends(tmp_path: Path, workers: str) -> None:
    (tmp_path / "antiphon.toml").write_text(ECHO)
    arguments = ["-m", "antiphon", "serve", "--port", "0", "--workers", workers]
    pid, terminal = pty.fork()
    if pid == 0:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # also if the tests themselves ignore it
        os.chdir(tmp_path)
        os.execve(sys.executable, [sys.executable, *arguments], environment(tmp_path))
    shown = b""
    try:
        async with asyncio.timeout(WATCHDOG_SECONDS):
            while b"http://" not in shown:
                shown += await asyncio.to_thread(os.read, terminal, 1024)
            os.close(terminal)
            _, status = await asyncio.to_thread(os.waitpid, pid, 0)
    finally:
        with suppress(ProcessLookupError):  # it has ended, as it should
            os.kill(pid, signal.SIGKILL)
    assert os.waitstatus_to_exitcode(status) in (0, -signal.SIGHUP)


async def test_a_gateway_under_nohup_goes_on_without_its_terminal(tmp_path: Path) -> None:
    (tmp_path / "antiphon.toml").write_text(ECHO)
    shown = tmp_path / "nohup.out"
    shown.touch()
    pid, terminal = pty.fork()
    if pid == 0:  # as nohup does it
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        file = os.open(shown, os.O_WRONLY)
        for number in (1, 2):
            os.dup2(file, number)
        os.chdir(tmp_path)
        arguments = [sys.executable, "-m", "antiphon", "serve", "--port", "0"]
        os.execve(sys.executable, arguments, environment(tmp_path))
    async with asyncio.timeout(WATCHDOG_SECONDS), aiohttp.ClientSession() as session:
        while (found := re.search(r"http://\S+/v1", shown.read_text())) is None:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        url = found[0].replace("/v1", "/readyz")
        assert (await session.get(url)).status == 200
        os.close(terminal)
        os.kill(pid, signal.SIGHUP)  # as the system has sent it by now
        assert (await session.get(url)).status == 200
        os.kill(pid, signal.SIGTERM)
        _, status = await asyncio.to_thread(os.waitpid, pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert "reloaded" not in shown.read_text()


async def _certificate(gateway: Reloaded, trust: ssl.SSLContext) -> bytes:
    place = gateway.base_url.removeprefix("https://").removesuffix("/v1")
    host, _, port = place.partition(":")
    _, writer = await asyncio.open_connection(host, int(port), ssl=trust)
    try:
        found = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        assert isinstance(found, bytes)
        return found
    finally:
        writer.close()


async def _stream(gateway: Reloaded, model: str) -> list[dict[str, Any]]:
    answer = await gateway.ask(model, stream=True)
    lines = answer.body.decode().splitlines()
    data = [line.removeprefix("data: ") for line in lines if line.startswith("data: {")]
    return [msgspec.json.decode(one) for one in data]


async def _ask_until(gateway: Reloaded, stop: asyncio.Event) -> int:
    count = 0
    while not stop.is_set():
        if count % 2:
            events = await _stream(gateway, "echo")
            assert events[-1]["type"] == "response.completed", events[-1]
        else:
            answer = await gateway.ask()
            assert answer.status == 200, answer.body
            assert answer.json["status"] == "completed"
        count += 1
    return count

"""A backup of a gateway that runs: everything from before it, whole, and nothing half."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import aiohttp

from antiphon.backends.scripted import ScriptedBackend
from antiphon.store import open_store
from antiphon.testing import Script, ScriptedUpstream
from antiphon.testing.gateway import serve_gateway
from tests.asking import ask, events_of, request
from tests.faults.process import GatewayProcess, serve_process


async def _copy(source: str, target: str) -> str:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "antiphon", "store", "copy", source, target, "--while-running"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(60):
        output, _ = await process.communicate()
    assert process.returncode == 0, output.decode()
    return output.decode()


async def test_a_copy_of_a_store_in_use_is_that_store_at_one_moment(tmp_path: Path) -> None:
    source, target = (f"sqlite:{tmp_path / name}" for name in ("antiphon.db", "backup.db"))
    async with (
        ScriptedUpstream(Script(text="an answer")) as upstream,
        serve_process(tmp_path, upstream.base_url, workers=2) as process,
    ):
        before = [(await process.ask(input=f"turn {n}")).json for n in range(5)]
        stop = asyncio.Event()
        talking = [asyncio.create_task(_talk(process, stop)) for _ in range(4)]
        output = await _copy(source, target)
        stop.set()
        chains = await asyncio.gather(*talking)
        after = await process.ask(input="after")

    assert "Copied and checked" in output
    assert after.status == 200 and all(chains)
    store = open_store(target)
    async with serve_gateway(ScriptedBackend(), store=store) as gateway:
        kept = [await request(gateway, "GET", f"/responses/{one['id']}") for one in before]
        gone = await request(gateway, "GET", f"/responses/{after.json['id']}")
        found = [await _prefix(gateway, chain) for chain in chains]
    await store.close()

    assert [answer.json for answer in kept] == before
    assert gone.status == 404
    # Of each chain the copy has a beginning, and nothing behind the first turn that it lacks.
    assert all(found)


async def test_a_backup_under_load_restores_what_there_was(tmp_path: Path) -> None:
    source, target = (tmp_path / name for name in ("antiphon.db", "backup.db"))
    async with (
        ScriptedUpstream(Script(text="an answer of some words", delay=0.002)) as upstream,
        serve_process(tmp_path, upstream.base_url, workers=2) as process,
    ):
        before = await _seen(process, await _fill(process))
        stop = asyncio.Event()
        busy = [asyncio.create_task(_work(process, stop)) for _ in range(4)]
        for _ in range(2):  # some of what was stored under load is in the backup for sure
            await process.ask(input="more", stream=True)
        charged = await _run("ledger", "export", "--store", f"sqlite:{source}")
        await _run("store", "backup", str(target), f"sqlite:{source}")
        stop.set()
        await asyncio.gather(*busy)
        after = (await process.ask(input="after")).json["id"]

    assert "nothing was found" in await _run("store", "check", f"sqlite:{target}")
    restored = _move(target, tmp_path / "restored")
    settled = {line for line in charged.splitlines() if '"settled"' in line}
    assert len(settled) >= 5
    kept = await _run("ledger", "export", "--store", f"sqlite:{restored / 'antiphon.db'}")
    assert settled <= set(kept.splitlines())
    async with (
        ScriptedUpstream(Script(text="an answer")) as upstream,
        serve_process(restored, upstream.base_url) as process,
    ):
        assert await _seen(process, before.keys()) == before
        assert (await process.request("GET", f"/responses/{after}")).status == 404
    # What was under way has been ended by the gateway that used the backup.
    assert "nothing was found" in await _run("store", "check", f"sqlite:{restored}/antiphon.db")


def _move(backup: Path, folder: Path) -> Path:
    """Put a backup where the store of a gateway is; return that folder."""
    folder.mkdir()
    for part in backup.parent.glob(f"{backup.name}*"):
        part.rename(folder / part.name.replace("backup", "antiphon"))
    return folder


async def _fill(process: GatewayProcess) -> list[str]:
    """Store something of each kind; return the paths at which it is read."""
    paths = []
    for number in range(4):
        events = (await process.ask(input=f"turn {number}", stream=True)).body
        name = events_of(events)[0].response.id  # type: ignore[union-attr] # the first has one
        paths += [f"/responses/{name}{more}" for more in ("", "/input_items", "?stream=true")]
    talk = (await process.request("POST", "/conversations", {})).json["id"]
    await process.ask(input="hello", conversation=talk)
    sent = await _upload(process, b"the content of a file" * 5000)
    return [*paths, f"/conversations/{talk}/items", f"/files/{sent}", f"/files/{sent}/content"]


async def _seen(process: GatewayProcess, paths: Iterable[str]) -> dict[str, bytes]:
    """Return what is answered at each path."""
    answers = {path: await process.request("GET", path) for path in paths}
    assert {answer.status for answer in answers.values()} == {200}
    return {path: answer.body for path, answer in answers.items()}


async def _work(process: GatewayProcess, stop: asyncio.Event) -> None:
    """Stream, talk, and add and remove files until told to stop."""
    talk = (await process.request("POST", "/conversations", {})).json["id"]
    while not stop.is_set():
        assert (await process.ask(input="go on", stream=True)).status == 200
        assert (await process.ask(input="go on", conversation=talk)).status == 200
        sent = await _upload(process, b"short")
        assert (await process.request("DELETE", f"/files/{sent}")).status == 200


async def _upload(process: GatewayProcess, data: bytes) -> str:
    form = aiohttp.FormData()
    form.add_field("purpose", "user_data")
    form.add_field("file", data, filename="a.txt")
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{process.base_url}/files", data=form) as answer,
    ):
        assert answer.status == 200, await answer.read()
        name: str = (await answer.json())["id"]
        return name


async def _run(*arguments: str) -> str:
    """Run a command of antiphon; return what it printed."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "antiphon", *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(120):
        output, _ = await process.communicate()
    assert process.returncode == 0, output.decode()
    return output.decode()


async def _talk(process: GatewayProcess, stop: asyncio.Event) -> list[str]:
    """Continue one chain until told to stop; return the ids of its turns."""
    names: list[str] = []
    while not stop.is_set():
        more: dict[str, Any] = {"previous_response_id": names[-1]} if names else {}
        answer = await process.ask(input="go on", **more)
        assert answer.status == 200, answer.body
        names.append(answer.json["id"])
    return names


async def _prefix(gateway: Any, chain: list[str]) -> bool:
    """Return whether the copy has the first turns of a chain and can go on from the last."""
    statuses = [(await request(gateway, "GET", f"/responses/{name}")).status for name in chain]
    count = statuses.count(200)
    if statuses != [200] * count + [404] * (len(chain) - count):
        return False
    if not count:
        return True
    answer = await ask(gateway, input="go on", previous_response_id=chain[count - 1])
    # Its last turn may have been under way: then it has failed, and cannot be continued.
    last = await request(gateway, "GET", f"/responses/{chain[count - 1]}")
    return answer.status == (200 if last.json["status"] == "completed" else 400)

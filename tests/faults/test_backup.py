"""A backup of a gateway that runs: everything from before it, whole, and nothing half."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

from antiphon.backends.scripted import ScriptedBackend
from antiphon.store import open_store
from antiphon.testing import Script, ScriptedUpstream
from antiphon.testing.gateway import serve_gateway
from tests.asking import ask, request
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

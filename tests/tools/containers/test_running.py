"""Which sandboxes run: caps, waiting, and the end of what is not used."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from antiphon.protocol.errors import NotFound
from antiphon.tools.containers import running
from antiphon.tools.containers.running import NoRoom
from antiphon.tools.containers.service import ContainerService, ContainerWish
from antiphon.tools.sandbox.base import CellEnd
from antiphon.tools.sandbox.locked_folder import make_folder
from tests.containers import Clock, FakeEngine, make_service, upload


async def make(service: ContainerService, owner: str = "local", name: str = "c") -> str:
    """Return the id of a new container."""
    made: Any = await service.create(owner, ContainerWish(name=name))
    return str(made.id)


async def run(service: ContainerService, name: str, code: str, owner: str = "local") -> str:
    """Run a cell, store its files; return what it printed."""
    async with service.use(owner, name) as workspace:
        given = [one async for one in workspace.run(code, 60)]
        await workspace.collect(service.mint, service.now())
    return "".join(one.text for one in given if not isinstance(one, CellEnd))


async def test_the_sandbox_that_was_idle_longest_makes_room() -> None:
    engine = FakeEngine()
    service = make_service(engine=engine, running=2)
    first, second, third = [await make(service) for _ in range(3)]
    await run(service, first, "x = 1")
    await run(service, second, "x = 2")
    await run(service, first, "x += 1")
    await run(service, third, "x = 3")
    assert len(engine.open) == 2
    assert await run(service, first, "print(x)") == "2\n"
    assert await run(service, second, "print('x' in globals())") == "False\n"
    await service.close()
    assert engine.open == []


async def test_one_owner_cannot_take_all_the_room() -> None:
    engine = FakeEngine()
    service = make_service(engine=engine, running=3, running_per_owner=1)
    mine, more = await make(service), await make(service)
    theirs = await make(service, "other")
    await run(service, theirs, "x = 1", "other")
    await run(service, mine, "x = 1")
    await run(service, more, "x = 1")
    assert len(engine.open) == 2
    assert await run(service, theirs, "print(x)", "other") == "1\n"
    await service.close()


async def test_a_call_waits_for_room_and_gives_up() -> None:
    engine = FakeEngine()
    service = make_service(engine=engine, running=1, wait_seconds=0.05)
    busy, waits = await make(service), await make(service)
    task = asyncio.create_task(run(service, busy, "HANG"))
    await engine.hangs.wait()
    with pytest.raises(NoRoom, match="too many containers"):
        await run(service, waits, "x = 1")
    with pytest.raises(NoRoom, match="another call uses"):
        await run(service, busy, "x = 1")
    engine.go_on.set()
    await task
    await run(service, waits, "x = 1")
    assert len(engine.open) == 1
    await service.close()


async def test_an_expired_container_is_not_found_and_its_sandbox_closed() -> None:
    clock, engine = Clock(), FakeEngine()
    service = make_service(engine=engine, clock=clock, idle_minutes=1)
    name = await make(service)
    await run(service, name, "x = 1")
    clock.now += 60
    with pytest.raises(NotFound) as refused:
        await run(service, name, "x = 1")
    assert refused.value.code == "container_expired"
    assert engine.open == []
    await service.close()


@pytest.mark.parametrize("why", ["expired", "removed", "elsewhere"])
async def test_a_sandbox_that_is_not_needed_any_more_is_closed(
    why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "_LOOK_SECONDS", 0.01)
    clock, engine = Clock(), FakeEngine()
    service = make_service(engine=engine, clock=clock)
    name = await make(service)
    await run(service, name, "x = 1")
    assert engine.open
    if why == "expired":
        clock.now += 20 * 60
    elif why == "removed":
        await service.store.containers.remove("local", name)
    else:
        await service.store.containers.start("local", name, "another process", clock.now)
    async with asyncio.timeout(60):
        await engine.closed.wait()
    assert engine.open == []
    await service.close()


def test_what_a_dead_process_left_is_removed(tmp_path: Path) -> None:
    left, mine = make_folder(str(tmp_path)), make_folder(str(tmp_path))
    (left.path / "data" / "secret").write_text("s")
    os.close(left.lock)  # as the end of its process does
    last = make_folder(str(tmp_path))
    assert sorted(tmp_path.iterdir()) == sorted([mine.path, last.path])
    for folder in (mine, last):
        folder.remove()
    assert list(tmp_path.iterdir()) == []


def test_what_a_dead_process_left_running_is_killed(tmp_path: Path) -> None:
    left, mine = make_folder(str(tmp_path)), make_folder(str(tmp_path))
    waiting = [sys.executable, "-c", "import time; time.sleep(600)"]
    with (
        subprocess.Popen([*waiting, str(left.path / "data")]) as orphan,
        subprocess.Popen([*waiting, str(mine.path / "data")]) as own,
    ):
        os.close(left.lock)  # as the end of its process does
        make_folder(str(tmp_path))

        assert orphan.wait(60) == -signal.SIGKILL
        assert own.poll() is None
        own.kill()


async def test_files_of_callers_come_and_go_while_the_interpreter_lives() -> None:
    service = make_service()
    name = await make(service)
    await run(service, name, "x = 1")
    await upload(service.store, "a.txt", b"one")
    (stored,) = (await service.store.files.find("local", ["file-a.txt"], 2)).values()
    blob = await service.copy_blob("local", stored.blob)
    file = await service.add_file("local", name, "a.txt", blob)
    assert file is not None
    assert await run(service, name, "print(here('a.txt').read_text(), x)") == "one 1\n"
    await service.store.containers.remove_file("local", name, file.id)
    assert await run(service, name, "print(here('a.txt').exists(), x)") == "False 1\n"
    await service.close()


async def test_what_is_over_the_limits_is_not_kept_and_reported() -> None:
    service = make_service(file_count=2, file_bytes=10, total_bytes=15)
    name = await make(service)
    async with service.use("local", name) as workspace:
        code = (
            "here('big').write_bytes(b'x' * 11)\n[here(n).write_bytes(b'x' * 6) for n in 'abc']\n"
        )
        async for _ in workspace.run(code, 60):
            pass
        made = await workspace.collect(service.mint, 1)
    assert [file.path for file in made.changed] == ["/mnt/data/a", "/mnt/data/b"]
    assert [why.partition(":")[0] for why in made.left_out] == ["/mnt/data/big", "/mnt/data/c"]
    await service.close()


async def test_a_cancelled_call_kills_its_sandbox_and_frees_the_container() -> None:
    engine = FakeEngine()
    service = make_service(engine=engine)
    name = await make(service)
    task = asyncio.create_task(run(service, name, "HANG"))
    await engine.hangs.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert engine.open == []
    assert await run(service, name, "print(1)") == "1\n"
    await service.close()

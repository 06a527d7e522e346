"""What a sandbox may take: output, memory, disk, processes, time; and what it leaves behind."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import sys
import time
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from antiphon.tools.sandbox.attacks import LIMITS
from antiphon.tools.sandbox.base import SandboxFailed, SandboxLimits
from antiphon.tools.sandbox.box import RunningSandbox
from antiphon.tools.sandbox.engines import ENGINES
from antiphon.tools.sandbox.usage import TOO_MUCH, descendants, folder_bytes
from tests.sandboxes import PATIENCE, engine, opened, run, shell

_MIB = 1024 * 1024
_ROUND = 50
_KERNELS = int(os.environ.get("ANTIPHON_TEST_KERNELS", _ROUND))
"""scripts/test-more has more of them."""


@pytest.fixture(params=ENGINES)
async def sandbox(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[RunningSandbox]:
    async with opened(engine(request.param), tmp_path, LIMITS) as found:
        yield found


async def test_flood_of_output_does_not_fill_the_gateway(sandbox: RunningSandbox) -> None:
    await run(sandbox, "pass")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    ran = await run(sandbox, "import os\nfor _ in range(400): os.write(1, b'x' * (1 << 20))")
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert ran.end.outcome == "ok"
    assert ran.stdout == "x" * LIMITS.output_bytes
    assert ran.end.cut_bytes == 400 * _MIB - LIMITS.output_bytes
    assert grown <= 5 * 1024


async def test_flood_of_lines_on_two_streams_is_cut(sandbox: RunningSandbox) -> None:
    code = "import os\nfor _ in range(100000): os.write(1, b'a'); os.write(2, b'b')"
    ran = await run(sandbox, code)
    assert len(ran.stdout) + len(ran.stderr) + ran.end.cut_bytes == 200_000
    assert len(ran.stdout) + len(ran.stderr) == LIMITS.output_bytes


async def test_writer_in_the_background_is_stopped_by_the_full_pipe(
    sandbox: RunningSandbox,
) -> None:
    await run(
        sandbox,
        "import os, threading\nn = 0\ndef write():\n    global n\n"
        "    while True: n += os.write(1, bytes(4096))\nthreading.Thread(target=write).start()",
    )
    assert (await run(sandbox, "1 + 1")).end.outcome == "ok"


async def test_too_many_and_wrong_images_are_dropped(sandbox: RunningSandbox) -> None:
    ran = await run(sandbox, r"for _ in range(40): display(b'\x89PNG\r\n\x1a\n')")
    assert len(ran.images) == 32
    ran = await run(sandbox, r"display(b'\x89PNG\r\n\x1a\n' + bytes(9 << 20))")
    assert ran.images == []
    assert "too large" in ran.stderr


async def test_memory_of_a_process_is_limited(sandbox: RunningSandbox) -> None:
    await run(sandbox, "kept = 1")
    ran = await run(sandbox, "data = bytearray(1 << 30)")
    assert "MemoryError" in ran.end.traceback
    assert (await run(sandbox, "kept")).stdout == "1\n"


async def test_memory_of_all_processes_is_limited(sandbox: RunningSandbox) -> None:
    ran = await run(
        sandbox,
        "import os, time\nfor _ in range(6):\n"
        "    if os.fork() == 0: data = b'x' * (100 << 20); time.sleep(600); os._exit(0)\n"
        "time.sleep(600)",
    )
    assert (ran.end.outcome, ran.end.why) == ("killed", "memory")


async def test_files_together_are_limited(sandbox: RunningSandbox, tmp_path: Path) -> None:
    ran = await run(
        sandbox, "for n in range(5): open(f'{n}', 'wb').write(bytes(7 << 20))\nprint('done')"
    )
    assert (ran.end.outcome, ran.end.why) == ("killed", "disk")
    ran = await shell(sandbox, "rm 0 1 2")
    assert ran.exit.exit_code == 0
    assert (await run(sandbox, "1 + 1")).end.outcome == "ok"


async def test_hopelessly_full_folder_runs_nothing(sandbox: RunningSandbox, tmp_path: Path) -> None:
    for number in range(8):
        (tmp_path / f"{number}").write_bytes(bytes(8 * _MIB))
    assert (await run(sandbox, "1")).end.why == "disk"
    with pytest.raises(SandboxFailed, match="delete some"):
        await run(sandbox, "1")
    for number in range(8):
        (tmp_path / f"{number}").unlink()
    assert (await run(sandbox, "1")).stdout == "1\n"


def test_folder_that_cannot_be_walked_is_too_much(tmp_path: Path) -> None:
    deep = tmp_path / "/".join(["d"] * 100)
    deep.mkdir(parents=True)
    assert folder_bytes(tmp_path) == TOO_MUCH


def test_folder_that_is_gone_has_no_files(tmp_path: Path) -> None:
    assert folder_bytes(tmp_path / "gone") == 0


async def test_engine_closes_sandboxes_that_were_started_again(tmp_path: Path) -> None:
    maker = engine("bwrap")
    first, second = tmp_path / "1", tmp_path / "2"
    first.mkdir()
    second.mkdir()
    sandbox = await maker.start(first, SandboxLimits())
    await run(sandbox, "import os; os._exit(0)")
    other = await maker.start(second, SandboxLimits())
    await run(sandbox, "1")
    await maker.close()
    assert not sandbox.is_alive
    assert not other.is_alive


def test_sandboxes_run_on_the_loop_of_the_gateway(tmp_path: Path) -> None:
    uvloop = pytest.importorskip("uvloop")
    maker = engine("bwrap+sandlock")

    async def use() -> list[str]:
        sandbox = await maker.start(tmp_path, SandboxLimits())
        cell = await run(sandbox, "x = 6\nprint(x)")
        command = await shell(sandbox, "echo shell")
        late = await run(sandbox, "while True: pass", 0.2)
        flood = await run(sandbox, "import os\nfor _ in range(50): os.write(1, bytes(1 << 20))")
        assert flood.end.cut_bytes == 49 * _MIB
        await maker.close()
        return [cell.stdout, command.stdout, late.end.outcome]

    assert uvloop.run(use()) == ["6\n", "shell\n", "timeout"]


def test_links_are_not_followed_when_a_folder_is_measured(tmp_path: Path) -> None:
    (tmp_path / "out").symlink_to("/usr")
    assert folder_bytes(tmp_path) < 100_000


@pytest.mark.parametrize(
    "code",
    [
        "while True: pass",
        "import os\nfor _ in range(20):\n    if os.fork() == 0: break\nwhile True: pass",
        "import signal, time\nfor n in range(1, 65):\n    try: signal.signal(n, signal.SIG_IGN)\n"
        "    except (OSError, ValueError): pass\ntime.sleep(600)",
    ],
)
async def test_deadline_ends_everything_soon(sandbox: RunningSandbox, code: str) -> None:
    pid = sandbox.pid
    began = time.monotonic()
    ran = await run(sandbox, code, 0.5)
    # The goal is 0.2 s; a test must also pass on a machine that is busy.
    assert time.monotonic() - began < 30
    assert ran.end.outcome == "timeout"
    assert descendants(pid) == []


async def test_forged_reports_only_hurt_the_cell(sandbox: RunningSandbox) -> None:
    forged = r"b'E\xff\xff\xff\xff'"
    code = (
        f"import os\nfor fd in range(3, 60):\n    try: os.write(fd, {forged})\n"
        "    except OSError: pass\nimport time; time.sleep(600)"
    )
    ran = await run(sandbox, code)
    assert (ran.end.outcome, ran.end.why) == ("killed", "protocol")
    assert (await run(sandbox, "1 + 1")).stdout == "2\n"


@pytest.mark.parametrize("turn", range(_KERNELS // _ROUND))
async def test_kernels_leave_nothing_behind(turn: int, tmp_path: Path) -> None:
    maker = engine("bwrap+sandlock")
    before = _traces()
    for number in range(_ROUND):
        folder = tmp_path / f"{number}"
        folder.mkdir()
        sandbox = await maker.start(folder, SandboxLimits())
        if number % 3 == 0:
            await run(sandbox, "import os\nif os.fork() == 0:\n    while True: pass", PATIENCE)
        if number % 3 == 1:
            await run(sandbox, "while True: pass", 0.01)
        await sandbox.close()
        folder.rmdir()
    await maker.close()
    assert _traces() == before


def _traces() -> dict[str, object]:
    """Return what kernels could leave: children, descriptors, mounts."""
    return {
        "processes": descendants(os.getpid()),
        "descriptors": len(list(Path("/proc/self/fd").iterdir())),
        "mounts": Path("/proc/self/mountinfo").read_text().count("\n"),
    }


_GATEWAY = """
import asyncio, sys
from pathlib import Path
from antiphon.tools.sandbox.base import SandboxLimits
from antiphon.tools.sandbox.engines import make_engine

async def main():
    sandbox = await make_engine(sys.argv[1]).start(Path(sys.argv[2]), SandboxLimits())
    async for _ in sandbox.run(sys.argv[3], 600):
        print("running", flush=True)

asyncio.run(main())
"""
_DAEMON = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        while True: pass
    os._exit(0)
print("on")
while True: pass
"""


@pytest.mark.parametrize("name", ENGINES)
async def test_hard_kill_of_the_gateway_leaves_no_process(name: str, tmp_path: Path) -> None:
    engine(name)  # type: ignore[arg-type]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", _GATEWAY, name, str(tmp_path), _DAEMON), stdout=PIPE
    )
    assert process.stdout is not None
    assert await process.stdout.readline() == b"running\n"
    inside = descendants(process.pid)
    assert len(inside) >= 4
    ends = [os.pidfd_open(pid) for pid in inside]
    process.send_signal(signal.SIGKILL)
    await process.wait()
    for end in ends:
        await _ended(end)


async def _ended(pidfd: int) -> None:
    """Wait until the process of a descriptor has ended."""
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(pidfd, ended.set)
    try:
        async with asyncio.timeout(PATIENCE):
            await ended.wait()
    finally:
        loop.remove_reader(pidfd)
        os.close(pidfd)

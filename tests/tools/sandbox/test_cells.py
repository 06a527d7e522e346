"""Cells: state, values, errors, images, and what a cell may do to its interpreter."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from antiphon.tools.sandbox.base import CellOutput, SandboxFailed, SandboxLimits
from antiphon.tools.sandbox.box import RunningSandbox
from tests.sandboxes import engine, opened, run, shell

_PNG = r"b'\x89PNG\r\n\x1a\n' + bytes(20)"


@pytest.fixture(params=["bwrap+sandlock", "bwrap"])
async def sandbox(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[RunningSandbox]:
    async with opened(engine(request.param), tmp_path) as found:
        yield found


async def test_variables_stay_between_cells(sandbox: RunningSandbox) -> None:
    await run(sandbox, "x = 20")
    assert (await run(sandbox, "print(x + 1)")).stdout == "21\n"


async def test_value_of_the_last_expression_is_printed(sandbox: RunningSandbox) -> None:
    assert (await run(sandbox, "x = [1]\nx * 2")).stdout == "[1, 1]\n"
    assert (await run(sandbox, "None")).stdout == ""
    assert (await run(sandbox, "x;")).stdout == ""
    assert (await run(sandbox, "_")).stdout == "[1, 1]\n"


async def test_cell_may_await(sandbox: RunningSandbox) -> None:
    ran = await run(sandbox, "import asyncio\nawait asyncio.sleep(0, 'slept')")
    assert ran.stdout == "'slept'\n"


async def test_output_of_programs_and_both_streams_is_read(sandbox: RunningSandbox) -> None:
    code = (
        "import sys, subprocess, os\nprint('one')\nprint('two', file=sys.stderr)\n"
        "os.write(1, b'raw')\nsubprocess.run(['/bin/sh', '-c', 'echo child'], check=True);"
    )
    ran = await run(sandbox, code)
    assert ran.end.outcome == "ok", ran.end
    assert ran.stdout == "one\nrawchild\n"
    assert ran.stderr == "two\n"


async def test_traceback_has_no_frames_of_the_kernel(sandbox: RunningSandbox) -> None:
    ran = await run(sandbox, "def f():\n    return 1 / 0\n\nf()")
    assert ran.end.outcome == "error"
    assert ran.end.traceback.splitlines()[:3] == [
        "Traceback (most recent call last):",
        '  File "<cell 1>", line 4, in <module>',
        "    f()",
    ]
    assert ran.end.traceback.endswith("ZeroDivisionError: division by zero\n")
    assert "kernel" not in ran.end.traceback


async def test_wrong_syntax_is_an_error(sandbox: RunningSandbox) -> None:
    ran = await run(sandbox, "if:")
    assert ran.end.outcome == "error"
    assert "SyntaxError" in ran.end.traceback
    assert "kernel" not in ran.end.traceback


@pytest.mark.parametrize(
    ("code", "outcome"),
    [
        ("import sys; sys.exit()", "ok"),
        ("exit(0)", "ok"),
        ("import sys; sys.exit('no')", "error"),
        ("raise KeyboardInterrupt", "error"),
        ("class E(Exception):\n    def __str__(self): raise E\nraise E", "error"),
        ("import os; os.close(1); os.close(2); os.close(0)", "ok"),
        ("import sys; sys.stdout.close(); sys.stderr = None", "ok"),
        ("import os\nos.fork();", "ok"),
        ("import threading; threading.Thread(target=lambda: 1 / 0).start()", "ok"),
        ("def f(): f()\nf()", "error"),
        ("import sys; sys.setrecursionlimit(50); x = 0", "ok"),
        ("import os; os.chdir('/'); os.environ.clear()", "ok"),
        ("import signal; signal.alarm(1)", "ok"),
    ],
)
async def test_interpreter_survives(sandbox: RunningSandbox, code: str, outcome: str) -> None:
    await run(sandbox, "kept = 1")
    assert (await run(sandbox, code)).end.outcome == outcome
    ran = await run(sandbox, "print('kept', kept)")
    assert ran.stdout.endswith("kept 1\n"), ran.end


async def test_displayed_png_becomes_an_image(sandbox: RunningSandbox) -> None:
    ran = await run(sandbox, f"print('before')\ndisplay({_PNG})")
    assert [piece.kind for piece in ran.pieces] == ["stdout", "image"]
    assert ran.images == [b"\x89PNG\r\n\x1a\n" + bytes(20)]


async def test_values_that_draw_themselves_become_images(sandbox: RunningSandbox) -> None:
    ran = await run(sandbox, f"class Picture:\n    def _repr_png_(self): return {_PNG}\nPicture()")
    assert len(ran.images) == 1


async def test_files_are_in_the_folder(sandbox: RunningSandbox, tmp_path: Path) -> None:
    await run(sandbox, "open('a.txt', 'w').write('x')")
    await run(sandbox, "open('/mnt/data/b.txt', 'w').write('y')")
    assert (tmp_path / "a.txt").read_text() + (tmp_path / "b.txt").read_text() == "xy"


async def test_modules_of_the_folder_can_be_imported(
    sandbox: RunningSandbox, tmp_path: Path
) -> None:
    (tmp_path / "mine.py").write_text("answer = 42")
    assert (await run(sandbox, "import mine\nmine.answer")).stdout == "42\n"


async def test_deadline_kills_the_cell(sandbox: RunningSandbox) -> None:
    began = time.monotonic()
    ran = await run(sandbox, "x = 1\nprint('on')\nwhile True: pass", 0.5)
    assert ran.end.outcome == "timeout"
    assert ran.stdout == "on\n"
    assert time.monotonic() - began < 30
    assert not sandbox.is_alive
    again = await run(sandbox, "x")
    assert "NameError" in again.end.traceback
    assert sandbox.is_alive


async def test_exit_of_the_process_is_reported(sandbox: RunningSandbox) -> None:
    ran = await run(sandbox, "import os; print('last words', flush=True); os._exit(3)")
    assert (ran.end.outcome, ran.end.why) == ("killed", "exit")
    assert ran.stdout == "last words\n"
    assert (await run(sandbox, "1 + 1")).stdout == "2\n"


async def test_caller_who_leaves_kills_everything(sandbox: RunningSandbox) -> None:
    reached = asyncio.Event()

    async def ask() -> None:
        async for _ in sandbox.run("print('on')\nwhile True: pass", 600):
            reached.set()

    task = asyncio.create_task(ask())
    await reached.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not sandbox.is_alive
    assert (await run(sandbox, "1 + 1")).stdout == "2\n"


async def test_shell_runs_beside_the_cells(sandbox: RunningSandbox) -> None:
    await run(sandbox, "x = 5\nopen('note', 'w').write('hello')")
    ran = await shell(sandbox, "cat note; pwd; echo oh >&2; exit 7")
    assert (ran.stdout, ran.stderr, ran.exit.exit_code) == ("hello/mnt/data\n", "oh\n", 7)
    assert (await run(sandbox, "x")).stdout == "5\n"


async def test_shell_has_a_deadline(sandbox: RunningSandbox) -> None:
    ran = await shell(sandbox, "echo on; sleep 600", 0.5)
    assert (ran.stdout, ran.exit.exit_code, ran.exit.why) == ("on\n", None, "timeout")


async def test_output_of_a_command_comes_while_it_runs(
    sandbox: RunningSandbox, tmp_path: Path
) -> None:
    """It ends only after a file has appeared, which is made when its first output has come."""
    command = "echo on; while [ ! -e go ]; do sleep 0.05; done; echo off"
    texts: list[str] = []
    async with asyncio.timeout(120):
        async for one in sandbox.shell(command, 100):
            if isinstance(one, CellOutput):
                texts.append(one.text)
                (tmp_path / "go").touch()
    assert texts == ["on\n", "off\n"]


async def test_files_in_memory_are_shared_by_cells_and_shell(sandbox: RunningSandbox) -> None:
    await run(sandbox, "open('/tmp/x', 'w').write('temporary')")
    assert (await shell(sandbox, "cat /tmp/x")).stdout == "temporary"


async def test_output_over_the_limit_is_counted(tmp_path: Path) -> None:
    limits = SandboxLimits(output_bytes=1000)
    async with opened(engine("bwrap+sandlock"), tmp_path, limits) as sandbox:
        ran = await run(sandbox, "print('ä' * 4000, end='')")
        assert ran.end.outcome == "ok"
        assert ran.stdout == "ä" * 500
        assert ran.end.cut_bytes == 7000
        assert (await run(sandbox, "print('more')")).stdout == "more\n"


async def test_closed_and_busy_sandboxes_refuse(sandbox: RunningSandbox) -> None:
    first = sandbox.run("print(1)\nimport time; time.sleep(600)", 600)
    await anext(first)
    with pytest.raises(SandboxFailed, match="in use"):
        await run(sandbox, "1")
    await first.aclose()
    await sandbox.close()
    with pytest.raises(SandboxFailed, match="closed"):
        await run(sandbox, "1")


async def test_further_folders_are_read_only(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "skill").mkdir()
    (tmp_path / "skill" / "SKILL.md").write_text("do it well")
    maker = engine("bwrap+sandlock")
    sandbox = await maker.start(
        tmp_path / "data", SandboxLimits(), readable={"/mnt/skills/good": tmp_path / "skill"}
    )
    ran = await shell(sandbox, "cat /mnt/skills/good/SKILL.md; echo x > /mnt/skills/good/y")
    assert ran.stdout == "do it well"
    assert ran.exit.exit_code != 0
    await maker.close()
    assert not sandbox.is_alive

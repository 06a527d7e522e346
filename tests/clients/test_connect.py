"""What `antiphon connect` prints and writes, taken as it is by the real libraries and llm."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

import pytest

from antiphon.cli.connect.programs import PROGRAMS
from antiphon.testing import Script
from tests.clients.house import MODEL, House, environment, run
from tests.clients.install import node, node_modules, python

pytestmark = pytest.mark.slow

_HELLO: Final = "Hello from the gateway."
_NODE: Final = ("openai-node", "agents-js", "ai-sdk")
# It has no word of the gateway in it: all of that comes from the environment.
_OWN: Final = f"""\
from agents import Agent, Runner
from agents.tracing import get_trace_provider
print(Runner.run_sync(Agent(name="a", model="{MODEL}"), "Say hello.").final_output)
print(type(get_trace_provider().create_trace("t")).__name__)
"""


async def _connect(house: House, home: Path, work: Path, *arguments: str) -> str:
    """Return what `antiphon connect` prints."""
    connect = (sys.executable, "-m", "antiphon", "connect", *arguments, "--url", house.base_url)
    done = await run(*connect, cwd=work, env=environment(home))
    assert done.code == 0, done.err
    return done.out


@pytest.mark.turn("agents", "runs the program that `antiphon connect agents` prints")
async def test_the_printed_program_runs_in_python(house: House, home: Path, work: Path) -> None:
    (work / "hello.py").write_text(await _connect(house, home, work, "agents"), "utf-8")
    house.play(Script(text=_HELLO))
    done = await run(python(), "hello.py", cwd=work, env=environment(home))
    assert (done.code, done.out) == (0, f"{_HELLO}\n"), done.err


@pytest.mark.parametrize(
    "client",
    [
        pytest.param(
            "openai-node",
            marks=pytest.mark.turn(
                "openai-node", "runs the program that `antiphon connect openai-node` prints"
            ),
        ),
        pytest.param(
            "agents-js",
            marks=pytest.mark.turn(
                "agents-js", "runs the program that `antiphon connect agents-js` prints"
            ),
        ),
        pytest.param(
            "ai-sdk",
            marks=pytest.mark.turn(
                "ai-sdk", "runs the program that `antiphon connect ai-sdk` prints"
            ),
        ),
    ],
)
async def test_the_printed_program_runs_in_node(
    house: House, home: Path, work: Path, client: str
) -> None:
    (work / "hello.mjs").write_text(await _connect(house, home, work, client), "utf-8")
    (work / "node_modules").symlink_to(node_modules())
    house.play(Script(text=_HELLO))
    done = await run(node(), "hello.mjs", cwd=work, env=environment(home))
    assert (done.code, done.out) == (0, f"{_HELLO}\n"), done.err


def test_no_program_is_left_out() -> None:
    """openai-python's is run by tests/cli/connect/test_programs.py."""
    assert {"openai-python", "agents", *_NODE} == PROGRAMS.keys()


@pytest.mark.turn("agents", "asks the gateway by `.env` alone, and sends no traces to OpenAI")
async def test_the_written_variables_are_all_that_a_program_needs(
    house: House, home: Path, work: Path
) -> None:
    await _connect(house, home, work, "agents", "--write")
    lines = (work / ".env").read_text("utf-8").splitlines()
    variables = dict(line.split("=", 1) for line in lines if not line.startswith("#"))
    house.play(Script(text=_HELLO))
    env = environment(home)
    del env["OPENAI_AGENTS_DISABLE_TRACING"]
    done = await run(python(), "-c", _OWN, cwd=work, env=env | variables)
    assert (done.code, done.out) == (0, f"{_HELLO}\nNoOpTrace\n"), done.err


@pytest.mark.turn("llm", "works with what `antiphon connect llm --write` wrote")
async def test_llm_knows_the_model_that_was_written(house: House, home: Path, work: Path) -> None:
    await _connect(house, home, work, "llm", "--write")
    house.play(Script(text=_HELLO))
    asking = ("-m", "llm", "-m", f"antiphon/{MODEL}", "Say hello.")
    done = await run(python(), *asking, cwd=work, env=environment(home))
    assert (done.code, done.out) == (0, f"{_HELLO}\n"), done.err

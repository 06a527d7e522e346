"""From nothing to a turn of Codex: what `antiphon connect` writes, what `antiphon run` starts."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from antiphon.testing import Script
from tests.clients.codex import messages, pairs, shell
from tests.clients.house import MODEL, House, content, environment, run
from tests.clients.install import node_modules

pytestmark = pytest.mark.slow

EXEC = ("exec", "--json", "--skip-git-repo-check", "-s", "danger-full-access")


@pytest.mark.turn(
    "codex", "works with what `antiphon connect codex --write` wrote", transport="http"
)
async def test_what_connect_writes_is_all_that_codex_needs(
    house: House, home: Path, work: Path
) -> None:
    settings = home / ".codex" / "config.toml"
    env = environment(home)
    antiphon = (sys.executable, "-m", "antiphon", "connect", "codex", "--url", house.base_url)
    written = await run(*antiphon, "--write", cwd=work, env=env)
    assert written.code == 0, written.err
    assert house.base_url in content(settings)

    house.play(Script(calls=[shell("echo connected")]), Script(text="Done."))
    done = await run(node_modules() / ".bin" / "codex", *EXEC, "Say so.", cwd=work, env=env)
    undone = await run(*antiphon, "--undo", cwd=work, env=env)

    assert (done.code, messages(done)) == (0, ["Done."]), done.out + done.err
    assert pairs(house.asked[1])[0][2].endswith("connected\n")
    assert undone.code == 0 and house.base_url not in content(settings)


@pytest.mark.turn(
    "codex", "is started with a gateway of its own by `antiphon run codex`", transport="http"
)
async def test_one_command_starts_a_gateway_and_codex(house: House, home: Path, work: Path) -> None:
    house.play(Script(calls=[shell("echo started")]), Script(text="Done."))
    command = (sys.executable, "-m", "antiphon", "run", "codex", "--model", MODEL)
    programs = node_modules() / ".bin"
    env = environment(home)
    done = await run(
        *(*command, "--upstream", house.upstream.base_url, "--", *EXEC, "Say so."),
        cwd=work,
        env={**env, "PATH": f"{programs}:{env['PATH']}"},
    )

    assert (done.code, messages(done)) == (0, ["Done."]), done.out + done.err
    assert pairs(house.asked[1])[0][2].endswith("started\n")

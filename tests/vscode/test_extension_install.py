"""`antiphon connect vscode --extension` with the command of real VS Code."""

from __future__ import annotations

import json
import os
import shlex
import sys
from pathlib import Path

import pytest

from tests.clients.house import environment, run
from tests.vscode.editor import code_command
from tests.vscode.vsix import build

pytestmark = pytest.mark.slow


async def test_the_extension_is_installed_and_removed_by_real_vs_code(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    app = Path(request.config.getoption("--vscode-app"))
    program = tmp_path / "bin" / "code-server"
    program.parent.mkdir()
    command = shlex.join(map(str, code_command(app, tmp_path)))
    program.write_text(f'#!/bin/sh\nexec {command} "$@"\n', "utf-8")
    program.chmod(0o755)
    env = environment(tmp_path, SHELL="/bin/sh")
    env["PATH"] = f"{program.parent}{os.pathsep}{env['PATH']}"
    if "PYTHONPATH" in os.environ:
        env["PYTHONPATH"] = os.environ["PYTHONPATH"]
    connect = [sys.executable, "-m", "antiphon", "connect", "vscode", "--extension"]
    vsix = build(tmp_path / "antiphon.vsix")

    installed = await run(*connect, "--vsix", vsix, cwd=tmp_path, env=env)
    listed = json.loads((tmp_path / "extensions" / "extensions.json").read_text("utf-8"))
    removed = await run(*connect, "--undo", cwd=tmp_path, env=env)
    left = json.loads((tmp_path / "extensions" / "extensions.json").read_text("utf-8"))

    assert installed.code == 0, installed.err
    assert f"Installed the extension into {program}." in installed.err
    assert [one["identifier"]["id"] for one in listed] == ["antiphon.antiphon"]
    assert (removed.code, left) == (0, [])

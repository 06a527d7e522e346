"""A gateway of one process that every test of the commands may ask."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.cli.processes import Served, serve


@pytest.fixture(autouse=True)
def own_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run each test in a directory of its own, without the user's settings and keys."""
    for name in list(os.environ):
        if name.startswith(("ANTIPHON_", "OPENAI_", "XDG_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def runner() -> CliRunner:
    """Runs commands in this process."""
    return CliRunner()


@pytest.fixture(scope="session")
def echo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A gateway in a process of its own whose model echoes."""
    with serve("--store", "memory:", home=tmp_path_factory.mktemp("echo")) as served:
        yield served

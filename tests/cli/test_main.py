"""The command line as a whole: help, version, speed of import, and how faults are told."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from antiphon import __version__
from antiphon.cli import main
from antiphon.gateway.errors import BadSettings, Unavailable
from antiphon.protocol.errors import AntiphonError, StoreUnavailable

_PATHS = [
    [],
    ["serve"],
    ["ask"],
    ["chat"],
    ["check"],
    ["keys"],
    ["keys", "create"],
    ["keys", "list"],
    ["keys", "revoke"],
    ["models"],
    ["models", "pull"],
    ["models", "list"],
    ["bench"],
]


def test_version_is_that_of_the_package(runner: CliRunner) -> None:
    assert __version__ in runner.invoke(main, ["--version"]).output


@pytest.mark.parametrize("path", _PATHS, ids=" ".join)
def test_every_help_says_what_it_does_and_shows_an_example(
    runner: CliRunner, path: list[str]
) -> None:
    shown = runner.invoke(main, [*path, "--help"])
    assert shown.exit_code == 0
    assert "antiphon " + " ".join(path) in " ".join(shown.output.split("Example:")[-1].split())


def test_help_and_import_leave_the_heavy_modules_alone() -> None:
    code = (
        "import sys\n"
        "from antiphon.cli import main\n"
        "main(['--help'], standalone_mode=False)\n"
        "heavy = {'aiohttp', 'asyncio', 'msgspec', 'sqlite3', 'cryptography', 'jsonschema_rs'}\n"
        "print('LOADED', sorted(heavy & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "LOADED []"


def test_an_unknown_command_is_a_usage_error(runner: CliRunner) -> None:
    result = runner.invoke(main, ["sing"])
    assert result.exit_code == 2
    assert "No such command 'sing'" in result.output


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        (StoreUnavailable("the disk is full"), "Error: the disk is full\n"),
        (ZeroDivisionError("oh"), "Error: unexpected ZeroDivisionError: oh; this is a bug"),
    ],
)
def test_a_fault_is_one_sentence_without_a_traceback(
    runner: CliRunner, monkeypatch: pytest.MonkeyPatch, fault: Exception, sentence: str
) -> None:
    result = runner.invoke(_broken(monkeypatch, fault), ["keys"])
    assert result.exit_code == 1
    assert result.stderr.startswith(sentence)
    assert "Traceback" not in result.stderr


def test_debugging_shows_where_it_broke(runner: CliRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTIPHON_DEBUG", "1")
    result = runner.invoke(_broken(monkeypatch, ZeroDivisionError("oh")), ["keys"])
    assert isinstance(result.exception, ZeroDivisionError)


@pytest.mark.parametrize("debug", ["", "1"])
@pytest.mark.parametrize(
    ("fault", "code"), [(BadSettings("no such file"), 2), (Unavailable("the port is taken"), 1)]
)
def test_what_the_user_can_repair_is_a_sentence_also_when_debugging(
    runner: CliRunner, monkeypatch: pytest.MonkeyPatch, debug: str, fault: AntiphonError, code: int
) -> None:
    monkeypatch.setenv("ANTIPHON_DEBUG", debug)
    result = runner.invoke(_broken(monkeypatch, fault), ["keys"])
    assert (result.exit_code, result.stderr) == (code, f"Error: {fault.message}\n")


def _broken(monkeypatch: pytest.MonkeyPatch, fault: Exception) -> click.Group:
    @click.command()
    def broken() -> None:
        raise fault

    monkeypatch.setattr("antiphon.cli.keys.command", broken)
    return main


def test_the_module_runs_as_a_program(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "antiphon", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"antiphon, version {__version__}\n"

"""Deprecated flags work, warn, are not in the help, and end when the page says so."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest
from click.testing import CliRunner

from antiphon import __version__
from antiphon.cli import main
from antiphon.cli.deprecated import FLAGS, DeprecatedFlag

PAGE: Final = (Path(__file__).parents[2] / "docs/topics/releases.md").read_text()


def _create(runner: CliRunner, tmp_path: Path, *flags: str) -> tuple[int, str, str]:
    store = f"sqlite:{tmp_path / 'a.db'}"
    done = runner.invoke(main, ["keys", "create", *flags, "--store", store])
    return done.exit_code, done.stdout, done.stderr


def test_the_old_flag_works_and_warns_on_stderr_only(runner: CliRunner, tmp_path: Path) -> None:
    code, printed, warned = _create(runner, tmp_path, "--owner", "ann")
    assert code == 0
    assert re.fullmatch(r"ak_[\w-]+\n", printed)
    assert "of ann." in warned
    assert warned.startswith(
        "Warning: --owner of `antiphon keys create` is deprecated since 0.2; use --project."
        " It may be removed in 0.4.\n"
    )


def test_its_replacement_does_not_warn(runner: CliRunner, tmp_path: Path) -> None:
    code, _, warned = _create(runner, tmp_path, "--project", "ann")
    assert (code, "deprecated" in warned, "of ann." in warned) == (0, False, True)


@pytest.mark.parametrize("is_old_first", [True, False])
def test_two_values_that_differ_are_refused(
    runner: CliRunner, tmp_path: Path, is_old_first: bool
) -> None:
    flags = [("--owner", "ann"), ("--project", "bob")]
    ordered = flags if is_old_first else flags[::-1]
    code, _, warned = _create(runner, tmp_path, *(word for pair in ordered for word in pair))
    assert code == 2
    assert "--owner and --project differ" in warned


@pytest.mark.parametrize("flag", FLAGS, ids=lambda flag: flag.old)
def test_the_help_has_the_replacement_only(runner: CliRunner, flag: DeprecatedFlag) -> None:
    shown = runner.invoke(main, [*flag.command.split()[1:], "--help"]).stdout
    assert flag.new in shown and flag.old not in shown


def test_the_page_lists_what_is_deprecated() -> None:
    section = PAGE.partition("\n## Deprecations\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `(.+?)` \| `(.+?)` \| ([\d.]+) \| ([\d.]+) \|$", section, re.MULTILINE)
    assert rows == [(f"{one.command} {one.old}", one.new, one.since, one.until) for one in FLAGS]


@pytest.mark.parametrize("flag", FLAGS, ids=lambda flag: flag.old)
def test_nothing_outlives_its_version(flag: DeprecatedFlag) -> None:
    now, since, until = (
        tuple(map(int, version.split(".")[:2])) for version in (__version__, flag.since, flag.until)
    )
    assert now < until, "remove it, or name a later version"
    assert until >= (since[0], since[1] + 2) or until[0] > since[0]

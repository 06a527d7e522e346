"""The reference of the commands has every flag there is, and no other."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from antiphon.cli import main

_PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "cli.md").read_text()
_GROUPS = (
    "keys",
    "projects",
    "budgets",
    "limits",
    "ledger",
    "models",
    "files",
    "vector-stores",
    "config",
    "store",
)


def _commands() -> Iterator[tuple[str, click.Command]]:
    context = click.Context(main)
    for name in main.list_commands(context):
        command = main.get_command(context, name)
        assert command is not None
        yield name, command.make_context(name, [], resilient_parsing=True).command


_COMMANDS = dict(_commands())


def _section(name: str) -> str:
    """Return what the reference says of a command."""
    return _PAGE.partition(f"## `antiphon {name}`")[2].partition("\n## ")[0]


def _rows(section: str) -> list[list[str]]:
    """Return the cells of the table of flags."""
    (table,) = re.findall(r"^\|.*\bflags?\b.*\|\n\|[-|]+\|\n((?:\|.*\n)+)", section, re.MULTILINE)
    return [line.strip("|").split(" | ") for line in table.splitlines()]


def _named(text: str) -> set[str]:
    return set(re.findall(r"(?<![\w-])--?[a-z][\w-]*", text))


def _flags(command: click.Command) -> set[str]:
    options = [param for param in command.params if isinstance(param, click.Option)]
    return {flag for option in options for flag in (*option.opts, *option.secondary_opts)}


def test_every_command_has_a_section() -> None:
    assert re.findall(r"^## `antiphon ([\w-]+)`", _PAGE, re.MULTILINE) == list(_COMMANDS)


@pytest.mark.parametrize("name", [name for name in _COMMANDS if name not in _GROUPS])
def test_the_table_of_a_command_has_its_flags(name: str) -> None:
    assert {flag for row in _rows(_section(name)) for flag in _named(row[0])} == _flags(
        _COMMANDS[name]
    )


@pytest.mark.parametrize("name", [name for name in _COMMANDS if name not in _GROUPS])
def test_the_defaults_in_a_table_are_those_of_the_command(name: str) -> None:
    told = {flag: row[1] for row in _rows(_section(name)) for flag in _named(row[0])}
    for option in _COMMANDS[name].params:
        if isinstance(option.default, str | int | float) and not isinstance(option.default, bool):
            default = f"{option.default:g}" if isinstance(option.default, float) else option.default
            assert f"`{default}`" in told[option.opts[0]]


@pytest.mark.parametrize("name", _GROUPS)
def test_the_table_of_a_group_has_the_flags_of_each_command(name: str) -> None:
    group = _COMMANDS[name]
    assert isinstance(group, click.Group)
    section = _section(name)
    told = {re.findall(r"[\w-]+", row[0])[0]: _named(row[1]) for row in _rows(section)}
    for names, flags in re.findall(r"^(`.+`) take (`--.+)\.$", section, re.MULTILINE):
        for command in re.findall(r"`(\w+)`", names):
            told[command] |= _named(flags)
    assert told == {command: _flags(found) for command, found in group.commands.items()}

"""What a command says when it cannot go on: one sentence, what to do, and an exit code.

CliError          1: it was tried and did not work
└── BadSettings   2: it was not tried, because what was asked for makes no sense
"""

from __future__ import annotations

import click

__all__ = ["BadSettings", "CliError", "NoServer"]


class CliError(click.ClickException):
    """It did not work. The message is what the person at the terminal reads."""


class BadSettings(CliError):
    """A flag, a variable or a key of the file that cannot be used."""

    exit_code = 2


class NoServer(CliError):
    """Nobody is there to be checked, or nobody who lets us in."""

    exit_code = 2

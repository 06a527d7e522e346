"""What a command says when it cannot go on: one sentence, what to do, and an exit code.

CliError          1: it was tried and did not work
├── BadSettings   2: it was not tried, because what was asked for makes no sense
└── NoServer      2: it was not tried, because there is no server to check
"""

from __future__ import annotations

import sys

import click

__all__ = ["BadSettings", "CliError", "NoServer", "how_to_install"]


class CliError(click.ClickException):
    """It did not work. The message is what the person at the terminal reads, in one line."""

    def format_message(self) -> str:
        """Return the message as it is shown: a server may have had a word in it."""
        from antiphon.cli.terminal import harmless

        return harmless(" ".join(self.message.splitlines()), sys.stderr)


class BadSettings(CliError):
    """A flag, a variable or a key of the file that cannot be used."""

    exit_code = 2


class NoServer(CliError):
    """Nobody is there to be checked, or nobody who lets us in."""

    exit_code = 2


def how_to_install(extra: str) -> str:
    """Return the command that brings an extra of the package, which is not on any index."""
    return f"`pip install '.[{extra}]'` in antiphon's directory"

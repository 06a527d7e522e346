"""Why a command failed: one sentence with what to do, and an exit code.

CliError      1: it was tried and failed
└── Misuse    2: it was not tried, because a flag, a variable, a file or a server cannot be used

The other rooms raise their own errors, and commands raise `BadSettings` of the gateway.
`translate` is the one place that turns these into a CliError.
"""

from __future__ import annotations

import sys

import click

from antiphon.gateway.errors import BadSettings
from antiphon.protocol.errors import AntiphonError

__all__ = ["CliError", "Misuse", "translate"]


class CliError(click.ClickException):
    """The command failed. The user reads the message, in one line."""

    def format_message(self) -> str:
        """Return the message without control characters: parts of it may come from a server."""
        from antiphon.cli.terminal import harmless

        return harmless(" ".join(self.message.splitlines()), sys.stderr)


class Misuse(CliError):
    """The user asked for something that cannot be."""

    exit_code = 2


def translate(error: AntiphonError) -> CliError:
    """Return the error as the user sees it."""
    return (Misuse if isinstance(error, BadSettings) else CliError)(error.message)

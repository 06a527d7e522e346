"""Which flags are deprecated, and what happens when one is used?

A deprecated flag works as before and writes one line to stderr, which names its replacement and
the version that may remove it. It is not in the help any more. `docs/topics/releases.md` states the
policy; a test compares its table with `FLAGS`, and fails when a flag has outlived its version.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import click

__all__ = ["FLAGS", "DeprecatedFlag", "deprecated_flag"]


class DeprecatedFlag(NamedTuple):
    """A flag with a replacement: deprecated in `since`, removed in `until` at the earliest."""

    command: str
    old: str
    new: str
    since: str
    until: str

    @property
    def warning(self) -> str:
        """What is written when it is used."""
        return (
            f"Warning: {self.old} of `{self.command}` is deprecated since {self.since}; use"
            f" {self.new}. It may be removed in {self.until}."
        )


FLAGS: Final = (DeprecatedFlag("antiphon keys create", "--owner", "--project", "0.2", "0.4"),)


def deprecated_flag(flag: DeprecatedFlag) -> Callable[..., Any]:
    """Return the decorator that lets a command take the old flag beside its replacement."""
    new, old = (name.lstrip("-").replace("-", "_") for name in (flag.new, flag.old))

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(command)
        def run(**values: Any) -> Any:  # Any: what a command takes
            given = values.pop(old)
            if given is not None:
                click.echo(flag.warning, err=True)
                if values[new] not in (None, given):
                    raise click.UsageError(f"{flag.old} and {flag.new} differ: pass {flag.new}")
                values[new] = given
            return command(**values)

        return click.option(flag.old, metavar="ID", hidden=True)(run)

    return decorate

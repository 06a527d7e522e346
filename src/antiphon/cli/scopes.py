"""Whom a budget or a limit is about: the options that choose it, and the check that it exists.

A user, a conversation and a run are named within their project. A budget that no key can reach
would only look like protection, so a project or a key that does not exist is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import click
import msgspec

from antiphon.accounts.amounts import NESTED, join_scope, split_scope
from antiphon.cli.errors import CliError
from antiphon.gateway.errors import BadSettings
from antiphon.store import Store
from antiphon.store.base.ledger import ORGANIZATION, Scope

__all__ = ["Target", "read_target", "scope_options", "scope_words"]

_OPTIONS: Final = (
    click.option("--organization", is_flag=True, help="All projects together."),
    click.option("--project", metavar="ID", help="A project; also that of a user or a run."),
    click.option("--key", metavar="ID", help="An API key, by its id."),
    click.option("--user", metavar="NAME", help="A user of the project."),
    click.option("--conversation", metavar="ID", help="A conversation of the project."),
    click.option("--run", metavar="NAME", help="A run of the project (x-antiphon-run)."),
)


class Target(msgspec.Struct, frozen=True):
    """Whom something is about."""

    scope: Scope
    scope_id: str
    project: str | None

    async def check(self, opened: Store) -> None:
        """Raise CliError if the project or the key is not there."""
        if self.scope == "key":
            key = await opened.find_key(self.scope_id)
            if key is None or key.revoked_at is not None:
                raise CliError(
                    f"no key {self.scope_id!r} is valid; `antiphon keys list` shows all keys"
                )
        elif self.project is not None and await opened.projects.get(self.project) is None:
            raise CliError(
                f"there is no project {self.project!r}; `antiphon projects list` shows all, and "
                f"`antiphon projects create {self.project}` makes one"
            )


def scope_options(function: Callable[..., None]) -> Callable[..., None]:
    """Add the options that choose a target."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def read_target(chosen: dict[str, Any]) -> Target:  # Any: the values of options
    """Return whom the options choose. Raise BadSettings unless it is one."""
    project: str | None = chosen["project"]
    narrow: list[Scope] = [
        scope for scope in ("key", "user", "conversation", "run") if chosen[scope]
    ]
    if chosen["organization"]:
        if narrow or project:
            raise BadSettings("--organization is about everything: leave the others out")
        return Target("organization", ORGANIZATION, None)
    if len(narrow) > 1:
        raise BadSettings(f"choose one of --{' and --'.join(narrow)}")
    if not narrow:
        if not project:
            raise BadSettings(
                "choose one with --organization, --project, --key, --user, --conversation or --run"
            )
        return Target("project", project, project)
    (scope,) = narrow
    if scope in NESTED and not project:
        raise BadSettings(f"--{scope} is named within its project: add --project")
    if scope not in NESTED and project:
        raise BadSettings(f"--{scope} needs no --project")
    return Target(scope, join_scope(scope, chosen[scope], project), project)


def scope_words(scope: Scope, scope_id: str) -> str:
    """Return whom something is about, in words."""
    if scope == "organization":
        return "organization"
    project, name = split_scope(scope, scope_id)
    return f"{scope} {name} of {project}" if scope in NESTED else f"{scope} {name}"

"""`antiphon projects`: those who own data in a gateway, and the removal of all they have."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Container, Mapping
from typing import Final

import click
from msgspec import UNSET

from antiphon.cli.errors import CliError
from antiphon.cli.progress import is_shown
from antiphon.cli.store_use import audit_record, date_of, store_options, with_store
from antiphon.cli.terminal import columns, harmless
from antiphon.gateway.errors import BadSettings
from antiphon.store import Store
from antiphon.store.base import Project, ProjectChange
from antiphon.store.base.ledger import Budget, RateLimit
from antiphon.store.base.projects import LOCAL_PROJECT

__all__ = ["command"]

_PAGE: Final = 500
# A running gateway refuses the keys of an archived project within a second.
_SETTLE_SECONDS: Final = 1.0


@click.group("projects", epilog="Example:  antiphon projects create alice --name 'Alice Ayres'")
def command() -> None:
    """Create, change, archive and purge the projects of a gateway.

    A project owns responses, conversations, files and keys, and sees nothing of others. An owner
    that keys name is a project too. Pass the same --store or --config as for `antiphon serve`.
    """


@command.command("list", epilog="Example:  antiphon projects list --all")
@click.option("--all", "with_archived", is_flag=True, help="Also those that are archived.")
@store_options
def list_(with_archived: bool, store: str | None, config: str | None) -> None:
    """List the projects, oldest first."""
    projects, keys = with_store(store, config, lambda opened: _read_all(opened, with_archived))
    rows = [("ID", "CREATED", "KEYS", "STATE", "NAME")]
    rows += [
        (
            one.id,
            date_of(one.created_at) if one.created_at else "always",
            str(keys.get(one.id, 0)),
            _state(one),
            one.name,
        )
        for one in projects
    ]
    click.echo(harmless("\n".join(columns(rows)), sys.stdout))


@command.command("create", epilog="Example:  antiphon projects create alice --never-store")
@click.argument("project_id", metavar="ID")
@click.option("--name", help="A description, shown in the list.  [default: the id]")
@click.option("--never-store", is_flag=True, help="Store nothing of its requests.")
@store_options
def create(
    project_id: str, name: str | None, never_store: bool, store: str | None, config: str | None
) -> None:
    """Create a project. `antiphon keys create --project ID` makes a key for it."""
    if not project_id.strip():
        raise BadSettings("ID must not be empty")
    project = Project(project_id, name or project_id, int(time.time()), None, never_store)
    body = {"name": project.name, "never_store": never_store}
    audit = audit_record("project.created", project_id, project_id, body)
    try:
        with_store(
            store,
            config,
            lambda opened: opened.projects.create(project, audit=audit),
            may_make=True,
        )
    except ValueError as error:
        raise CliError(str(error)) from None
    click.echo(f"Project {project_id} is created.", err=True)


@command.command("update", epilog="Example:  antiphon projects update alice --never-store")
@click.argument("project_id", metavar="ID")
@click.option("--name", help="A description, shown in the list.")
@click.option(
    "--never-store/--may-store", default=None, help="Whether nothing of its requests is stored."
)
@store_options
def update(
    project_id: str,
    name: str | None,
    never_store: bool | None,
    store: str | None,
    config: str | None,
) -> None:
    """Change a project. What is stored already stays; `purge` removes it."""
    change = ProjectChange(
        name=UNSET if name is None else name,
        never_store=UNSET if never_store is None else never_store,
    )
    given = {"name": name, "never_store": never_store}
    body = {key: value for key, value in given.items() if value is not None}
    audit = audit_record("project.updated", project_id, project_id, body)
    found = with_store(
        store, config, lambda opened: opened.projects.update(project_id, change, audit=audit)
    )
    if found is None:
        raise _no_project(project_id)
    click.echo(f"Project {project_id} is changed.", err=True)


@command.command("archive", epilog="Example:  antiphon projects archive alice")
@click.argument("project_id", metavar="ID")
@store_options
def archive(project_id: str, store: str | None, config: str | None) -> None:
    """Archive a project: its keys are refused from now on, and what runs under them ends.

    Its data stays. Responses in the background go on.
    """
    with_store(store, config, lambda opened: _archive(opened, project_id))
    click.echo(f"Project {project_id} is archived.", err=True)


@command.command("purge", epilog="Example:  antiphon projects purge alice --dry-run")
@click.argument("project_id", metavar="ID")
@click.option("--dry-run", is_flag=True, help="Only count what would be removed.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@store_options
def purge(project_id: str, dry_run: bool, yes: bool, store: str | None, config: str | None) -> None:
    """Remove everything that a project has, its keys and itself.

    The project is archived first, so nothing new is stored. What stays are charges, which hold no
    content, and the audit log. This cannot be undone.
    """
    counts = with_store(store, config, lambda opened: _count(opened, project_id))
    _print(counts)
    if dry_run:
        click.echo("Nothing was removed.", err=True)
        return
    if not yes:
        question = f"Remove everything of the project {project_id!r} for ever?"
        click.confirm(question, abort=True, err=True)
    removed = with_store(store, config, lambda opened: _purge(opened, project_id))
    click.echo(f"Removed {sum(removed.values()):,} rows of the project {project_id}.", err=True)


async def _read_all(opened: Store, with_archived: bool) -> tuple[list[Project], dict[str, int]]:
    found: list[Project] = []
    while True:
        after = found[-1].id if found else None
        page = await opened.projects.page(after=after, limit=_PAGE, with_archived=with_archived)
        found += page
        if len(page) < _PAGE:
            break
    keys: dict[str, int] = {}
    for key in await opened.list_keys():
        keys[key.owner] = keys.get(key.owner, 0) + (key.revoked_at is None)
    return found, keys


async def _archive(opened: Store, project_id: str) -> None:
    audit = audit_record("project.archived", project_id, project_id)
    try:
        found = await opened.projects.archive(project_id, int(time.time()), audit=audit)
    except ValueError as error:
        raise CliError(str(error)) from None
    if found is None:
        raise _no_project(project_id)


async def _count(opened: Store, project_id: str) -> dict[str, int]:
    counts = await opened.projects.count_rows(project_id)
    if await opened.projects.get(project_id) is None and not any(counts.values()):
        raise _no_project(project_id)
    return counts


async def _purge(opened: Store, project_id: str) -> dict[str, int]:
    known = await opened.projects.get(project_id)
    if known is not None and project_id != LOCAL_PROJECT and known.archived_at is None:
        await _archive(opened, project_id)
        await asyncio.sleep(_SETTLE_SECONDS)
    keys = [key.id for key in await opened.list_keys() if key.owner == project_id]
    audit = audit_record("project.purged", project_id, project_id)
    removed = await opened.projects.purge(project_id, _progress, audit=audit)
    return removed | await _remove_limits(opened, project_id, keys)


async def _remove_limits(opened: Store, project_id: str, keys: Container[str]) -> dict[str, int]:
    """Remove the budgets and rate limits of a project, its keys, users, conversations and runs."""

    def is_gone(one: Budget | RateLimit) -> bool:
        if one.scope == "key":
            return one.scope_id in keys
        return one.scope_id == project_id or one.scope_id.startswith(f"{project_id}/")

    ledger = opened.ledger
    budgets = [state.budget for state in await ledger.budgets() if is_gone(state.budget)]
    limits = [limit for limit in await ledger.rate_limits() if is_gone(limit)]
    for budget in budgets:
        await ledger.delete_budget(budget.id)
    for limit in limits:
        await ledger.delete_limit(limit.id)
    return {"budgets": len(budgets), "rate_limits": len(limits)}


def _progress(table: str, count: int) -> None:
    if is_shown():
        click.echo(f"removing {count:,} from {table.replace('_', ' ')}", err=True)


def _print(counts: Mapping[str, int]) -> None:
    for table, count in counts.items():
        if count:
            click.echo(f"{table.replace('_', ' '):<20}{count:>12,}")
    click.echo(f"{'in all':<20}{sum(counts.values()):>12,}")


def _state(project: Project) -> str:
    if project.archived_at is not None:
        return f"archived {date_of(project.archived_at)}"
    return "never stored" if project.never_store else "active"


def _no_project(project_id: str) -> CliError:
    return CliError(
        f"there is no project {project_id!r}; `antiphon projects list --all` shows all of them"
    )

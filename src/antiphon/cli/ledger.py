"""`antiphon ledger`: prove that the books are right, and take the charges elsewhere."""

from __future__ import annotations

import asyncio
import csv
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import click
import msgspec

from antiphon.cli.figures import read_since
from antiphon.cli.progress import is_shown
from antiphon.cli.store_use import store_options, with_store
from antiphon.cli.terminal import harmless
from antiphon.models.prices import dollars_of
from antiphon.store import Store
from antiphon.store.base.ledger import Charge, LedgerProblem

__all__ = ["command"]

_PAGE: Final = 1000
_FOUND: Final = 1
_ABANDONED: Final = "I7"
_encode: Final = msgspec.json.Encoder().encode


@click.group("ledger", epilog="Example:  antiphon ledger check")
def command() -> None:
    """Check the ledger of a gateway, or export its charges.

    A charge is one call of an upstream. Sums, budgets and limits can be proved from the charges.
    """


@command.command("check", epilog="Example:  antiphon ledger check --store sqlite:antiphon.db")
@store_options
def check(store: str | None, config: str | None) -> None:
    """Check every sum of the ledger against the charges; exit with 1 if something is wrong.

    Each contradiction is one line: the rule, what it is about, and what was found. Nothing is
    changed.
    """
    problems = with_store(store, config, _check)
    if not problems:
        click.echo("The ledger is right: every sum follows from the charges.", err=True)
        return
    for one in problems:
        click.echo(harmless(f"{one.rule}  {one.subject}: {one.message}", sys.stdout))
    click.echo(f"Contradictions: {len(problems):,}.", err=True)
    if any(one.rule == _ABANDONED for one in problems):
        click.echo(
            "A charge whose process has died is settled by the next gateway that runs here.",
            err=True,
        )
    raise click.exceptions.Exit(_FOUND)


@command.command(
    "export", epilog="Example:  antiphon ledger export --since 30d --format csv > charges.csv"
)
@click.option(
    "--since",
    metavar="TIME",
    help="A span such as 90m, 24h, 7d or 4w, or a date.  [default: everything]",
)
@click.option("--project", metavar="ID", help="Only this project.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["jsonl", "csv"]),
    default="jsonl",
    show_default=True,
    help="One object or one row per charge.",
)
@store_options
def export(
    since: str | None, project: str | None, form: str, store: str | None, config: str | None
) -> None:
    """Write every charge to stdout, newest first."""
    start = 0 if since is None else read_since(since, time.time())
    count = with_store(store, config, lambda opened: _export(opened, start, project, form))
    click.echo(f"{count:,} charges.", err=True)


async def _check(opened: Store) -> list[LedgerProblem]:
    async with _watched("Reading every charge"):
        return await opened.ledger.check()


@asynccontextmanager
async def _watched(label: str) -> AsyncIterator[None]:
    """Show on a terminal how long something has been going on."""
    watch = asyncio.create_task(_show_seconds(label))
    try:
        yield
    finally:
        watch.cancel()
        if is_shown():
            click.echo("\r\x1b[K", nl=False, err=True)


async def _show_seconds(label: str) -> None:
    seconds = 0
    while is_shown():
        await asyncio.sleep(1)
        seconds += 1
        click.echo(f"\r\x1b[K{label}: {seconds} s", nl=False, err=True)


async def _export(opened: Store, start: int, project: str | None, form: str) -> int:
    """Write the charges page by page; return how many they are."""
    writer = csv.writer(sys.stdout, lineterminator="\n") if form == "csv" else None
    count = 0
    async for charge in _charges(opened, start, project):
        row = _as_row(charge)
        if writer is None:
            click.echo(_encode(row))
        else:
            if count == 0:
                writer.writerow(row)
            writer.writerow("" if value is None else value for value in row.values())
        count += 1
        if is_shown() and not sys.stdout.isatty() and count % _PAGE == 0:
            click.echo(f"\r\x1b[K{count:,} charges", nl=False, err=True)
    if is_shown() and count >= _PAGE:
        click.echo("\r\x1b[K", nl=False, err=True)
    return count


async def _charges(opened: Store, start: int, project: str | None) -> AsyncIterator[Charge]:
    before: tuple[float, str, int] | None = None
    while True:
        page = await opened.ledger.charges(project=project, before=before, limit=_PAGE)
        for charge in page:
            if charge.reserved_at < start:
                return
            yield charge
        if len(page) < _PAGE:
            return
        before = (page[-1].reserved_at, page[-1].response_id, page[-1].number)


def _as_row(charge: Charge) -> dict[str, Any]:
    """Return a charge as flat values; a cost that is not known is None."""
    payer = charge.payer
    return {
        "response_id": charge.response_id,
        "number": charge.number,
        "state": charge.state,
        "kind": charge.kind,
        "project": payer.project,
        "key": payer.key,
        "user": payer.user,
        "conversation": payer.conversation,
        "run": payer.run,
        "model": charge.model,
        "served": charge.served,
        "provider": charge.provider,
        "reserved_at": charge.reserved_at,
        "settled_at": charge.settled_at,
        "outcome": charge.outcome,
        "basis": charge.basis,
        "fresh_tokens": charge.used.fresh,
        "cached_tokens": charge.used.cached,
        "cache_write_tokens": charge.used.cache_write,
        "output_tokens": charge.used.output,
        "reasoning_tokens": charge.used.reasoning,
        "cost_usd": None if charge.cost is None else dollars_of(charge.cost),
        "held_tokens": charge.held.total if charge.state == "held" else 0,
        "first_ms": charge.first_ms,
        "total_ms": charge.total_ms,
    }

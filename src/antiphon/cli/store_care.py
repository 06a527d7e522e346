"""`antiphon store backup`, `check`, `stats` and `migrate`: what keeps a store in good health."""

from __future__ import annotations

import sqlite3
import sys
import time
from pathlib import Path
from typing import Final

import click

from antiphon.cli import options
from antiphon.cli.errors import CliError
from antiphon.cli.store_use import date_of, named_store, run, show_progress
from antiphon.cli.terminal import harmless
from antiphon.gateway.errors import BadSettings
from antiphon.gateway.places import using_store
from antiphon.store.check import Checked, Finding, check_books, check_store
from antiphon.store.migrate import Pending, find_pending, migrate_store
from antiphon.store.open import is_postgres, path_of, public_url
from antiphon.store.sqlite.backup import backup as back_up
from antiphon.store.sqlite.connection import unavailable
from antiphon.store.stats import TableStats, read_stats

__all__ = ["backup", "check", "migrate", "stats"]

_FOUND: Final = 1


@click.command("backup", epilog="Example:  antiphon store backup /backup/antiphon-monday.db")
@click.argument("file", type=click.Path(path_type=Path))
@click.argument("url", metavar="[URL]", required=False)
@options.store_config
def backup(file: Path, url: str | None, config: str | None) -> None:
    """Copy a store in SQLite to FILE while gateways use it.

    The backup is the store at one moment: FILE, and beside it FILE-files and FILE-blobs if there
    are files of callers. It is complete or it does not exist, and it overwrites nothing. To
    restore it, stop the gateways and put the files in the place of the store, or serve them where
    they are: antiphon serve --store sqlite:FILE.
    """
    url = _known(named_store(url, config))
    if is_postgres(url):
        raise BadSettings(
            "PostgreSQL makes its backups itself, also while gateways run: "
            f"pg_dump --format=custom --file={file} '{public_url(url)}'; "
            f"pg_restore --dbname=URL {file} restores it into an empty database"
        )
    started = time.monotonic()
    try:
        made = back_up(path_of(url), file, _show_steps)
    except (sqlite3.Error, OSError) as error:
        raise CliError(f"the backup was not made: {unavailable(error).message}") from error
    seconds = time.monotonic() - started
    files = f", files of callers: {made.blobs:,}" if made.blobs else ""
    click.echo(
        f"Backed up {public_url(url)} to {file} in {seconds:.1f} s: {made.size:,} bytes{files}.\n"
        f"Check it with `antiphon store check sqlite:{file}`.",
        err=True,
    )


@click.command("check", epilog="Example:  antiphon store check sqlite:antiphon.db")
@click.argument("url", metavar="[URL]", required=False)
@options.store_config
def check(url: str | None, config: str | None) -> None:
    """Check that everything in a store is whole; exit with 1 if something is not.

    The database's own pages, every response, item and log, the contents of files, rows that
    belong to nothing, the sums of the ledger and the chain of the audit log. Each finding is one
    line. Nothing is changed, and gateways may run.
    """
    url = _known(named_store(url, config))
    checked = run(_check(url))
    for one in checked.findings:
        click.echo(harmless(f"{one.where}: {one.message}", sys.stdout))
    if checked.unfinished:
        click.echo(
            f"{checked.unfinished:,} turns have not ended; the gateway that runs, or the next one,"
            " ends them.",
            err=True,
        )
    if checked.findings:
        click.echo(f"Findings: {len(checked.findings):,}.", err=True)
        raise click.exceptions.Exit(_FOUND)
    click.echo("The store is whole: nothing was found.", err=True)


@click.command("stats", epilog="Example:  antiphon store stats sqlite:antiphon.db")
@click.argument("url", metavar="[URL]", required=False)
@options.store_config
def stats(url: str | None, config: str | None) -> None:
    """Show each table with its rows, its bytes, how long it is kept and its oldest row.

    The class of retention decides how long: see "What is kept, how long" in the documentation.
    """
    url = _known(named_store(url, config))
    found = run(read_stats(url))
    click.echo(f"{'table':<20}{'class':<14}{'rows':>14}{'bytes':>18}  oldest")
    for one in found:
        click.echo(_line(one))
    total = sum(one.size or 0 for one in found)
    click.echo(f"{'total':<34}{sum(one.rows for one in found):>14,}{total:>18,}")


@click.command("migrate", epilog="Example:  antiphon store migrate --check")
@click.argument("url", metavar="[URL]", required=False)
@click.option(
    "--check",
    "only_check",
    is_flag=True,
    help="Write nothing; exit with 1 if something is missing.",
)
@options.store_config
def migrate(url: str | None, only_check: bool, config: str | None) -> None:
    """Bring the tables of a store up to date, as the first gateway of a new version would.

    Migrations only add, so gateways of the version before go on. With --check nothing is written:
    what would be done is shown.
    """
    url = _known(named_store(url, config))
    if only_check:
        pending = [one for one in run(find_pending(url)) if not one.is_newest]
        for one in pending:
            _show_pending(one)
        if pending:
            raise click.exceptions.Exit(_FOUND)
        click.echo("The store is up to date.", err=True)
        return
    for one in run(migrate_store(url)):
        if one.is_newest:
            click.echo(f"{one.name} is up to date (version {one.version}).", err=True)
        else:
            click.echo(f"{one.name}: from version {one.version} to {one.newest}.", err=True)


def _show_pending(one: Pending) -> None:
    if one.version:
        click.echo(f"{one.name}: version {one.version}, the newest is {one.newest}:")
    else:
        click.echo(f"{one.name}: not there yet; version {one.newest} would be made:")
    for statement in one.statements:
        click.echo(f"  {statement}")


async def _check(url: str) -> Checked:
    checked = await check_store(url, show_progress)
    if any(one.where == "database" for one in checked.findings):
        reason = "not checked: the database is damaged"
        return Checked([*checked.findings, Finding("ledger", reason)], checked.unfinished)
    async with using_store(url) as store:
        return Checked([*checked.findings, *await check_books(store)], checked.unfinished)


def _known(url: str) -> str:
    if url.startswith("memory:"):
        raise BadSettings("a memory: store exists only inside its own gateway; name another store")
    return url


def _line(one: TableStats) -> str:
    size = "-" if one.size is None else f"{one.size:,}"
    oldest = "-" if one.oldest is None else date_of(one.oldest)
    return f"{one.name:<20}{one.kind:<14}{one.rows:>14,}{size:>18}  {oldest}"


def _show_steps(what: str, done: int, total: int) -> None:
    """Show how far it is, on a terminal only: pages of a database are no news elsewhere."""
    if sys.stderr.isatty():
        click.echo(f"\r\x1b[K{what}: {done:,} of {total:,}", err=True, nl=done == total)

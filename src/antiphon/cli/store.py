"""`antiphon store`: what is in a store, and moving it elsewhere. See also `store_care`."""

from __future__ import annotations

import click

from antiphon.cli import options
from antiphon.cli.store_care import backup, check, migrate, stats
from antiphon.cli.store_use import named_store, run, show_progress
from antiphon.gateway.places import store_url
from antiphon.store.copy import copy_store, read_info
from antiphon.store.downgrade import allow_older, read_levels
from antiphon.store.open import public_url

__all__ = ["command"]


@click.group(
    "store",
    epilog="Example:  antiphon store copy sqlite:antiphon.db postgresql://antiphon@db/antiphon",
)
def command() -> None:
    """Show what is in the store of a gateway; copy, back up, check or upgrade it.

    URLs are those of `antiphon serve --store`: sqlite:PATH, postgresql://USER@HOST/DATABASE, or
    env:NAME for the URL in an environment variable. Keep a password in PGPASSWORD or
    ~/.pgpass rather than in the URL.
    """


@command.command(
    "copy",
    epilog="Example:  antiphon store copy sqlite:antiphon.db postgresql://antiphon@db/antiphon",
)
@click.argument("source", metavar="SRC")
@click.argument("target", metavar="DST")
@click.option(
    "--while-running",
    is_flag=True,
    help="Copy also if a gateway runs on SRC, as a backup of this moment.",
)
def copy(source: str, target: str, while_running: bool) -> None:
    """Copy everything in SRC to DST, which must be empty, and check the copy.

    DST holds the whole copy or nothing. SRC is left as it is. Stop the gateways of SRC first:
    what they store later is not in the copy. With --while-running the copy is SRC at one moment,
    and gateways keep running.
    """
    source, target = store_url(source), store_url(target)
    counts = run(copy_store(source, target, show_progress, while_running=while_running))
    _print_counts(counts)
    click.echo(
        f"Copied and checked: {sum(counts.values()):,} rows are in {public_url(target)}.", err=True
    )


@command.command("info", epilog="Example:  antiphon store info sqlite:antiphon.db")
@click.argument("url", metavar="[URL]", required=False)
@options.store_config
def info(url: str | None, config: str | None) -> None:
    """Show how much is in a store.

    Without a URL, this is the store that `antiphon serve` would use here: that of ANTIPHON_STORE,
    of the configuration file, or antiphon.db in the user's data directory.
    """
    found = run(read_info(named_store(url, config)))
    _print_counts(
        found.counts
        | {
            "unfinished turns": found.unfinished,
            "… in progress": found.busy,
            "running gateways": found.alive,
            "bytes": found.size,
        }
        | found.connections
    )


@command.command("allow-older", epilog="Example:  antiphon store allow-older 6")
@click.argument("version", type=int)
@click.argument("url", metavar="[URL]", required=False)
@click.option("--yes", is_flag=True, help="Do not ask.")
@options.store_config
def allow_older_command(version: int, url: str | None, yes: bool, config: str | None) -> None:
    """Let an older antiphon start on a store that this one has updated.

    VERSION is the number that the older one names when it refuses the database: "this antiphon
    knows versions up to VERSION". Needed only to go back; gateways of this version go on as
    before.
    """
    url = named_store(url, config)
    found = run(read_levels(url))
    for what, count in found.ignored.items():
        click.echo(f"An older antiphon ignores: {count:,} {what}", err=True)
    if found.ignored and version < found.now and not yes:
        click.confirm("Let it start all the same?", abort=True, err=True)
    run(allow_older(url, version))
    click.echo(f"Gateways that know version {min(version, found.now)} may start.", err=True)


def _print_counts(counts: dict[str, int]) -> None:
    for name, count in counts.items():
        click.echo(f"{name.replace('_', ' '):<20}{count:>12,}")


for _one in (backup, check, stats, migrate):
    command.add_command(_one)

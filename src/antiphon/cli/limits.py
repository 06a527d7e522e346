"""`antiphon limits`: how much may be asked for in a minute, and at once."""

from __future__ import annotations

import secrets
import sys
from typing import Any, Final

import click
import msgspec

from antiphon.accounts.amounts import split_scope
from antiphon.cli.errors import CliError
from antiphon.cli.figures import short_count
from antiphon.cli.scopes import Target, read_target, scope_options, scope_words
from antiphon.cli.store_use import audit_record, store_options, with_store
from antiphon.cli.terminal import columns, harmless
from antiphon.gateway.errors import BadSettings
from antiphon.store import Store
from antiphon.store.base.ledger import RateLimit

__all__ = ["command"]

_COUNT: Final = click.IntRange(1)
_MOST: Final = 10**12


@click.group("limits", epilog="Example:  antiphon limits set --key 1f0c2a9be4d05a7c --rpm 60")
def command() -> None:
    """List, set and delete rate limits: requests and tokens per minute, and requests at once.

    A request beyond a limit gets a 429 with the time to wait. A running gateway knows a change
    within a second.
    """


@command.command("list", epilog="Example:  antiphon limits list")
@store_options
def list_(store: str | None, config: str | None) -> None:
    """List the rate limits, oldest first."""
    limits = with_store(store, config, _read)
    if not limits:
        click.echo(
            "There are no rate limits; `antiphon limits set --project ID --rpm 60` sets one.",
            err=True,
        )
        return
    rows: list[tuple[str, ...]] = [("ID", "FOR", "MODEL", "RPM", "TPM", "CONCURRENT")]
    rows += [
        (
            limit.id,
            scope_words(limit.scope, limit.scope_id),
            limit.model or "all",
            *(_words(one) for one in (limit.requests, limit.tokens, limit.concurrent)),
        )
        for limit in limits
    ]
    click.echo(harmless("\n".join(columns(rows)), sys.stdout))


@command.command(
    "set", epilog="Example:  antiphon limits set --project acme --model qwen3 --tpm 100000"
)
@scope_options
@click.option("--model", default="", metavar="NAME", help="[default: all models together]")
@click.option("--rpm", type=_COUNT, metavar="COUNT", help="Requests per minute.")
@click.option("--tpm", type=_COUNT, metavar="COUNT", help="Tokens per minute.")
@click.option("--concurrent", type=_COUNT, metavar="COUNT", help="Requests at once.")
@store_options
def set_(
    model: str,
    rpm: int | None,
    tpm: int | None,
    concurrent: int | None,
    store: str | None,
    config: str | None,
    **chosen: Any,  # Any: the values of options
) -> None:
    """Set a rate limit. It replaces the one of the same scope and model as a whole."""
    target = read_target(chosen)
    if rpm is tpm is concurrent is None:
        raise BadSettings("give at least one of --rpm, --tpm and --concurrent")
    if max(rpm or 0, tpm or 0, concurrent or 0) > _MOST:
        raise BadSettings(f"a limit can be {_MOST:,} at most; leave it out for none")
    wanted = RateLimit(
        id=f"rl_{secrets.token_hex(8)}",
        scope=target.scope,
        scope_id=target.scope_id,
        model=model,
        requests=rpm,
        tokens=tpm,
        concurrent=concurrent,
    )
    limit = with_store(store, config, lambda opened: _put(opened, target, wanted))
    click.echo(limit.id)
    parts = ((rpm, "requests a minute"), (tpm, "tokens a minute"), (concurrent, "at once"))
    given = ", ".join(f"{count:,} {words}" for count, words in parts if count is not None)
    about = f" of {model}" if model else ""
    click.echo(f"{scope_words(limit.scope, limit.scope_id)}: {given}{about}.", err=True)


@command.command("delete", epilog="Example:  antiphon limits delete rl_1f0c2a9be4d05a7c")
@click.argument("limit_id", metavar="ID")
@store_options
def delete(limit_id: str, store: str | None, config: str | None) -> None:
    """Delete a rate limit."""
    if not with_store(store, config, lambda opened: _delete(opened, limit_id)):
        raise CliError(f"there is no limit {limit_id!r}; `antiphon limits list` shows all")
    click.echo(f"Limit {limit_id} is deleted.", err=True)


async def _read(opened: Store) -> list[RateLimit]:
    return await opened.ledger.rate_limits()


async def _put(opened: Store, target: Target, wanted: RateLimit) -> RateLimit:
    await target.check(opened)
    for old in await opened.ledger.rate_limits(wanted.scope, wanted.scope_id):
        if old.model == wanted.model:
            wanted = msgspec.structs.replace(wanted, id=old.id)
    await opened.ledger.put_limit(wanted)
    requested = {
        "model": wanted.model or None,
        "max_requests_per_1_minute": wanted.requests,
        "max_tokens_per_1_minute": wanted.tokens,
        "max_concurrent_requests": wanted.concurrent,
    }
    body = {"changes_requested": requested}
    await opened.audit.append(audit_record("rate_limit.updated", wanted.id, target.project, body))
    return wanted


async def _delete(opened: Store, limit_id: str) -> bool:
    for limit in await opened.ledger.rate_limits():
        if limit.id == limit_id and await opened.ledger.delete_limit(limit_id):
            project, _ = split_scope(limit.scope, limit.scope_id)
            await opened.audit.append(audit_record("rate_limit.deleted", limit_id, project, {}))
            return True
    return False


def _words(count: int | None) -> str:
    return "-" if count is None else short_count(count)

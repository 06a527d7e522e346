"""`antiphon keys`: the API keys of a gateway, which are kept in its store."""

from __future__ import annotations

import asyncio
import base64
import os
import secrets
import time
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from antiphon.cli import options
from antiphon.cli.errors import CliError
from antiphon.cli.terminal import columns
from antiphon.engine.prepare import seal as sealing
from antiphon.gateway.config import load
from antiphon.gateway.errors import BadSettings
from antiphon.gateway.places import store_url, using_store
from antiphon.server.auth import new_key
from antiphon.store import KeyRecord, Store

__all__ = ["command"]

_T = TypeVar("_T")

_DAY: Final = 86_400


@click.group("keys", epilog="Example:  antiphon keys create --owner alice --expires 90")
def command() -> None:
    """Create, list and revoke the API keys of a gateway.

    A gateway that other machines can reach requires a key. Keys are kept in the gateway's
    store: pass the same --store or --config as for `antiphon serve`.
    """


def _store_options(function: Callable[..., None]) -> Callable[..., None]:
    return click.option(
        "--store",
        metavar="URL",
        help="sqlite:PATH.  [default: antiphon.db in the user's data directory]",
    )(options.store_config(function))


@command.command(
    "create", epilog="Example:  antiphon keys create --owner alice --name laptop --expires 90"
)
@click.option(
    "--owner",
    help="The owner of the key; owners do not see each other's responses.  [default: a new one]",
)
@click.option("--name", default="", help="A description, shown in the list.")
@click.option("--expires", type=click.IntRange(1, 36_500), metavar="DAYS", help="[default: never]")
@_store_options
def create(
    owner: str | None, name: str, expires: int | None, store: str | None, config: str | None
) -> None:
    """Create a key and print it. It is shown only once: the store keeps its digest."""
    if owner is None:
        # Keys that were made without a thought about owners must not share anything.
        owner = f"owner-{secrets.token_hex(4)}"
    if not owner.strip():
        raise BadSettings("--owner must not be empty")
    now = int(time.time())
    expires_at = now + expires * _DAY if expires else None
    secret, record = new_key(owner, now, name=name, expires_at=expires_at)
    _with_store(store, config, lambda opened: opened.add_key(record))
    click.echo(secret)
    until = f", valid until {_date(expires_at)}" if expires_at else ""
    click.echo(f"Key {record.id} of {owner}{until}. It is not shown again.", err=True)


@command.command("list", epilog="Example:  antiphon keys list --store sqlite:antiphon.db")
@_store_options
def list_(store: str | None, config: str | None) -> None:
    """List the keys, oldest first, without their secrets."""
    records: list[KeyRecord] = _with_store(store, config, lambda opened: opened.list_keys())
    if not records:
        click.echo("There are no keys; `antiphon keys create` creates one.", err=True)
        return
    rows = [("ID", "OWNER", "CREATED", "STATE", "NAME")]
    now = time.time()
    rows += [
        (key.id, key.owner, _date(key.created_at), _state(key, now), key.name) for key in records
    ]
    click.echo("\n".join(columns(rows)))


@command.command("revoke", epilog="Example:  antiphon keys revoke 1f0c2a9be4d05a7c")
@click.argument("key_id", metavar="ID")
@_store_options
def revoke(key_id: str, store: str | None, config: str | None) -> None:
    """Revoke the key with this ID; a running gateway refuses it within seconds."""
    # The key itself is accepted too: the id is its middle part.
    if key_id.startswith("ak_"):
        key_id = key_id.split("_")[1]
    now = int(time.time())
    if not _with_store(store, config, lambda opened: opened.revoke_key(key_id, now)):
        raise CliError(f"no key {key_id!r} is valid; `antiphon keys list` shows all keys")
    click.echo(f"Key {key_id} is revoked.", err=True)


@command.command("seal", epilog="Example:  export ANTIPHON_SEAL_KEYS=$(antiphon keys seal)")
def seal() -> None:
    """Create a key that seals what the gateway gives to clients, and print it. It is not stored.

    Put it in the environment variable that `seal_keys_env` names, before the keys that are
    there already, separated by commas: the first key seals, all of them open.
    """
    click.echo(sealing.new_key())


@command.command("webhook", epilog="Example:  antiphon keys webhook")
def webhook() -> None:
    """Create a secret that signs webhooks, and print it. It is not stored.

    Put it in the environment variable that `secret_env` of [[webhooks]] names, and give it to
    the receiver, which checks the signatures.
    """
    click.echo(f"whsec_{base64.b64encode(secrets.token_bytes(32)).decode()}")


def _with_store(
    store: str | None,
    config: str | None,
    use: Callable[[Store], Coroutine[Any, Any, _T]],  # Any: what a coroutine is sent is nothing
) -> _T:
    """Open the store that is meant, use it, close it."""
    settings = load({"store": store, "config": config}, os.environ, Path.cwd()).settings
    url = store_url(settings.store)
    if url.startswith("memory:"):
        raise BadSettings("memory: does not keep keys; pass --store sqlite:PATH")

    async def run() -> _T:
        async with using_store(url) as opened:
            return await use(opened)

    return asyncio.run(run())


def _state(record: KeyRecord, now: float) -> str:
    if record.revoked_at is not None:
        return f"revoked {_date(record.revoked_at)}"
    if record.expires_at is None:
        return "in force"
    if record.expires_at <= now:
        return f"expired {_date(record.expires_at)}"
    return f"until {_date(record.expires_at)}"


def _date(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).date().isoformat()

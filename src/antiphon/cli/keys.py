"""`antiphon keys`: the API keys of a gateway, which are kept in its store."""

from __future__ import annotations

import base64
import secrets
import sys
import time
from datetime import UTC, datetime
from typing import Any, Final

import click

from antiphon.accounts.amounts import read_amount
from antiphon.accounts.principal import Role
from antiphon.cli.deprecated import FLAGS, deprecated_flag
from antiphon.cli.errors import CliError
from antiphon.cli.store_use import DURATION, audit_record, date_of, store_options, with_store
from antiphon.cli.terminal import columns, harmless
from antiphon.engine.prepare import seal as sealing
from antiphon.gateway.errors import BadSettings
from antiphon.models.prices import dollars_of
from antiphon.server.auth import new_key, new_secret, redact
from antiphon.store import KeyRecord, Store
from antiphon.store.base import AuditRecord
from antiphon.store.base.keys import ROLES, KeyChange

__all__ = ["command"]

_NO_BUDGET: Final = "none"


@click.group("keys", epilog="Example:  antiphon keys create --project alice --expires 90d")
def command() -> None:
    """Create, list, change, rotate and revoke the API keys of a gateway.

    A gateway that other machines can reach requires a key. Keys are kept in the gateway's
    store: pass the same --store or --config as for `antiphon serve`.
    """


@command.command(
    "create", epilog="Example:  antiphon keys create --project alice --name laptop --expires 90d"
)
@click.option(
    "--project",
    metavar="ID",
    help="The project of the key; projects do not see each other's responses."
    "  [default: a new one]",
)
@click.option("--name", default="", help="A description, shown in the list.")
@click.option(
    "--role",
    type=click.Choice(ROLES),
    default="user",
    show_default=True,
    help="user and viewer ask models, admin manages the gateway, metrics reads /metrics.",
)
@click.option("--user", metavar="NAME", help="The person or service that gets the key.")
@click.option(
    "--models",
    metavar="NAMES",
    help="The only models that it may ask for, separated by commas.  [default: all]",
)
@click.option("--never-store", is_flag=True, help="Store nothing of its requests.")
@click.option(
    "--run-budget",
    metavar="USD",
    help="What a run may cost whose requests name no budget.  [default: no limit]",
)
@click.option(
    "--max-run-budget",
    metavar="USD",
    help="The most that a run may cost.  [default: no limit]",
)
@click.option(
    "--expires", type=DURATION, metavar="TIME", help="Such as 90d or 12h.  [default: never]"
)
@deprecated_flag(FLAGS[0])
@store_options
def create(
    project: str | None,
    name: str,
    role: Role,
    user: str | None,
    models: str | None,
    never_store: bool,
    run_budget: str | None,
    max_run_budget: str | None,
    expires: int | None,
    store: str | None,
    config: str | None,
) -> None:
    """Create a key and print it. It is shown only once: the store keeps its digest."""
    if project is None:
        # Keys that were made without a thought about projects must not share anything.
        project = f"owner-{secrets.token_hex(4)}"
    if not project.strip():
        raise BadSettings("--project must not be empty")
    now = int(time.time())
    secret, record = new_key(
        project,
        now,
        name=name,
        expires_at=now + expires if expires else None,
        role=role,
        user=user,
        models=_names(models),
        never_store=never_store,
        run_budget=_amount("--run-budget", run_budget),
        max_run_budget=_amount("--max-run-budget", max_run_budget),
    )
    with_store(store, config, lambda opened: _add(opened, record), may_make=True)
    click.echo(secret)
    until = f", valid until {date_of(record.expires_at)}" if record.expires_at else ""
    click.echo(f"Key {record.id} of {project}{until}. It is not shown again.", err=True)


@command.command("list", epilog="Example:  antiphon keys list --store sqlite:antiphon.db")
@click.option("--project", metavar="ID", help="Only those of this project.")
@store_options
def list_(project: str | None, store: str | None, config: str | None) -> None:
    """List the keys, oldest first, without their secrets."""
    # Containers prepare a store with this command, so it may make one.
    records = with_store(store, config, lambda opened: opened.list_keys(project), may_make=True)
    if not records:
        click.echo("There are no keys; `antiphon keys create` creates one.", err=True)
        return
    rows = [("ID", "PROJECT", "ROLE", "KEY", "CREATED", "LAST USED", "STATE", "NAME")]
    now = int(time.time())
    rows += [
        (
            key.id,
            key.owner,
            key.role,
            redact(key),
            date_of(key.created_at),
            "never" if key.last_used_at is None else _minute(key.last_used_at),
            _state(key, now),
            _description(key),
        )
        for key in records
    ]
    click.echo(harmless("\n".join(columns(rows)), sys.stdout))


@command.command("rotate", epilog="Example:  antiphon keys rotate 1f0c2a9be4d05a7c --overlap 7d")
@click.argument("key_id", metavar="ID")
@click.option(
    "--overlap",
    type=DURATION,
    default="7d",
    show_default=True,
    metavar="TIME",
    help="How long the present secret stays good.",
)
@store_options
def rotate(key_id: str, overlap: int, store: str | None, config: str | None) -> None:
    """Give the key with this ID a new secret and print the key. It is shown only once.

    Both secrets are good until the overlap ends; then what still runs under the old one ends. A
    secret from before the last rotation ends at once.
    """
    key_id = _id_of(key_id)
    key, digest, hint = new_secret(key_id)
    now = int(time.time())
    audit = audit_record("api_key.rotated", key_id, None, {"overlap_seconds": overlap})
    rotated = with_store(
        store,
        config,
        lambda opened: opened.rotate_key(
            key_id, digest, hint, now=now, until=now + overlap, audit=audit
        ),
    )
    if rotated is None:
        raise _no_key(key_id)
    click.echo(key)
    click.echo(
        f"Key {key_id} has a new secret, which is not shown again; the old one is good until"
        f" {_minute(now + overlap)} UTC.",
        err=True,
    )


@command.command("update", epilog="Example:  antiphon keys update 1f0c2a9be4d05a7c --run-budget 2")
@click.argument("key_id", metavar="ID")
@click.option("--name", help="A description, shown in the list.")
@click.option("--models", metavar="NAMES", help="The only models that it may ask for, or `all`.")
@click.option(
    "--run-budget",
    metavar="USD",
    help="What a run may cost whose requests name no budget, or `none`.",
)
@click.option(
    "--max-run-budget",
    metavar="USD",
    help="The most that a run may cost, or `none`.",
)
@store_options
def update(
    key_id: str,
    name: str | None,
    models: str | None,
    run_budget: str | None,
    max_run_budget: str | None,
    store: str | None,
    config: str | None,
) -> None:
    """Change what the key with this ID may do. What is not given stays.

    A running gateway knows the change within a second.
    """
    wanted: dict[str, Any] = {}  # Any: what a key has
    if name is not None:
        wanted["name"] = name
    if models is not None:
        wanted["models"] = None if models == "all" else _names(models)
    if run_budget is not None:
        wanted["run_budget"] = _amount_or_none("--run-budget", run_budget)
    if max_run_budget is not None:
        wanted["max_run_budget"] = _amount_or_none("--max-run-budget", max_run_budget)
    if not wanted:
        raise BadSettings("nothing to change: `antiphon keys update --help` lists what can be")
    key_id = _id_of(key_id)
    audit = audit_record("api_key.updated", key_id, None, {"changes_requested": wanted})
    change = KeyChange(**wanted)
    changed = with_store(store, config, lambda opened: _change(opened, key_id, change, audit))
    if changed is None:
        raise _no_key(key_id)
    click.echo(f"Key {key_id}: {_description(changed) or 'no limits'}.", err=True)


@command.command("revoke", epilog="Example:  antiphon keys revoke 1f0c2a9be4d05a7c")
@click.argument("key_id", metavar="ID")
@store_options
def revoke(key_id: str, store: str | None, config: str | None) -> None:
    """Revoke the key with this ID; a running gateway refuses it within seconds."""
    key_id, now = _id_of(key_id), int(time.time())
    audit = audit_record("api_key.deleted", key_id, None)
    if not with_store(store, config, lambda opened: opened.revoke_key(key_id, now, audit=audit)):
        raise _no_key(key_id)
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


async def _add(opened: Store, record: KeyRecord) -> None:
    project = await opened.projects.get(record.owner)
    if project is not None and project.archived_at is not None:
        raise BadSettings(f"the project {record.owner!r} is archived: its keys are refused")
    body = {
        "role": record.role,
        "name": record.name,
        "user": record.user,
        "models": record.models,
        "never_store": record.never_store,
        "expires_at": record.expires_at,
        "run_budget": record.run_budget,
        "max_run_budget": record.max_run_budget,
    }
    audit = audit_record("api_key.created", record.id, record.owner, body)
    await opened.add_key(record, audit=audit)


async def _change(
    opened: Store, key_id: str, change: KeyChange, audit: AuditRecord
) -> KeyRecord | None:
    """Change a key; return None if there is none, or it is revoked."""
    known = await opened.find_key(key_id)
    if known is None or known.revoked_at is not None:
        return None
    return await opened.update_key(key_id, change, audit=audit)


def _names(text: str | None) -> tuple[str, ...] | None:
    if text is None:
        return None
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    if not names:
        raise BadSettings("--models must name a model; leave it out for all")
    return names


def _amount(option: str, text: str | None) -> int | None:
    """Return dollars as the store keeps them; None if they were not given."""
    try:
        return None if text is None else read_amount("usd", text)
    except ValueError as error:
        raise BadSettings(f"{option}: {error}") from None


def _amount_or_none(option: str, text: str) -> int | None:
    return None if text == _NO_BUDGET else _amount(option, text)


def _id_of(given: str) -> str:
    """Return the id; the key itself is accepted too, in which it is the middle part."""
    return given.split("_")[1] if given.startswith("ak_") else given


def _no_key(key_id: str) -> CliError:
    return CliError(f"no key {key_id!r} is valid; `antiphon keys list` shows all keys")


def _state(record: KeyRecord, now: int) -> str:
    if record.revoked_at is not None:
        return f"revoked {date_of(record.revoked_at)}"
    if record.expires_at is not None and record.expires_at <= now:
        return f"expired {date_of(record.expires_at)}"
    if record.previous_until is not None and record.previous_until > now:
        return f"rotating until {_minute(record.previous_until)}"
    return "in force" if record.expires_at is None else f"until {date_of(record.expires_at)}"


def _description(record: KeyRecord) -> str:
    """Return the name, and what limits the key."""
    limits = [] if record.user is None else [f"user {record.user}"]
    if record.models is not None:
        limits.append(f"models {', '.join(record.models)}")
    if record.never_store:
        limits.append("never stored")
    if record.run_budget is not None:
        limits.append(f"{dollars_of(record.run_budget)} USD a run")
    if record.max_run_budget is not None:
        limits.append(f"at most {dollars_of(record.max_run_budget)} USD a run")
    return " · ".join([record.name, *limits] if record.name else limits)


def _minute(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M")

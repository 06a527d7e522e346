"""`antiphon budgets`: how much may be spent, and how much of it is gone."""

from __future__ import annotations

import secrets
import sys
import time
from typing import Any

import click
import msgspec

from antiphon.accounts.amounts import amount_of, read_amount, share_of, split_scope
from antiphon.cli.errors import CliError
from antiphon.cli.figures import amount_words, short_amount
from antiphon.cli.scopes import Target, read_target, scope_options, scope_words
from antiphon.cli.store_use import audit_record, store_options, with_store
from antiphon.cli.terminal import columns, harmless
from antiphon.gateway.errors import BadSettings
from antiphon.store import Store
from antiphon.store.base.ledger import Budget, BudgetState, Period, Unit

__all__ = ["command"]


@click.group("budgets", epilog="Example:  antiphon budgets set --project acme --usd 50 --per month")
def command() -> None:
    """List, set and delete budgets, in dollars or in tokens.

    A budget is hard: a request is refused before it is sent if it does not fit, and an answer
    that reaches the limit ends as incomplete. A running gateway knows a change within a second.
    """


@command.command("list", epilog="Example:  antiphon budgets list")
@click.option("--runs", is_flag=True, help="Also the ceilings that callers set for their runs.")
@store_options
def list_(runs: bool, store: str | None, config: str | None) -> None:
    """List the budgets, and how much of each is used in this period."""
    states = with_store(store, config, lambda opened: _read(opened, with_ceilings=runs))
    if not states:
        click.echo(
            "There are no budgets, so nothing limits what is spent; "
            "`antiphon budgets set --project ID --usd 50` sets one.",
            err=True,
        )
        return
    rows = [("ID", "FOR", "LIMIT", "USED", "HELD", "")]
    rows += [_row(state) for state in states]
    click.echo(harmless("\n".join(columns(rows)), sys.stdout))


@command.command(
    "set", epilog="Example:  antiphon budgets set --project acme --user ann --usd 5 --per day"
)
@scope_options
@click.option("--usd", metavar="AMOUNT", help="Dollars, such as 50 or 0.25.")
@click.option("--tokens", type=click.IntRange(1), metavar="COUNT", help="Tokens.")
@click.option(
    "--per",
    type=click.Choice(["day", "week", "month", "total"]),
    default="month",
    show_default=True,
    help="Calendar periods in UTC; a total never starts again.",
)
@click.option(
    "--soft", metavar="PERCENTS", help="Warn from these on, such as 50,80.  [default: never]"
)
@click.option(
    "--allow-unpriced",
    is_flag=True,
    help="Let models pass whose price is not known. A budget in dollars refuses them.",
)
@store_options
def set_(
    usd: str | None,
    tokens: int | None,
    per: Period,
    soft: str | None,
    allow_unpriced: bool,
    store: str | None,
    config: str | None,
    **chosen: Any,  # Any: the values of options
) -> None:
    """Set a budget. It replaces the one of the same scope, unit and period.

    What was spent in this period counts from its beginning.
    """
    target = read_target(chosen)
    if (usd is None) == (tokens is None):
        raise BadSettings("give the amount as --usd or as --tokens")
    unit: Unit = "tokens" if usd is None else "usd"
    try:
        ceiling = read_amount(unit, usd if usd is not None else tokens or 0)
    except ValueError as error:
        raise BadSettings(f"--{unit}: {error}") from None
    wanted = Budget(
        id=f"bud_{secrets.token_hex(8)}",
        scope=target.scope,
        scope_id=target.scope_id,
        unit=unit,
        period=per,
        ceiling=ceiling,
        soft=_read_soft(soft),
        allows_unpriced=allow_unpriced,
        created_at=int(time.time()),
    )
    state = with_store(store, config, lambda opened: _put(opened, target, wanted))
    click.echo(state.budget.id)
    whom = scope_words(target.scope, target.scope_id)
    limit, used = amount_words(unit, ceiling), short_amount(unit, state.spent)
    click.echo(f"{whom} may spend {limit} {_per(per)}; {used} is used.", err=True)


@command.command("delete", epilog="Example:  antiphon budgets delete bud_1f0c2a9be4d05a7c")
@click.argument("budget_id", metavar="ID")
@store_options
def delete(budget_id: str, store: str | None, config: str | None) -> None:
    """Delete a budget: nothing of it is enforced any more."""
    if not with_store(store, config, lambda opened: _delete(opened, budget_id)):
        raise CliError(f"there is no budget {budget_id!r}; `antiphon budgets list` shows all")
    click.echo(f"Budget {budget_id} is deleted.", err=True)


async def _read(opened: Store, *, with_ceilings: bool) -> list[BudgetState]:
    return await opened.ledger.budgets(with_ceilings=with_ceilings)


async def _put(opened: Store, target: Target, wanted: Budget) -> BudgetState:
    await target.check(opened)
    place = (wanted.unit, wanted.period)
    for state in await opened.ledger.budgets(wanted.scope, wanted.scope_id):
        old = state.budget
        if (old.unit, old.period) == place:
            wanted = msgspec.structs.replace(wanted, id=old.id, created_at=old.created_at)
    requested = {
        "scope": wanted.scope,
        "scope_id": wanted.scope_id,
        "unit": wanted.unit,
        "period": wanted.period,
        "limit": amount_of(wanted.unit, wanted.ceiling),
    }
    body = {"changes_requested": requested}
    audit = audit_record("budget.updated", wanted.id, target.project, body)
    return await opened.ledger.put_budget(wanted, audit=audit)


async def _delete(opened: Store, budget_id: str) -> bool:
    for state in await opened.ledger.budgets():
        budget = state.budget
        if budget.id == budget_id:
            project, _ = split_scope(budget.scope, budget.scope_id)
            audit = audit_record("budget.deleted", budget_id, project, {})
            return await opened.ledger.delete_budget(budget_id, audit=audit)
    return False


def _read_soft(text: str | None) -> tuple[int, ...]:
    parts = [part.strip() for part in (text or "").split(",") if part.strip()]
    if not all(part.isascii() and part.isdecimal() and 1 <= int(part) <= 100 for part in parts):
        raise BadSettings(f"--soft {text!r} must be percentages, such as 50,80")
    return tuple(sorted({int(part) for part in parts}))


def _row(state: BudgetState) -> tuple[str, str, str, str, str, str]:
    budget = state.budget
    used = share_of(state.spent + state.held, budget.ceiling)
    return (
        budget.id,
        scope_words(budget.scope, budget.scope_id),
        f"{amount_words(budget.unit, budget.ceiling)} / {budget.period}",
        short_amount(budget.unit, state.spent),
        short_amount(budget.unit, state.held) if state.held else "-",
        f"{used} %" + (" (no room)" if used >= 100 else ""),
    )


def _per(period: Period) -> str:
    return "in total" if period == "total" else f"per {period}"

"""What `antiphon top` shows: one screen of lines, made of what the ledger holds at one moment.

Pure: it reads no clock and no terminal. Every list is cut to the height, the most expensive first.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from antiphon.accounts.amounts import share_of
from antiphon.cli.figures import Total, amount_words, moment, short_amount, short_count
from antiphon.cli.scopes import scope_words
from antiphon.cli.terminal import columns, shorten
from antiphon.store.base.ledger import BudgetState, Charge, UsageRow

__all__ = ["NEAR", "Moment", "draw"]

NEAR: Final = 70
"""Percent from which on a budget is shown."""
_BAR: Final = 20
_LISTS: Final[tuple[tuple[str, Literal["project", "key", "model"]], ...]] = (
    ("PROJECT", "project"),
    ("KEY", "key"),
    ("MODEL", "model"),
)
_FIXED_LINES: Final = 14
_LEAST_WITH_RUNNING: Final = 30
"""Lines of a screen that has room for what runs, beside the other lists."""
_NAME: Final = 40
_NO_NAME: Final = "(none)"


class Moment(msgspec.Struct, frozen=True, kw_only=True):
    """What is known at one moment."""

    now: float
    running: list[Charge]
    """One charge of each response that waits for a model, the oldest first."""
    is_more: bool
    """Whether there may be more of them than were looked for."""
    minutes: list[UsageRow]
    """The last whole minutes and the one that runs, one row each."""
    today: list[UsageRow]
    """Today by project, key, model and basis."""
    budgets: list[BudgetState]
    keys: dict[str, str] = {}
    """What each key is shown as."""


def draw(now: Moment, width: int, height: int) -> list[str]:
    """Return the lines of the screen, none longer than the width."""
    total = Total(now.today)
    lines = [
        f"antiphon  {moment(now.now)}",
        "",
        _head(now),
        f"today {total.cost_words if total.calls else 'nothing'}  ·  "
        f"{short_count(total.calls)} calls  ·  "
        f"{short_count(total.used.total)} tokens  ·  {total.estimated_words} estimated",
    ]
    has_running = bool(now.running) and height >= _LEAST_WITH_RUNNING
    room = max(1, (height - _FIXED_LINES - 3 * has_running) // (len(_LISTS) + has_running))
    if has_running:
        lines += ["", *_running(now, room, width)]
    if now.today:
        for title, field in _LISTS:
            names = now.keys if field == "key" else {}
            lines += ["", *_ranking(now.today, title, field, names, room, width)]
    else:
        lines += ["", "Nothing was asked today. `antiphon ask` or any client begins it."]
    lines += ["", *_budgets(now.budgets, room)]
    return [shorten_line(line, width) for line in lines]


def shorten_line(line: str, width: int) -> str:
    """Return the line cut to the width, with its spaces."""
    return line if len(line) <= width else line[: max(0, width - 1)] + "…"


def _head(now: Moment) -> str:
    whole, current = now.minutes[:-1], now.minutes[-1:]
    running = f"{len(now.running):,}{'+' if now.is_more else ''}"
    average = _tokens(whole) // max(1, len(whole))
    return (
        f"{running} running  ·  {short_count(_tokens(current))} tokens since this minute began  ·  "
        f"{short_count(average)} a minute in the last {len(whole)}"
    )


def _running(now: Moment, room: int, width: int) -> list[str]:
    """Return who has waited for longest, and for how long."""
    # Keys are shown with their ids, and need twice the room of the others.
    part = max(4, min(_NAME // 2, (width - 16) // 4))
    table = [(*(title for title, _ in _LISTS), "RUNS FOR")]
    for one in now.running[:room]:
        key = one.payer.key or _NO_NAME
        names = (
            shorten(one.payer.project, part),
            shorten(now.keys.get(key, key), 2 * part),
            shorten(one.model or _NO_NAME, part),
        )
        seconds = max(0, round(now.now - one.reserved_at))
        table.append((*names, _duration(seconds)))
    more = len(now.running) - room
    return columns(table) + ([f"… and {more:,} more"] if more > 0 else [])


def _duration(seconds: int) -> str:
    minutes, rest = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def _tokens(rows: list[UsageRow]) -> int:
    return sum(row.used.total for row in rows)


def _ranking(
    rows: list[UsageRow],
    title: str,
    field: Literal["project", "key", "model"],
    names: dict[str, str],
    room: int,
    width: int,
) -> list[str]:
    groups: dict[str, list[UsageRow]] = {}
    for row in rows:
        groups.setdefault(getattr(row, field) or _NO_NAME, []).append(row)
    totals = {name: Total(of) for name, of in groups.items()}
    ranked = sorted(totals, key=lambda name: (-totals[name].cost, -totals[name].used.total, name))
    # The same in all lists, so that their figures are below each other.
    name_width = min(_NAME, max(12, width - 34))
    table = [(title.ljust(name_width), "CALLS", "TOKENS", "SPENT")]
    for name in ranked[:room]:
        one = totals[name]
        cells = (short_count(one.calls), short_count(one.used.total), one.cost_words)
        table.append((shorten(names.get(name, name), name_width), *cells))
    more = len(ranked) - room
    return columns(table, is_numeric=True) + ([f"… and {more} more"] if more > 0 else [])


def _budgets(states: list[BudgetState], room: int) -> list[str]:
    if not states:
        return ["No budgets: `antiphon budgets set --project ID --usd 50` sets one."]
    shares = [(share_of(one.spent + one.held, one.budget.ceiling), one) for one in states]
    near = sorted((one for one in shares if one[0] >= NEAR), key=lambda one: -one[0])
    if not near:
        which = "The budget is" if len(states) == 1 else f"All {len(states)} budgets are"
        return [f"{which} below {NEAR} %."]
    table = [("BUDGET", "", "", "", "")]
    for share, state in near[:room]:
        budget = state.budget
        filled = min(_BAR, share * _BAR // 100)
        table.append(
            (
                scope_words(budget.scope, budget.scope_id),
                "#" * filled + "." * (_BAR - filled),
                f"{share} %",
                f"{short_amount(budget.unit, state.spent + state.held)} of "
                f"{amount_words(budget.unit, budget.ceiling)}",
                budget.period,
            )
        )
    more = len(near) - room
    return columns(table) + ([f"… and {more} more"] if more > 0 else [])

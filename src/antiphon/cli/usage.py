"""`antiphon usage`: how many tokens were used, by whom, and what they cost."""

from __future__ import annotations

import csv
import shutil
import sys
import time
from collections.abc import Sequence
from typing import Any, Final, Literal

import click
import msgspec

from antiphon.cli.figures import Total, moment, read_since, short_count
from antiphon.cli.store_use import key_labels, store_options, with_store
from antiphon.cli.terminal import columns, harmless, shorten
from antiphon.gateway.errors import BadSettings
from antiphon.models.prices import dollars_of
from antiphon.store import Store
from antiphon.store.base.ledger import UsageField, UsageQuery, UsageRow

__all__ = ["command"]

_FIELDS: Final[tuple[UsageField, ...]] = (
    *("project", "key", "user", "model"),
    *("provider", "kind", "outcome", "conversation", "run"),
)
_HOURS: Final = 14 * 86_400
_MINUTES: Final = 2 * 3600
_FIGURES: Final = ("CALLS", "FRESH", "CACHED", "OUTPUT", "REASONING", "COST", "EST.")
_LEAST_NAME: Final = 4
_Group = tuple[tuple[str | None, ...], Total]


@click.command(
    "usage", epilog="Example:  antiphon usage --since 30d --by project,model --csv > usage.csv"
)
@click.option(
    "--since",
    default="7d",
    show_default=True,
    metavar="TIME",
    help="A span such as 90m, 24h, 7d or 4w, or a date.",
)
@click.option(
    "--by",
    default="model",
    show_default=True,
    metavar="NAMES",
    help=f"One or more of {', '.join(_FIELDS)}.",
)
@click.option("--project", metavar="ID", help="Only this project.")
@click.option("--run", metavar="NAME", help="Only runs with this name.")
@click.option("--conversation", metavar="ID", help="Only this conversation.")
@click.option("--json", "as_json", is_flag=True, help="Exact figures as JSON.")
@click.option("--csv", "as_csv", is_flag=True, help="Exact figures as CSV.")
@store_options
def command(
    since: str,
    by: str,
    project: str | None,
    run: str | None,
    conversation: str | None,
    as_json: bool,
    as_csv: bool,
    store: str | None,
    config: str | None,
) -> None:
    """Show how many tokens were used since a time, and what they cost.

    CALLS are those of an upstream; a response may need several. OUTPUT is without REASONING. EST.
    is the share of tokens that no provider has reported: they were counted here, or
    assumed after a crash. A cost is unknown if the price of a model is not known. Runs are shown
    with their project: their names belong to it.
    """
    if as_json and as_csv:
        raise BadSettings("--json and --csv exclude each other")
    fields, now = _read_fields(by), time.time()
    if "run" in fields and "project" not in fields and not project:
        fields = ("project", *fields)  # runs have names within their project
    start = read_since(since, now)
    query = UsageQuery(
        start=start,
        end=int(now) + 1,
        width=_width(now - start),
        group_by=(*fields, "basis"),
        projects=(project,) if project else (),
        runs=(run,) if run else (),
        conversations=(conversation,) if conversation else (),
    )
    rows, labels = with_store(store, config, lambda opened: _read(opened, query))
    groups = _groups(rows, fields)
    if as_json:
        _print_json(groups, fields, query)
    elif as_csv:
        _print_csv(groups, fields)
    else:
        _print_table(_labelled(groups, fields, labels), fields, query)


async def _read(opened: Store, query: UsageQuery) -> tuple[list[UsageRow], dict[str, str]]:
    """Return the sums, and what keys are shown as to people."""
    return await opened.ledger.usage(query), await key_labels(opened)


def _labelled(
    groups: list[_Group], fields: tuple[UsageField, ...], labels: dict[str, str]
) -> list[_Group]:
    if "key" not in fields:
        return groups
    place = fields.index("key")
    return [
        ((*names[:place], labels.get(names[place] or "", names[place]), *names[place + 1 :]), total)
        for names, total in groups
    ]


def _read_fields(by: str) -> tuple[UsageField, ...]:
    names = [name.strip() for name in by.split(",") if name.strip()]
    found = tuple(field for name in names for field in _FIELDS if field == name)
    if len(found) != len(names) or not found or len(set(found)) != len(found):
        raise BadSettings(f"--by {by!r} must be one or more of {', '.join(_FIELDS)}")
    return found


def _width(span: float) -> Literal[60, 3600, 86400]:
    """Return how exact the beginning is: to the minute, the hour or the day."""
    if span <= _MINUTES:
        return 60
    return 3600 if span <= _HOURS else 86_400


def _groups(rows: Sequence[UsageRow], fields: tuple[UsageField, ...]) -> list[_Group]:
    """Return the sums by these fields, the most expensive first, then by tokens."""
    found: dict[tuple[str | None, ...], list[UsageRow]] = {}
    for row in rows:
        found.setdefault(tuple(getattr(row, field) for field in fields), []).append(row)
    groups = [(names, Total(of)) for names, of in found.items()]
    return sorted(groups, key=lambda one: (-one[1].cost, -one[1].used.total, str(one[0])))


def _print_table(groups: list[_Group], fields: tuple[UsageField, ...], query: UsageQuery) -> None:
    begin = moment(query.start // query.width * query.width)
    if not groups:
        click.echo(
            f"Nothing was used since {begin}. Ask a model through the gateway, or look further "
            "back with --since 30d.",
            err=True,
        )
        return
    total = _total([one for _, one in groups])
    figures = [_cells(one) for _, one in groups] + [_cells(total)]
    numbers = columns([("", *cells) for cells in (_FIGURES, *figures)], is_numeric=True)
    names = [tuple(field.upper() for field in fields)]
    names += [tuple(name or "(none)" for name in group) for group, _ in groups]
    names.append(("TOTAL", *("" for _ in fields[1:])))
    room = shutil.get_terminal_size((100, 24)).columns - len(numbers[0])
    lines = columns(_fitted(names, room))
    longest = max(map(len, lines))
    click.echo(f"Since {begin}, in tokens:", err=True)
    for left, right in zip(lines, numbers, strict=True):
        click.echo(f"{left:{longest}}{right}".rstrip())
    if total.unpriced:
        click.echo(
            f"{total.unpriced:,} of {total.calls:,} calls are of a model without a known price; "
            "set its price in the configuration.",
            err=True,
        )


def _cells(total: Total) -> tuple[str, ...]:
    used = total.used
    parts = (used.fresh + used.cache_write, used.cached, used.output, used.reasoning)
    counts = [short_count(one) for one in (total.calls, *parts)]
    return (*counts, total.cost_words, total.estimated_words)


def _fitted(names: list[tuple[str, ...]], room: int) -> list[tuple[str, ...]]:
    """Return the names cut to the room: first those of the widest column."""
    widths = [max(map(len, column)) for column in zip(*names, strict=True)]
    while sum(widths) + 2 * (len(widths) - 1) > room and max(widths) > _LEAST_NAME:
        widths[widths.index(max(widths))] -= 1
    return [
        tuple(
            harmless(shorten(name, width), sys.stdout)
            for name, width in zip(row, widths, strict=True)
        )
        for row in names
    ]


def _total(parts: list[Total]) -> Total:
    total = Total(())
    for one in parts:
        total.add(one)
    return total


def _exact(
    names: tuple[str | None, ...], fields: tuple[UsageField, ...], one: Total
) -> dict[str, Any]:
    used, cost = one.used, one.known_cost
    return dict(zip(fields, names, strict=True)) | {
        "requests": one.calls,
        "responses": one.responses,
        "fresh_tokens": used.fresh,
        "cached_tokens": used.cached,
        "cache_write_tokens": used.cache_write,
        "output_tokens": used.output,
        "reasoning_tokens": used.reasoning,
        "estimated_tokens": one.estimated,
        "cost_usd": None if cost is None else dollars_of(cost),
        "unpriced_requests": one.unpriced,
    }


def _print_json(groups: list[_Group], fields: tuple[UsageField, ...], query: UsageQuery) -> None:
    found = {
        "since": query.start // query.width * query.width,
        "until": query.end,
        "groups": [_exact(names, fields, one) for names, one in groups],
    }
    click.echo(msgspec.json.format(msgspec.json.encode(found)).decode())


def _print_csv(groups: list[_Group], fields: tuple[UsageField, ...]) -> None:
    names = list(_exact(tuple(None for _ in fields), fields, Total(())))
    writer = csv.DictWriter(sys.stdout, names, lineterminator="\n")
    writer.writeheader()
    for group, one in groups:
        row = _exact(group, fields, one)
        row["cost_usd"] = "unknown" if row["cost_usd"] is None else row["cost_usd"]
        writer.writerow({name: "" if value is None else value for name, value in row.items()})

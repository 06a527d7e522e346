"""What do settled charges sum up to, by time and by who pays?

Pure, and the same for every store. A store keeps sums by hour and by day, which it adds to in the
transaction that settles a charge. A sum belongs to the time at which its charges were reserved.
A released charge is in no sum.

A database also keeps *totals*: the same sums without keys and users, and without projects too,
which are few where those are many. An hour is totalled once it has passed and none of its charges
is held, so that nothing is added to it any more; a mark has the time before which all is totalled.
If a clock was set back and a charge is settled before the mark, the mark goes back with it. So no
charge pays for totals, and no two of them wait for one row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from antiphon.protocol.token_counts import NO_TOKENS, TokenCounts, add_counts
from antiphon.store.base.ledger import ORGANIZATION, Charge, Scope, UsageQuery, UsageRow

__all__ = [
    "LEVELS",
    "TOTALLED_BEFORE",
    "WIDTHS",
    "UsageKey",
    "UsageSum",
    "add_sum",
    "fold_usage",
    "keys_of",
    "scope_of",
    "spans_of",
    "sum_of",
    "totals_of",
]

WIDTHS: Final = (3600, 86_400)
"""Seconds of the sums that are kept."""
LEVELS: Final = (1, 2)
"""Totals of projects, and of all of them. Their rows have -1 and -2 times the width of the sums."""
TOTALLED_BEFORE: Final = "totalled_before"
"""The name of the mark: seconds, at the beginning of an hour."""
_OF_ALL: Final = frozenset({"model", "provider", "kind", "basis", "outcome"})
"""What totals of all projects can be grouped by."""


class UsageKey(NamedTuple):
    """What charges of one sum have in common. `start` is a multiple of the width."""

    start: int
    project: str
    key: str | None
    user: str | None
    model: str
    provider: str
    kind: str
    basis: str
    outcome: str
    conversation: str | None = None
    run: str | None = None
    """Only known of single charges: no sum is by these."""


class UsageSum(NamedTuple):
    """The sum of some charges."""

    charges: int = 0
    requests: int = 0
    used: TokenCounts = NO_TOKENS
    cost: int = 0
    unpriced: int = 0


def keys_of(charge: Charge, width: int) -> UsageKey:
    """Return the sum of this width that a settled charge is part of."""
    assert charge.basis is not None
    assert charge.outcome is not None
    return UsageKey(
        int(charge.reserved_at) // width * width,
        charge.payer.project,
        charge.payer.key,
        charge.payer.user,
        charge.model,
        charge.provider,
        charge.kind,
        charge.basis,
        charge.outcome,
    )


def scope_of(key: UsageKey, scope: Scope) -> str | None:
    """Return the `scope_id` of a sum; None if sums are not by this scope."""
    if scope == "organization":
        return ORGANIZATION
    if scope == "user":
        return None if key.user is None else f"{key.project}/{key.user}"
    return {"project": key.project, "key": key.key}.get(scope)


def sum_of(charge: Charge, *, is_request: bool) -> UsageSum:
    """Return what a settled charge adds to its sums."""
    return UsageSum(1, int(is_request), charge.used, charge.cost or 0, int(charge.cost is None))


def add_sum(one: UsageSum, other: UsageSum) -> UsageSum:
    """Return both together."""
    return UsageSum(
        one.charges + other.charges,
        one.requests + other.requests,
        add_counts(one.used, other.used),
        one.cost + other.cost,
        one.unpriced + other.unpriced,
    )


def totals_of(
    sums: Mapping[UsageKey, UsageSum], level: int, before: int
) -> dict[UsageKey, UsageSum]:
    """Return the totals of sums that begin before this time. All projects have no name."""
    totals: dict[UsageKey, UsageSum] = {}
    for key, one in sums.items():
        if key.start < before:
            project = key.project if level == 1 else ""
            place = key._replace(project=project, key=None, user=None)
            totals[place] = add_sum(totals.get(place, UsageSum()), one)
    return totals


def spans_of(query: UsageQuery, totalled_before: int) -> list[tuple[int, int, int]]:
    """Return which rows answer a query by hour or by day: their width, and from when to when.

    They are totals as far as there are any, unless the query needs keys or users.
    """
    width, first, border = query.width, query.start // query.width * query.width, 0
    groups = set(query.group_by)
    if not (query.keys or query.users) and groups <= _OF_ALL | {"project"}:
        border = totalled_before // width * width
    border = min(max(first, border), query.end)
    level = 1 if query.projects or "project" in groups else 2
    found = [(-level * width, first, border), (width, border, query.end)]
    return [span for span in found if span[1] < span[2]]


def fold_usage(
    query: UsageQuery, sums: Iterable[tuple[UsageKey, UsageSum]] | Mapping[UsageKey, UsageSum]
) -> list[UsageRow]:
    """Return the answer to a query, oldest bucket first, from sums that are not wider.

    A bucket that is in the time of the query in part is counted whole.
    """
    pairs = sums.items() if isinstance(sums, Mapping) else sums
    groups: dict[tuple[Any, ...], UsageRow] = {}  # Any: the names of a group
    for key, added in _asked(query, pairs):
        start = key.start // query.width * query.width
        names = {name: getattr(key, name) for name in query.group_by}
        place = (start, *names.values())
        known = groups.get(place) or UsageRow(start=start, **names)
        groups[place] = msgspec.structs.replace(
            known,
            charges=known.charges + added.charges,
            requests=known.requests + added.requests,
            used=add_counts(known.used, added.used),
            cost=known.cost + added.cost,
            unpriced=known.unpriced + added.unpriced,
            not_reported=known.not_reported + (key.basis != "reported") * added.charges,
        )
    ordered = sorted(groups, key=lambda place: tuple((one is not None, one) for one in place))
    return [groups[place] for place in ordered[: query.most]]


def _asked(
    query: UsageQuery, sums: Iterable[tuple[UsageKey, UsageSum]]
) -> Iterator[tuple[UsageKey, UsageSum]]:
    """Yield the sums that a query is about."""
    first = query.start // query.width * query.width
    filters: list[tuple[str, tuple[str, ...]]] = [
        ("project", query.projects),
        ("key", query.keys),
        ("user", query.users),
        ("model", query.models),
        ("kind", query.kinds),
        ("conversation", query.conversations),
        ("run", query.runs),
    ]
    for key, one in sums:
        if first <= key.start // query.width * query.width < query.end and all(
            not names or getattr(key, field) in names for field, names in filters
        ):
            yield key, one

"""Which figures does a query ask for, and how are they cut into buckets and pages?

Buckets begin at multiples of their width, and the first and the last one are whole, also if the
query begins or ends inside them. A bucket without charges is there, with no results. The cursor of
a page holds the time at which the next one begins and the end of the whole query, so that pages
fit together while time goes on.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Literal, cast

import msgspec
from aiohttp import web

from antiphon.protocol.errors import InvalidRequest, invalid
from antiphon.server.api.organization.access import visible_projects
from antiphon.server.api.organization.query import Query
from antiphon.server.app import Call
from antiphon.store.base.ledger import ChargeKind, UsageField, UsageQuery, UsageRow

__all__ = [
    "CONVERSATION",
    "GROUPS",
    "RUN",
    "Widths",
    "answer_buckets",
    "read_figures",
    "read_usage",
]

Widths = Mapping[str, tuple[int, int, int]]
"""Seconds, the most buckets of a page, and how many there are by default; by name."""
RUN: Final = "antiphon.run"
CONVERSATION: Final = "antiphon.conversation"
GROUPS: Final[dict[str, UsageField]] = {
    "project_id": "project",
    "user_id": "user",
    "api_key_id": "key",
    "model": "model",
    CONVERSATION: "conversation",
    RUN: "run",
}
_MOST_UNNAMED: Final = 86_400
"""Seconds of a page whose single charges are all read."""
_MOST_ROWS: Final = 10_000
_SINGLE: Final = frozenset({"start_time", "end_time", "bucket_width", "limit", "page"})
_LATEST: Final = 253_402_300_799  # the end of the year 9999
_encode: Final = msgspec.json.Encoder(decimal_format="number").encode


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked for: the query for one page, and the end of all pages."""

    query: UsageQuery
    groups: tuple[str, ...]
    """What to group by, by the names of the wire."""
    end: int


def read_figures(
    call: Call,
    *,
    widths: Widths,
    groups: Mapping[str, UsageField | None],
    filters: frozenset[str],
    kinds: tuple[ChargeKind, ...],
    also: tuple[UsageField, ...],
) -> tuple[Figures, Query]:
    """Return what the query asks for. `also` is grouped by beside what the caller wants."""
    query = Query(call, single=_SINGLE, many=filters | {"group_by"})
    seconds, most, usual = widths[query.choice("bucket_width", tuple(widths), "1d")]
    start = query.number("start_time", most=_LATEST)
    if start is None:
        raise invalid("start_time", "is missing", "missing_required_parameter")
    end = query.number("end_time", call.app.engine.now() + 1, most=_LATEST) or 0
    if end <= start:
        raise invalid("end_time", "must be after start_time")
    limit = query.number("limit", usual, least=1, most=most) or usual
    first = start // seconds * seconds
    page = query.text("page")
    if page is not None:
        first, end = _read_cursor(page, seconds, first)
    wanted = _with_project(query.choices("group_by", tuple(groups)))
    fields = (groups[name] for name in wanted)
    asked = UsageQuery(
        start=first,
        end=min(end, first + limit * seconds),
        width=cast(Literal[60, 3600, 86400], seconds),
        group_by=tuple(dict.fromkeys([*(field for field in fields if field), *also])),
        projects=visible_projects(call, query.texts("project_ids"), "project_ids"),
        keys=query.texts("api_key_ids"),
        users=query.texts("user_ids"),
        models=query.texts("models"),
        kinds=kinds,
        conversations=query.texts(CONVERSATION),
        runs=query.texts(RUN),
    )
    _check_span(asked)
    return Figures(query=asked, groups=wanted, end=end), query


def _with_project(wanted: tuple[str, ...]) -> tuple[str, ...]:
    """Return what to group by: runs have names within their project."""
    return (*wanted, "project_id") if RUN in wanted and "project_id" not in wanted else wanted


def _check_span(query: UsageQuery) -> None:
    """Raise InvalidRequest if too many single charges would have to be read."""
    groups = {"conversation", "run"}.intersection(query.group_by)
    is_named = bool(query.conversations or query.runs)
    if groups and not is_named and query.end - query.start > _MOST_UNNAMED:
        raise invalid(
            "group_by",
            "by run or conversation reads single charges: name some with"
            f" {RUN}[] or {CONVERSATION}[], or ask for one day at most (limit=1)",
        )


async def read_usage(call: Call, query: UsageQuery) -> list[UsageRow]:
    """Return the rows of a page. Raise InvalidRequest if there are too many."""
    ledger = call.app.engine.store.ledger
    if not query.reads_charges:
        return await ledger.usage(query)
    rows = await ledger.usage(msgspec.structs.replace(query, most=_MOST_ROWS + 1))
    if len(rows) > _MOST_ROWS:
        raise invalid(
            "group_by", f"gives more than {_MOST_ROWS:,} results: ask for fewer, or a shorter time"
        )
    return rows


def answer_buckets(
    call: Call,
    figures: Figures,
    rows: Iterable[UsageRow],
    show: Callable[[list[UsageRow]], list[dict[str, Any]]],
) -> web.Response:
    """Return the page: a bucket for each width of time, with what `show` makes of its rows."""
    query = figures.query
    by_start: dict[int, list[UsageRow]] = {}
    for row in rows:
        by_start.setdefault(row.start, []).append(row)
    starts = range(query.start, query.end, query.width)
    has_more = query.end < figures.end
    page = {
        "object": "page",
        "data": [
            {
                "object": "bucket",
                "start_time": start,
                "end_time": start + query.width,
                "results": show(by_start.get(start, [])),
            }
            for start in starts
        ],
        "has_more": has_more,
        "next_page": _write_cursor(query.end, figures.end) if has_more else None,
    }
    return call.json(_encode(page))


def _write_cursor(start: int, end: int) -> str:
    return "page_" + base64.urlsafe_b64encode(f"{start}.{end}".encode()).decode().rstrip("=")


def _read_cursor(page: str, width: int, first: int) -> tuple[int, int]:
    """Return the start of the page and the end of the query. Raise InvalidRequest."""
    text = page.removeprefix("page_")
    try:
        decoded = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode("ascii")
        start, end = (int(part) for part in decoded.split("."))
    except (binascii.Error, ValueError):
        raise _wrong_page() from None
    if not first <= start < end <= _LATEST or start % width:
        raise _wrong_page()
    return start, end


def _wrong_page() -> InvalidRequest:
    return invalid("page", "must be the next_page of the same query")

"""Pages of objects that are few, so that all of them are read and cut here.

Keys, limits and budgets are counted in hundreds. Projects and the audit log are paged by the
store instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from aiohttp import web
from msgspec import Struct

from antiphon.server.api.objects import answer_page, wrong_cursor
from antiphon.server.api.organization.query import Query
from antiphon.server.app import Call

__all__ = ["answer_few"]

_One = TypeVar("_One")
_SINGLE: Final = frozenset({"after", "before", "limit", "order"})


def answer_few(
    call: Call,
    found: Sequence[_One],
    show: Callable[[_One], Struct],
    *,
    default: int = 20,
    most: int = 100,
    order: str = "asc",
    also: frozenset[str] = frozenset(),
) -> web.Response:
    """Return a page of these objects, which come oldest first. `also` names other parameters."""
    query = Query(call, single=_SINGLE | also, many=frozenset())
    limit = query.number("limit", default, least=1, most=most) or default
    shown = [show(one) for one in found]
    if query.choice("order", ("asc", "desc"), order) == "desc":
        shown.reverse()
    ids = [getattr(one, "id", "") for one in shown]
    after, before = query.text("after"), query.text("before")
    for name, value in (("after", after), ("before", before)):
        if value is not None and value not in ids:
            raise wrong_cursor(name, value)
    if before is not None:
        end = ids.index(before)
        return answer_page(call, shown[max(0, end - limit) : end], limit, has_more=end > limit)
    start = 0 if after is None else ids.index(after) + 1
    return answer_page(call, shown[start : start + limit + 1], limit)

"""How is a request found among the charges of a database? The same for both databases.

A request is found by its first charge, which has the number 0; the others are read after it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from antiphon.store.base.ledger import Charge
from antiphon.store.base.requests import RequestQuery, RequestStatus
from antiphon.store.ledger_rows import HELD, OUTCOMES, pack_id, to_millis

__all__ = ["NEWEST_FIRST", "in_requests", "names_in", "request_conditions", "request_status"]

NEWEST_FIRST: Final = "reserved_at DESC, response DESC"
_COLUMNS: Final = (
    ("project", "projects"),
    ("api_key", "keys"),
    ("user_id", "users"),
    ("model", "models"),
    ("conversation", "conversations"),
    ("run", "runs"),
)
_HELD_TOO: Final = f"response IN (SELECT response FROM charges WHERE state = {HELD})"  # noqa: S608 # constants
_LAST: Final = """(
    SELECT last.outcome FROM charges AS last
    WHERE last.response = charges.response ORDER BY last.number DESC LIMIT 1
)"""
_NO_NAME: Final = -1

Put = Callable[[int | bytes], str]
"""Takes a value of a statement and returns what stands for it there."""


def names_in(query: RequestQuery) -> list[str]:
    """Return the names whose numbers a query needs."""
    return [name for _, field in _COLUMNS for name in getattr(query, field)]


def request_conditions(query: RequestQuery, numbers: Mapping[str, int], put: Put) -> list[str]:
    """Return the conditions that the first charges of a query fulfil.

    `numbers` are those of the names that are known; no charge has another one.
    """
    conditions = ["number = 0"]
    # What is in progress is found by its held charges, which are few. An index of the project would
    # lead through all of its charges instead; none is used for a sum.
    plain = " + 0" if query.status == "in_progress" else ""
    for column, field in _COLUMNS:
        if names := getattr(query, field):
            known = (put(numbers.get(name, _NO_NAME)) for name in names)
            conditions.append(f"{column}{plain} IN ({', '.join(known)})")
    if query.responses:
        packed = (put(pack_id(response)) for response in query.responses)
        conditions.append(f"response IN ({', '.join(packed)})")
    if query.start is not None:
        conditions.append(f"reserved_at >= {put(to_millis(query.start))}")
    if query.end is not None:
        conditions.append(f"reserved_at < {put(to_millis(query.end))}")
    if query.before is not None:
        at, response = to_millis(query.before[0]), pack_id(query.before[1])
        conditions.append(f"reserved_at <= {put(at)}")
        conditions.append(f"(reserved_at, response) < ({put(at)}, {put(response)})")
    return [*conditions, *_status(query)]


def request_status(charges: Sequence[Charge]) -> RequestStatus:
    """Return how a request stands, by its charges in their order."""
    if any(charge.state == "held" for charge in charges):
        return "in_progress"
    return charges[-1].outcome or "in_progress"


def in_requests(firsts: Iterable[Charge], others: Iterable[Charge]) -> list[list[Charge]]:
    """Return the charges of each request in their order; requests are in the order of `firsts`."""
    requests = {charge.response_id: [charge] for charge in firsts}
    for charge in sorted(others, key=lambda charge: charge.number):
        requests[charge.response_id].append(charge)
    return list(requests.values())


def _status(query: RequestQuery) -> list[str]:
    if query.status is None:
        return []
    if query.status == "in_progress":
        return [_HELD_TOO]
    return [f"NOT ({_HELD_TOO})", f"{_LAST} = {OUTCOMES.index(query.status)}"]

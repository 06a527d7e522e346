"""How is a charge kept in the row of a table?

The same for both databases, so that a row can be copied. Names (projects, models and so on) are
numbers of the table `names`; closed sets are numbers of this module, which never change. Times
are milliseconds. An id made by a gateway is packed: half of its length, and its random part
first.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final, get_args

import msgspec

from antiphon.protocol.token_counts import TokenCounts
from antiphon.store.base.ledger import (
    Basis,
    Budget,
    Charge,
    ChargeKind,
    LineItem,
    Outcome,
    Payer,
    RateLimit,
    Reservation,
    Settlement,
    UsageRow,
)
from antiphon.store.ledger_rules import BudgetRow, LimitRow

__all__ = [
    "BASES",
    "BUDGET_COLUMNS",
    "CHARGE_COLUMNS",
    "HELD",
    "HELD_COLUMNS",
    "KINDS",
    "LIMIT_COLUMNS",
    "OUTCOMES",
    "RELEASED",
    "SETTLED",
    "budget_row",
    "charge_of",
    "encode_items",
    "held_row",
    "limit_row",
    "names_of",
    "pack_id",
    "to_millis",
    "unpack_id",
    "usage_rows",
]

HELD: Final = 0
SETTLED: Final = 1
RELEASED: Final = 2
_STATES: Final = ("held", "settled", "released")
KINDS: Final[tuple[ChargeKind, ...]] = get_args(ChargeKind)
BASES: Final[tuple[Basis, ...]] = get_args(Basis)
OUTCOMES: Final[tuple[Outcome, ...]] = get_args(Outcome)
_SETS: Final[dict[str, tuple[str, ...]]] = {"kind": KINDS, "basis": BASES, "outcome": OUTCOMES}

_MINTED: Final = re.compile(r"resp_([A-Za-z0-9-]{0,8}?)([0-9a-f]{48})\Z").match
_PLAIN: Final = b"\x00"
_PACKED: Final = b"\x01"
_RANDOM: Final = slice(1, 25)

HELD_COLUMNS: Final = (
    "response",
    "number",
    "state",
    "writer",
    "project",
    "api_key",
    "user_id",
    "conversation",
    "run",
    "kind",
    "model",
    "served",
    "provider",
    "price",
    "is_request",
    "reserved_at",
    "held_fresh",
    "held_cached",
    "held_cache_write",
    "held_output",
    "held_reasoning",
    "held_cost",
    "links",
)
"""What is written when a charge is reserved."""
CHARGE_COLUMNS: Final = (
    *("response", "number", "state", "project", "api_key", "user_id", "conversation", "run"),
    *("kind", "model", "served", "provider", "reserved_at", "settled_at"),
    *("held_fresh", "held_cached", "held_cache_write", "held_output", "held_reasoning"),
    *("held_cost", "fresh", "cached", "cache_write", "output", "reasoning", "cost"),
    *("basis", "outcome", "first_ms", "total_ms", "items"),
)
"""What `charge_of` reads."""
BUDGET_COLUMNS: Final = (
    *("key", "id", "scope", "scope_id", "unit", "period", "ceiling", "soft", "allows_unpriced"),
    *("created_at", "period_start", "spent", "held", "excess"),
)
LIMIT_COLUMNS: Final = (
    *("key", "id", "scope", "scope_id", "model", "requests", "tokens", "concurrent"),
    *("tat_requests", "tat_tokens"),
)

_encode: Final = msgspec.json.Encoder().encode
_decode_items: Final = msgspec.json.Decoder(tuple[LineItem, ...]).decode
_decode_soft: Final = msgspec.json.Decoder(tuple[int, ...]).decode


def to_millis(seconds: float) -> int:
    """Return a time of the books, which has whole milliseconds, as their number."""
    return round(seconds * 1000)


def pack_id(response_id: str) -> bytes:
    """Return the id of a response as it is stored."""
    found = _MINTED(response_id)
    if found is None:
        return _PLAIN + response_id.encode("utf-8", "surrogatepass")
    return _PACKED + bytes.fromhex(found[2]) + found[1].encode()


def unpack_id(packed: bytes) -> str:
    """Return the id of a response that was packed."""
    if packed[:1] == _PLAIN:
        return packed[1:].decode("utf-8", "surrogatepass")
    return f"resp_{packed[_RANDOM.stop :].decode()}{packed[_RANDOM].hex()}"


def names_of(wanted: Reservation) -> tuple[str | None, ...]:
    """Return the names of a reservation: those of the payer, the models, the price."""
    payer = wanted.payer
    names = (
        payer.project,
        payer.key,
        payer.user,
        payer.conversation,
        payer.run,
        wanted.model,
        wanted.served,
        wanted.provider,
        None if wanted.price is None else wanted.price.decode(),
    )
    text = "".join(filter(None, names))
    # Nearly always: one look instead of nine.
    return names if text.isascii() and "\0" not in text else tuple(map(_clean, names))


def _clean(name: str | None) -> str | None:
    """Return a name that every database can store: callers choose some of them."""
    if name is None:
        return None
    return name.encode("utf-8", "backslashreplace").decode().replace("\0", "\\0")


def held_row(
    wanted: Reservation,
    writer: int,
    names: Sequence[int | None],
    reserved_at: float,
    links: bytes | None,
) -> tuple[Any, ...]:  # Any: numbers, bytes and None
    """Return the values of `HELD_COLUMNS`; `names` are the numbers of `names_of`."""
    project, key, user, conversation, run, model, served, provider, price = names
    held = wanted.held
    return (
        pack_id(wanted.response_id),
        wanted.number,
        HELD,
        writer,
        project,
        key,
        user,
        conversation,
        run,
        KINDS.index(wanted.kind),
        model,
        served,
        provider,
        price,
        int(wanted.is_request),
        to_millis(reserved_at),
        held.fresh,
        held.cached,
        held.cache_write,
        held.output,
        held.reasoning,
        wanted.held_cost,
        links,
    )


def encode_items(settled: Settlement) -> bytes | None:
    """Return the line items of a settlement as they are stored."""
    return _encode(settled.items) if settled.items else None


def charge_of(row: Sequence[Any], name: Callable[[int], str]) -> Charge:
    """Return the charge of a row of `CHARGE_COLUMNS`. `name` returns the name of a number."""
    response, number, state, project, key, user, conversation, run = row[:8]
    kind, model, served, provider, reserved_at, settled_at = row[8:14]
    basis, outcome, first_ms, total_ms, items = row[26:31]

    def optional(one: int | None) -> str | None:
        return None if one is None else name(one)

    return Charge(
        response_id=unpack_id(response),
        number=number,
        state=_STATES[state],
        payer=Payer(
            name(project), optional(key), optional(user), optional(conversation), optional(run)
        ),
        kind=KINDS[kind],
        model=name(model),
        served=name(served),
        provider=name(provider),
        reserved_at=reserved_at / 1000,
        settled_at=None if settled_at is None else settled_at / 1000,
        held=TokenCounts(*row[14:19]),
        held_cost=row[19],
        used=TokenCounts(*(count or 0 for count in row[20:25])),
        cost=row[25],
        basis=None if basis is None else BASES[basis],
        outcome=None if outcome is None else OUTCOMES[outcome],
        first_ms=first_ms,
        total_ms=total_ms,
        items=() if items is None else _decode_items(items),
    )


def budget_row(row: Sequence[Any]) -> BudgetRow:
    """Return the budget of a row of `BUDGET_COLUMNS`."""
    key, budget_id, scope, scope_id, unit, period, ceiling, soft, allows, created_at = row[:10]
    budget = Budget(
        id=budget_id,
        scope=scope,
        scope_id=scope_id,
        unit=unit,
        period=period,
        ceiling=ceiling,
        soft=_decode_soft(soft),
        allows_unpriced=bool(allows),
        created_at=created_at,
    )
    return BudgetRow(key, budget, *row[10:14])


def limit_row(row: Sequence[Any]) -> LimitRow:
    """Return the rate limit of a row of `LIMIT_COLUMNS`."""
    key, limit_id, scope, scope_id, model, requests, tokens, concurrent = row[:8]
    limit = RateLimit(
        id=limit_id,
        scope=scope,
        scope_id=scope_id,
        model=model,
        requests=requests,
        tokens=tokens,
        concurrent=concurrent,
    )
    return LimitRow(key, limit, *row[8:10])


def usage_rows(
    rows: Sequence[tuple[Any, ...]], fields: Sequence[str], name_of: Callable[[int], str | None]
) -> list[UsageRow]:
    """Return rows of usage, in their order: by time, then by names; no name comes first.

    A row has the start of its bucket, the numbers of `fields`, and ten sums: charges, requests,
    five parts, cost, how many lack one, how many were not reported. There may be thousands.
    """
    end = 1 + len(fields)
    numbers = {row[1:end] for row in rows}
    names = []
    for field, some in zip(fields, zip(*numbers, strict=True), strict=False):
        known = _SETS[field].__getitem__ if field in _SETS else name_of
        names.append({number: known(number) for number in set(some)})
    groups: dict[tuple[int, ...], dict[str, Any]] = {}  # Any: names, of which some are of a set
    for group in numbers:
        found = zip(fields, names, group, strict=True)
        groups[group] = {field: some[number] for field, some, number in found}
    by_name = sorted(numbers, key=lambda group: [_rank(name) for name in groups[group].values()])
    ranks = {group: rank for rank, group in enumerate(by_name)}
    made = []
    for row in sorted(rows, key=lambda row: (row[0], ranks[row[1:end]])):
        charges, requests, *parts, cost, unpriced, not_reported = row[end:]
        made.append(
            UsageRow(
                start=row[0],
                charges=charges,
                requests=requests,
                used=TokenCounts(*parts),
                cost=cost,
                unpriced=unpriced,
                not_reported=not_reported,
                **groups[row[1:end]],
            )
        )
    return made


def _rank(name: str | None) -> tuple[bool, str]:
    return name is not None, name or ""

"""How are scopes and amounts of budgets written by people, and kept in the ledger?

The ledger keeps whole numbers: nano-dollars or tokens. People write dollars as decimal numbers,
which are read digit by digit. A user, a conversation and a run are named within their project.
"""

from __future__ import annotations

from typing import Final

from antiphon.models.prices import dollars_of, nano_dollars_of
from antiphon.store.base.ledger import ORGANIZATION, Scope, Unit

__all__ = [
    "CENT",
    "NESTED",
    "amount_of",
    "join_scope",
    "read_amount",
    "share_of",
    "split_scope",
]

CENT: Final = 10_000_000
"""Nano-dollars."""
NESTED: Final[frozenset[Scope]] = frozenset({"user", "conversation", "run"})
"""Scopes whose names are unique only in their project."""
_MOST: Final = 10**18


def read_amount(unit: Unit, value: str | int) -> int:
    """Return an amount as the ledger keeps it. Raise ValueError with what is wrong."""
    if unit == "usd":
        if not isinstance(value, str):
            raise ValueError('must be a text such as "50.00" for a budget in dollars')
        amount = nano_dollars_of(value)
    else:
        if isinstance(value, str) and not (value.isascii() and value.isdecimal()):
            raise ValueError("must be a whole number of tokens")
        amount = int(value)
    if not 0 < amount <= _MOST:
        raise ValueError(f"must be greater than 0 and at most {_MOST:,} nano-dollars or tokens")
    return amount


def amount_of(unit: Unit, amount: int) -> str | int:
    """Return an amount as people write it: dollars as a text, tokens as a number."""
    return dollars_of(amount) if unit == "usd" else amount


def join_scope(scope: Scope, name: str, project: str | None) -> str:
    """Return the `scope_id` of a name. Raise ValueError if it must have a project, or must not."""
    if scope == "organization":
        return ORGANIZATION
    if scope in NESTED:
        if not project:
            raise ValueError(f"a {scope} is named within its project: name that as well")
        return f"{project}/{name}"
    return name


def split_scope(scope: Scope, scope_id: str) -> tuple[str | None, str | None]:
    """Return the project and the name of a `scope_id`, as far as it has them."""
    if scope == "organization":
        return None, None
    if scope == "project":
        return scope_id, scope_id
    if scope in NESTED:
        project, _, name = scope_id.partition("/")
        return project, name
    return None, scope_id


def share_of(used: int, ceiling: int) -> int:
    """Return how many percent of a ceiling are used, rounded down. Of no ceiling it is all."""
    return 100 if ceiling <= 0 else used * 100 // ceiling

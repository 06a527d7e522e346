"""How is a change written once, and made in two databases?

An operation is a generator. It yields statements and gets their rows, and it raises what its
caller must get: then nothing of it is stored. Values are `$1`, `$2` and so on, as in PostgreSQL.
`Tables` runs it in a transaction, in a thread with SQLite and in the event loop with PostgreSQL.
An operation may be run again if the transaction failed, so it keeps nothing outside of itself.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any, Final, NamedTuple, Protocol, TypeVar

__all__ = [
    "Alive",
    "Each",
    "Gone",
    "Lock",
    "Row",
    "Sql",
    "Step",
    "Steps",
    "Tables",
    "ask",
    "ask_in",
]

_T = TypeVar("_T")
Row = Sequence[Any]  # Any: text, numbers, bytes and None
# So many names fit into one statement.
_AT_ONCE: Final = 100


class Sql(NamedTuple):
    """A statement. The answer are its rows."""

    statement: str
    values: tuple[Any, ...]  # Any: as in Row


class Each(NamedTuple):
    """A statement that returns nothing, run once for each of these values. The answer is empty."""

    statement: str
    values: Sequence[tuple[Any, ...]]  # Any: as in Row


class Lock(NamedTuple):
    """Wait until no other transaction has locked this name. The answer is empty."""

    name: str


class Alive(NamedTuple):
    """Ask whether the store of this name runs. The answer is one row with a truth value."""

    writer: str


class Gone(NamedTuple):
    """Note that these blobs were removed: their contents are deleted after the commit."""

    blobs: Sequence[str]


Step = Sql | Each | Lock | Alive | Gone
Steps = Generator[Step, Sequence[Row], _T]
Operation = Callable[[], Steps[_T]]


class Tables(Protocol):
    """The tables of one store. All methods raise StoreUnavailable for faults of the database."""

    async def read(self, operation: Operation[_T]) -> _T:
        """Run an operation that changes nothing."""
        ...

    async def change(self, operation: Operation[_T]) -> _T:
        """Run an operation in a transaction; durable on return.

        If the answer to a commit was lost, it is run again, and must not do anything twice.
        """
        ...

    async def remove(self, operation: Operation[bool]) -> bool:
        """Run a removal; return True when what was removed is erased as well."""
        ...

    async def sign(self) -> str:
        """Return the name under which this store is known to run."""
        ...

    async def is_unused(self) -> bool:
        """Return whether nothing was ever stored."""
        ...

    def is_text(self, name: str) -> bool:
        """Return whether there can be a row of this name."""
        ...


def ask(statement: str, *values: object) -> Steps[Sequence[Row]]:
    """Run one statement and return its rows."""
    return (yield Sql(statement, values))


def ask_in(statement: str, values: Sequence[object], names: Sequence[str]) -> Steps[list[Row]]:
    """Run a statement for many names, which stand where it has `{}`; return all rows."""
    found: list[Row] = []
    for start in range(0, len(names), _AT_ONCE):
        some = names[start : start + _AT_ONCE]
        marks = ", ".join(f"${len(values) + place}" for place in range(1, len(some) + 1))
        found += yield Sql(statement.format(marks), (*values, *some))
    return found

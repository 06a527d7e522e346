"""A store that fails at the n-th call, around any other store.

Every call of the store and its facets is counted while a fault is set. The call that it hits
fails with `StoreUnavailable`: before it has done anything (LOST), or after it has done its work,
as when only the answer is lost (IN_DOUBT). With DOWN that call and all later ones fail until
the fault is taken away. What a gateway asks by itself, again and again, is not counted: the
number of a call would depend on the time. Such a call is made to fail by its name.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from enum import Enum
from typing import Any, Final, cast

from antiphon.protocol.errors import StoreUnavailable
from antiphon.store.base import Store

__all__ = ["Fault", "FaultyStore"]

_UPKEEP: Final = frozenset(
    {
        "claim_orphans",
        "asked_cancels",
        "sweep",
        "sweep_logs",
        "native_states.expire",
        "files.sweep",
        "ledger.settle_abandoned",
        "ledger.sweep",
    }
)
# No caller waits for `reserve_soon`: what a store cannot write now it writes later. `limits_apply`
# is answered from memory.
_UNCOUNTED: Final = frozenset({"close", "pulse", "ledger.reserve_soon", "ledger.limits_apply"})
_FACETS: Final = frozenset(
    {
        "conversations",
        "claims",
        "notices",
        "native_states",
        "tool_calls",
        "blobs",
        "files",
        "containers",
        "skills",
        "ledger",
    }
)


class Fault(Enum):
    """How a call fails."""

    LOST = "lost"
    IN_DOUBT = "in doubt"
    DOWN = "down"


class FaultyStore:
    """Passes calls on, until one of them is to fail. Use `as_store` where a store is wanted."""

    def __init__(self, store: Store) -> None:
        self._inner = store
        self._fault: Fault | None = None
        self._upkeep: tuple[str, Fault] | None = None
        self._at = 0
        self._count = 0
        self.hit: str | None = None
        """The name of the call that failed first."""
        self.upkeep_hits = 0
        """How many calls that a gateway makes by itself have failed."""
        self.begun: list[tuple[str, str]] = []
        """Owner and id of each response that was to begin."""

    @property
    def as_store(self) -> Store:
        """This store, for those who check types."""
        return cast(Store, self)

    def fail_at(self, number: int, fault: Fault) -> None:
        """Let the call of this number fail, counted from now and from 1."""
        self._fault, self._at, self._count, self.hit = fault, number, 0, None
        self.begun = []

    def fail_upkeep(self, name: str, fault: Fault) -> None:
        """Let the calls of this name fail, which a gateway makes by itself, until it is healed."""
        self._upkeep, self.upkeep_hits = (name, fault), 0

    def heal(self) -> None:
        """Let no further call fail."""
        self._fault = self._upkeep = None

    def __getattr__(self, name: str) -> Any:  # Any: whatever the store has under this name
        if name in _FACETS:
            return _Facet(self, name, getattr(self._inner, name))
        return self.wrap(name, getattr(self._inner, name))

    def wrap(self, name: str, method: Any) -> Any:  # Any: a method of any store
        """Return what stands for a method of the store or of one of its facets."""
        if name in _UNCOUNTED:
            return method
        call = self._call_sync if name == "append" else self._call

        def wrapped(*args: Any, **more: Any) -> Any:  # Any: as the method has them
            if name == "begin":
                self.begun.append((args[0], args[1].id))
            return call(name, method, args, more)

        return wrapped

    def _strikes(self, name: str) -> Fault | None:
        """Count a call; return how it fails, None if it does not."""
        if self._upkeep is not None and name == self._upkeep[0]:
            self.upkeep_hits += 1
            return self._upkeep[1]
        if self._fault is None:
            return None
        if name in _UPKEEP or name.startswith("notices."):
            return self._fault if self._fault is Fault.DOWN and self.hit else None
        self._count += 1
        is_hit = self._count == self._at or (self._fault is Fault.DOWN and self._count > self._at)
        if not is_hit:
            return None
        self.hit = self.hit or name
        return self._fault

    async def _call(
        self, name: str, method: Callable[..., Any], args: tuple[Any, ...], more: dict[str, Any]
    ) -> Any:  # Any: as the method has them
        fault = self._strikes(name)
        if fault is Fault.IN_DOUBT:
            await method(*args, **more)
        if fault is not None:
            raise _error(name)
        return await method(*args, **more)

    def _call_sync(
        self, name: str, method: Callable[..., Any], args: tuple[Any, ...], more: dict[str, Any]
    ) -> Any:  # Any: what can be awaited
        fault = self._strikes(name)
        if fault is None:
            return method(*args, **more)
        return _fail_later(name, method(*args, **more) if fault is Fault.IN_DOUBT else None)


class _Facet:
    """One facet of a faulty store."""

    def __init__(self, store: FaultyStore, name: str, inner: object) -> None:
        self._store = store
        self._name = name
        self._inner = inner

    def __getattr__(self, name: str) -> Any:  # Any: see FaultyStore
        return self._store.wrap(f"{self._name}.{name}", getattr(self._inner, name))


async def _fail_later(name: str, doing: Any) -> None:  # Any: what can be awaited, or nothing
    if doing is not None and (inspect.isawaitable(doing)):
        await doing
    raise _error(name)


def _error(name: str) -> StoreUnavailable:
    return StoreUnavailable(f"the disk is tired ({name}); try again")

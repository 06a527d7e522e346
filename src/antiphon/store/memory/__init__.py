"""A store in memory, for as long as the process lives."""

from antiphon.store.memory.store import MemoryStore

__all__ = ["MemoryStore"]

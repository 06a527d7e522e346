"""What is stored, and where: one contract, several kinds of store."""

from antiphon.store.base import History, KeyRecord, Store
from antiphon.store.memory import MemoryStore
from antiphon.store.open import open_store
from antiphon.store.sqlite import SqliteStore

__all__ = ["History", "KeyRecord", "MemoryStore", "SqliteStore", "Store", "open_store"]

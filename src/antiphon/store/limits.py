"""Limits that every store obeys."""

from __future__ import annotations

from typing import Final

__all__ = ["MAX_NUMBER", "MAX_WAITING", "MAX_WAITING_BYTES"]

# The greatest sequence number that may be asked for: the integers of the databases end at twice
# that.
MAX_NUMBER: Final = 2**62

# Writes that wait for their transaction, by number and bytes. Any further one is refused.
MAX_WAITING: Final = 10_000
MAX_WAITING_BYTES: Final = 256 * 1024 * 1024

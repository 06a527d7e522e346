"""When is a store that does not work reported in the log?

Once when the trouble begins, again when its reason changes, and once when it is over. A full
store fails at every request, and a line for each would bury the one with the reason. Any thread
may report. The name appears in the log only: callers over HTTP never see a path or a host.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["Trouble", "unlogged"]

_log = logging.getLogger(__name__)


@contextmanager
def unlogged() -> Iterator[None]:
    """Log no trouble in this block: the caller shows the error to the user instead."""
    was_disabled, _log.disabled = _log.disabled, True
    try:
        yield
    finally:
        _log.disabled = was_disabled


class Trouble:
    """The trouble of one store, logged under this name."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._reason: str | None = None

    def report(self, reason: str) -> None:
        """Log why the store does not work, unless that was logged already."""
        with self._lock:
            is_new, self._reason = reason != self._reason, reason
        if is_new:
            _log.error("%s: %s", self._name, reason)

    @property
    def is_known(self) -> bool:
        """Whether something was reported and is not over."""
        return self._reason is not None

    def end(self) -> None:
        """Log that the store works again, if it had not worked."""
        if self._reason is None:
            return
        with self._lock:
            reason, self._reason = self._reason, None
        if reason is not None:
            _log.warning("%s: the store works again", self._name)

"""Which requests were made? A request is the charges of one response, seen together.

It begins with its first charge, and its place in a list is the time of that one, so it never moves
while it runs. It is in progress while a charge of it is held, and ends as its last charge did.
There is no content here: who asked, what for, and what it came to.
"""

from __future__ import annotations

from typing import Final, Literal, get_args

import msgspec

__all__ = ["REQUEST_STATUSES", "RequestQuery", "RequestStatus"]

RequestStatus = Literal["in_progress", "completed", "incomplete", "failed", "cancelled", "released"]
"""In progress, or the outcome of the last charge."""
REQUEST_STATUSES: Final[tuple[RequestStatus, ...]] = get_args(RequestStatus)


class RequestQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which requests to list, newest first. A filter that is empty or None leaves out nothing."""

    projects: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    """As the callers name them."""
    conversations: tuple[str, ...] = ()
    runs: tuple[str, ...] = ()
    responses: tuple[str, ...] = ()
    status: RequestStatus | None = None
    start: float | None = None
    """Seconds since the epoch: requests that began then or later."""
    end: float | None = None
    """Requests that began before."""
    before: tuple[float, str] | None = None
    """The time and the response of the last one of the page before."""
    limit: int = 100

"""Every buffer, count and wait of the server has a cap; here they are."""

from __future__ import annotations

import msgspec

__all__ = ["FileLimits", "ServerLimits"]


class ServerLimits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Sizes in bytes, times in seconds. Configurable under `[limits]`."""

    header_bytes: int = 32 * 1024
    header_count: int = 100
    header_seconds: float = 10.0
    body_bytes: int = 32 * 1024 * 1024
    body_seconds: float = 30.0
    parse_on_loop_bytes: int = 256 * 1024
    """Larger bodies are decoded beside the event loop, so that other requests do not wait."""
    context_items: int = 20_000
    """Items of a context, with those of earlier turns; more are answered 400."""
    context_bytes: int = 64 * 1024 * 1024
    """The same in bytes of JSON."""
    memory_bytes: int | None = None
    """What requests may take of memory together; above it they are answered 503.

    Without a value: half of what this process may have (see `server.memory`).
    """
    turns: int = 1000
    """Turns at once; one more is answered 503 with Retry-After."""
    background_turns: int = 100
    """Background turns at once; others wait."""
    background_queue: int = 1000
    """How many may wait; one more is answered 429 with Retry-After."""
    heartbeat_seconds: float = 15.0
    write_stall_seconds: float = 60.0
    write_buffer_bytes: int = 64 * 1024
    keep_alive_seconds: float = 75.0
    drain_seconds: float = 30.0
    websockets: int = 20_000
    """Open WebSockets at once; one more is answered 503."""
    websocket_seconds: float = 3600.0
    websocket_ping_seconds: float = 30.0
    """A peer that leaves two pings unanswered is cut off at the third."""
    websocket_lanes: int = 16
    websocket_queue: int = 32
    """Requests that wait on one WebSocket, in all its lanes."""
    websocket_cache_bytes: int = 256 * 1024 * 1024
    """What all WebSockets together remember of turns with `store: false`."""
    retention_days: float = 30.0
    log_retention_days: float | None = None
    """How long events are stored as they were sent; None: as long as their response."""
    upstream_request_retention_days: float = 7.0
    """How long requests to upstreams are stored as they were sent, if they are at all."""
    charge_retention_days: float = 400.0
    """Thirteen months, so that a year can be compared with the one before."""


class FileLimits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How much callers may store, in bytes. Configurable under `[files]`."""

    max_bytes: int = 512 * 1024 * 1024
    """The largest file."""
    owner_bytes: int = 10 * 1024 * 1024 * 1024
    """What all files, uploads, containers and skills of one owner may take together."""

"""The requests that a turn sends to upstreams, kept until they are stored with its end.

Each is compressed when the next one is sent, or when the turn ends: beside the event loop if it is
long, and never between a request and its first token. Secrets that a caller sent for tools which
the upstream runs are replaced. Keys of upstreams are in headers, which are not here.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from antiphon.engine.services import Clock
from antiphon.plans.plan import Plan
from antiphon.protocol.tool_secrets import has_secrets, secrets_of
from antiphon.store.base.rounds import KeptRound, RoundKind
from antiphon.transport.aside import aside_if

__all__ = ["KeptRequests"]

_MAX_BODY: Final = 4 * 1024 * 1024
_MAX_ALL: Final = 8 * 1024 * 1024
_MAX_ROUNDS: Final = 256
# A longer body takes more than a millisecond to compress.
_LONG: Final = 64 * 1024
_LEVEL: Final = 1
_REPLACED: Final = b"[not kept]"
_SERVERS: Final = "mcp_servers"
_TOKEN: Final = "authorization_token"  # noqa: S105 # the name of a field


class KeptRequests:
    """What one turn has sent. At most a few megabytes of it are kept, of the first rounds."""

    def __init__(self, owner: str, response_id: str, now: Clock) -> None:
        self._owner = owner
        self._response_id = response_id
        self._now = now
        self._rounds: list[KeptRound] = []
        self._waiting: tuple[KeptRound, list[str]] | None = None
        self._bytes = 0

    async def add(self, number: int, kind: RoundKind, body: bytes, plan: Plan) -> None:
        """Keep the request of a round: nothing, if the backend sends none."""
        await self._compress()
        if not body or len(self._rounds) >= _MAX_ROUNDS:
            return
        is_kept = len(body) <= _MAX_BODY and self._bytes < _MAX_ALL
        found = KeptRound(
            owner=self._owner,
            response_id=self._response_id,
            number=number,
            kind=kind,
            created_at=self._now(),
            size=len(body),
            body=body if is_kept else None,
        )
        self._waiting = found, list(_secrets(plan))

    async def entries(self) -> list[KeptRound]:
        """Return all rounds, to be stored with the end of the turn."""
        await self._compress()
        return list(self._rounds)

    async def _compress(self) -> None:
        if self._waiting is None:
            return
        (found, secrets), self._waiting = self._waiting, None
        if found.body is not None:
            packed = await aside_if(len(found.body) > _LONG, _pack, found.body, secrets)
            self._bytes += len(packed)
            found = msgspec.structs.replace(found, body=packed)
        self._rounds.append(found)


def _pack(body: bytes, secrets: list[str]) -> bytes:
    for secret in secrets:
        written = msgspec.json.encode(secret)[1:-1]
        body = body.replace(written, _REPLACED)
    return zlib.compress(body, _LEVEL)


def _secrets(plan: Plan) -> Iterator[str]:
    """Yield the secrets of the caller that the upstream is sent, longest first if one has another.

    Those of tools that the gateway runs itself are not sent.
    """
    found: set[str] = set()
    for tool in plan.toolbox.upstream:
        if has_secrets(tool):
            found.update(_texts(secrets_of(tool)))
    servers = plan.extra.get(_SERVERS) if plan.extra else None
    for server in servers if isinstance(servers, list) else ():
        if isinstance(server, Mapping):
            found.update(_texts(server.get(_TOKEN)))
    yield from sorted(found, key=len, reverse=True)


def _texts(value: Any) -> Iterator[str]:  # any JSON value
    if isinstance(value, str) and value:
        yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from _texts(inner)

"""The requests that a turn sends to upstreams, kept until they are stored with its end.

Each is compressed when the next one is sent, or when the turn ends: beside the event loop if it is
long, and never between a request and its first token. Secrets that a caller sent for tools which
the upstream runs are replaced. Keys of upstreams are in headers, which are not here. Tools that
come with one request after the other, and settled messages of a thread, are compressed once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from antiphon.engine.keep.deflate import FAST, Block, compress, find_block, make_block
from antiphon.engine.services import Clock
from antiphon.plans.plan import Plan
from antiphon.plans.toolbox import Toolbox
from antiphon.protocol.long_body import PIECE, LongBody
from antiphon.protocol.thread import Thread
from antiphon.protocol.tool_list import SHORTEST
from antiphon.protocol.tool_secrets import has_secrets, secrets_of
from antiphon.store.base.rounds import KeptRound, RoundKind
from antiphon.transport.aside import aside_if

__all__ = ["KeptRequests"]

_MAX_BODY: Final = 4 * 1024 * 1024
_MAX_ALL: Final = 8 * 1024 * 1024
_MAX_ROUNDS: Final = 256
# A longer body takes more than a millisecond to compress.
_LONG: Final = 64 * 1024
_REPLACED: Final = b"[not kept]"
_SERVERS: Final = "mcp_servers"
_TOKEN: Final = "authorization_token"  # noqa: S105 # the name of a field
_open_object: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class _Waiting(NamedTuple):
    """A request that is not compressed yet."""

    found: KeptRound
    body: bytes | LongBody | None
    """None if it is too long to be kept."""
    plan: Plan


class KeptRequests:
    """What one turn has sent. At most a few megabytes of it are kept, of the first rounds."""

    def __init__(self, owner: str, response_id: str, now: Clock) -> None:
        self._owner = owner
        self._response_id = response_id
        self._now = now
        self._rounds: list[KeptRound] = []
        self._waiting: _Waiting | None = None
        self._bytes = 0

    async def add(self, number: int, kind: RoundKind, body: bytes | LongBody, plan: Plan) -> None:
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
            body=None,
        )
        self._waiting = _Waiting(found, body if is_kept else None, plan)

    async def entries(self) -> list[KeptRound]:
        """Return all rounds, to be stored with the end of the turn."""
        await self._compress()
        return list(self._rounds)

    async def _compress(self) -> None:
        if self._waiting is None:
            return
        (found, body, plan), self._waiting = self._waiting, None
        if body is not None:
            is_long = _new_bytes(body, plan) > _LONG
            packed = await aside_if(is_long, _pack, body, plan)
            self._bytes += len(packed)
            found = msgspec.structs.replace(found, body=packed)
        self._rounds.append(found)


def _pack(body: bytes | LongBody, plan: Plan) -> bytes:
    secrets = [msgspec.json.encode(secret)[1:-1] for secret in _secrets(plan)]
    if isinstance(body, LongBody) and not secrets and isinstance(plan.items, Thread):
        settled = _settled_parts(body.lasting, plan.items)
        return compress([body.begin, *settled, *_tool_parts(body.end, body, plan.toolbox)])
    whole = bytes(body)
    for secret in secrets:
        whole = whole.replace(secret, _REPLACED)
    return compress(_tool_parts(whole, whole, plan.toolbox))


def _new_bytes(body: bytes | LongBody, plan: Plan) -> int:
    """Return how much of a request has to be compressed, or looked through."""
    if not isinstance(body, LongBody) or not isinstance(plan.items, Thread) or any(_secrets(plan)):
        return len(body)
    known: tuple[Block, ...] = plan.items.recall(_settled_parts) or ()
    blocks = zip(known, body.lasting, strict=False)
    return len(body) - sum(len(piece) for block, piece in blocks if block.text is piece)


def _settled_parts(pieces: Sequence[bytes], thread: Thread) -> list[bytes | Block]:
    """Return these pieces, those that will stay as blocks. The thread remembers the blocks."""
    known: tuple[Block, ...] = thread.recall(_settled_parts) or ()
    parts: list[bytes | Block] = []
    for place, piece in enumerate(pieces):
        if place < len(known) and known[place].text is piece:
            parts.append(known[place])
        else:
            parts.append(make_block(piece, FAST) if len(piece) >= PIECE else piece)
    thread.learn(_settled_parts, tuple(part for part in parts if isinstance(part, Block)))
    return parts


def _tool_parts(text: bytes, body: bytes | LongBody, toolbox: Toolbox) -> Sequence[bytes | Block]:
    """Return this part of a request, with the tools as a block if they are long."""
    if not toolbox.offers:
        return [text]
    block = toolbox.derived.get(_block_of, lambda: _block_of(bytes(body)))
    return [text] if block is None else find_block(text, block)


def _block_of(body: bytes) -> Block | None:
    """Return the tools of a request as they were written, if they are long."""
    try:
        tools = bytes(_open_object(body).get("tools", b""))
    except msgspec.DecodeError:  # it is not for us to judge
        return None
    return make_block(tools) if len(tools) >= SHORTEST else None


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

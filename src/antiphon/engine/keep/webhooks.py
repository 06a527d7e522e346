"""Who is informed that a background response has ended or a budget runs out, and how often?

An end and the notices of it are stored in one step, so none is lost; a notice goes away when its
endpoint has answered 2xx, or when it is given up. An endpoint may hear of one event twice (we
died between its answer and our note of it): the id of the event is the same at every attempt.
Each endpoint has a pace of its own, so that one that hangs holds up nobody else. The form is
that of Standard Webhooks, https://www.standardwebhooks.com, as the SDKs of OpenAI check it.

Redirects are not followed: a redirect is an answer that is not 2xx.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import logging
import random
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final, Literal, get_args
from urllib.parse import urlsplit

import msgspec

from antiphon.engine.keep.budget_alerts import THRESHOLD, BudgetAlerts
from antiphon.protocol.errors import BackendError, StoreUnavailable
from antiphon.protocol.machines.builder import Mint
from antiphon.protocol.response import Response
from antiphon.store.base import Notice, Store
from antiphon.transport.egress import open_public_socket
from antiphon.transport.http import HttpClient, Limits
from antiphon.transport.retry import read_retry_after
from antiphon.transport.secret import Secret

__all__ = ["EVENTS", "Endpoint", "EventType", "Webhooks", "is_signing_secret", "pause", "sign"]

_log = logging.getLogger(__name__)

EventType = Literal[
    "response.completed",
    "response.failed",
    "response.incomplete",
    "response.cancelled",
    "budget.threshold",
]
EVENTS: Final[tuple[EventType, ...]] = get_args(EventType)

_PREFIX: Final = "whsec_"
_SECRET_BYTES: Final = range(24, 65)
_GONE: Final = 410
# Seconds until the next attempt; the last one repeats until the notice is too old.
_PAUSES: Final = (5, 30, 120, 600, 3600, 21_600)
_MAX_AGE: Final = 3 * 86_400
_LIMITS: Final = Limits(connect=5.0, first_byte=10.0)
# Long enough for an attempt to end; after that another process may try.
_HIDDEN_SECONDS: Final = 60
_AT_ONCE: Final = 16
# Budgets are looked at this much more rarely than notices that are due.
_BUDGET_POLLS: Final = 5


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody who wants to be told. With several `secrets` there are several signatures."""

    url: str
    secrets: tuple[Secret, ...]
    events: tuple[EventType, ...] = EVENTS
    allow_private: bool = False

    @property
    def name(self) -> str:
        """What notices know it by: the same in every process that has the URL in its settings."""
        return hashlib.sha256(self.url.encode()).hexdigest()[:32]

    @property
    def origin(self) -> str:
        """The URL as far as it may be logged: a path may hold a token."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


class Webhooks:
    """Makes the notices of responses and budgets, and delivers those that are due."""

    def __init__(
        self,
        endpoints: Sequence[Endpoint],
        store: Store,
        *,
        now: Callable[[], int],
        mint: Mint,
        jitter: Callable[[], float] = random.random,
        poll_seconds: float = 1.0,
        limits: Limits = _LIMITS,
    ) -> None:
        self._endpoints = tuple(endpoints)
        self.alerts = BudgetAlerts(_alerted(endpoints), store, now=now, mint=mint)
        """Makes the notices of budgets that run out."""
        self._is_changed = asyncio.Event()
        self._store = store
        self._now = now
        self._mint = mint
        self._jitter = jitter
        self._poll_seconds = poll_seconds
        self._guarded = HttpClient(limits=limits, open_socket=open_public_socket)
        self._unguarded = HttpClient(limits=limits)

    def notices_for(self, owner: str, response: Response) -> list[Notice]:
        """Return what must be stored with the end of this response: nothing for most."""
        if not response.background:
            return []
        kind = f"response.{response.status}"
        return [
            Notice(
                id=self._mint("evt"),
                owner=owner,
                response_id=response.id,
                type=kind,
                created_at=self._now(),
                endpoint=endpoint.name,
            )
            for endpoint in self._endpoints
            if kind in endpoint.events
        ]

    def use(self, endpoints: Sequence[Endpoint]) -> None:
        """Notify these from now on. Endpoints that stay go on as they are."""
        self._endpoints = tuple(endpoints)
        self.alerts.use(_alerted(endpoints))
        self._is_changed.set()

    async def run(self) -> None:
        """Deliver until cancelled. What is under way then is tried again later, by anybody."""
        served: dict[Endpoint, asyncio.Task[None]] = {}
        async with asyncio.TaskGroup() as group:
            looking: asyncio.Task[None] | None = None
            while True:
                self._is_changed.clear()
                if looking is None and self.alerts.is_wanted:
                    looking = group.create_task(self._again(self.alerts.look, _BUDGET_POLLS))
                for gone in served.keys() - set(self._endpoints):
                    served.pop(gone).cancel()
                for endpoint in self._endpoints:
                    if endpoint not in served:
                        served[endpoint] = group.create_task(
                            self._again(partial(self._deliver_due, endpoint))
                        )
                await self._is_changed.wait()

    async def close(self) -> None:
        """Let go of the connections."""
        await self._guarded.close()
        await self._unguarded.close()

    async def _again(self, work: Callable[[], Awaitable[int]], polls: int = 1) -> None:
        """Do this again and again, after so many pauses if there was nothing to do."""
        while True:
            try:
                is_idle = not await work()
            except StoreUnavailable as error:
                _log.warning("webhooks have to wait: %s", error)
                is_idle = True
            except Exception:  # noqa: BLE001 - the outermost frame of this task
                _log.exception("delivering webhooks broke")
                is_idle = True
            if is_idle:
                await asyncio.sleep(self._poll_seconds * polls)

    async def _deliver_due(self, endpoint: Endpoint) -> int:
        """Try what is due, and return how much that was."""
        now = self._now()
        due = await self._store.notices.take(endpoint.name, now, now + _HIDDEN_SECONDS, _AT_ONCE)
        async with asyncio.TaskGroup() as group:
            for notice in due:
                group.create_task(self._deliver(endpoint, notice))
        return len(due)

    async def _deliver(self, endpoint: Endpoint, notice: Notice) -> None:
        """Try once. What the store cannot note now comes up again when it is hidden no more."""
        wish = await self._tell(endpoint, notice)
        try:
            if wish is None:
                await self._store.notices.settle(notice.id)
            else:
                await self._store.notices.postpone(notice.id, self._now() + wish)
        except StoreUnavailable as error:
            _log.warning("what became of the webhook %s cannot be noted: %s", notice.id, error)

    async def _tell(self, endpoint: Endpoint, notice: Notice) -> int | None:
        """Send the notice; return None when it is done with, else the seconds to wait."""
        body = _encode(notice)
        client = self._unguarded if endpoint.allow_private else self._guarded
        asked = None
        try:
            head = await client.post(
                endpoint.url, body, sign(endpoint.secrets, notice.id, self._now(), body)
            )
        except BackendError as error:
            status, reason = 0, error.message
        else:
            status, reason = head.status, f"it answered {head.status}"
            asked = read_retry_after(head.headers, self._now())
        if 200 <= status < 300:
            _log.debug("the webhook %s was delivered to %s", notice.id, endpoint.origin)
            return None
        is_hopeless = status == _GONE or self._now() - notice.created_at >= _MAX_AGE
        wait = None if is_hopeless else pause(notice.attempts, asked, self._jitter())
        _log.warning(
            "the webhook %s was not delivered to %s (attempt %d): %s; %s",
            notice.id,
            endpoint.origin,
            notice.attempts,
            reason,
            "it is given up" if wait is None else f"next attempt in {wait} s",
        )
        return wait


def pause(attempts: int, asked: float | None, jitter: float) -> int:
    """Return the seconds to wait after so many attempts.

    `asked` is what the endpoint wishes; it can make the wait longer, to the longest there is.
    `jitter` is between 0 and 1.
    """
    index = min(max(attempts, 1), len(_PAUSES)) - 1
    wait = max(_PAUSES[index], min(asked or 0.0, _PAUSES[-1]))
    return round(wait * (1 + 0.2 * jitter))


def sign(secrets: Sequence[Secret], message_id: str, now: int, body: bytes) -> dict[str, str]:
    """Return the headers that prove where a body comes from."""
    signed = b".".join((message_id.encode(), str(now).encode(), body))
    signatures = (hmac.digest(_key(secret), signed, "sha256") for secret in secrets)
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(now),
        "webhook-signature": " ".join(
            f"v1,{base64.b64encode(signature).decode()}" for signature in signatures
        ),
    }


def is_signing_secret(text: str) -> bool:
    """Say whether a text is `whsec_` and 24 to 64 bytes in base64."""
    try:
        key = base64.b64decode(text.removeprefix(_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        return False
    return text.startswith(_PREFIX) and len(key) in _SECRET_BYTES


def _key(secret: Secret) -> bytes:
    return base64.b64decode(secret.reveal().removeprefix(_PREFIX))


def _encode(notice: Notice) -> bytes:
    data: object = {"id": notice.response_id}
    if notice.type == THRESHOLD:
        data = msgspec.Raw(notice.response_id.encode())
    return msgspec.json.encode(
        {
            "id": notice.id,
            "object": "event",
            "type": notice.type,
            "created_at": notice.created_at,
            "data": data,
        }
    )


def _alerted(endpoints: Sequence[Endpoint]) -> list[str]:
    """Return the names of the endpoints that are informed about budgets."""
    return [endpoint.name for endpoint in endpoints if THRESHOLD in endpoint.events]

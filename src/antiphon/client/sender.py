"""How does a request reach the server, and when is it sent again?

A `Sender` knows one server: its address, its key, how long to wait and how often to retry. It
returns bodies; what they mean is decided elsewhere. Every failure is a ClientError without our key
in it. `transport.retry` knows which statuses are retried, and the back-off; `Attempts` knows the
client's errors and counts. A request and the connection of a follower differ only in their limits.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, TypeVar
from urllib.parse import quote, urlencode, urlsplit

from antiphon.client.errors import (
    BadCall,
    ClientError,
    InvalidAnswer,
    QuotaExceeded,
    ServerUnreachable,
    StreamBroken,
    TimedOut,
    error_from_answer,
    error_from_transport,
    unreadable,
)
from antiphon.client.settings import ClientSettings, Timeouts
from antiphon.protocol.errors import BackendError
from antiphon.transport.http import Head, HttpClient
from antiphon.transport.retry import WAIT_BUDGET, retry_delay
from antiphon.transport.stream import ByteStream, open_stream

__all__ = ["EVENT_STREAM", "Attempts", "Sender", "check_is_stream", "path_to", "with_query"]

EVENT_STREAM: Final = "text/event-stream"

_log: Final = logging.getLogger("antiphon.client")
_MAX_ERROR: Final = 1024 * 1024
_T = TypeVar("_T")
# No status came with these; they count as one that is worth a retry.
_LOST: Final = (ServerUnreachable, StreamBroken, TimedOut)
_LOST_STATUS: Final = 503
# An answer that cannot be read will not be better, and credit does not come back by itself.
_HOPELESS: Final = (InvalidAnswer, QuotaExceeded)


class Attempts:
    """The failed attempts in a row, and the time left to wait.

    `gives_up_on` are errors that are never retried, besides the hopeless ones. A wait is at most
    `longest_wait`, unless the server asks for more.
    """

    def __init__(
        self,
        most: int,
        *,
        gives_up_on: tuple[type[ClientError], ...] = (TimedOut,),
        budget: float = WAIT_BUDGET,
        longest_wait: float = float("inf"),
    ) -> None:
        self.failed = 0
        self._most = most
        self._gives_up_on: tuple[type[ClientError], ...] = (*_HOPELESS, *gives_up_on)
        self._budget = budget
        self._longest_wait = longest_wait

    def start_over(self) -> None:
        """Count from the beginning: an attempt has succeeded."""
        self.failed = 0

    def wait_after(self, error: ClientError, jitter: float) -> float | None:
        """Count a failed attempt; return the seconds before the next, or None to give up."""
        self.failed += 1
        if isinstance(error, self._gives_up_on) or error.should_retry is False:
            return None
        is_lost = isinstance(error, _LOST) or error.should_retry
        wait = retry_delay(
            _LOST_STATUS if is_lost else error.status,
            self.failed,
            error.retry_after,
            jitter,
            budget=self._budget,
            max_attempts=self._most,
        )
        if wait is None:
            return None
        self._budget -= wait
        return max(min(wait, self._longest_wait), error.retry_after or 0.0)


class Sender:
    """Sends requests to one server. `sleep` and `jitter` are there for tests."""

    def __init__(
        self,
        settings: ClientSettings,
        timeouts: Timeouts,
        *,
        max_retries: int,
        sleep: Callable[[float], Awaitable[None]],
        jitter: Callable[[], float],
    ) -> None:
        self.base_url: Final = settings.base_url
        self.http: Final = HttpClient(
            key=settings.key, headers=settings.headers, limits=timeouts.limits()
        )
        self.sleep: Final = sleep
        self.jitter: Final = jitter
        self._timeouts = timeouts
        self._asks_for_key = callable(settings.key)
        self._max_retries = max_retries

    async def retrying(self, once: Callable[[], Awaitable[_T]]) -> _T:
        """Run `once` until it succeeds, or until a retry would not help. Raise ClientError."""
        attempts, may_ask_again = Attempts(self._max_retries + 1), self._asks_for_key
        while True:
            try:
                return await once()
            except ClientError as error:
                if may_ask_again and error.status == 401:
                    # The key may have expired on the way; the next attempt asks for another.
                    may_ask_again = False
                    continue
                self.redact_error(error)
                self._hint(error)
                wait = attempts.wait_after(error, self.jitter())
                if wait is None:
                    raise
                _log.debug(
                    "attempt %d failed (HTTP %d); next in %.2f s",
                    attempts.failed,
                    error.status,
                    wait,
                )
            await self.sleep(wait)

    async def fetch(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> bytes:
        """Return the body of an answer, retrying if need be. Raise ClientError for a refusal."""

        async def once() -> bytes:
            try:
                reply = await self.http.fetch(
                    method, self.base_url + path, body=body, headers=headers
                )
            except BackendError as error:
                raise error_from_transport(error) from error
            if not _is_success(reply.head):
                raise self._refusal(reply.head, reply.body, None)
            return reply.body

        return await self.retrying(once)

    async def post(
        self, path: str, body: bytes, *, key: str, thread_id: str | None, is_streamed: bool
    ) -> ByteStream:
        """Post a turn, once, and return its answer when the head is here. Raise ClientError.

        `key` is the Idempotency-Key. `thread_id` is what the turn continues, if anything: only
        then can a refusal mean that the server lost it.
        """
        _log.debug("posting %d bytes to %s", len(body), path)
        accept = EVENT_STREAM if is_streamed else "application/json"
        headers = {"Accept": accept, "Idempotency-Key": key}
        patience = None if is_streamed else self._timeouts.answer
        return await self._open("POST", path, body, headers, patience, thread_id)

    async def open_events(self, path: str) -> ByteStream:
        """Ask once for a stream of events and return it when its head is here."""
        body = await self._open("GET", path, None, {"Accept": EVENT_STREAM}, None, None)
        try:
            check_is_stream(body.head)
        except InvalidAnswer:
            body.close()
            raise
        return body

    async def open_content(self, path: str) -> ByteStream:
        """Ask once for a content of any type, and return it when its head is here."""
        return await self._open("GET", path, None, {}, None, None)

    async def read(self, body: ByteStream) -> bytes:
        """Return a whole body."""
        try:
            return await body.read_all(self.http.limits.body)
        except BackendError as error:
            raise error_from_transport(error) from error

    def redact_error(self, error: ClientError) -> None:
        """Take our own key out of what the server sent."""
        error.message = self.http.redact(error.message)
        error.args = (error.message,)

    async def _open(
        self,
        method: str,
        path: str,
        body: bytes | None,
        headers: Mapping[str, str],
        patience: float | None,
        thread_id: str | None,
    ) -> ByteStream:
        url = self.base_url + path
        try:
            stream = await open_stream(
                self.http, url, body, method=method, headers=headers, patience=patience
            )
        except BackendError as error:
            raise error_from_transport(error) from error
        if _is_success(stream.head):
            return stream
        try:
            text = await stream.read_all(_MAX_ERROR)
        except BackendError:
            text = b""
        raise self._refusal(stream.head, text, thread_id)

    def _refusal(self, head: Head, text: bytes, thread_id: str | None) -> ClientError:
        return error_from_answer(
            head.status, text, head.headers, thread=thread_id, redact=self.http.redact
        )

    def _hint(self, error: ClientError) -> None:
        """Name the usual mistake when nothing is found at the path."""
        if error.status == 404 and not urlsplit(self.base_url).path:
            error.add_note(f"does the base URL end in /v1? It is {self.base_url}")


def path_to(collection: str, name: str, what: str) -> str:
    """Return the path of one thing, its id as one segment. Raise BadCall if it has none."""
    if not name:
        raise BadCall(f"{what} must not be empty", param=what)
    return f"{collection}/{quote(name, safe='')}"


def with_query(path: str, **asked: object) -> str:
    """Return the path with a query of what was given."""
    given = {name: value for name, value in asked.items() if value is not None}
    query = urlencode(given, doseq=True)
    return f"{path}?{query}" if query else path


def check_is_stream(head: Head) -> None:
    """Raise InvalidAnswer unless the body can be a stream of events.

    Some servers name no type, or that of any text; their bytes will show what they are.
    """
    if head.content_type not in (EVENT_STREAM, "text/plain", ""):
        kind = head.content_type[:80]
        raise unreadable(
            head.status, head.headers, f"the server's answer is {kind}, not a stream of events"
        )


def _is_success(head: Head) -> bool:
    return 200 <= head.status < 300

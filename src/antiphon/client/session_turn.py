"""One request, what it continues, and what to remember of it.

Where the session stands is looked up when the request goes out, not when it is prepared. Turns
of one session that run at the same time are forks of it: the one that ends last is what the
session goes on from, and the tokens of all are counted.
"""

from __future__ import annotations

import logging
import secrets
from typing import Final

from antiphon.client.chat import ChatWire, legacy_profile
from antiphon.client.continuation import Continuation, continue_from, conversation_id, next_thread
from antiphon.client.conversation import ConversationCache, Thread
from antiphon.client.request import Request
from antiphon.client.settings import WireApi
from antiphon.client.wires import ResponsesWire, Wire
from antiphon.protocol.response import Response

__all__ = ["SessionTurn"]

_log: Final = logging.getLogger("antiphon.client")


class SessionTurn:
    """A request on its way. `begin` decides how it continues the session it is of."""

    def __init__(
        self, request: Request, cache: ConversationCache, wire: WireApi, base_url: str
    ) -> None:
        self._request = request
        self._cache = cache
        self._wire = wire
        self._base_url = base_url
        self._look_up()

    def begin(self) -> None:
        """Look up where the session stands now, which is when the request goes out."""
        self._look_up()
        if self._continuation.note:
            _log.debug("%s", self._continuation.note)

    def _look_up(self) -> None:
        self._continuation: Continuation = continue_from(
            self._request, self._thread(), server_keeps_threads=self._wire == "responses"
        )
        self._body = self._continuation.body
        self.idempotency_key = secrets.token_urlsafe(24)

    @property
    def thread_id(self) -> str | None:
        """What the request continues on the server."""
        return self._body.get("previous_response_id") or conversation_id(self._body)

    def wire(self, *, is_streamed: bool) -> Wire:
        """Return a fresh wire for the next attempt."""
        body = self._body | {"stream": True} if is_streamed else self._body
        if self._wire == "responses":
            return ResponsesWire(body)
        return ChatWire(body, legacy_profile(self._base_url))

    def fall_back(self) -> bool:
        """Switch to the full history; return whether there is one. Forget what the server lost."""
        gone = self.thread_id
        if self._request.session is not None:
            self._cache.update(
                self._request.session,
                self._model,
                lambda thread: thread and thread.without(gone),
            )
        fallback = self._continuation.fallback
        if fallback is None or self._body is fallback:
            return False
        _log.debug("the thread cannot be continued; sending %d items", len(fallback["input"]))
        self._body = fallback
        self.idempotency_key = secrets.token_urlsafe(24)
        return True

    def remember(self, response: Response) -> None:
        """Let the session go on from this response, unless it failed."""
        session = self._request.session
        if session is not None and self._request.is_stateful:
            self._cache.update(
                session,
                self._model,
                lambda current: next_thread(current, self._continuation, response),
            )

    @property
    def _model(self) -> str | None:
        return self._request.body.get("model")

    def _thread(self) -> Thread | None:
        session = self._request.session
        if session is None or not self._request.is_stateful:
            return None
        return self._cache.get(session, self._model)

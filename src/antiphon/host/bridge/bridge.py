"""Who is asked what, and what still runs? The bridge of one asker.

Invariants:

- nothing but `hello` is answered before `hello`;
- each request that is taken is a task under its id until its last message is sent, and that is
  sent by one place only (`_finish`), whether the task returns, fails or is cancelled; a count that
  is answered at once needs no task;
- what fails in a request ends this request and no other;
- an error about a message never carries the id of a request that still runs;
- at most `max_requests` run at a time;
- when the input ends, all are cancelled, and their connections closed, before `run` returns.
"""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Final

from antiphon.client.errors import BadCall
from antiphon.client.settings import ApiKey
from antiphon.host.bridge.faults import CANCELLED, fault_of
from antiphon.host.bridge.logs import LogHandler
from antiphon.host.bridge.pipes import HARD_LIMIT, LineSink
from antiphon.host.bridge.reading import encode_line, read_question
from antiphon.host.bridge.requests import Requests, open_client
from antiphon.version import __version__
from antiphon.wires.host.lines import MAX_LINE_BYTES, LongLine
from antiphon.wires.host.messages import (
    VERSION,
    Answer,
    Cancel,
    Count,
    ErrorCode,
    Failed,
    Fault,
    Hello,
    ListModels,
    Measure,
    RequestId,
    Respond,
    Welcome,
)

__all__ = ["MAX_REQUESTS", "Bridge"]

MAX_REQUESTS: Final = 256
_log: Final = logging.getLogger("antiphon.host.bridge")


class Bridge:
    """Answers one asker. `base_url` and `api_key` hold where its `hello` has none."""

    def __init__(
        self,
        sink: LineSink,
        base_url: str,
        api_key: ApiKey = "",
        *,
        max_requests: int = MAX_REQUESTS,
    ) -> None:
        self._sink = sink
        self._base_url = base_url
        self._api_key = api_key
        self._max_requests = max_requests
        self._requests: Requests | None = None
        self._running: dict[RequestId, asyncio.Task[Answer]] = {}
        self._log_handler: LogHandler | None = None
        self._redact: Callable[[str], str] = str
        self._is_over = False

    async def run(self, lines: AsyncIterator[bytes | LongLine]) -> None:
        """Answer every line. Return when there are no more, or the asker cannot be answered."""
        try:
            async for line in lines:
                self._take(line)
                if self._is_over:
                    return
                # Only an asker that reads nothing gets here; cancels are read until then.
                await self._sink.room(HARD_LIMIT)
        finally:
            await self._end()

    async def _end(self) -> None:
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        try:
            await asyncio.gather(*tasks, return_exceptions=True)
            if self._requests is not None:
                await self._requests.close()
        finally:
            if self._log_handler is not None:
                self._log_handler.remove()

    def _send(self, message: Answer) -> None:
        self._sink.write(encode_line(message))

    def _take(self, line: bytes | LongLine) -> None:
        question = read_question(line)
        match question:
            case Failed():
                is_taken = question.id is not None and question.id in self._running
                self._refuse(None if is_taken else question.id, question.error)
            case Hello():
                self._greet(question)
            case _ if self._requests is None:
                fault = _fault("not_greeted", "The first message must be `hello`.")
                self._refuse(question.id, fault)
            case Cancel():
                if task := self._running.get(question.id):
                    task.cancel()
            case _:
                self._begin(question, self._requests)

    def _refuse(self, request_id: RequestId | None, fault: Fault) -> None:
        self._send(Failed(id=request_id, error=fault))

    def _greet(self, hello: Hello) -> None:
        if self._requests is not None:
            fault = _fault("invalid_message", "`hello` was sent already.")
            self._refuse(None, fault)
            return
        if hello.version != VERSION:
            message = f"Version {hello.version} is not known; this is version {VERSION}."
            self._refuse(None, _fault("unsupported_version", message, "Update antiphon."))
            self._is_over = True
            return
        try:
            client = open_client(self._base_url, self._api_key, hello.settings)
        except BadCall as error:
            self._refuse(None, fault_of(error))
            return
        self._log_handler = LogHandler(
            hello.settings.log_level, self._send, lambda: self._sink.is_full, client.http.redact
        )
        self._log_handler.install()
        self._redact = client.http.redact
        self._requests = Requests(client, hello.settings, self._send, self._sink.room)
        self._send(
            Welcome(
                version=VERSION,
                name="antiphon",
                software=f"antiphon {__version__}",
                max_line_bytes=MAX_LINE_BYTES,
                max_requests=self._max_requests,
            )
        )

    def _begin(self, question: ListModels | Count | Measure | Respond, requests: Requests) -> None:
        if question.id in self._running:
            message = f"A request with the id {question.id!r} is still running."
            self._refuse(None, _fault("duplicate_id", message))
            return
        if len(self._running) >= self._max_requests:
            message = f"{self._max_requests} requests are running, and no more may."
            self._refuse(question.id, _fault("too_many_requests", message, "Wait for an answer."))
            return
        if isinstance(question, Count) and self._count_now(question, requests):
            return
        task = asyncio.create_task(requests.answer(question))
        self._running[question.id] = task
        task.add_done_callback(partial(self._finish, question.id))

    def _count_now(self, question: Count, requests: Requests) -> bool:
        """Answer a count that takes no time, without a task; return whether it was one."""
        try:
            counted = requests.count_now(question)
        except Exception as error:  # noqa: BLE001 # as that of a task: it ends this request alone
            self._fail(question.id, error)
            return True
        if counted is not None:
            self._send(counted)
        return counted is not None

    def _finish(self, request_id: RequestId, task: asyncio.Task[Answer]) -> None:
        """Send the last message of a request. A task that never began gets here as well."""
        del self._running[request_id]
        if task.cancelled():
            self._refuse(request_id, CANCELLED)
            return
        error = task.exception()
        if error is None:
            self._send(task.result())
            return
        self._fail(request_id, error)

    def _fail(self, request_id: RequestId, error: BaseException) -> None:
        fault = fault_of(error, self._redact)
        if fault.code == "internal":
            _log.error("request failed: %s", _trace(error))
        self._refuse(request_id, fault)


def _fault(code: ErrorCode, message: str, action: str = "") -> Fault:
    return Fault(code=code, message=message, action=action)


def _trace(error: BaseException) -> str:
    """Return where an error comes from, without its message, which may hold anything."""
    frames = traceback.extract_tb(error.__traceback__)
    places = [f"{frame.name}:{frame.lineno}" for frame in frames[-4:]]
    return f"{type(error).__name__} in {' > '.join(places)}"

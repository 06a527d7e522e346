"""The other side of the bridge, for programs in Python: start it, ask it, close it.

    async with await BridgeClient.start(["antiphon", "host"], AskSettings(usage_part=True)) as it:
        async for part in it.respond("qwen3", [Message.user("Hello")]):
            ...

A program in Python can use `Provider` itself. This client shows how the protocol is used, and
tests the bridge. The parts of an answer that is not read wait in memory. Leaving the loop over an
answer cancels it.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any, Final, Self

from antiphon.host.bridge.reading import encode_line, read_answer
from antiphon.protocol.errors import AntiphonError
from antiphon.wires.host.lines import MAX_LINE_BYTES
from antiphon.wires.host.messages import (
    VERSION,
    Answer,
    AskSettings,
    Cancel,
    Count,
    Counted,
    Done,
    Failed,
    Fault,
    Hello,
    ListModels,
    Log,
    Measure,
    Measured,
    ModelEntry,
    Models,
    ModelsChanged,
    Options,
    Parts,
    Question,
    RequestId,
    Respond,
    Tool,
    UsageChanged,
    Welcome,
)
from antiphon.wires.host.parts import Message, ResponsePart

__all__ = [
    "AskSettings",
    "BridgeAnswer",
    "BridgeClient",
    "BridgeError",
    "Done",
    "Fault",
    "Log",
    "Measured",
    "ModelEntry",
    "ModelsChanged",
    "Notice",
    "Options",
    "Tool",
    "UsageChanged",
]

_DEFAULT: Final = Options()
_COMMAND: Final = (sys.executable, "-m", "antiphon", "host")
_ENDED: Final = Fault(code="unreachable", message="The bridge has ended.", action="Start it again.")

Notice = UsageChanged | Log | ModelsChanged
_Queue = asyncio.Queue[Any]  # Any: the answers to one request, each checked where it is taken


class BridgeError(AntiphonError):
    """The bridge answered with an error; `fault` has its code, its sentence and an action."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(f"{fault.message} {fault.action}".strip())
        self.fault = fault


class BridgeClient:
    """A bridge that runs as a child process. `start` makes one; enter it, or close it.

    `listen` is called with each message that answers no request: usage, log and changed models.
    """

    def __init__(
        self, process: asyncio.subprocess.Process, listen: Callable[[Notice], object]
    ) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self.process: Final = process
        self._input, self._output = process.stdin, process.stdout
        self._listen = listen
        self._waiting: dict[RequestId | None, _Queue] = {}
        self._last_id = 0
        self._has_ended = False
        self._reading = asyncio.create_task(self._read())

    @classmethod
    async def start(
        cls,
        command: Sequence[str] = _COMMAND,
        settings: AskSettings | None = None,
        *,
        listen: Callable[[Notice], object] = lambda notice: None,
        **process: Any,  # Any: what asyncio.create_subprocess_exec takes
    ) -> Self:
        """Start a bridge and greet it.

        Raise BridgeError if it does not accept the settings, or ends at once.
        """
        started = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=MAX_LINE_BYTES,
            **process,
        )
        client = cls(started, listen)
        try:
            hello = Hello(version=VERSION, name="antiphon", settings=settings or AskSettings())
            await client._ask(None, hello, Welcome)
        except BaseException:
            await client.close()
            raise
        return client

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *reason: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the bridge's input, and wait until it has ended."""
        self._input.close()
        await self.process.wait()
        await self._reading

    async def models(self, *, refresh: bool = False) -> Sequence[ModelEntry]:
        """Return the models of the server."""
        asked = ListModels(id=self._next_id(), refresh=refresh)
        found: Models = await self._ask(asked.id, asked, Models)
        return found.models

    async def count(self, model: str, contents: Sequence[str | Message]) -> Sequence[int]:
        """Return the tokens of each content."""
        asked = Count(id=self._next_id(), model=model, contents=contents)
        found: Counted = await self._ask(asked.id, asked, Counted)
        return found.tokens

    async def measure(
        self, model: str, messages: Sequence[Message], options: Options = _DEFAULT
    ) -> Measured:
        """Return how many tokens the server counts for a request."""
        asked = Measure(id=self._next_id(), model=model, messages=messages, options=options)
        found: Measured = await self._ask(asked.id, asked, Measured)
        return found

    def respond(
        self, model: str, messages: Sequence[Message], options: Options = _DEFAULT
    ) -> BridgeAnswer:
        """Return the answer of a model, to be iterated over. Nothing is asked until then."""
        asked = Respond(id=self._next_id(), model=model, messages=messages, options=options)
        return BridgeAnswer(self, asked)

    def _next_id(self) -> int:
        self._last_id += 1
        return self._last_id

    def _begin(self, request_id: RequestId | None) -> _Queue:
        if self._has_ended:
            raise BridgeError(_ENDED)
        queue = self._waiting[request_id] = asyncio.Queue()
        return queue

    async def _send(self, question: Question) -> None:
        self._input.write(encode_line(question))
        try:
            await self._input.drain()
        except ConnectionError:
            raise BridgeError(_ENDED) from None

    async def _ask(self, request_id: RequestId | None, question: Question, kind: type[Any]) -> Any:
        queue = self._begin(request_id)
        try:
            await self._send(question)
            found = await queue.get()
        finally:
            self._waiting.pop(request_id, None)
        if isinstance(found, Failed):
            raise BridgeError(found.error)
        assert isinstance(found, kind)
        return found

    async def _read(self) -> None:
        """Read until the bridge ends; what is wrong with a line is raised by `close`."""
        try:
            while line := await self._output.readline():
                self._take(read_answer(line))
        finally:
            self._has_ended = True
            for queue in self._waiting.values():
                queue.put_nowait(Failed(error=_ENDED))

    def _take(self, answer: Answer) -> None:
        if isinstance(answer, UsageChanged | Log | ModelsChanged):
            self._listen(answer)
            return
        # `welcome`, and errors about a line, have no id.
        queue = self._waiting.get(None if isinstance(answer, Welcome) else answer.id)
        if queue is not None:
            queue.put_nowait(answer)


class BridgeAnswer:
    """The parts of an answer. Iterate over it once; then `done` has how it ended."""

    def __init__(self, client: BridgeClient, asked: Respond) -> None:
        self._client = client
        self._asked = asked
        self._is_open = False
        self.done: Done | None = None

    async def __aiter__(self) -> AsyncGenerator[ResponsePart, None]:
        """Yield every part. Raise BridgeError, after all parts, for an answer that failed."""
        queue = self._client._begin(self._asked.id)
        self._is_open = True
        try:
            await self._client._send(self._asked)
            while isinstance(answer := await queue.get(), Parts):
                for part in answer.parts:
                    yield part
            self._is_open = False
        finally:
            self._client._waiting.pop(self._asked.id, None)
            await self.cancel()
        if isinstance(answer, Failed):
            raise BridgeError(answer.error)
        assert isinstance(answer, Done)
        self.done = answer

    async def cancel(self) -> None:
        """Stop the answer: the loop over it ends with the error `cancelled`."""
        if self._is_open:
            self._is_open = False
            with contextlib.suppress(BridgeError):  # a bridge that has ended runs nothing
                await self._client._send(Cancel(id=self._asked.id))

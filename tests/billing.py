"""A chat server on loopback that keeps the bill: what a provider would charge for each call.

A call is billed for its input when the server has accepted it, and for every token of output
that it has produced, whether or not the client took it. One piece of the stream is one token. The
input has a token for four bytes of text. A call that is refused is not billed.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from tests.transport.raw import Connection, Request, chunk, head, raw_server, reply

__all__ = ["PIECE", "Bill", "Billed", "Json", "Play", "billing_upstream"]

Json = dict[str, Any]
PIECE: Final = "wor "
_STREAM: Final = "text/event-stream"


@dataclass
class Billed:
    """One call on the bill."""

    input: int
    cached: int = 0
    output: int = 0
    reasoning: int = 0


@dataclass(frozen=True)
class Play:
    """What the server does with one call. The steps are done in the order of the fields."""

    status: int | None = None
    """Refuse the call with this status."""
    drops: bool = False
    """Close the connection without an answer."""
    calls: str | None = None
    """Write a call of the first tool with these arguments, which is one token."""
    pieces: int = 5
    text: str = PIECE
    tokens: int = 1
    """How many tokens a piece has."""
    thoughts: int = 0
    """Tokens of reasoning before the answer."""
    breaks: str | None = None
    """How the answer breaks off after the pieces: reset, closed, error, or stall until the end.

    With `late`, what the server writes when it sees that the client has left was on its way.
    """
    late: int = 0
    """Pieces that are written then, and billed."""
    pauses: bool = False
    """Wait after the pieces until the bill is `resumed`; then write the late ones and go on."""
    finish: str = "stop"
    usage: str | None = "real"
    """What is reported: real, an output of zero (which is free), zeros, input alone, or nothing."""
    is_early: bool = False
    """Whether the usage is reported before the answer breaks off."""
    cached: int = 0


@dataclass
class Bill:
    """What the provider charges, and what is going on."""

    url: str = ""
    calls: list[Billed] = field(default_factory=list)
    requests: list[Json] = field(default_factory=list)
    stalled: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a call waits for its client to leave."""
    resumed: asyncio.Event = field(default_factory=asyncio.Event)
    """Lets calls that pause go on."""
    left: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the client of such a call has left."""

    @property
    def input(self) -> int:
        return sum(call.input for call in self.calls)

    @property
    def output(self) -> int:
        return sum(call.output for call in self.calls)


Choose = Callable[[Json, int], Play]


@asynccontextmanager
async def billing_upstream(plays: Sequence[Play] | Choose) -> AsyncIterator[Bill]:
    """Serve the plays one after the other, the last one again and again; keep the bill."""
    bill = Bill()
    choose = plays if callable(plays) else lambda _, number: plays[min(number, len(plays) - 1)]

    async def script(request: Request, connection: Connection) -> None:
        if request.path.endswith("/models"):
            listed = {"object": "list", "data": [{"id": "m", "object": "model"}]}
            await connection.write(reply(json.dumps(listed).encode()))
            return
        body = json.loads(request.body)
        number = len(bill.requests)
        bill.requests.append(body)
        await _Call(choose(body, number), body, connection, bill).run()

    async with raw_server(script) as server:
        bill.url = f"{server.url}/v1"
        yield bill


class _Call:
    """One call of the model."""

    def __init__(self, plan: Play, body: Json, connection: Connection, bill: Bill) -> None:
        self._play = plan
        self._body = body
        self._connection = connection
        self._bill = bill
        self._billed = Billed(0)

    async def run(self) -> None:
        plan = self._play
        if plan.status is not None:
            await self._refuse(plan.status)
            return
        if plan.drops:
            self._connection.reset()
            return
        self._billed = Billed(_input_of(self._body), cached=plan.cached)
        self._bill.calls.append(self._billed)
        await (self._stream() if self._body.get("stream") else self._whole())

    async def _refuse(self, status: int) -> None:
        error = {"error": {"message": "no", "type": "refused", "code": None}}
        extra = ("Retry-After: 0",) if status == 429 else ()
        data = reply(json.dumps(error).encode(), *extra, status=f"{status} Refused")
        await self._connection.write(data)

    async def _stream(self) -> None:
        plan, write = self._play, self._event
        await self._connection.write(head(_STREAM))
        for _ in range(plan.thoughts):
            self._billed.output += plan.tokens
            self._billed.reasoning += plan.tokens
            await write(_delta({"reasoning_content": plan.text}))
        if plan.calls is not None:
            self._billed.output += 1
            await write(_delta({"tool_calls": [_call(self._body, plan.calls)]}))
        else:
            for _ in range(plan.pieces):
                self._billed.output += plan.tokens
                await write(_delta({"content": plan.text}))
        if plan.pauses:
            if not await self._pause():
                return
            await self._talk_on()
        if plan.is_early and plan.usage is not None:
            await write({**_delta({}), "usage": self._usage()})
        if plan.breaks is not None:
            await self._break(plan.breaks)
            return
        finish = "tool_calls" if plan.calls is not None else plan.finish
        await write({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
        if plan.usage is not None and not plan.is_early:
            await write({"choices": [], "usage": self._usage()})
        await self._connection.write(chunk(b"data: [DONE]\n\n") + chunk(b""))

    async def _whole(self) -> None:
        plan = self._play
        if plan.pauses and not await self._pause():
            return
        if plan.breaks == "stall":
            await self._break("stall")
            if not plan.late:
                return
        message: Json = {"role": "assistant", "content": plan.text * plan.pieces}
        self._billed.output = (plan.pieces + plan.thoughts) * plan.tokens
        self._billed.reasoning = plan.thoughts * plan.tokens
        if plan.thoughts:
            message["reasoning_content"] = plan.text * plan.thoughts
        if plan.calls is not None:
            self._billed.output = 1 + plan.thoughts
            message = {"role": "assistant", "tool_calls": [_call(self._body, plan.calls)]}
        finish = "tool_calls" if plan.calls is not None else plan.finish
        answer: Json = {"choices": [{"index": 0, "message": message, "finish_reason": finish}]}
        if plan.usage is not None:
            answer["usage"] = self._usage()
        data = reply(json.dumps(answer).encode())
        if plan.breaks not in (None, "stall"):
            self._billed.output = 0  # it broke before it had produced anything
            await self._connection.write(data[: len(data) // 2])
            self._connection.reset()
            return
        await self._connection.write(data)

    async def _break(self, how: str) -> None:
        match how:
            case "reset":
                await asyncio.sleep(0.02)  # a reset would discard what the client has not read
                self._connection.reset()
            case "closed":
                await self._connection.write(chunk(b""))
            case "error":
                await self._event({"error": {"message": "broken", "type": "server_error"}})
                await self._connection.write(chunk(b""))
            case "stall":
                self._bill.stalled.set()
                await self._connection.until_closed()
                if self._body.get("stream"):
                    await self._talk_on()
                self._bill.left.set()

    async def _pause(self) -> bool:
        """Return whether to go on: not if the client has left."""
        self._bill.stalled.set()
        closed = asyncio.ensure_future(self._connection.until_closed())
        resumed = asyncio.ensure_future(self._bill.resumed.wait())
        await asyncio.wait({closed, resumed}, return_when=asyncio.FIRST_COMPLETED)
        is_resumed = resumed.done()
        if not is_resumed:
            self._bill.left.set()
        closed.cancel()
        resumed.cancel()
        await asyncio.gather(closed, resumed, return_exceptions=True)
        return is_resumed

    async def _talk_on(self) -> None:
        for _ in range(self._play.late):
            self._billed.output += self._play.tokens
            await self._event(_delta({"content": self._play.text}))

    async def _event(self, body: Json) -> None:
        whole = {"id": "c", "object": "chat.completion.chunk", "model": "m", **body}
        await self._connection.write(chunk(b"data: %b\n\n" % json.dumps(whole).encode()))

    def _usage(self) -> Json:
        billed = self._billed
        if self._play.usage == "zero":
            billed.output = 0
        elif self._play.usage == "input":
            return {"prompt_tokens": billed.input}
        elif self._play.usage == "zeros":  # it does not know yet
            return {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
        return {
            "prompt_tokens": billed.input,
            "completion_tokens": billed.output,
            "total_tokens": billed.input + billed.output,
            "prompt_tokens_details": {"cached_tokens": billed.cached},
            "completion_tokens_details": {"reasoning_tokens": billed.reasoning},
        }


def _delta(delta: Json) -> Json:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}


def _call(body: Json, arguments: str) -> Json:
    name = body["tools"][0]["function"]["name"]
    return {
        "index": 0,
        "id": f"call_{len(body['messages'])}",
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }


def _input_of(body: Json) -> int:
    """Return the tokens of the texts and tools that the model is shown."""
    size = sum(_text_size(message) for message in body["messages"])
    tools = [json.dumps(tool["function"]) for tool in body.get("tools") or ()]
    return -(-(size + sum(map(len, tools))) // 4)


def _text_size(message: Json) -> int:
    content = message.get("content") or ""
    if isinstance(content, list):
        content = "".join(part.get("text", "") for part in content)
    calls = message.get("tool_calls") or ()
    return len(content.encode()) + sum(len(json.dumps(call["function"])) for call in calls)

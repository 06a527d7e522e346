"""A model server that bills each call: its part of `bill.py`.

The prompt of a turn begins with its number, from which everything that happens to the turn
follows (`turn_of`). The input is billed when the call is accepted, a token for four bytes. Output
is billed when it is written, a token for each piece, also if the client is about to leave; a
whole answer is made at once. A call that is refused is not billed.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import sys
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.transport.raw import Connection, Request, chunk, head, raw_server, reply

__all__ = ["MODEL", "Bill", "Billed", "Json", "Turn", "billing", "turn_of"]

Json = dict[str, Any]
MODEL: Final = "m"
_PIECE: Final = "wor "
_NUMBER: Final = re.compile(r"turn (\d+) ")
_PAUSES: Final = (0.002, 0.01)
_LONGEST: Final = 30
_REFUSALS: Final = (400, 429, 503)


@dataclass(frozen=True)
class Turn:
    """What the client asks, what the upstream does with it, and when the client leaves."""

    number: int
    prompt: str
    is_streamed: bool
    is_stored: bool
    pieces: int
    thoughts: int
    cached: int
    pauses: tuple[float, ...]
    """Seconds before each piece."""
    refusal: int | None
    """Status of the answer to the first attempt."""
    is_reported: bool
    breaks_after: int | None
    """After how many pieces the upstream breaks the stream off."""
    leaves_after: float | None
    """Seconds until the client leaves."""


def turn_of(number: int, seed: int, leaving: float) -> Turn:
    """Return everything about a turn; `leaving` is the share of clients that leave."""
    dice = random.Random(f"{seed} {number}")
    thoughts = dice.choice((0, 0, 0, dice.randint(1, 8)))
    pieces = dice.randint(1, _LONGEST)
    pauses = tuple(dice.uniform(*_PAUSES) for _ in range(thoughts + pieces))
    is_streamed = dice.random() < 0.5
    text = "tell me about the sea and all that lives in it " * dice.randint(1, 60)
    return Turn(
        number=number,
        prompt=f"turn {number} {text}",
        is_streamed=is_streamed,
        is_stored=dice.random() < 0.5,
        pieces=pieces,
        thoughts=thoughts,
        cached=dice.choice((0, 0, len(text) // 8)),
        pauses=pauses,
        refusal=dice.choice(_REFUSALS) if dice.random() < 0.03 else None,
        is_reported=dice.random() < 0.75,
        breaks_after=dice.randint(0, pieces) if is_streamed and dice.random() < 0.05 else None,
        leaves_after=dice.uniform(0, sum(pauses)) if dice.random() < leaving else None,
    )


@dataclass
class Billed:
    """One call on the bill."""

    input: int
    cached: int = 0
    output: int = 0
    reasoning: int = 0


@dataclass
class Bill:
    """What the provider charges, by the number of the turn."""

    url: str = ""
    calls: dict[int, list[Billed]] = field(default_factory=lambda: defaultdict(list))
    refused: set[int] = field(default_factory=set)
    left: int = 0
    """How many calls ended because the gateway had left."""


@asynccontextmanager
async def billing(seed: int, leaving: float) -> AsyncIterator[Bill]:
    """Serve the model and keep the bill."""
    bill = Bill()

    async def answer(request: Request, connection: Connection) -> None:
        if request.path.endswith("/models"):
            listed = {"object": "list", "data": [{"id": MODEL, "object": "model"}]}
            await connection.write(reply(json.dumps(listed).encode()))
            return
        body = json.loads(request.body)
        prompt = body["messages"][-1]["content"]
        found = _NUMBER.match(prompt)
        assert found is not None, prompt
        turn = turn_of(int(found[1]), seed, leaving)
        if turn.refusal is not None and turn.number not in bill.refused:
            bill.refused.add(turn.number)
            await _refuse(connection, turn.refusal)
            return
        billed = Billed(-(-len(prompt.encode()) // 4), cached=turn.cached)
        bill.calls[turn.number].append(billed)
        call = _Call(turn, billed, connection)
        await (call.stream() if body.get("stream") else call.whole())
        bill.left += call.is_left and turn.breaks_after is None

    async with raw_server(answer) as server:
        bill.url = f"{server.url}/v1"
        yield bill


async def _refuse(connection: Connection, status: int) -> None:
    error = {"error": {"message": "no", "type": "refused", "code": None}}
    data = reply(json.dumps(error).encode(), "Retry-After: 0", status=f"{status} Refused")
    await connection.write(data)


class _Call:
    """One call that was accepted."""

    def __init__(self, turn: Turn, billed: Billed, connection: Connection) -> None:
        self._turn = turn
        self._billed = billed
        self._connection = connection

    @property
    def is_left(self) -> bool:
        """Whether the gateway has closed the connection."""
        connection = self._connection
        return connection.reader.at_eof() or connection.writer.transport.is_closing()

    async def stream(self) -> None:
        turn = self._turn
        await self._connection.write(head("text/event-stream"))
        for number, pause in enumerate(turn.pauses):
            if turn.breaks_after == number - turn.thoughts:
                break
            await asyncio.sleep(pause)
            if self.is_left:
                return
            is_thought = number < turn.thoughts
            self._billed.output += 1
            self._billed.reasoning += is_thought
            part = "reasoning_content" if is_thought else "content"
            await self._event({"choices": [_choice(delta={part: _PIECE})]})
        if turn.breaks_after is not None:
            await asyncio.sleep(_PAUSES[1])  # a reset discards what was not read
            self._connection.reset()
            return
        await self._event({"choices": [_choice("stop", delta={})]})
        if turn.is_reported:
            await self._event({"choices": [], "usage": self._usage()})
        await self._connection.write(chunk(b"data: [DONE]\n\n") + chunk(b""))

    async def whole(self) -> None:
        turn = self._turn
        await asyncio.sleep(sum(turn.pauses))
        if self.is_left:
            return
        self._billed.output, self._billed.reasoning = turn.pieces + turn.thoughts, turn.thoughts
        message: Json = {"role": "assistant", "content": _PIECE * turn.pieces}
        if turn.thoughts:
            message["reasoning_content"] = _PIECE * turn.thoughts
        answer: Json = {"choices": [_choice("stop", message=message)]}
        if turn.is_reported:
            answer["usage"] = self._usage()
        await self._connection.write(reply(json.dumps(answer).encode()))

    async def _event(self, body: Json) -> None:
        whole = {"id": "c", "object": "chat.completion.chunk", "model": MODEL, **body}
        await self._connection.write(chunk(b"data: %b\n\n" % json.dumps(whole).encode()))

    def _usage(self) -> Json:
        billed = self._billed
        return {
            "prompt_tokens": billed.input,
            "completion_tokens": billed.output,
            "total_tokens": billed.input + billed.output,
            "prompt_tokens_details": {"cached_tokens": billed.cached},
            "completion_tokens_details": {"reasoning_tokens": billed.reasoning},
        }


def _choice(finish: str | None = None, **said: Json) -> Json:
    return {"index": 0, "finish_reason": finish, **said}

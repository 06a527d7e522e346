"""A load balancer, and the clients behind it, while gateways are replaced.

The balancer asks every gateway for `/readyz` and gives out the ready ones in turn. A client sends a
request again only after 503 or a refused connection, to another gateway or a moment later. A stream
of a background response that is cut is taken up after its last event.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Self

import aiohttp
from kill_load import MODEL, TERMINAL, Json, answer_to, events_in
from kill_nodes import Node

__all__ = ["Balancer", "Clients", "Turn", "p99_of"]

KINDS: Final = ("foreground", "streaming", "background", "followed", "chained", "conversation")
_POLL_SECONDS: Final = 0.1
_ANSWER_SECONDS: Final = 60.0
_AGAIN_SECONDS: Final = 0.05
_PAUSE_SECONDS: Final = 2.0


@dataclass
class Turn:
    """One turn, and what became of it."""

    kind: str
    phase: str
    prompt: str
    fault: str = ""
    again: int = 0
    seconds: float = 0.0
    id: str = ""
    events: list[Json] = field(default_factory=list)


class Failed(Exception):
    """The turn went wrong."""


def p99_of(ordered: Sequence[float]) -> float:
    """Return what 99 % of the values do not exceed."""
    return ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]


class Balancer:
    """Knows which gateways are ready."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._nodes = nodes
        self._ready: list[str] = []
        self._retired: set[str] = set()
        self._next = itertools.count()
        self._changed = asyncio.Condition()

    async def __aenter__(self) -> Self:
        self.session = aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=_ANSWER_SECONDS),
            connector=aiohttp.TCPConnector(limit=0, force_close=True),
            read_bufsize=2**20,
        )
        self._polling = asyncio.create_task(self._poll())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._polling.cancel()
        await asyncio.wait({self._polling})
        await self.session.close()

    async def retire(self, node: Node) -> None:
        """Send no more requests to a gateway, and wait as long as a `preStop` pause."""
        self._retired.add(node.url)
        await asyncio.sleep(_PAUSE_SECONDS)

    async def pick(self) -> str:
        """Return the URL of a gateway that is ready, as soon as there is one."""
        async with asyncio.timeout(_ANSWER_SECONDS), self._changed:
            await self._changed.wait_for(lambda: self._ready)
            return self._ready[next(self._next) % len(self._ready)]

    async def _poll(self) -> None:
        while True:
            found = await asyncio.gather(*(self._is_ready(node) for node in self._nodes))
            async with self._changed:
                self._ready = [url for url in found if url and url not in self._retired]
                self._changed.notify_all()
            await asyncio.sleep(_POLL_SECONDS)

    async def _is_ready(self, node: Node) -> str:
        url = node.url
        try:
            async with self.session.get(f"{url.removesuffix('/v1')}/readyz") as answer:
                return url if answer.status == 200 else ""
        except (aiohttp.ClientError, OSError):
            return ""


class Clients:
    """So many clients who ask one thing after the other until they are stopped."""

    def __init__(self, balancer: Balancer, count: int) -> None:
        self.phase = ""
        self.turns: list[Turn] = []
        self._balancer = balancer
        self._count = count
        self._is_stopping = False

    async def __aenter__(self) -> Self:
        self._tasks = [asyncio.create_task(self._ask_on(number)) for number in range(self._count)]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def finish(self) -> None:
        """Ask nothing more, and compare everything that is stored with what was answered."""
        self._is_stopping = True
        await asyncio.gather(*self._tasks)
        for turn in self.turns:
            if turn.id and not turn.fault:
                await self._watched(turn, self._check_kept(turn))

    async def _ask_on(self, number: int) -> None:
        dice, previous, conversation = random.Random(number), "", ""
        for count in itertools.count():
            if self._is_stopping:
                return
            turn = Turn(dice.choice(KINDS), self.phase, f"c{number}-{count}")
            self.turns.append(turn)
            began = time.monotonic()
            body: Json = {"model": MODEL, "input": turn.prompt, "store": True}
            if turn.kind == "chained" and previous:
                body["previous_response_id"] = previous
            if turn.kind == "conversation":
                conversation = conversation or await self._new_conversation(turn)
                body["conversation"] = conversation
            await self._watched(turn, self._run(turn, body))
            turn.seconds = time.monotonic() - began
            previous = previous if turn.fault else turn.id

    async def _watched(self, turn: Turn, work: object) -> None:
        try:
            await work  # type: ignore[misc]  # a coroutine
        except Failed as error:
            turn.fault = str(error)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            turn.fault = f"{type(error).__name__}: {error}"

    async def _run(self, turn: Turn, body: Json) -> None:
        body["stream"] = turn.kind in ("streaming", "chained")
        body["background"] = turn.kind in ("background", "followed")
        answer = await self._send(turn, "POST", "/responses", body)
        turn.id = answer["id"]
        if turn.kind == "followed":
            answer = await self._follow(turn)
        while answer["status"] in ("queued", "in_progress"):
            await asyncio.sleep(_AGAIN_SECONDS)
            answer = await self._send(turn, "GET", f"/responses/{turn.id}", None)
        _check(turn, answer)

    async def _follow(self, turn: Turn) -> Json:
        """Read the stream to its end; take it up again where it was cut."""
        path = f"/responses/{turn.id}?stream=true"
        while True:
            place = f"&starting_after={len(turn.events) - 1}" if turn.events else ""
            try:
                return await self._send(turn, "GET", path + place, None)
            except aiohttp.ClientPayloadError:
                turn.again += 1

    async def _check_kept(self, turn: Turn) -> None:
        _check(turn, await self._send(turn, "GET", f"/responses/{turn.id}", None))

    async def _new_conversation(self, turn: Turn) -> str:
        return str((await self._send(turn, "POST", "/conversations", {}))["id"])

    async def _send(self, turn: Turn, method: str, path: str, body: Json | None) -> Json:
        """Return the object that is answered, or that the last event of a stream has."""
        while True:
            url = await self._balancer.pick()
            try:
                async with self._balancer.session.request(method, url + path, json=body) as reply:
                    if reply.status == 200:
                        return await _read(turn, reply)
                    said = await reply.text()
                    if reply.status != 503 or "retry-after" not in reply.headers:
                        raise Failed(f"{method} {path}: {reply.status} {said[:300]}")
            except aiohttp.ClientConnectorError:
                pass  # refused: nothing was sent
            turn.again += 1
            await asyncio.sleep(_AGAIN_SECONDS)


async def _read(turn: Turn, reply: aiohttp.ClientResponse) -> Json:
    if reply.content_type != "text/event-stream":
        found: Json = await reply.json()
        return found
    async for event in events_in(reply):
        turn.events.append(event)
    numbers = [event["sequence_number"] for event in turn.events]
    if numbers != list(range(len(numbers))):
        raise Failed(f"the events have gaps: {numbers}")
    if not turn.events or turn.events[-1]["type"] not in TERMINAL:
        raise Failed(f"the stream of {turn.id or 'a response'} ends after {len(numbers)} events")
    last: Json = turn.events[-1]["response"]
    return last


def _check(turn: Turn, answer: Json) -> None:
    if answer["status"] != "completed":
        raise Failed(f"{answer['id']} is {answer['status']}: {answer.get('error')}")
    texts = [
        part["text"]
        for item in answer["output"]
        if item["type"] == "message"
        for part in item["content"]
    ]
    if texts != [answer_to(turn.prompt)]:
        raise Failed(f"{answer['id']} has another answer: {str(texts)[:200]}")

"""What clients ask while gateways die, and what each of them was told before that.

The model behind the gateways says the prompt and then as many words as follow from it, slowly:
whoever knows the prompt knows the answer. A client remembers what it was told and nothing else;
`kill_check` holds that against what is there afterwards.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import aiohttp
from kill_nodes import Node

from antiphon.testing import Script

__all__ = [
    "KINDS",
    "MODEL",
    "TERMINAL",
    "Json",
    "Load",
    "Seen",
    "answer_to",
    "events_in",
    "hash_of",
    "play",
]

Json = dict[str, Any]

KINDS: Final = ("foreground", "streaming", "background", "background stream")
MODEL: Final = "echo"
TERMINAL: Final = ("response.completed", "response.incomplete", "response.failed")
_PACE_SECONDS: Final = 0.01
_READ_SECONDS: Final = 60.0


@dataclass
class Seen:
    """One request, and what its client was told of it."""

    kind: str
    prompt: str
    node: str
    id: str = ""
    answer: Json | None = None
    events: list[Json] = field(default_factory=list)
    followed: list[Json] = field(default_factory=list)
    """What a second reader saw, who joined a background stream, at another node if there is one."""
    fault: str = ""
    log: list[Json] = field(default_factory=list)
    """The whole stream, as it was found afterwards."""
    is_cut: bool = False
    """Whether the gateway died before it had ended."""

    @property
    def has_ended(self) -> bool:
        """Whether the client was told the end."""
        if self.kind == "foreground":
            return self.answer is not None
        return bool(self.events) and self.events[-1]["type"] in TERMINAL

    @property
    def last(self) -> int:
        """The sequence number of the last event that the client has."""
        return int(self.events[-1]["sequence_number"]) if self.events else -1


def answer_to(prompt: str) -> str:
    """Return what the model says to a prompt."""
    return " ".join([prompt, *(f"w{number}" for number in range(10 + hash_of(prompt) % 40))])


def hash_of(prompt: str) -> int:
    """Return a number that follows from the prompt, the same in every process."""
    return sum(ord(char) * (place + 7) for place, char in enumerate(prompt))


def play(body: Json) -> Script:
    """Answer a chat request as the model."""
    content = body["messages"][-1]["content"]
    prompt = content if isinstance(content, str) else "".join(part["text"] for part in content)
    text = answer_to(prompt)
    # An answer that is not streamed takes as long, and comes in two halves.
    pieces = 1 if body.get("stream") else len(text.split()) / 2
    return Script(text=text, delay=_PACE_SECONDS * pieces, model=MODEL)


class Load:
    """So many clients who ask until they are told to stop, and those who read along."""

    def __init__(self, nodes: Sequence[Node], clients: int, name: int, dice: random.Random) -> None:
        self.seen: list[Seen] = []
        self._stop = asyncio.Event()
        self._session = aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=_READ_SECONDS),
            connector=aiohttp.TCPConnector(limit=0),
            read_bufsize=2**20,
        )
        self._clients = [
            _Client(self._session, nodes, number, f"{name}-{number}", dice.random())
            for number in range(clients)
        ]
        self._asking = [
            asyncio.create_task(client.run(self._stop, self.seen)) for client in self._clients
        ]

    def stop(self) -> None:
        """Ask nothing more."""
        self._stop.set()

    async def answered(self) -> None:
        """Return when everything that was asked is answered or cut off."""
        await asyncio.gather(*self._asking)

    async def close(self) -> None:
        """Return when nobody reads any more."""
        await asyncio.gather(*(task for client in self._clients for task in client.followers))
        await self._session.close()


class _Client:
    """Asks one thing after the other, in a random order, until its gateway dies."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        nodes: Sequence[Node],
        number: int,
        name: str,
        seed: float,
    ) -> None:
        self._session = session
        self._node = nodes[number % len(nodes)]
        self._other = nodes[(number + 1) % len(nodes)]
        self._name = name
        self._dice = random.Random(seed)
        self.followers: list[asyncio.Task[None]] = []

    async def run(self, stop: asyncio.Event, seen: list[Seen]) -> None:
        """Ask until told to stop."""
        number = 0
        while not stop.is_set():
            number += 1
            one = Seen(self._dice.choice(KINDS), f"{self._name}-{number}", self._node.name)
            seen.append(one)
            life = self._node.life
            try:
                await self._ask(one)
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                one.is_cut = True
                if self._node.is_up and self._node.life == life:
                    one.fault = f"cut off by a node that lives: {type(error).__name__}"
                return
            if one.kind == "background":
                await asyncio.sleep(0.05)

    async def _ask(self, one: Seen) -> None:
        body: Json = {"model": MODEL, "input": one.prompt, "store": True}
        body["stream"] = one.kind in ("streaming", "background stream")
        body["background"] = one.kind.startswith("background")
        async with self._session.post(f"{self._node.url}/responses", json=body) as reply:
            if reply.status != 200:
                one.fault = f"answered {reply.status}"
                return
            if not body["stream"]:
                one.answer = await reply.json()
                one.id = one.answer["id"]
                return
            async for event in events_in(reply):
                one.events.append(event)
                if not one.id:
                    one.id = event["response"]["id"]
                    if body["background"]:
                        self.followers.append(asyncio.create_task(self._follow(one)))

    async def _follow(self, one: Seen) -> None:
        """Read the same stream as somebody else does, until its end or the gateway's."""
        life = self._other.life
        path = f"{self._other.url}/responses/{one.id}?stream=true"
        try:
            async with self._session.get(path) as reply:
                async for event in events_in(reply):
                    one.followed.append(event)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            if self._other.is_up and self._other.life == life:
                one.fault = f"a second reader failed: {type(error).__name__}"


async def events_in(reply: aiohttp.ClientResponse) -> AsyncIterator[Json]:
    """Yield the events of a stream, as they arrive, as far as they arrive whole."""
    async for line in reply.content:
        if line.startswith(b"data: {") and line.endswith(b"\n"):
            yield json.loads(line[6:])

"""One conversation, run in several ways: what is sent each turn, and how long it takes.

    | mode      | asks                   | what a turn sends                         |
    |-----------|------------------------|-------------------------------------------|
    | chat      | POST /chat/completions | the whole conversation                    |
    | stateless | POST /responses        | the whole conversation, `store: false`    |
    | stateful  | POST /responses        | what is new, and where to continue        |

All three are sessions of the library's own client, and differ in nothing else. The modes take
turns, so that a server which slows down does so for all of them. What was posted is built again
by the functions that the client posts with. Nothing is retried, and the cache sees when the
server lost a thread, so what is counted is what was sent.
"""

from __future__ import annotations

import itertools
import secrets
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from antiphon.cli.remote import Server, ending, explain, lacks_path, open_client
from antiphon.client import ConversationCache, Thread
from antiphon.client.chat import ChatWire, legacy_profile
from antiphon.client.continuation import continue_from
from antiphon.client.errors import ClientError
from antiphon.client.parameters import Params
from antiphon.client.request import build_request
from antiphon.client.settings import WireApi
from antiphon.client.wires import ResponsesWire, Wire
from antiphon.plans.estimate import estimate_tokens
from antiphon.protocol.events import OutputTextDelta
from antiphon.protocol.response import Response

__all__ = ["MODES", "BenchPlan", "MeasuredMode", "MeasuredTurn", "Mode", "measure", "prompt_of"]

_SESSION: Final = "bench"
_NO_CHAT: Final = "name the chat server with --chat-url, or pass --modes stateless,stateful"
_STORY: Final = (
    "the keeper climbed the tower at dusk and lit the lamp while the sea below turned grey and "
    "a small boat with one torn sail came slowly round the cape so he rang the bell twice and "
    "wrote the hour in his book before the fog took the light the boat and the bell"
)


class Mode(msgspec.Struct, frozen=True):
    """One way to run a conversation. `store`: whether the server stores it."""

    name: str
    wire_api: WireApi
    store: bool | None


MODES: Final = {
    mode.name: mode
    for mode in (
        Mode("chat", "chat", None),
        Mode("stateless", "responses", False),
        Mode("stateful", "responses", True),
    )
}


class BenchPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be measured. `prompts` are the questions; without them they are made up."""

    modes: Sequence[Mode]
    turns: int
    prompt_words: int | None
    max_output_tokens: int
    model: str
    prompts: Sequence[str] = ()

    def prompt(self, turn: int) -> str:
        """Return the question of a turn, counted from 1, the same in every mode."""
        return self.prompts[turn - 1] if self.prompts else prompt_of(turn, self.prompt_words or 0)


class MeasuredTurn(msgspec.Struct, frozen=True, kw_only=True):
    """One measured turn. Times are in seconds from the call; tokens are None if not counted."""

    turn: int
    requests: int
    """More than one if the server had lost the thread and was sent everything."""
    bytes_sent: int
    """The bodies that were posted, without HTTP headers."""
    items_sent: int
    tokens_sent: int
    """An estimate of what was posted."""
    input_tokens: int | None
    cached_tokens: int | None
    output_tokens: int | None
    is_counted: bool
    """The server counted the three above; otherwise they are estimates too."""
    first_event_seconds: float
    first_text_seconds: float | None
    seconds: float
    """Until the last event."""


class MeasuredMode(msgspec.Struct):
    """A mode, its turns so far, and the reason if it failed."""

    mode: str
    turns: list[MeasuredTurn] = []
    failure: str | None = None


class _WatchedCache(ConversationCache):
    """A cache that counts how often the server had lost the thread."""

    def __init__(self) -> None:
        super().__init__()
        self.lost = 0

    def update(
        self, session: str, model: str | None, change: Callable[[Thread | None], Thread | None]
    ) -> None:
        def watched(thread: Thread | None) -> Thread | None:
            changed = change(thread)
            had_place = thread is not None and thread.response_id is not None
            if had_place and (changed is None or changed.response_id is None):
                self.lost += 1
            return changed

        super().update(session, model, watched)


def prompt_of(turn: int, words: int) -> str:
    """Return a question for a turn, of so many words."""
    begin = ["Part", f"{turn}:"]
    story = itertools.islice(itertools.cycle(_STORY.split()), turn, None)
    return " ".join([*begin, *itertools.islice(story, max(words - len(begin), 0))])


async def measure(
    plan: BenchPlan,
    servers: Callable[[Mode], Server],
    measured: list[MeasuredMode],
    show: Callable[[int], None],
) -> None:
    """Run the conversation in every mode; add each turn to `measured` at once.

    `show` is called before each turn. A mode that fails is stopped, with the reason; when all
    modes have failed, this returns.
    """
    talks = [_Conversation(plan, mode, servers(mode)) for mode in plan.modes]
    measured.extend(talk.measured for talk in talks)
    try:
        for turn in range(1, plan.turns + 1):
            going = [talk for talk in talks if talk.measured.failure is None]
            if not going:
                break
            show(turn)
            for talk in going:
                await talk.take(turn)
    finally:
        for talk in talks:
            await talk.close()


class _Conversation:
    """The conversation in one mode."""

    def __init__(self, plan: BenchPlan, mode: Mode, server: Server) -> None:
        self.measured = MeasuredMode(mode.name)
        self._plan = plan
        self._mode = mode
        self._server = server
        self._cache = _WatchedCache()
        self._client = open_client(server, cache=self._cache, wire_api=mode.wire_api, max_retries=0)
        # A server that caches beginnings must not let one mode profit from another.
        self._instructions = f"Conversation {secrets.token_hex(4)}. Continue the story briefly."

    async def close(self) -> None:
        await self._client.close()

    async def take(self, turn: int) -> None:
        """Take the next turn; note what it cost, or why it failed."""
        params = self._params(self._plan.prompt(turn))
        bodies = self._bodies(params)
        lost = self._cache.lost
        try:
            timed = await self._time(params)
        except ClientError as error:
            self.measured.failure = f"turn {turn}: {self._explain(error)}"
            return
        if sentence := _failure(timed.response):
            self.measured.failure = f"turn {turn}: {sentence}"
            return
        posted = bodies[: 1 + self._cache.lost - lost]
        self.measured.turns.append(_turn(turn, posted, timed))

    def _explain(self, error: ClientError) -> str:
        if self._mode.wire_api == "chat" and lacks_path(error):
            return f"{explain(error, self._server)}; {_NO_CHAT}"
        return explain(error, self._server)

    def _params(self, prompt: str) -> Params:
        return {
            "model": self._plan.model,
            "instructions": self._instructions,
            "input": prompt,
            "max_output_tokens": self._plan.max_output_tokens,
            "session": _SESSION,
            "store": self._mode.store,
        }

    def _bodies(self, params: Params) -> list[bytes]:
        """Return what the client will post, and what it would post if the thread is lost."""
        is_chat = self._mode.wire_api == "chat"
        continuation = continue_from(
            build_request(params),
            self._cache.get(_SESSION, self._plan.model),
            server_keeps_threads=not is_chat,
        )
        bodies = [continuation.body, continuation.fallback]
        return [self._wire(body).request for body in bodies if body is not None]

    def _wire(self, body: dict[str, Any]) -> Wire:
        body = body | {"stream": True}
        if self._mode.wire_api == "chat":
            return ChatWire(body, legacy_profile(self._client.base_url))
        return ResponsesWire(body)

    async def _time(self, params: Params) -> _Timed:
        began = time.perf_counter()
        first_text: float | None = None
        async with self._client.stream(**params) as stream:
            last = first_event = time.perf_counter() - began
            while batch := await stream.next_batch():
                last = time.perf_counter() - began
                if first_text is None and any(isinstance(e, OutputTextDelta) for e in batch):
                    first_text = last
            response = await stream.final_response()
        return _Timed(response, first_event, first_text, last)


class _Timed(msgspec.Struct, frozen=True):
    response: Response
    first_event: float
    first_text: float | None
    last: float


def _turn(number: int, posted: Sequence[bytes], timed: _Timed) -> MeasuredTurn:
    bodies = [msgspec.json.decode(data) for data in posted]
    usage, notes = timed.response.usage, timed.response.antiphon
    return MeasuredTurn(
        turn=number,
        requests=len(posted),
        bytes_sent=sum(map(len, posted)),
        items_sent=sum(len(_said(body)) for body in bodies),
        tokens_sent=sum(
            estimate_tokens([body.get("instructions") or "", *_said(body)]) for body in bodies
        ),
        input_tokens=usage.input_tokens if usage else None,
        cached_tokens=usage.input_tokens_details.cached_tokens if usage else None,
        output_tokens=usage.output_tokens if usage else None,
        is_counted=usage is not None and not (notes and notes.usage == "estimated"),
        first_event_seconds=timed.first_event,
        first_text_seconds=timed.first_text,
        seconds=timed.last,
    )


def _failure(response: Response) -> str:
    """Return why a response cannot be continued; one that reached its limit can."""
    return "" if response.status == "incomplete" else ending(response)


def _said(body: dict[str, Any]) -> list[Any]:
    """Return the items of a request, or the messages."""
    said = body.get("messages") or body["input"]
    return said if isinstance(said, list) else [said]

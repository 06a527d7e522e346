"""The state of a conversation: its turns, its head, its usage.

A conversation is a tree: every complete turn knows its parent, and the next question continues
from `head`. A turn may take several responses, one after each round of tool calls. A turn that
was cancelled or failed is not added to the tree, and the head does not move.

The client gets its thread before each request and returns the next one. It sends only what is
new, or everything if the server has lost the thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from antiphon.cli.remote import ending, is_silent, thinking_of
from antiphon.client import AsyncClient, Thread
from antiphon.client.parameters import Params
from antiphon.host.adapter import AdapterSettings, StreamAdapter
from antiphon.host.calls import CALL_TYPES
from antiphon.host.errors import DamagedText
from antiphon.host.models import ModelDirectory
from antiphon.host.status import status_line
from antiphon.host.usage import Totals, TurnEnded, Update, UsageTracker
from antiphon.models.prices import Price
from antiphon.plans.estimate import estimate_tokens, estimate_tools
from antiphon.protocol.items import Item, item_type
from antiphon.protocol.response import Response
from antiphon.wires.host.parts import ResponsePart, ToolCallPart

__all__ = ["DECLINED", "ChatSession", "ChatSettings", "ChatTurn", "Cost", "Question", "Round"]

DECLINED: Final = "The user declined to run this tool."
_SESSION: Final = "chat"


class ChatSettings(msgspec.Struct, kw_only=True):
    """What can be changed during the chat."""

    model: str | None = None
    instructions: str | None = None
    shows_thinking: bool = False
    tools: Sequence[Mapping[str, Any]] = ()
    price: Price | None = None
    """The price of models whose price is not known."""


class ChatTurn(msgspec.Struct, frozen=True):
    """A complete turn; `parent` is the number of the turn it continues, 0 at the beginning."""

    number: int
    parent: int
    prompt: str
    thread: Thread


class Question(msgspec.Struct):
    """A running turn: its state, and what is to be sent next."""

    prompt: str
    thread: Thread | None
    input: str | list[Item]


class Round(msgspec.Struct, frozen=True, kw_only=True):
    """One response. `calls` wait for results. A turn that is not complete is not continued.

    `is_silent` is true if it has nothing to show.
    """

    calls: list[ToolCallPart]
    complaint: str = ""
    is_whole: bool = True
    is_silent: bool = False


class Cost(msgspec.Struct, frozen=True):
    """What responses cost; `is_partial` if the price of others is not known."""

    dollars: float
    is_estimate: bool
    is_partial: bool


class ChatSession:
    """A conversation with one server. `tell_status` gets a line after each response."""

    def __init__(
        self,
        client: AsyncClient,
        directory: ModelDirectory,
        settings: ChatSettings,
        tell_status: Callable[[str], None],
        *,
        previous: str | None = None,
    ) -> None:
        self.client: Final = client
        self.directory: Final = directory
        self.settings: Final = settings
        self.turns: list[ChatTurn] = []
        self.head = 0
        self.last_model: str | None = None
        self._conversation = 1
        self._costs: list[tuple[float | None, bool]] = []
        self._tell_status = tell_status
        self._root = Thread(response_id=previous, is_whole=False) if previous else None
        self._usage = UsageTracker()
        self._usage.add_listener(self._handle)

    @property
    def model(self) -> str | None:
        """The model in use; None while only the server knows it."""
        return self.settings.model or self.last_model

    @property
    def thread(self) -> Thread | None:
        """The thread that the next question continues."""
        return self.turns[self.head - 1].thread if self.head else self._root

    @property
    def totals(self) -> Totals:
        """The usage of the conversation, all branches together."""
        return self._usage.totals(str(self._conversation))

    @property
    def cost(self) -> Cost | None:
        """What the conversation cost, all branches together; None if it is not known."""
        known = [(dollars, guessed) for dollars, guessed in self._costs if dollars is not None]
        if not known:
            return None
        return Cost(
            dollars=sum(dollars for dollars, _ in known),
            is_estimate=any(guessed for _, guessed in known),
            is_partial=len(known) < len(self._costs),
        )

    def path(self) -> list[ChatTurn]:
        """Return the turns that lead to the head."""
        return [*_ancestors(self.turns, self.head)][::-1]

    def fork(self, number: int) -> bool:
        """Continue from this turn; return whether there is such a turn."""
        if not 1 <= number <= len(self.turns):
            return False
        self.head = number
        return True

    def reset(self) -> None:
        """Start a new conversation with the same settings."""
        self.turns, self.head, self._root, self._costs = [], 0, None, []
        self._conversation += 1

    def begin(self, prompt: str) -> Question:
        """Return a turn that continues from the head."""
        return Question(prompt, self.thread, prompt)

    async def ask(self, question: Question, show: Callable[[ResponsePart], None]) -> Round:
        """Send the next request and show the answer. Raise if it fails."""
        adapter = StreamAdapter(
            AdapterSettings(shows_thinking=self.settings.shows_thinking, annotations="none")
        )
        response, calls = await self._follow(question, adapter, show)
        complaint = ending(response)
        if response.status not in ("completed", "incomplete"):
            return Round(calls=[], complaint=complaint, is_whole=False)
        try:
            adapter.finish()
        except DamagedText as error:
            return Round(
                calls=calls, complaint=f"{error.message}; /save FILE.json keeps the latter"
            )
        if not complaint:
            return Round(calls=calls, is_silent=is_silent(response))
        # No server goes on from calls without results, and some of these may be missing.
        return Round(calls=[], complaint=complaint, is_whole=not calls)

    def answer(
        self, question: Question, results: Sequence[tuple[ToolCallPart, str | None]]
    ) -> None:
        """Continue the turn with the results of its calls; None is a declined call."""
        kinds = _call_types(question.thread)
        question.input = [
            {
                "type": f"{kinds.get(call.call_id, 'function_call')}_output",
                "call_id": call.call_id,
                "output": DECLINED if result is None else result,
            }
            for call, result in results
        ]

    def keep(self, question: Question) -> None:
        """Add a complete turn to the tree and continue from it."""
        assert question.thread is not None
        number = len(self.turns) + 1
        self.turns.append(ChatTurn(number, self.head, question.prompt, question.thread))
        self.head = number

    def price_of(self, model: str) -> Price | None:
        """Return the price of the model, if it is known."""
        known = self.directory.get(model)
        return (known.price if known else None) or self.settings.price

    async def _follow(
        self, question: Question, adapter: StreamAdapter, show: Callable[[ResponsePart], None]
    ) -> tuple[Response, list[ToolCallPart]]:
        """Run one response; return it and its calls. The question then continues after it."""
        cache, model = self.client.cache, self.settings.model
        if question.thread is None:
            cache.invalidate(_SESSION, model)
        else:
            cache.set(_SESSION, model, question.thread)
        calls: list[ToolCallPart] = []
        response: Response | None = None
        stream = self.client.stream(**self._params(question))
        try:
            async with stream:
                async for event in stream:
                    for part in adapter.feed(event):
                        show(part)
                        if isinstance(part, ToolCallPart):
                            calls.append(part)
                response = await stream.final_response()
        finally:
            self._count(question, stream.response, is_over=response is not None)
        question.thread = cache.get(_SESSION, model)
        return response, calls

    def _params(self, question: Question) -> Params:
        settings = self.settings
        params: Params = {
            "session": _SESSION,
            "model": settings.model,
            "instructions": settings.instructions,
            "tools": settings.tools or None,
            "input": question.input,
        }
        if settings.shows_thinking and self.client.wire_api == "responses":
            params |= thinking_of(self.directory, self.model)
        return params

    def _count(self, question: Question, response: Response | None, *, is_over: bool) -> None:
        """Record the usage of a response, also of one whose stream broke."""
        if response is None:
            return
        self.last_model = response.model or self.model
        model = self.last_model or ""
        known = self.directory.get(model)
        estimate = self._estimate(question)
        turn = self._usage.start(
            str(self._conversation), model, estimate, known.max_input_tokens if known else None
        )
        book = self._usage.complete if is_over else self._usage.abandon
        book(turn, response, estimated_output=estimate_tokens(response.output))

    def _estimate(self, question: Question) -> int:
        before = question.thread.items if question.thread else ()
        said = estimate_tokens([self.settings.instructions or "", *before, question.input])
        return said + estimate_tools(self.settings.tools)

    def _handle(self, update: Update) -> None:
        if not isinstance(update, TurnEnded):
            return
        turn, price = update.turn, self.price_of(update.turn.model)
        self._costs.append((price.cost(turn.counted) if price else None, turn.is_estimate))
        if turn.status != "abandoned":
            self._tell_status(status_line(update, price))


def _ancestors(turns: Sequence[ChatTurn], number: int) -> Iterator[ChatTurn]:
    """Yield a turn and all before it, the last first."""
    while number:
        yield turns[number - 1]
        number = turns[number - 1].parent


def _call_types(thread: Thread | None) -> dict[str, str]:
    items = thread.items if thread else ()
    return {item["call_id"]: item_type(item) for item in items if item_type(item) in CALL_TYPES}

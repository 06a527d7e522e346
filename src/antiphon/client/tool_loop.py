"""Running tools, for those who ask for it.

A client hands every call to its caller and waits; it never runs a tool by itself. `run_tools`
is the caller that most programs would write: it runs the functions it was given, hands their
outputs back, and asks again until the model has no more calls or the rounds are used up. A
`tool_choice` that forces a call holds for the first round only; else it would never end.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Unpack, cast

import msgspec

from antiphon.client.client import AsyncClient
from antiphon.client.parameters import Params
from antiphon.client.request import read_items
from antiphon.client.settings import WireApi
from antiphon.client.sync import Client
from antiphon.protocol.items import Item
from antiphon.protocol.response import Response

__all__ = ["MAX_ROUNDS", "Handler", "ToolFailed", "ToolRun", "run_tools", "run_tools_sync"]

Handler = Callable[..., object]
"""A tool: it takes the arguments by name and returns text, or anything that JSON can hold."""

MAX_ROUNDS: Final = 10
_INPUT: Final = frozenset({"input", "messages", "prompt"})
_FREE: Final = frozenset({"auto", "none"})


class ToolFailed(Exception):
    """Raised by a tool to let the model know: its message becomes the output of the call.

    Any other exception is a bug of the tool and leaves the loop.
    """


class ToolRun(msgspec.Struct, frozen=True):
    """What came of it: the last response, all items of this run, and how often was asked."""

    response: Response
    items: list[Item]
    rounds: int


async def run_tools(
    client: AsyncClient,
    handlers: Mapping[str, Handler],
    *,
    max_rounds: int = MAX_ROUNDS,
    wire_api: WireApi | None = None,
    **params: Unpack[Params],
) -> ToolRun:
    """Ask, run the calls with the handlers of their names, and go on until there are none.

    A handler may be a coroutine function. A call that has no handler ends the loop: the
    response holds it, and it is the caller's. So does the last of `max_rounds`.
    """
    wire_api = wire_api or client.wire_api
    loop = _Loop(handlers, params, keeps_threads=wire_api == "responses")
    while True:
        response = await client.create(wire_api=wire_api, **loop.params)
        calls = loop.take(response)
        if not calls or loop.rounds >= max_rounds:
            return loop.end(response)
        outputs = []
        for call in calls:
            try:
                value = loop.run(call)
                outputs.append(_output(call, await value if inspect.isawaitable(value) else value))
            except ToolFailed as error:
                outputs.append(_output(call, str(error)))
        loop.go_on(response, outputs)


def run_tools_sync(
    client: Client,
    handlers: Mapping[str, Handler],
    *,
    max_rounds: int = MAX_ROUNDS,
    wire_api: WireApi | None = None,
    **params: Unpack[Params],
) -> ToolRun:
    """Do what `run_tools` does, with a synchronous client and plain functions."""
    wire_api = wire_api or client.wire_api
    loop = _Loop(handlers, params, keeps_threads=wire_api == "responses")
    while True:
        response = client.create(wire_api=wire_api, **loop.params)
        calls = loop.take(response)
        if not calls or loop.rounds >= max_rounds:
            return loop.end(response)
        outputs = []
        for call in calls:
            try:
                outputs.append(_output(call, loop.run(call)))
            except ToolFailed as error:
                outputs.append(_output(call, str(error)))
        loop.go_on(response, outputs)


class _Loop:
    """What is asked next. `params` are those of the next call."""

    def __init__(
        self, handlers: Mapping[str, Handler], params: Params, *, keeps_threads: bool
    ) -> None:
        self.params = params
        self.rounds = 0
        self._handlers = handlers
        self._items = read_items(params)
        self._begun_at = params.get("previous_response_id")
        self._keeps_threads = keeps_threads and params.get("store") is not False

    def take(self, response: Response) -> list[Item]:
        """Return the calls to run: none unless all of them can be."""
        self.rounds += 1
        self._items = [*self._items, *response.output]
        calls = [item for item in response.output if item.get("type") == "function_call"]
        is_ours = response.status == "completed" and all(c["name"] in self._handlers for c in calls)
        return calls if is_ours else []

    def run(self, call: Item) -> object:
        """Run a call. Raise ToolFailed if its arguments cannot be read."""
        try:
            arguments: Any = msgspec.json.decode(call["arguments"] or "{}")
        except msgspec.DecodeError as error:
            raise ToolFailed(f"the arguments are no JSON: {error}") from None
        if not isinstance(arguments, dict):
            raise ToolFailed("the arguments must be a JSON object")
        return self._handlers[call["name"]](**arguments)

    def go_on(self, response: Response, outputs: Sequence[Item]) -> None:
        """Prepare the next round with what the tools gave back."""
        self._items = [*self._items, *outputs]
        rest = {name: value for name, value in self.params.items() if name not in _INPUT}
        if rest.get("tool_choice") not in _FREE:
            rest.pop("tool_choice", None)
        self.params = cast(Params, rest | self._next_input(response, list(outputs)))

    def end(self, response: Response) -> ToolRun:
        """Return what came of it."""
        return ToolRun(response, self._items, self.rounds)

    def _next_input(self, response: Response, outputs: list[Item]) -> dict[str, Any]:
        if self.params.get("session") or self.params.get("conversation"):
            return {"input": outputs}
        if not self._keeps_threads:
            return {"input": self._items}
        if self._begun_at:
            return {"previous_response_id": response.id, "input": outputs}
        # The whole of it is at hand, in case the server loses the thread.
        return {"previous_response_id": response.id, "messages": self._items}


def _output(call: Item, value: object) -> Item:
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return {"type": "function_call_output", "call_id": call["call_id"], "output": text}

"""Run tools in a loop, for programs that ask for it.

A client hands every call to its caller and waits; it never runs a tool by itself. `run_tools`
is the caller that most programs would write: it runs the functions it was given, hands their
outputs back, and asks again until the model has no more calls or the rounds are used up. A
`tool_choice` that forces a call holds for the first round only; else it would never end.

Each round goes on from the one before it: by the session or the conversation the run is in,
else by the response, if the server kept it, else with all items since the run began.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Unpack, cast

import msgspec

from antiphon.client.client import AsyncClient
from antiphon.client.continuation import full_history, kept_id
from antiphon.client.errors import BadTool, InvalidArguments
from antiphon.client.function_tools import FunctionTool, function_tool
from antiphon.client.history import is_model_made, repair_text
from antiphon.client.items import FunctionCallItem
from antiphon.client.parameters import Params, place_parameters
from antiphon.client.request import plain_params, read_items
from antiphon.client.settings import WireApi
from antiphon.client.sync import Client
from antiphon.protocol.items import Item
from antiphon.protocol.machines.partial_items import call_payload
from antiphon.protocol.response import Response

__all__ = [
    "MAX_ROUNDS",
    "Handler",
    "Handlers",
    "ToolFailed",
    "ToolRun",
    "run_tools",
    "run_tools_sync",
]

Handler = Callable[..., object]
"""A tool: it takes the arguments by name and returns text, or anything that JSON can hold."""

Handlers = Mapping[str, Handler] | Sequence[Handler]
"""Tools by name; or functions whose names and schemas are those of their signatures."""

MAX_ROUNDS: Final = 10
# What a round has of its own, by all its names.
_OF_A_ROUND: Final = frozenset(
    {"input", "messages", "prompt", "previous_response_id", "parent_id", "tool_choice"}
)
_FREE: Final = ("auto", "none")


class ToolFailed(Exception):
    """Raised by a tool to let the model know: its message becomes the output of the call.

    Any other exception is a bug of the tool and leaves the loop.
    """


class ToolRun(msgspec.Struct, frozen=True):
    """What came of it: the last response, all items of this run, and how often was asked.

    `deviations` names calls that were not run because another one has their call_id.
    """

    response: Response
    items: list[Item]
    rounds: int
    deviations: tuple[str, ...] = ()


async def run_tools(
    client: AsyncClient,
    handlers: Handlers,
    *,
    max_rounds: int = MAX_ROUNDS,
    wire_api: WireApi | None = None,
    **params: Unpack[Params],
) -> ToolRun:
    """Ask, run the calls with the handlers of their names, and go on until there are none.

    A list of functions is offered to the model by itself, as `function_tool` makes them tools. A
    handler may be a coroutine function. A call that has no handler ends the loop: the
    response holds it, and it is the caller's. So does the last of `max_rounds`.
    """
    if not isinstance(client, AsyncClient):
        raise TypeError("run_tools needs an AsyncClient; with a Client it is run_tools_sync")
    wire_api = wire_api or client.wire_api
    loop = _Loop(handlers, params, wire_api, max_rounds)
    while True:
        response = await client.create(wire_api=wire_api, **loop.params)
        for call in loop.take(response):
            try:
                value = loop.run(call)
                loop.answer(call, await value if inspect.isawaitable(value) else value)
            except ToolFailed as error:
                loop.answer(call, str(error))
        if not loop.go_on(response):
            return loop.end(response)


def run_tools_sync(
    client: Client,
    handlers: Handlers,
    *,
    max_rounds: int = MAX_ROUNDS,
    wire_api: WireApi | None = None,
    **params: Unpack[Params],
) -> ToolRun:
    """Do what `run_tools` does, with a synchronous client and plain functions."""
    if not isinstance(client, Client):
        raise TypeError("run_tools_sync needs a Client; with an AsyncClient it is run_tools")
    wire_api = wire_api or client.wire_api
    loop = _Loop(handlers, params, wire_api, max_rounds)
    while True:
        response = client.create(wire_api=wire_api, **loop.params)
        for call in loop.take(response):
            try:
                loop.answer(call, _plain_value(call, loop.run(call)))
            except ToolFailed as error:
                loop.answer(call, str(error))
        if not loop.go_on(response):
            return loop.end(response)


class _Loop:
    """What is asked next. `params` are those of the next call."""

    def __init__(self, handlers: Handlers, params: Params, wire: WireApi, max_rounds: int) -> None:
        given = plain_params(params)
        if isinstance(handlers, FunctionTool) or not isinstance(handlers, Mapping):
            handlers = _tools_by_name(handlers)
            offered = [tool.definition for tool in handlers.values()]
            given["tools"] = [*given.get("tools", ()), *offered]
        self._handlers: Mapping[str, Handler] = handlers
        body = place_parameters(given, wire)
        self.params = cast(Params, given)
        self._rounds = 0
        self._max_rounds = max_rounds
        self._outputs: list[Item] = []
        """What the tools gave back in this round."""
        self._deviations: list[str] = []
        self._asked = read_items(given)
        self._made: list[Item] = []
        """All items since then: the output of the model and of the tools."""
        self._template = given.get("prompt") if isinstance(given.get("prompt"), dict) else None
        # Messages with some of the model's are the whole; see `continuation`.
        is_history = "messages" in given and any(is_model_made(item) for item in self._asked)
        self._begun_at: str | None = None if is_history else body.get("previous_response_id")
        is_stateful = given.get("stateful") is not False
        self._has_thread = "conversation" in body or ("session" in given and is_stateful)
        self._is_kept = wire == "responses" and is_stateful and body.get("store") is not False
        self._rest = {name: value for name, value in given.items() if name not in _OF_A_ROUND}
        if (choice := _unforced(body.get("tool_choice"))) is not None:
            self._rest["tool_choice"] = choice

    def take(self, response: Response) -> list[Item]:
        """Return the calls to run: none after the last round, or unless all of them can be."""
        self._rounds += 1
        self._outputs = []
        self._made += response.output
        calls = self._once([i for i in response.output if i.get("type") == "function_call"])
        is_ours = response.status == "completed" and all(c["name"] in self._handlers for c in calls)
        return calls if is_ours and self._rounds < self._max_rounds else []

    def _once(self, calls: Sequence[Item]) -> list[Item]:
        """Return the calls with each call_id once: an output is matched by its call_id."""
        first: dict[str, Item] = {}
        for call in calls:
            kept = first.setdefault(call["call_id"], call)
            if call_payload(kept) != call_payload(call):
                what = f"call_id {call['call_id']} stands for several calls; only the first was run"
                self._deviations.append(what)
        return [*first.values()]

    def run(self, call: Item) -> object:
        """Run a call. Raise ToolFailed if its arguments cannot be read or do not fit."""
        handler = self._handlers[call["name"]]
        try:
            arguments = FunctionCallItem(call).arguments
            if isinstance(handler, FunctionTool):
                return handler.run(arguments)
        except InvalidArguments as error:
            raise ToolFailed(error.message) from None
        _check_fit(handler, arguments)
        return handler(**arguments)

    def answer(self, call: Item, value: object) -> None:
        """Keep what a tool gave back."""
        self._outputs.append(FunctionCallItem(call).output(value))

    def go_on(self, response: Response) -> bool:
        """Prepare the next round, if tools gave something back. Return whether there is one."""
        if self._outputs:
            self._made += self._outputs
            self.params = cast(Params, self._rest | self._next_input(response, self._outputs))
        return bool(self._outputs)

    def end(self, response: Response) -> ToolRun:
        """Return what came of it."""
        items = [*self._asked, *self._made]
        return ToolRun(response, items, self._rounds, tuple(self._deviations))

    def _next_input(self, response: Response, outputs: list[Item]) -> dict[str, Any]:
        if self._has_thread:
            return {"input": outputs}
        parent = kept_id(response, was_asked=self._is_kept)
        if parent and (self._begun_at or self._template):
            return {"previous_response_id": parent, "input": outputs}
        # What the caller gave goes back as it came; it was taken once.
        items = [*self._asked, *full_history(repair_text(self._made))]
        if parent:
            # The whole of it is at hand, in case the server loses the thread.
            return {"previous_response_id": parent, "messages": items}
        return {"previous_response_id": self._begun_at, "prompt": self._template, "input": items}


def _tools_by_name(functions: FunctionTool | Sequence[Handler]) -> dict[str, FunctionTool]:
    """Return functions as tools, by the names that the model calls them by."""
    given = [functions] if isinstance(functions, FunctionTool) else functions
    found: dict[str, FunctionTool] = {}
    for one in given:
        tool = one if isinstance(one, FunctionTool) else function_tool(one)
        if tool.name in found:
            raise BadTool(tool.name, "there are two functions of this name")
        found[tool.name] = tool
    return found


def _unforced(choice: Any) -> Any:
    """Return what stays of a tool_choice after the first round, None if nothing does."""
    if not isinstance(choice, dict):
        return choice if choice in _FREE else None
    if choice.get("type") != "allowed_tools":
        return None
    # It forces a call and it limits which; the limit stays.
    return choice | {"mode": "auto"} if choice.get("mode") == "required" else choice


def _check_fit(handler: Handler, arguments: Mapping[str, Any]) -> None:
    """Raise ToolFailed for arguments that a tool does not take: they are the model's mistake.

    A tool that hides its signature is simply called.
    """
    try:
        signature = inspect.signature(handler)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(**arguments)
    except TypeError as error:
        raise ToolFailed(f"the arguments do not fit: {error}") from None


def _plain_value(call: Item, value: object) -> object:
    """Return what a plain function returned. Raise BadTool for an asynchronous one."""
    if not inspect.isawaitable(value):
        return value
    if inspect.iscoroutine(value):
        value.close()
    raise BadTool(call["name"], "it is asynchronous, and run_tools_sync cannot await it")

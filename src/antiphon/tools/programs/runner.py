"""Run programs that call tools: the runner of `programmatic_tool_calling`.

The model is shown one function that takes JavaScript. Tools with `programmatic` among their
`allowed_callers` are functions in it. A call of one ends the response, and the program with it;
when the caller has sent the outputs, the program runs again from its beginning with these
results, without the model, until it ends. Then the model gets what it emitted.

    | end of a run                 | items                                   | the model       |
    |------------------------------|-----------------------------------------|-----------------|
    | it ended                     | program_output, completed               | gets the output |
    | it failed, or took too long  | program_output, incomplete              | gets the reason |
    | it waits for results         | function_call, with the program as its  | is not asked    |
    |                              | caller; the response ends               |                 |

Hosted tools cannot be called from programs; this is reported. A turn whose items are neither
returned nor kept runs no programs: they could not go on.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

from antiphon.plans.toolbox import Offer
from antiphon.protocol.codec import decode_json
from antiphon.protocol.items import Item, Part
from antiphon.protocol.program_calls import caller_field, program_call_id
from antiphon.tools.base import (
    Decision,
    Decline,
    HostedCall,
    HostedFunction,
    Outcome,
    Progress,
    Start,
    ToolRequest,
    ToolSession,
)
from antiphon.tools.code_interpreter import not_here
from antiphon.tools.containers.service import ContainerService
from antiphon.tools.programs.request import WaitingProgram, fingerprint, waiting_programs
from antiphon.tools.programs.sandboxed import ProgramCall, Programs, ProgramState
from antiphon.tools.programs.settings import ProgramSettings

__all__ = ["ProgramRunner"]

_KIND: Final = "programmatic_tool_calling"
_NAME: Final = "program"  # by which its items are lowered
_AROUND_SECONDS: Final = 90.0
"""For waiting until there is room, and for starting a sandbox."""
_ABOUT: Final = (
    "Run a JavaScript program that calls tools, and get only what it emits. Use it for several "
    "calls, loops, or to reduce large results. Top-level await works. text(value) and image(url) "
    "emit output. There is no network, no file, no console, no timer and no import; time and "
    "random numbers are fixed. Nothing is kept between programs. A result that is JSON is a "
    "value, any other is a string."
)
_NOT_KEPT: Final = (
    "this API does not return programs, and they are not kept here: that needs the extra seal, "
    "and keep_state"
)
_CODE: Final = "The JavaScript source. The tools in it, each called with one object:"


class ProgramRunner:
    """Runs programs for all turns."""

    kinds: Final = frozenset({_KIND})
    includes: Final[frozenset[str]] = frozenset()

    def __init__(
        self, containers: ContainerService, settings: ProgramSettings | None = None
    ) -> None:
        self.programs = Programs(containers, settings or ProgramSettings())

    async def begin(self, request: ToolRequest) -> ToolSession:
        """Return the session of a turn."""
        if not request.keeps_items:
            return not_here(request, _NOT_KEPT)
        if why := await self.programs.why_not():
            return not_here(request, why)
        return _Session(self.programs, request)

    async def close(self) -> None:
        """There is nothing to close: a sandbox ends with its program."""


class _Session(ToolSession):
    def __init__(self, programs: Programs, request: ToolRequest) -> None:
        (_, where), *others = request.tools
        self._programs = programs
        self._offers = {offer.alias: offer for offer in request.programmatic}
        self._function = HostedFunction(
            kind=_KIND,
            name=_NAME,
            description=_ABOUT,
            parameters=_schema([*map(_describe, self._offers.values())]),
        )
        waiting = waiting_programs(request.items, self._alias)
        self._waiting = {one.call_id: one for one in waiting}
        self.approved = [
            HostedCall(function=self._function, arguments=one.code, call_id=one.call_id)
            for one in self._waiting.values()
        ]
        self.degraded = [f"{other.where}: programs are declared already" for other in others]
        if not self._offers:
            self.degraded.append(f"{where} ({_KIND}): no tool allows calls by a program")

    async def prepare(self) -> AsyncIterator[HostedFunction]:
        """Yield the function that takes programs, if there is something to call in them."""
        if self._offers:
            yield self._function

    def decide(self, call: HostedCall) -> Decision:
        """Start a program that is not too long; go on with one that waits."""
        waiting = self._waiting.get(call.call_id)
        code = waiting.code if waiting is not None else _read_code(call.arguments)
        if not code.strip():
            return Decline(result='error: call it with a JSON object {"code": "..."}')
        most = self._programs.settings.code_bytes
        if len(code.encode("utf-8", "surrogatepass")) > most:
            return Decline(result=f"error: the program is longer than {most} bytes")
        item = {
            "type": "program",
            "call_id": call.call_id,
            "code": code,
            "fingerprint": fingerprint(call.call_id, code),
        }
        seconds = self._programs.settings.seconds + _AROUND_SECONDS
        return Start(item=item, has_effects=False, seconds=seconds, is_open=waiting is not None)

    async def run(self, call: HostedCall, start: Start) -> AsyncIterator[Progress | Outcome]:
        """Run the program until it ends, or needs results of the caller."""
        code: str = start.item["code"]
        waiting = self._waiting.get(call.call_id) or WaitingProgram(call.call_id, code, [])
        if waiting.problem:
            yield self.fail(call, start, waiting.problem)
            return
        state = await self._programs.run(code, list(self._offers), waiting.records)
        if state.status == "waiting":
            calls = [
                self._call_item(call.call_id, len(waiting.records) + number, made)
                for number, made in enumerate(state.calls)
            ]
            yield Outcome(item=start.item, result=None, also=calls)
            return
        yield _outcome(start.item, state)

    def fail(self, call: HostedCall, start: Start, why: str) -> Outcome:
        """Return a program that did not come to its end, with the reason."""
        return _outcome(start.item, ProgramState("failed", why))

    def _alias(self, namespace: str | None, name: str) -> str:
        """Return the name of a function in programs; one that is not declared keeps its own."""
        for alias, offer in self._offers.items():
            if (offer.namespace, offer.name) == (namespace, name):
                return alias
        return name

    def _call_item(self, program: str, number: int, made: ProgramCall) -> Item:
        """Return a call of the caller's function. Its id is the same on every replay."""
        offer = self._offers[made.name]
        space = {} if offer.namespace is None else {"namespace": offer.namespace}
        return {
            "type": "function_call",
            "call_id": program_call_id(program, number),
            "name": offer.name,
            **space,
            "arguments": made.arguments,
            "caller": caller_field(program),
            "status": "completed",
        }


def _outcome(item: Item, state: ProgramState) -> Outcome:
    has_failed = state.status == "failed"
    texts = [one.text if one.type == "text" else f"[image: {one.url}]" for one in state.output]
    if has_failed:
        texts.append(f"error: {state.error}")
    text = "\n".join(texts) or "(no output)"
    images: list[Part] = [
        {"type": "input_image", "image_url": one.url}
        for one in state.output
        if one.type == "image" and one.url.startswith(("data:image/", "https://"))
    ]
    parts: list[Part] = [{"type": "input_text", "text": text}, *images]
    output = {
        "type": "program_output",
        "call_id": item["call_id"],
        "result": text,
        "status": "incomplete" if has_failed else "completed",
    }
    result = parts if images else text
    return Outcome(item=item, result=result, has_failed=has_failed, also=[output])


def _schema(tools: list[str]) -> dict[str, Any]:
    """Return the parameters of the function. The tools are listed here: an `about` has a limit."""
    code = {"type": "string", "description": "\n".join([_CODE, *tools])}
    return {"type": "object", "properties": {"code": code}, "required": ["code"]}


def _describe(offer: Offer) -> str:
    tool = offer.tool
    about = " ".join(str(tool.get("description") or "").split())
    schema = json.dumps(tool.get("parameters") or {}, separators=(",", ":"), ensure_ascii=False)
    returns = tool.get("output_schema")
    result = f" returns {json.dumps(returns, separators=(',', ':'))}" if returns else ""
    name = f"tools.{offer.alias}" if offer.alias.isidentifier() else f'tools["{offer.alias}"]'
    return f"- await {name}({schema}){result}{f': {about}' if about else ''}"


def _read_code(arguments: str) -> str:
    given = decode_json(arguments)
    code = given.get("code") if isinstance(given, Mapping) else None
    return code if isinstance(code, str) else ""

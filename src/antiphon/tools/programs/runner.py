"""Run programs that call tools: the runner of `programmatic_tool_calling`.

The model is shown one function that takes JavaScript. Tools with `programmatic` among their
`allowed_callers` are functions in it. Each run of a program ends where it needs results. Hosted
tools are called at once, and the program runs again from its beginning with what they returned.
A call of a function of the caller's ends the response; when the caller has sent the outputs, the
program runs again, without the model, until it ends. Then the model gets what it emitted.

    | end of a run                 | items                                   | the model       |
    |------------------------------|-----------------------------------------|-----------------|
    | it ended                     | program_output, completed               | gets the output |
    | it failed, or took too long  | program_output, incomplete              | gets the reason |
    | it waits for hosted tools    | theirs, with the program as the caller  | is not asked    |
    | it waits for functions       | function_call, with the program as its  | is not asked    |
    |                              | caller; the response ends               |                 |

A hosted call that is not run (it needs approval, or is over a limit) ends the program: it has no
item, and could not be replayed. A turn whose items are neither returned nor kept runs no programs:
they could not go on. Where items are kept but not returned (`ToolRequest.callable` is None), later
turns do not know the hosted calls of a program, so it cannot make any.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Container, Mapping, Sequence
from typing import Any, Final

from antiphon.plans.aliases import free_alias
from antiphon.plans.hosted_functions import MAX_ABOUT
from antiphon.protocol.codec import decode_json
from antiphon.protocol.deltas import Degraded, Delta
from antiphon.protocol.items import Item, Part
from antiphon.protocol.program_calls import caller_field, hosted_call_id, program_call_id
from antiphon.tools.base import (
    Answer,
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
from antiphon.tools.programs.results import HostedId, result_of
from antiphon.tools.programs.sandboxed import ProgramCall, ProgramRecord, Programs, ProgramState
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
_NOT_FOUND_AGAIN: Final = (
    "over this API programs call functions of the caller only: later turns would not know what "
    "hosted tools have done"
)
_NOTHING: Final = "no tool allows calls by a program"
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
        self._request = request
        self._where = where
        self._offers = {offer.alias: offer for offer in request.programmatic}
        self._hosted: dict[str, HostedFunction] = {}
        self._runs = {one.call_id: _Run(one) for one in waiting_programs(request.items)}
        self.approved = [
            HostedCall(function=_function([]), arguments=run.program.code, call_id=call_id)
            for call_id, run in self._runs.items()
        ]
        self.degraded = [f"{other.where}: programs are declared already" for other in others]
        if request.callable is None and request.serves_programs:
            self.degraded.append(f"{where} ({_KIND}): {_NOT_FOUND_AGAIN}")
        elif not self._offers and not request.serves_programs:
            self.degraded.append(f"{where} ({_KIND}): {_NOTHING}")

    async def prepare(self) -> AsyncIterator[Delta | HostedFunction]:
        """Yield the function that takes programs, if there is something to call in them."""
        for function in self._request.callable or ():
            name = free_alias("hosted", function.namespace, function.name, self._names)
            self._hosted[name] = function
        if self._names:
            described = [_describe(offer.alias, offer.tool) for offer in self._offers.values()]
            yield _function(described + [_describe_hosted(*one) for one in self._hosted.items()])
        elif self._request.serves_programs:  # its server could not be listed
            yield Degraded(f"{self._where} ({_KIND}): there is no tool that programs can call")

    @property
    def _names(self) -> list[str]:
        return [*self._offers, *self._hosted]

    def decide(self, call: HostedCall) -> Decision:
        """Start a program that is not too long; go on with one that waits."""
        run = self._runs.get(call.call_id)
        code = run.program.code if run is not None else _read_code(call.arguments)
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
        return Start(item=item, has_effects=False, seconds=seconds, is_open=run is not None)

    async def run(self, call: HostedCall, start: Start) -> AsyncIterator[Progress | Outcome]:
        """Run the program until it ends, or needs results of hosted tools or of the caller."""
        run = self._runs.get(call.call_id)
        if run is None:
            run = self._runs[call.call_id] = _Run(WaitingProgram(call.call_id, start.item["code"]))
        if problem := run.program.problem or run.problem:
            yield self.fail(call, start, problem)
            return
        if not run.unanswered:
            records = run.program.records(self._alias, self._hosted_names)
            if isinstance(records, str):
                yield self.fail(call, start, records)
                return
            records += run.records
            state = await self._programs.run(run.program.code, self._names, records)
            if state.status != "waiting":
                yield _outcome(start.item, state)
                return
            run.take_calls(state.calls, self._hosted)
        if run.hosted:
            yield Outcome(item=start.item, result=None, calls=self._hosted_calls(run))
            return
        number = run.program.functions
        calls = [
            self._call_item(call.call_id, number + index, made)
            for index, made in enumerate(run.unanswered)
        ]
        yield Outcome(item=start.item, result=None, also=calls)

    def answer(self, call: HostedCall, answers: Sequence[Answer]) -> None:
        """Take the results of the hosted calls that a program waits for."""
        self._runs[call.call_id].take_answers(answers)

    def fail(self, call: HostedCall, start: Start, why: str) -> Outcome:
        """Return a program that did not come to its end, with the reason."""
        return _outcome(start.item, ProgramState("failed", why))

    def _alias(self, namespace: str | None, name: str) -> str:
        """Return the name of a function in programs; one that is not declared keeps its own."""
        for alias, offer in self._offers.items():
            if (offer.namespace, offer.name) == (namespace, name):
                return alias
        return name

    @property
    def _hosted_names(self) -> dict[HostedId, str]:
        return {(one.namespace, one.name): name for name, one in self._hosted.items()}

    def _hosted_calls(self, run: _Run) -> list[HostedCall]:
        name, number = run.program.call_id, run.hosted_count
        return [
            HostedCall(
                function=self._hosted[made.name],
                arguments=made.arguments,
                call_id=hosted_call_id(name, number + index),
            )
            for index, made in enumerate(run.hosted)
        ]

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


class _Run:
    """How far a program has come in this turn."""

    def __init__(self, program: WaitingProgram) -> None:
        self.program = program
        self.records: list[ProgramRecord] = []
        """The hosted calls that it has made in this turn, with their results."""
        self.hosted: list[ProgramCall] = []
        """The hosted calls that it waits for."""
        self.unanswered: list[ProgramCall] = []
        """The calls of functions that it made together with hosted ones; they come after these."""
        self.problem = ""

    @property
    def hosted_count(self) -> int:
        """How many hosted calls it has made, in all turns."""
        return len(self.program.calls) - self.program.functions + len(self.records)

    def take_calls(self, calls: Sequence[ProgramCall], hosted: Container[str]) -> None:
        """Take the calls that the program waits for."""
        self.hosted = [call for call in calls if call.name in hosted]
        self.unanswered = [call for call in calls if call.name not in hosted]

    def take_answers(self, answers: Sequence[Answer]) -> None:
        """Note the results of the hosted calls. One that was not run ends the program."""
        for call, answer in zip(self.hosted, answers, strict=True):
            result = result_of(answer.items) if answer.items else None
            if result is None:
                why = answer.problem or "it has no result"
                self.problem = self.problem or f"tools.{call.name}: {why}"
            else:
                self.records.append(ProgramRecord(call.name, call.arguments, result))
        self.hosted = []


def _function(tools: list[str]) -> HostedFunction:
    """Return the function that takes programs, in which these tools can be called."""
    return HostedFunction(kind=_KIND, name=_NAME, description=_ABOUT, parameters=_schema(tools))


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


def _describe(name: str, tool: Mapping[str, Any]) -> str:
    about = " ".join(str(tool.get("description") or "").split())
    schema = json.dumps(tool.get("parameters") or {}, separators=(",", ":"), ensure_ascii=False)
    returns = tool.get("output_schema")
    result = f" returns {json.dumps(returns, separators=(',', ':'))}" if returns else ""
    called = f"tools.{name}" if name.isidentifier() else f'tools["{name}"]'
    return f"- await {called}({schema}){result}{f': {about}' if about else ''}"


def _describe_hosted(name: str, function: HostedFunction) -> str:
    about = function.description[:MAX_ABOUT]
    return _describe(name, {"description": about, "parameters": function.parameters})


def _read_code(arguments: str) -> str:
    given = decode_json(arguments)
    code = given.get("code") if isinstance(given, Mapping) else None
    return code if isinstance(code, str) else ""

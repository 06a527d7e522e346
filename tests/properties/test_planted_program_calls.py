"""Would a bug in the hosted calls of programs be seen? Each planted one must be.

Every bug is a small change to what reads the calls of programs from a conversation, makes their
results, or runs them. The scenario is a conversation of two turns with a program that calls hosted
tools and a function. The program runs in this process; what hosted tools do is played.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import types
from pathlib import Path
from typing import Any

import msgspec
import pytest

from antiphon.plans.hosted_functions import HostedFunction
from antiphon.plans.toolbox import DeclaredTool, Offer
from antiphon.protocol.program_calls import caller_field
from antiphon.tools.base import Answer, HostedCall, Outcome, Start, ToolRequest
from antiphon.tools.programs import inside, request, results, runner
from antiphon.tools.programs.sandboxed import ProgramState
from antiphon.tools.programs.settings import ProgramSettings
from tests.properties.planting import plant

CELL = Path(inside.__file__).read_text()
CODE = """
const sum = await tools.desk__add({a: 2, b: 3});
const [found, more] = await Promise.all([tools.stock({sku: "a"}), tools.desk__add({a: sum, b: 1})]);
let caught = "";
try { await tools.desk__fail({}) } catch (error) { caught = error.message }
const [listed] = await tools.shell({commands: ["ls"]});
const last = await tools.stock({sku: "b"});
const printed = await tools.code_interpreter({code: "1"});
text(sum + 1, found.count, more, caught, listed.stdout, last.count, printed);
"""
RESULT = "6 10 6 stuck files 20 one"
FUNCTIONS = [
    HostedFunction(kind="mcp", namespace="desk", name="add"),
    HostedFunction(kind="mcp", namespace="desk", name="fail"),
    HostedFunction(kind="shell", name="shell"),
    HostedFunction(kind="code_interpreter", name="code_interpreter"),
]
STOCK: Any = {"type": "function", "name": "stock", "parameters": {}}
OFFER = Offer("function", "stock", None, "stock", STOCK, "tools[1]")
TOOL: Any = {"type": "programmatic_tool_calling"}
BUGS = {
    "an error of a server is a result": ("text or detail, is_error=True", "text or detail"),
    "JSON of a server is a text": (
        'value_of(call["output"]) if',
        'ProgramResult(call["output"]) if',
    ),
    "a call is taken for one of another server": ('str(item.get("server_label"))', '"other"'),
    "outputs that are not there are empty": ("if not isinstance(outputs, list):", "if False:"),
    "hosted calls are not replayed": ("if item_type(item) in HOSTED:", "if False:"),
    "calls of other programs are replayed": ("caller_of(item) == call_id and _is_call", "_is_call"),
    "arguments are not compared": ('given = call.get("arguments")', "given = None"),
    "a function without an output is replayed": ("    elif missing:", "    elif False:"),
    "calls are counted together": ('== "function_call" for call', '!= "" for call'),
    "a call that was answered is made again": ("        self.hosted = []\n\n\ndef", "\n\ndef"),
    "results of this turn are forgotten": ("records += run.records", "records += []"),
    "a call that was not run is ignored": ("self.problem = self.problem or", "why = why or"),
    "two calls have one id": ("hosted_call_id(name, number + index)", "hosted_call_id(name, 0)"),
    "functions come before hosted calls": (
        "        if run.hosted:",
        "        if run.hosted and not run.unanswered:",
    ),
    "hosted tools are called where they cannot be replayed": (
        "self._request.callable or ()",
        "self._request.callable or _ALL",
    ),
}


class _Programs:
    """Runs programs in this process."""

    settings = ProgramSettings()

    async def run(self, code: str, names: Any, records: Any) -> ProgramState:
        printed: list[str] = []
        scope: dict[str, Any] = {"__name__": "cell", "print": printed.append}
        exec(compile(CELL, "inside.py", "exec"), scope)
        scope["_load"] = lambda: importlib.import_module("_quickjs")
        given = {"code": code, "names": names, "records": records}
        limits = {"memory_bytes": 1 << 25, "most_calls": 20}
        scope["main"](msgspec.json.encode(given | limits).decode())
        return msgspec.json.decode(printed[-1], type=ProgramState)


class _Conversation:
    """A client that keeps all items, and the hosted calls that were made for it."""

    def __init__(self, module: types.ModuleType) -> None:
        self.items: list[Any] = []
        self.made: list[str] = []
        self.ids: list[str] = []
        self._module = module

    async def turn(self, own: list[Any], *, call: bool = False, **fields: Any) -> Outcome:
        """Send items; return the outcome of the program when it has ended, or waits."""
        self.items += own
        asked: Any = ToolRequest(
            owner="local",
            response_id="resp",
            tools=[DeclaredTool(TOOL, "tools[0]")],
            items=list(self.items),
            own=own,
            programmatic=[OFFER],
            serves_programs=True,
            approvals=None,  # type: ignore[arg-type]  # it has nothing to approve
            **{"callable": FUNCTIONS, **fields},
        )
        session = self._module._Session(_Programs(), asked)
        async for _ in session.prepare():
            pass
        code = json.dumps({"code": CODE})
        first = HostedCall(function=FUNCTIONS[0], arguments=code, call_id="p")
        (current,) = [first] if call else session.approved
        start = session.decide(current)
        assert isinstance(start, Start)
        if not start.is_open:
            self.items.append(start.item)
        for _ in range(10):
            (outcome,) = [one async for one in session.run(current, start)]
            assert isinstance(outcome, Outcome)
            if not outcome.calls:
                self.items += outcome.also
                return outcome
            session.answer(current, [self._play(one) for one in outcome.calls])
        raise AssertionError("the program does not come to an end")

    def _play(self, call: HostedCall) -> Answer:
        """Return what a hosted tool does."""
        name, given = call.function.name, json.loads(call.arguments)
        self.made.append(name)
        self.ids.append(call.call_id)
        caller = {"caller": caller_field("p")}
        mcp: Any = {"type": "mcp_call", "server_label": "desk", "name": name, **caller}
        match name:
            case "add":
                output = json.dumps(given["a"] + given["b"])
                item = mcp | {"arguments": call.arguments, "output": output, "error": None}
            case "fail":
                error = {"type": "mcp_tool_execution_error", "content": "stuck"}
                item = mcp | {"arguments": call.arguments, "output": None, "error": error}
            case "code_interpreter":
                outputs = [{"type": "logs", "logs": "one"}]
                item = {"type": "code_interpreter_call", "outputs": outputs, **caller}
                item |= {"code": given["code"], "status": "completed"}
            case _:
                printed = [{"stdout": "files", "stderr": "", "outcome": {}}]
                also = {"type": "shell_call_output", "call_id": call.call_id, "output": printed}
                item = {"type": "shell_call", "call_id": call.call_id, **caller}
                self.items += [item, also | caller | {"status": "completed"}]
                return Answer([item, self.items[-1]])
        self.items.append(item)
        return Answer([item])


def _output(outcome: Outcome, count: int) -> Any:
    (call,) = outcome.also
    output = json.dumps({"count": count})
    return {"type": "function_call_output", "call_id": call["call_id"], "output": output}


async def _scenario(module: types.ModuleType) -> None:
    talk = _Conversation(module)
    talk.items.append({"type": "mcp_call", "name": "add", "caller": caller_field("q")})
    first = await talk.turn([], call=True)
    assert talk.made == ["add", "add"]
    second = await talk.turn([_output(first, 10)])
    assert talk.made == ["add", "add", "fail", "shell"]
    third = await talk.turn([_output(second, 20)])
    assert third.result == RESULT
    assert talk.made == ["add", "add", "fail", "shell", "code_interpreter"]
    assert len(set(talk.ids)) == len(talk.ids)
    await _altered(module)


async def _altered(module: types.ModuleType) -> None:
    """What does not fit is not replayed, and runs nothing."""
    for number in range(3):
        talk = _Conversation(module)
        first = await talk.turn([], call=True)
        own = [_output(first, 10)]
        if number == 0:
            talk.items = [item for item in talk.items if item["type"] != "mcp_call"]
        elif number == 1:
            talk.items[1] = {**talk.items[1], "arguments": '{"a":9,"b":9}'}
        else:
            own = []
        made = list(talk.made)
        assert (await talk.turn(own)).has_failed
        assert talk.made == made
    stripped = [{"type": "code_interpreter_call", "outputs": None, "status": "completed"}]
    assert module.result_of(stripped) is None
    run = module._Run(request.WaitingProgram("p", ""))
    run.hosted = [module.ProgramCall("desk__add", "{}")]
    run.take_answers([Answer(problem="it needs approval")])
    assert "it needs approval" in run.problem
    module.__dict__["_ALL"] = FUNCTIONS
    outcome = await _Conversation(module).turn([], call=True, callable=None)
    assert outcome.has_failed and "there is no tool desk__add" in str(outcome.result)


def _run(module: types.ModuleType) -> None:
    pytest.importorskip("_quickjs")
    asyncio.run(_scenario(module))


def test_the_calls_of_programs_as_they_are_hold() -> None:
    _run(runner)


@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_seen(name: str) -> None:
    old, new = BUGS[name]
    module = plant((results, request, runner), old, new)
    with pytest.raises(Exception):  # noqa: B017 - any failure shows it
        _run(module)

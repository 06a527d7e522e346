"""Would a bug in the loop of hosted tools be seen? Each planted one must be.

As in `test_planted_bugs`, every bug is a small change to a module's own source. The loop runs
scripted turns; what it emits is built and judged, and what it did is held against what it must do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec
import pytest

from antiphon.backends.scripted import ScriptedBackend, Step
from antiphon.engine.run import hosted, hosted_calls, hosted_runs
from antiphon.engine.run.rounds import Rounds
from antiphon.engine.run.truncate import Truncate
from antiphon.plans.assemble import Assembly
from antiphon.plans.plan import Plan
from antiphon.plans.toolbox import gather_tools
from antiphon.protocol import includes
from antiphon.protocol.deltas import (
    CallClosed,
    CallGrew,
    CallMade,
    CallOpened,
    Delta,
    Stopped,
    TextGrew,
)
from antiphon.protocol.errors import AntiphonError, BackendError, ContextOverflow
from antiphon.protocol.events import EVENT_CLASSES, Event
from antiphon.protocol.items import Item
from antiphon.protocol.machines import rebuild
from antiphon.protocol.machines.builder import ResponseBuilder
from antiphon.protocol.machines.referee import judge_stream
from antiphon.protocol.response import Failure, Response, Usage
from antiphon.protocol.tools import ToolPolicy
from antiphon.testing.tools import ScriptedTool
from antiphon.tools import results
from antiphon.tools.base import HostedCall, ToolFailed, ToolLimits, ToolRequest
from tests.building import counting_mint
from tests.paying import charges_of
from tests.properties.planting import plant
from tests.properties.test_planted_bugs import BUILDER
from tests.server.test_includes import ALL, CODE, FILES, SEARCH

LOOK: Final = "test__look"
FUNCTION: Final[dict[str, Any]] = {"type": "function", "name": "f", "parameters": {}}
MCP: Final = {"type": "mcp", "server_label": "test"}
STOP: Final = Stopped("stop")
McpCallCompleted: Final[Any] = EVENT_CLASSES["response.mcp_call.completed"]


class Sink:
    """Builds what it is pushed, and notes when it was asked to make that durable."""

    def __init__(self, plan: Plan) -> None:
        self._builder = ResponseBuilder(Response(id="r", usage=Usage()), counting_mint())
        self._assembly = Assembly(plan, self._builder)
        self.events: list[Event] = self._builder.start()
        self.durable = 0

    def push(self, batch: Sequence[Delta]) -> bool:
        self.events += self._assembly.feed(batch)
        return True

    async def drained(self) -> None:
        """There is always room; that says nothing about the log."""

    async def settled(self) -> None:
        self.durable = len(self.events)

    def check_reader(self) -> None:
        return

    def begin_round(self, plan: Plan, *, continues: bool) -> None:
        self.events += self._assembly.begin_round(plan, continues=continues)

    def note_degraded(self, notes: Sequence[str], *, is_said: bool) -> None:
        raise AssertionError(f"nothing is degraded here: {notes}")

    def finish(self) -> Response:
        self.events += self._builder.finish(7)
        return self.events[-1].response  # type: ignore[union-attr]  # the last has one


class Journal:
    """Notes which calls were intended, and how much was durable then."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.is_closed = False

    async def make_durable(self, work: Sequence[Any], rounds: Rounds) -> None:
        await rounds.settle()
        self.calls += [one.call.call_id for one in work]

    async def close(self) -> None:
        self.is_closed = True


class Turn(msgspec.Struct):
    """What one run of the loop was, and did."""

    response: Response
    events: list[Event]
    plans: list[Plan]
    tool: ScriptedTool
    journal: Journal


async def run(
    module: Any,
    script: Any,
    tool: ScriptedTool | None = None,
    *,
    limits: ToolLimits | None = None,
    most_calls: int = 64,
    seconds: float = 60.0,
    shortens: bool = False,
    approves: bool = False,
    **plan_fields: Any,
) -> Turn:
    """Run a turn with the Hosted policy of this module.

    `shortens` if the context may be truncated; there is an older turn then. `approves` if the
    caller has approved a call.
    """
    tool = tool or ScriptedTool(lambda call: ["rain"])
    toolbox, _ = gather_tools([FUNCTION, MCP], hosted=frozenset({"mcp"}))
    user: Item = {"type": "message", "role": "user", "content": "weather?"}
    older: list[Item] = [user | {"content": "hello"}] if shortens else []
    plan = Plan(model="m", items=[*older, user], toolbox=toolbox, **plan_fields)
    session = await tool.begin(
        ToolRequest(owner="o", response_id="r", tools=(), items=(), own=(), approvals=None)  # type: ignore[arg-type]
    )
    if approves:
        function = tool.functions[0]
        session.approved = [HostedCall(function=function, arguments="{}", call_id="a0")]
    journal = Journal()

    async def give_up() -> None:
        return

    setup = module.HostedSetup(
        {"mcp": session},
        limits or ToolLimits(),
        journal,
        lambda kind, ending, seconds: None,
        "r",
        most_calls,
        seconds,
        give_up,
    )
    backend, sink = ScriptedBackend(script), Sink(plan)
    policies = [
        *([Truncate(lambda note: None)] if shortens else []),
        module.Hosted(setup, charges_of()),
    ]
    await Rounds(backend, plan, policies, sink).run()
    return Turn(sink.finish(), sink.events, backend.plans, tool, journal)


def calls(*names: str) -> list[Step]:
    made: list[Delta] = [CallMade(name, f'{{"n":{n}}}', f"c{n}") for n, name in enumerate(names)]
    return [made, STOP]


def grown() -> list[Step]:
    opened: list[Delta] = [CallOpened(3, LOOK, "c0"), CallGrew(3, '{"n"'), CallGrew(3, ":0}")]
    return [TextGrew("Let me see. "), opened, [CallClosed(3), STOP]]


def say(text: str) -> list[Step]:
    return [TextGrew(text), STOP]


def kinds(turn: Turn) -> list[str]:
    return [item["type"] for item in turn.response.output]


def outputs(plan: Plan) -> list[str]:
    return [item["output"] for item in plan.items if item["type"] == "function_call_output"]


async def _objections(module: Any) -> list[str]:
    """Run turns of every kind; return what is wrong with them."""
    found: list[str] = []

    def expect(what: str, *, is_so: bool) -> None:
        if not is_so:
            found.append(what)

    # One call, which grew, and its result.
    turn = await run(module, [grown(), say("Rain.")])
    expect("one call", is_so=kinds(turn) == ["message", "mcp_call", "message"])
    expect("its arguments", is_so=turn.response.output[1]["arguments"] == '{"n":0}')
    expect("its result", is_so=outputs(turn.plans[1])[0].endswith("instructions]\nrain"))
    expect("the text before it", is_so=turn.plans[1].items[1].get("content") == "Let me see. ")
    expect("its id", is_so=turn.plans[1].items[2].get("call_id") == "c0")
    expect("its intent", is_so=turn.journal.calls == ["c0"])
    expect("the journal is closed", is_so=turn.journal.is_closed and turn.tool.closed == 1)
    found.extend(violation.message for violation in judge_stream(turn.events))

    # The intent is durable before the effect.
    seen: list[str] = []
    journals: list[Journal] = []

    def effect(call: HostedCall) -> Iterator[Any]:
        seen.append(call.call_id)
        yield "done"

    tool = ScriptedTool(effect)
    turn = await run(module, [calls(LOOK, LOOK), say("ok")], tool)
    journals.append(turn.journal)
    expect("both intents", is_so=turn.journal.calls == ["c0", "c1"] == sorted(seen))

    # Order, and no more at once than allowed.
    waiting = asyncio.Event()

    def slow_first(call: HostedCall) -> Iterator[Any]:
        if call.call_id == "c0":
            yield waiting
        waiting.set()
        yield call.call_id

    turn = await run(module, [calls(LOOK, LOOK, LOOK), say("ok")], ScriptedTool(slow_first))
    done = [item.get("output") for item in turn.response.output[:3]]
    expect("items in order", is_so=done == ["c0", "c1", "c2"])
    expect("results in order", is_so=[o[-2:] for o in outputs(turn.plans[1])] == done)
    found.extend(violation.message for violation in judge_stream(turn.events))
    here: list[asyncio.Event] = []

    def in_pairs(call: HostedCall) -> Iterator[Any]:
        here.append(asyncio.Event())
        mine = here[-1]
        if len(here) == 2:
            for one in here:
                one.set()
            here.clear()
        yield mine
        yield "x"

    tool = ScriptedTool(in_pairs)
    turn = await run(module, [calls(*[LOOK] * 6), say("ok")], tool, limits=ToolLimits(at_once=2))
    expect("at once", is_so=tool.most_at_once == 2 and len(tool.calls) == 6)

    # Failure, time, unknown errors.
    known = ToolFailed("no file")
    for fault in (known, RuntimeError("secret")):
        turn = await run(module, [calls(LOOK), say("ok")], ScriptedTool(lambda call: [fault]))  # noqa: B023
        expect("a failed item", is_so=turn.response.output[0]["status"] == "failed")
        expect("a failed result", is_so="error" in outputs(turn.plans[1])[0])
        expect("its reason", is_so=("no file" in outputs(turn.plans[1])[0]) is (fault is known))
        expect("secrets", is_so="secret" not in str(turn.response.output))
    late = asyncio.Event()
    asyncio.get_running_loop().call_later(0.5, late.set)
    tool = ScriptedTool(lambda call: [late, "late"], seconds=0.01)
    turn = await run(module, [calls(LOOK), say("ok")], tool)
    expect("time", is_so=turn.response.output[0]["status"] == "failed" and tool.cancelled == 1)
    turn = await run(module, [calls(LOOK), say("ok")], ScriptedTool(lambda call: []))
    expect("no outcome", is_so=turn.response.output[0]["status"] == "failed")
    turn = await run(module, [calls(LOOK), say("ok")], seconds=0.0)
    expect("no time at all", is_so=turn.tool.calls == [] and kinds(turn) == ["message"])

    # Calls of the caller's, and approvals.
    turn = await run(module, [calls(LOOK, "f")])
    expect("both kinds", is_so=sorted(kinds(turn)) == ["function_call", "mcp_call"])
    turn = await run(module, [calls(LOOK)], ScriptedTool(asks=True))
    expect("approval", is_so=kinds(turn) == ["mcp_approval_request"] and not turn.tool.calls)

    # Limits.
    turn = await run(module, [calls(LOOK, LOOK, LOOK), calls(LOOK)], most_calls=2)
    expect("calls", is_so=len(turn.tool.calls) == 2 and len(turn.plans) == 2)
    told = [text.startswith("not run") for text in outputs(turn.plans[1])]
    expect("told", is_so=told == [False, False, True])
    notes = turn.response.antiphon
    expect("reported", is_so="max_tool_calls" in str(notes))
    turn = await run(module, lambda plan: calls(LOOK), limits=ToolLimits(rounds=3))
    expect("rounds", is_so=len(turn.plans) == 3 and len(turn.tool.calls) == 2)
    expect("reason", is_so="max_messages" in str(turn.response.incomplete_details))
    limits = ToolLimits(result_bytes=300)
    tool = ScriptedTool(lambda call: ["x" * 5000])
    turn = await run(module, [calls(LOOK), say("ok")], tool, limits=limits)
    expect("result", is_so=len(outputs(turn.plans[1])[0]) < 400)
    limits = ToolLimits(stored_bytes=2000)
    turn = await run(module, [calls(LOOK), say("ok")], tool, limits=limits)
    expect("item", is_so=len(msgspec.json.encode(turn.response.output[0])) <= 2000)

    # What is not run.
    cut: list[Step] = [[CallMade(LOOK, "{}", "c0")], Stopped("length")]
    turn = await run(module, [cut])
    expect("a cut answer", is_so=turn.tool.calls == [])
    turn = await run(module, [calls(LOOK)], policy=ToolPolicy("auto", frozenset({"f"})))
    expect("forbidden", is_so=turn.tool.calls == [])
    turn = await run(module, [calls(LOOK, LOOK), say("ok")], parallel_tool_calls=False)
    expect("one a round", is_so=len(turn.tool.calls) == 1)
    turn = await run(module, [calls(LOOK), say("ok")], policy=ToolPolicy("required"))
    expect("required once", is_so=[plan.policy.mode for plan in turn.plans] == ["required", "auto"])
    with suppress(BackendError):
        await run(module, [[CallMade(LOOK, "{}", "c0"), BackendError("gone")]])
    turn = await run(module, [calls(LOOK), calls(LOOK), say("ok")])
    ids = [item["call_id"] for item in turn.plans[2].items if "call_id" in item]
    expect("ids", is_so=ids == ["c0", "c0", "c0_2", "c0_2"])
    found += await _objections_to_short_contexts(module)
    return found


async def _objections_to_short_contexts(module: Any) -> list[str]:
    """Run turns whose context is too long before the first round, and between rounds."""
    too_long: list[Step] = [ContextOverflow("too long")]
    given: dict[str, Any] = {"shortens": True, "approves": True}
    limits = ToolLimits(rounds=2)
    first = await run(module, [too_long, calls(LOOK), say("ok")], limits=limits, **given)
    later = await run(module, [calls(LOOK), too_long, say("ok")], limits=limits, **given)
    found: list[str] = []
    for name, turn in {"first": first, "later": later}.items():
        if len(turn.tool.calls) != 2 or kinds(turn) != ["mcp_call", "mcp_call", "message"]:
            found.append(f"{name}: each call once, and the answer")
        if [item.get("call_id") for item in turn.plans[-1].items if "output" in item] != [
            "a0",
            "c0",
        ]:
            found.append(f"{name}: both results, once")
        if "hello" in str(turn.plans[-1].items):
            found.append(f"{name}: what was left out stays out")
    return found


LOOP_BUGS: Final[dict[str, tuple[str, str]]] = {
    "hosted calls reach the caller": (
        "is_hosted = alias in self._plan.toolbox.functions\n        why",
        "is_hosted = False\n        why",
    ),
    "pieces of a call are lost": ("call.pieces.append(delta.arguments)", "pass"),
    "a call of the caller's is not seen": ("self.has_client_calls |=", "_ ="),
    "a second call runs": ("self._plan.parallel_tool_calls is False and", "False and"),
    "a forbidden call runs": ("if is_hosted and not self._plan.policy.allows(alias):", "if False:"),
    "the text before a call is forgotten": ("*self._transcript.prose(), ", ""),
    "calls start before their intent is durable": (
        "await self._intents.make_durable(effective, rounds)",
        "pass",
    ),
    "all calls run at once": ("return self._limits.at_once -", "return 99 -"),
    "outcomes come in the order of their ends": (
        "[outcomes[number] for number in range(len(work))]",
        "list(outcomes.values())",
    ),
    "a failure breaks the turn": (
        "except ToolFailed as error:",
        "except ZeroDivisionError as error:",
    ),
    "an exception is shown": (
        'return session.fail(call, start, _BROKE), "failed"\n        _log.error',
        "return session.fail(call, start, 'secret'), \"failed\"\n        _log.error",
    ),
    "a call runs for ever": ("max(0.0, min(allowed, left))", "1e6"),
    "items are stored at any length": (
        "cap_item(outcome.item, self._limits.stored_bytes)",
        "outcome.item",
    ),
    "an item is never closed": ("[ItemClosed(key, report.item, report.usage), *also]", "[*also]"),
    "a call is not closed when it has its outcome": (
        "async with aclosing(_until(session.run(call, start), seconds)) as given:",
        "given = _until(session.run(call, start), seconds)\n            if True:",
    ),
    "results are shown at any length": (
        "cap_result(outcome.result, self._setup.limits.result_bytes)",
        "outcome.result",
    ),
    "results are not marked as data": (
        "return data_of(call.function.name, capped)",
        "return capped",
    ),
    "an answer that was cut runs": ('if end.stop.reason != "stop":', "if False:"),
    "rounds are not counted": ("self._rounds += 1", "pass"),
    "calls are not counted": ("self._made += isinstance(decision, Start)", "pass"),
    "the model is told for ever": (
        "policy = _without_hosted(plan, policy)",
        "self._is_over = False",
    ),
    "the limit is not reported": ("requests.insert(0, Reported(_LIMIT_NOTE))", "pass"),
    "an approval is not awaited": (
        "has_asked or self._answer.has_client_calls",
        "self._answer.has_client_calls",
    ),
    "a request for approval is lost": ("requests.append(ItemPassed(decision.item))", "pass"),
    "a required call is required again": (
        'return ToolPolicy("auto", plan.policy.allowed)',
        "return plan.policy",
    ),
    "the next round looks at the last answer": (
        "return Next(plan, is_longer=True)",
        "return Next(plan)",
    ),
    "approved results are lost in a short context": (
        "self._with_results(plan, [], self._approved)",
        "(self._with_results(plan, [], self._approved) if not hasattr(self, '_plan') else plan)",
    ),
    "approved results come twice": ("self._approved = []  # they are in the plan", "pass"),
    "an attempt that failed is a round": (
        "        if end.error is not None or end.stop is None:\n            return None\n"
        "        self._rounds += 1\n",
        "        self._rounds += 1\n"
        "        if end.error is not None or end.stop is None:\n            return None\n",
    ),
    "results are forgotten": ("*calls, *outputs]", "*calls]"),
    "ids of two rounds are the same": (
        "self._ids.claim(self._wished_id(gathered))",
        "self._wished_id(gathered)",
    ),
    "sessions are not closed": ("await session.close()", "pass"),
    "the journal is not closed": ("await self._setup.intents.close()", "pass"),
    "time is not looked at": (
        "self._made >= self._setup.most_calls or late",
        "self._made >= self._setup.most_calls",
    ),
}
_CRASHES: Final = (
    LookupError,
    AttributeError,
    AssertionError,
    AntiphonError,
    ToolFailed,
    TypeError,
)
_LOOP: Final = (results, hosted_calls, hosted_runs, hosted)


async def test_the_loop_as_it_is_raises_no_objection() -> None:
    assert await _objections(hosted) == []


@pytest.mark.parametrize("bug", LOOP_BUGS)
async def test_a_bug_in_the_loop_is_caught(bug: str) -> None:
    planted = plant(_LOOP, *LOOP_BUGS[bug])
    try:
        async with asyncio.timeout(60):
            found = await _objections(planted)
    except (
        LookupError,
        AttributeError,
        AssertionError,
        AntiphonError,
        ToolFailed,
        TypeError,
    ) as crash:
        assert "no longer applies" not in str(crash)
        found = [f"it crashes: {crash!r}"]
    except TimeoutError:
        found = ["it never ends"]
    assert found


# What `include` hides, and how a call ends whose process died.

INCLUDE_BUGS: Final[dict[str, tuple[str, str]]] = {
    "sources are always shown": ('"sources" not in action', "True"),
    "results are always shown": ('item | {"results": None} if', "item if"),
    "outputs are always shown": ('item | {"outputs": None} if', "item if"),
    "nothing is shown": ("if name not in include", "if True"),
    "an item is changed": (
        'return item | {"action": {name: action[name] for name in action if name != "sources"}}',
        "action.pop('sources'); return item",
    ),
}


def _objections_to_includes(module: Any) -> list[str]:
    found: list[str] = []
    for name, item in zip(ALL, (SEARCH, CODE, FILES), strict=True):
        given = msgspec.json.decode(msgspec.json.encode(item))
        before = msgspec.json.encode(given)
        shown, hidden = module.Hidden([name]).item(given), module.Hidden().item(given)
        found += [] if shown == item else [f"{name} is not shown"]
        found += [] if hidden != item else [f"{name} is shown"]
        found += [] if msgspec.json.encode(given) == before else ["the item was changed"]
    return found


@pytest.mark.parametrize("bug", INCLUDE_BUGS)
def test_a_bug_in_what_is_hidden_is_caught(bug: str) -> None:
    assert _objections_to_includes(includes) == []
    assert _objections_to_includes(plant((includes,), *INCLUDE_BUGS[bug]))


BREAK_BUGS: Final[dict[str, tuple[str, str]]] = {
    "the reason is lost": ('"message": why}', '"message": ""}'),
    "a call that ran is only incomplete": (
        'if self.kind == "mcp_call" and not is_over:',
        "if False:",
    ),
    "a call that ran is completed": (
        'item |= {"status": "failed", "error": error}',
        'item |= {"status": "completed"}',
    ),
    "open items are left to the end": ("item.break_off(why)\n", "pass\n"),
}


async def _objections_to_break_off(module: Any) -> list[str]:
    turn = await run(hosted, [calls(LOOK, LOOK), say("ok")])
    found: list[str] = []
    for end in range(3, len(turn.events) - 1):
        begun = turn.events[:end]
        builder = module.rebuild(Response(id="r", usage=Usage()), begun, counting_mint())
        whole = [*begun, *builder.break_off("the gateway restarted")]
        whole += builder.fail(Failure("server_restarted", "x"))
        found += [violation.message for violation in judge_stream(whole)]
        over = {one.item_id for one in begun if isinstance(one, McpCallCompleted)}
        for item in whole[-1].response.output:
            if item["type"] != "mcp_call" or item["id"] in over:
                continue
            error = item.get("error") or {}
            is_told = item["status"] == "failed" and error["message"] == "the gateway restarted"
            found += [] if is_told else ["a call that may have run does not say so"]
    done = [item for item in turn.response.output if item.get("status") == "completed"]
    found += [] if done else ["nothing was done"]
    return found


@pytest.mark.parametrize("bug", BREAK_BUGS)
async def test_a_bug_in_how_calls_break_off_is_caught(bug: str) -> None:
    assert await _objections_to_break_off(rebuild) == []
    planted = plant((*BUILDER, rebuild), *BREAK_BUGS[bug])
    try:
        found = await _objections_to_break_off(planted)
    except (LookupError, TypeError, AntiphonError) as crash:
        found = [repr(crash)]
    assert found

"""Programs that call tools, in a real sandbox: what they may do, and how they are replayed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from antiphon.backends.scripted import ScriptedBackend, Step
from antiphon.protocol.deltas import CallMade, Stopped, TextGrew
from antiphon.protocol.events import event_type
from antiphon.store.sqlite import SqliteStore
from antiphon.testing.gateway import Gateway, serve_gateway
from antiphon.tools.containers.service import ContainerService
from antiphon.tools.programs.runner import ProgramRunner
from antiphon.tools.programs.settings import ProgramSettings
from tests.asking import ask, ask_stream, terminal
from tests.containers import make_service
from tests.sandboxes import engine

STOP = Stopped("stop")
PROGRAMS: Any = {"type": "programmatic_tool_calling"}
STOCK: Any = {
    "type": "function",
    "name": "stock",
    "description": "How many there are.",
    "parameters": {"type": "object", "properties": {"sku": {"type": "string"}}},
    "allowed_callers": ["programmatic"],
}
BOTH: Any = {**STOCK, "name": "order", "allowed_callers": ["direct", "programmatic"]}
TOOLS = [PROGRAMS, STOCK, BOTH]
SUM = """
const found = await Promise.all(["a", "b"].map((sku) => tools.stock({sku})));
const total = found.reduce((sum, one) => sum + one.count, 0);
if (total < 10) text(await tools.order({sku: "a", count: 10 - total}));
text("total", total);
"""


def program(code: str, call_id: str = "p") -> list[Step]:
    """Return a round that runs a program."""
    arguments = msgspec.json.encode({"code": code}).decode()
    return [CallMade("program", arguments, call_id), STOP]


def saying(text: str) -> list[Step]:
    """Return a round that answers."""
    return [TextGrew(text), STOP]


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[ContainerService]:
    store = SqliteStore(tmp_path / "antiphon.db")
    service = make_service(store, engine("bwrap+sandlock"))
    yield service
    await service.close()
    await store.close()


def serving(backend: ScriptedBackend, service: ContainerService, **settings: Any) -> Any:
    """Run a gateway with programs."""
    runner = ProgramRunner(service, ProgramSettings(**settings))
    return serve_gateway(backend, store=service.store, tools=[runner], containers=service)


def output_for(call: Any, value: object) -> Any:
    """Return what the caller sends back for a call."""
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return {"type": "function_call_output", "call_id": call["call_id"], "output": text}


async def whole(gateway: Gateway, **body: Any) -> Any:
    answer = await ask(gateway, **{"tools": TOOLS, **body})
    assert answer.status == 200, answer.body
    return answer.json


def types_of(response: Any) -> list[str]:
    return [item["type"] for item in response["output"]]


async def run_alone(service: ContainerService, code: str, **settings: Any) -> tuple[Any, str]:
    """Run a program that needs no caller; return its output item, and what the model got."""
    backend = ScriptedBackend([program(code), saying("ok")])
    async with serving(backend, service, **settings) as gateway:
        response = await whole(gateway)
    assert types_of(response) == ["program", "program_output", "message"]
    shown = backend.plans[1].items[-1]["output"]
    return response["output"][1], shown


@pytest.mark.parametrize("is_stored", [True, False])
async def test_a_program_is_replayed_until_it_ends_and_the_model_gets_its_result(
    service: ContainerService, is_stored: bool
) -> None:
    backend = ScriptedBackend([program(SUM), saying("Seven.")])
    context: list[Any] = [{"type": "message", "role": "user", "content": "how many?"}]

    async def go_on(gateway: Gateway, last: Any, own: list[Any]) -> Any:
        if is_stored:
            return await whole(gateway, input=own, previous_response_id=last and last["id"])
        context.extend(own)
        response = await whole(gateway, input=context, store=False)
        context.extend(response["output"])
        return response

    async with serving(backend, service) as gateway:
        opening = [] if not is_stored else context.copy()
        first = await go_on(gateway, None, opening)
        assert types_of(first) == ["program", "function_call", "function_call"]
        item, one, two = first["output"]
        assert item["code"] == SUM
        assert [one["name"], two["name"]] == ["stock", "stock"]
        assert [one["arguments"], two["arguments"]] == ['{"sku":"a"}', '{"sku":"b"}']
        caller = {"type": "program", "caller_id": item["call_id"]}
        assert one["caller"] == two["caller"] == caller
        assert first["status"] == "completed"
        # The order of the outputs does not matter.
        second = await go_on(
            gateway, first, [output_for(two, {"count": 4}), output_for(one, {"count": 3})]
        )
        assert types_of(second) == ["function_call"]
        (order,) = second["output"]
        assert (order["name"], order["caller"]) == ("order", caller)
        assert order["arguments"] == '{"sku":"a","count":3}'
        assert len(backend.plans) == 1, "the model is not asked while a program runs"
        third = await go_on(gateway, second, [output_for(order, "ordered")])
    assert types_of(third) == ["program_output", "message"]
    end = third["output"][0]
    assert end["result"] == "ordered\ntotal 7"
    assert (end["status"], end["call_id"]) == ("completed", item["call_id"])
    kinds = [one["type"] for one in backend.plans[1].items]
    assert kinds == ["message", "program", "function_call_output"]
    assert "ordered\ntotal 7" in backend.plans[1].items[-1]["output"]


async def test_only_tools_for_the_model_are_shown_and_those_for_programs_are_listed(
    service: ContainerService,
) -> None:
    backend = ScriptedBackend([saying("ok")])
    plain = {"type": "function", "name": "plain", "parameters": {"type": "object"}}
    async with serving(backend, service) as gateway:
        response = await whole(gateway, tools=[*TOOLS, plain])
    offers = {offer.name: offer for offer in backend.plans[0].toolbox.offers}
    assert list(offers) == ["order", "plain", "program"]
    listed = offers["program"].tool["parameters"]["properties"]["code"]["description"]
    assert 'await tools.stock({"type":"object","properties":{"sku"' in listed
    assert "await tools.order(" in listed
    assert "tools.plain" not in listed
    assert "degraded" not in response.get("antiphon", {})


async def test_the_stream_of_a_program_has_its_items_as_added_and_done(
    service: ContainerService,
) -> None:
    backend = ScriptedBackend([program("text('one'); return {two: 2}"), saying("ok")])
    async with serving(backend, service) as gateway:
        events = await ask_stream(gateway, tools=TOOLS)
    names = [event_type(event).removeprefix("response.") for event in events]
    begin = names.index("output_item.added")
    assert names[begin : begin + 5] == ["output_item.added", "output_item.done"] * 2 + [
        "output_item.added"
    ]
    item, end, _ = terminal(events).output
    assert (item["type"], end["type"]) == ("program", "program_output")
    assert end["result"] == 'one\n{"two":2}'


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("let let = 1(", "SyntaxError"),
        ("text('before'); throw new TypeError('no')", "before\nerror: TypeError: no"),
        ("await tools.missing({})", "there is no tool missing"),
        ("await tools.stock('a')", "call tools.stock with one object"),
        ("await tools.stock({value: 1n})", "TypeError"),
        ("await new Promise(() => {})", "never happens"),
        ("fetch('http://127.0.0.1/')", "fetch is not defined"),
        ("console.log(1)", "console is not defined"),
        ("setTimeout(() => {}, 1)", "setTimeout is not defined"),
        ("function f() { f(); } f()", "call stack"),
        ("const all = []; while (true) all.push(new Array(1000).fill(1))", "memory"),
        ("})(); (() => {", "error: "),
        ("text('x'.repeat(3_000_000))", "its output is too long"),
        ("for (let i = 0; i < 100; i++) tools.stock({sku: String(i)})", "more than 64 calls"),
    ],
)
async def test_what_is_wrong_with_a_program_is_its_output(
    service: ContainerService, code: str, reason: str
) -> None:
    item, shown = await run_alone(service, code)
    assert item["status"] == "incomplete"
    assert reason in item["result"]
    assert reason in shown


async def test_an_endless_loop_is_stopped(service: ContainerService) -> None:
    item, shown = await run_alone(service, "while (true) {}", seconds=1.0)
    assert item["status"] == "incomplete"
    assert "took too long" in shown


async def test_time_and_chance_are_the_same_in_every_run(service: ContainerService) -> None:
    code = (
        "text(Math.random(), Math.random(), Date.now(), new Date().getTime(), "
        "new Date(5).getTime(), typeof performance, typeof WeakRef, "
        "new (new Date(1).constructor)().getTime(), Object.keys(globalThis).join())"
    )
    one, _ = await run_alone(service, code)
    two, _ = await run_alone(service, f"globalThis.left = 1; {code}")
    assert one["result"].split()[2:8] == ["0", "0", "5", "undefined", "undefined", "0"]
    assert two["result"] == f"{one['result']},left"
    three, _ = await run_alone(service, "text(typeof left)")
    assert three["result"] == "undefined"


async def test_a_program_that_is_too_long_or_no_json_is_declined(
    service: ContainerService,
) -> None:
    backend = ScriptedBackend(
        [program("text(1)" * 100), [CallMade("program", "text(1)", "q"), STOP], saying("ok")]
    )
    async with serving(backend, service, code_bytes=100) as gateway:
        response = await whole(gateway)
    assert types_of(response) == ["message"]
    assert "longer than 100 bytes" in backend.plans[1].items[-1]["output"]
    assert "call it with a JSON object" in backend.plans[2].items[-1]["output"]


def _other_code(item: Any, calls: list[Any]) -> None:
    item["code"] = item["code"].replace('"b"', '"c"')


def _other_fingerprint(item: Any, calls: list[Any]) -> None:
    item["fingerprint"] = "1.0"


def _other_arguments(item: Any, calls: list[Any]) -> None:
    calls[0]["arguments"] = '{"sku":"z"}'


def _other_name(item: Any, calls: list[Any]) -> None:
    calls[1]["name"] = "order"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (_other_code, "its fingerprint does not fit"),
        (_other_fingerprint, "its fingerprint does not fit"),
        (_other_arguments, "does not make the calls"),
        (_other_name, "does not make the calls"),
    ],
)
async def test_a_replay_that_does_not_fit_fails_and_the_model_gets_the_reason(
    service: ContainerService, change: Any, reason: str
) -> None:
    backend = ScriptedBackend([program(SUM), saying("ok")])
    async with serving(backend, service) as gateway:
        first = await whole(gateway, store=False)
        item, *calls = first["output"]
        change(item, calls)
        outputs = [output_for(call, {"count": 1}) for call in calls]
        second = await whole(gateway, input=[item, *calls, *outputs], store=False)
    assert types_of(second) == ["program_output", "message"]
    assert second["output"][0]["status"] == "incomplete"
    assert reason in backend.plans[1].items[-1]["output"]


async def test_a_program_whose_call_was_not_answered_fails(service: ContainerService) -> None:
    backend = ScriptedBackend([program(SUM), saying("ok")])
    async with serving(backend, service) as gateway:
        first = await whole(gateway)
        one = first["output"][1]
        second = await whole(
            gateway,
            input=[output_for(one, "1"), {"role": "user", "content": "well?"}],
            previous_response_id=first["id"],
        )
    assert types_of(second) == ["program_output", "message"]
    assert "there is no output for its call" in second["output"][0]["result"]
    kinds = [item["type"] for item in backend.plans[1].items]
    assert kinds == ["message", "program", "function_call_output", "message"]


async def test_later_turns_show_the_program_and_its_result_alone(
    service: ContainerService,
) -> None:
    code = "text((await tools.stock({sku: 'a'})).count)"
    backend = ScriptedBackend([program(code), saying("3"), saying("again")])
    async with serving(backend, service) as gateway:
        first = await whole(gateway)
        call = first["output"][1]
        second = await whole(
            gateway, input=[output_for(call, {"count": 3})], previous_response_id=first["id"]
        )
        third = await whole(gateway, input="and now?", previous_response_id=second["id"])
    assert types_of(third) == ["message"]
    kinds = [item["type"] for item in backend.plans[2].items]
    assert kinds == ["message", "program", "program_output", "message", "message"]


async def test_chains_of_calls_are_replayed_in_the_order_of_the_first_run(
    service: ContainerService,
) -> None:
    """One chain is slower by some steps, so the second calls change places without batches."""
    code = """
    const order = [];
    const note = async (sku) => { order.push(sku); return await tools.stock({sku}); };
    const fast = async () => { await note("f1"); await note("f2"); await note("f3"); };
    const slow = async () => { await note("s1"); for (let i = 0; i < 9; i++) await null;
                               await note("s2"); };
    await Promise.all([fast(), slow()]);
    text(order.join());
    """
    backend = ScriptedBackend([program(code), saying("ok")])
    async with serving(backend, service) as gateway:
        response = await whole(gateway)
        made: list[str] = []
        while calls := [one for one in response["output"] if one["type"] == "function_call"]:
            made += [msgspec.json.decode(call["arguments"])["sku"] for call in calls]
            outputs = [output_for(call, "{}") for call in calls]
            response = await whole(gateway, input=outputs, previous_response_id=response["id"])
    assert made == ["f1", "s1", "f2", "s2", "f3"]
    assert response["output"][0]["result"] == "f1,s1,f2,s2,f3"


async def test_without_a_tool_for_programs_nothing_is_offered_and_that_is_reported(
    service: ContainerService,
) -> None:
    backend = ScriptedBackend([saying("ok")])
    async with serving(backend, service) as gateway:
        response = await whole(gateway, tools=[PROGRAMS])
    assert not backend.plans[0].toolbox.offers
    assert "no tool allows calls by a program" in str(response["antiphon"]["degraded"])


async def test_a_tool_for_programs_alone_is_reported_where_no_program_runs(
    service: ContainerService,
) -> None:
    backend = ScriptedBackend([saying("ok")])
    async with serving(backend, service) as gateway:
        response = await whole(gateway, tools=[STOCK])
    assert not backend.plans[0].toolbox.offers
    assert "only a program may call it" in str(response["antiphon"]["degraded"])

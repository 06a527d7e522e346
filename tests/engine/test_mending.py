"""What the model said wrong is said again before anybody hears of it."""

from __future__ import annotations

from typing import Any, Final

import msgspec
import pytest

from antiphon.backends.scripted import ScriptedBackend
from antiphon.protocol.deltas import (
    CallGrew,
    CallOpened,
    Delta,
    Stopped,
    TextGrew,
    UsageKnown,
)
from antiphon.protocol.errors import BackendError
from antiphon.protocol.response import Response, Usage
from antiphon.testing.gateway import serve_gateway
from tests.asking import ask, ask_stream, terminal

SCHEMA: Final = {
    "type": "object",
    "properties": {"n": {"type": "integer"}},
    "required": ["n"],
    "additionalProperties": False,
}
STRICT: Final = {"type": "function", "name": "count", "parameters": SCHEMA, "strict": True}
LOOSE: Final = STRICT | {"strict": False}
SUM: Final = {
    "type": "custom",
    "name": "sum",
    "format": {"type": "grammar", "syntax": "regex", "definition": r"[0-9]+ [+] [0-9]+"},
}
STOP: Final = Stopped("stop")


def called(name: str, arguments: str, key: int = 0, call_id: str | None = None) -> list[Delta]:
    return [CallOpened(key, name, call_id), CallGrew(key, arguments)]


def custom(text: str) -> list[Delta]:
    return called("sum", msgspec.json.encode({"input": text}).decode())


def counted(read: int, written: int) -> UsageKnown:
    return UsageKnown(Usage(input_tokens=read, output_tokens=written, total_tokens=read + written))


def plain(*scripts: list[Delta]) -> ScriptedBackend:
    """Return a model that nobody holds to anything."""
    return ScriptedBackend(scripts, enforces=frozenset())


async def run(backend: ScriptedBackend, *, stream: bool = True, **body: Any) -> Response:
    async with serve_gateway(backend) as gateway:
        if stream:
            return terminal(await ask_stream(gateway, **body))
        answer = await ask(gateway, **body)
        assert answer.status == 200, answer.body
        return msgspec.convert(answer.json, Response)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("tool", "wrong", "right"),
    [
        (STRICT, called("count", '{"n":"two"}'), called("count", '{"n":2}')),
        (STRICT, called("count", '{"n":2'), called("count", '{"n":2}')),
        (SUM, custom("two and two"), custom("2 + 2")),
        ({"type": "shell"}, called("shell", '{"run":1}'), called("shell", '{"commands":["ls"]}')),
    ],
)
async def test_a_wrong_call_is_made_again_and_only_the_right_one_is_told(
    tool: dict[str, Any], wrong: list[Delta], right: list[Delta], stream: bool
) -> None:
    backend = plain([*wrong, counted(10, 2), STOP], [*right, counted(20, 3), STOP])

    response = await run(backend, tools=[tool], stream=stream)

    assert response.status == "completed"
    (call,) = response.output
    said = {"count": '{"n":2}', "sum": "2 + 2"}.get(call.get("name", ""))
    assert call.get("arguments", call.get("input")) == said
    assert response.antiphon.repaired  # type: ignore[union-attr] # set: it was repaired
    assert (response.usage.input_tokens, response.usage.output_tokens) == (30, 5)  # type: ignore[union-attr] # counted


async def test_the_model_is_told_what_it_said_and_what_is_wrong_with_it() -> None:
    backend = plain([*custom("two and two"), STOP], [*custom("2 + 2"), STOP])

    await run(backend, tools=[SUM])

    call, complaint = backend.plans[1].items[-2:]
    assert (call["type"], call["input"]) == ("custom_tool_call", "two and two")
    assert complaint["call_id"] == call["call_id"]
    assert "not run" in complaint["output"]
    assert backend.plans[1].policy.allowed == frozenset({"sum"})
    assert backend.plans[0].policy.mode == "auto"


async def test_a_call_that_no_item_can_hold_is_quoted_to_the_model() -> None:
    wrong, right = called("shell", '{"cmd":"ls"}'), called("shell", '{"commands":["ls"]}')
    backend = plain([*wrong, STOP], [*right, STOP])

    await run(backend, tools=[{"type": "shell"}])

    assert '{"cmd":"ls"}' in backend.plans[1].items[-1]["output"]


@pytest.mark.parametrize("stream", [True, False])
async def test_a_call_that_is_wrong_twice_fails_the_turn_and_is_never_told(stream: bool) -> None:
    wrong = [*custom("no"), STOP]
    backend = plain([counted(10, 2), *wrong], [counted(20, 3), *wrong])

    response = await run(backend, tools=[SUM], stream=stream)

    assert (response.status, response.output) == ("failed", [])
    assert response.error is not None
    assert response.error.code == "tool_call_invalid"
    assert response.usage is not None
    assert response.usage.total_tokens == 35
    assert len(backend.plans) == 2


async def test_right_calls_beside_a_wrong_one_stay_in_their_order() -> None:
    first = called("count", '{"n":1}', 0)
    wrong = called("count", '{"n":"x"}', 1)
    third = called("count", '{"n":3}', 2)
    again = called("count", '{"n":2}')
    backend = plain([*first, *wrong, *third, STOP], [*again, STOP])

    response = await run(backend, tools=[STRICT])

    assert [item["arguments"] for item in response.output] == ['{"n":1}', '{"n":3}', '{"n":2}']


async def test_a_function_that_is_not_strict_is_nobodys_business() -> None:
    backend = plain([*called("count", '{"n":"two"}'), STOP])

    response = await run(backend, tools=[LOOSE])

    assert response.output[0]["arguments"] == '{"n":"two"}'


async def test_what_the_backend_enforces_is_not_held_back() -> None:
    backend = ScriptedBackend([[*called("count", '{"n":'), CallGrew(0, "2}"), STOP]])

    async with serve_gateway(backend) as gateway:
        events = await ask_stream(gateway, tools=[STRICT])

    kinds = [event.type for event in events]
    assert kinds.count("response.function_call_arguments.delta") == 2


async def test_a_call_cut_short_by_the_limit_is_not_asked_for_again() -> None:
    backend = plain([*called("count", '{"n":'), Stopped("length")])

    response = await run(backend, tools=[STRICT])

    assert response.status == "incomplete"
    (call,) = response.output
    assert (call["type"], call["status"], call["arguments"]) == (
        "function_call",
        "incomplete",
        '{"n":',
    )


async def test_half_a_custom_call_is_no_custom_call() -> None:
    broken = BackendError("the upstream closed", code="upstream_closed")
    backend = ScriptedBackend([[TextGrew("Now"), *called("sum", '{"input":"2 +'), broken]])

    response = await run(backend, tools=[SUM])

    assert response.status == "failed"
    text, call = response.output
    assert text["content"][0]["text"] == "Now"
    assert (call["type"], call["status"], call["arguments"]) == (
        "function_call",
        "incomplete",
        '{"input":"2 +',
    )


async def test_a_fault_while_asking_again_fails_the_turn_with_what_was_said() -> None:
    broken = BackendError("gone", code="upstream_closed")
    backend = plain([TextGrew("So: "), *custom("no"), STOP], [broken])  # type: ignore[list-item] # a step of a script

    response = await run(backend, tools=[SUM])

    assert (response.status, response.output_text) == ("failed", "So: ")
    assert response.error is not None
    assert response.error.code == "upstream_closed"


async def test_a_required_call_that_was_not_made_is_asked_for_again() -> None:
    backend = plain([TextGrew("I think "), STOP], [*called("count", '{"n":2}'), STOP])

    response = await run(backend, tools=[LOOSE], tool_choice="required")

    assert response.status == "completed"
    assert [item["type"] for item in response.output] == ["message", "function_call"]
    assert backend.plans[1].must_emulate


async def test_a_grammar_that_is_none_is_refused_before_anything_runs() -> None:
    bad = SUM | {"format": {"type": "grammar", "syntax": "regex", "definition": "("}}
    async with serve_gateway(plain()) as gateway:
        answer = await ask(gateway, tools=[bad])

    assert (answer.status, answer.error["code"]) == (400, "invalid_grammar")
    assert answer.error["param"].startswith("tools[0].format")


FORMAT: Final = {"format": {"type": "json_schema", "name": "n", "schema": SCHEMA, "strict": True}}


@pytest.mark.parametrize(("stream", "is_enforced"), [(True, False), (False, False), (False, True)])
async def test_a_text_against_its_format_is_written_again(stream: bool, is_enforced: bool) -> None:
    enforces = frozenset({"format"} if is_enforced else ())
    scripts: list[list[Delta]] = [
        [TextGrew('{"n":'), TextGrew('"x"}'), STOP],
        [TextGrew('{"n":2}'), STOP],
    ]
    backend = ScriptedBackend(scripts, enforces=enforces)

    response = await run(backend, stream=stream, text=FORMAT)

    assert (response.status, response.output_text) == ("completed", '{"n":2}')
    said, complaint = backend.plans[1].items[-2:]
    assert said["content"] == '{"n":"x"}'
    assert "'n'" in complaint["content"]


async def test_a_text_that_is_wrong_twice_is_told_and_fails() -> None:
    backend = plain([TextGrew("one"), STOP], [TextGrew("two"), STOP])

    response = await run(backend, text=FORMAT)

    assert (response.status, response.output_text) == ("failed", "two")
    assert response.error is not None
    assert response.error.code == "output_format_violated"


async def test_a_right_text_that_was_held_back_is_told_as_it_came() -> None:
    backend = plain([TextGrew('{"n":'), TextGrew("2}"), STOP])

    async with serve_gateway(backend) as gateway:
        events = await ask_stream(gateway, text=FORMAT)

    deltas = [event for event in events if event.type == "response.output_text.delta"]
    assert len(deltas) == 2
    assert len(backend.plans) == 1


async def test_usage_that_one_of_two_runs_did_not_count_is_an_estimate() -> None:
    backend = plain([*custom("no"), counted(10, 2), STOP], [*custom("2 + 2"), STOP])

    response = await run(backend, tools=[SUM])

    assert response.antiphon.usage == "estimated"  # type: ignore[union-attr] # set: it is an estimate

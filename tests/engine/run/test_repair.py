"""What the model said wrong is said again before anybody hears of it."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import aiohttp
import msgspec
import pytest

from antiphon.backends.scripted import ScriptedBackend
from antiphon.protocol.deltas import (
    AnnotationAdded,
    CallGrew,
    CallOpened,
    Delta,
    Stopped,
    TextGrew,
    UsageKnown,
)
from antiphon.protocol.errors import BackendError
from antiphon.protocol.events import ArgumentsDelta
from antiphon.protocol.response import Notes, Response, Usage
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
        (LOOSE, called("count", '{"a":'), called("count", '{"n":2}')),
        (LOOSE, called("count", "[1]"), called("count", '{"n":2}')),
        (LOOSE, called("count", '"two"'), called("count", '{"n":2}')),
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


async def test_a_function_that_is_not_strict_is_not_held_to_its_schema() -> None:
    backend = plain([*called("count", '{"n":"two"}'), STOP])

    response = await run(backend, tools=[LOOSE])

    assert response.output[0]["arguments"] == '{"n":"two"}'
    assert len(backend.plans) == 1


@pytest.mark.parametrize("stream", [True, False])
async def test_arguments_that_are_no_object_twice_are_handed_over_and_reported(
    stream: bool,
) -> None:
    backend = plain([*called("count", "[1]"), STOP], [*called("count", '{"a":'), STOP])

    response = await run(backend, tools=[LOOSE], stream=stream)

    (call,) = response.output
    assert (response.status, call["arguments"]) == ("completed", '{"a":')
    assert isinstance(response.antiphon, Notes)
    assert response.antiphon.repaired == ()
    (note,) = response.antiphon.degraded
    assert call["call_id"] in note
    assert "'count' are no JSON object" in note
    assert len(backend.plans) == 2


@pytest.mark.parametrize("arguments", ["", "  \n"])
@pytest.mark.parametrize("tool", [LOOSE, LOOSE | {"strict": None}])
async def test_no_arguments_are_an_empty_object(tool: dict[str, Any], arguments: str) -> None:
    backend = plain([*called("count", arguments), STOP])

    response = await run(backend, tools=[tool])

    assert response.output[0]["arguments"] == "{}"
    assert len(backend.plans) == 1
    assert response.antiphon == Notes(usage="estimated")


async def test_a_long_call_that_began_as_an_object_grows_as_it_comes() -> None:
    pieces = ['{"text":"', *["word " * 100] * 6, '"}']
    deltas: list[Delta] = [CallOpened(0, "count"), *[CallGrew(0, piece) for piece in pieces]]
    async with serve_gateway(plain([*deltas, STOP])) as gateway:
        events = await ask_stream(gateway, tools=[LOOSE])

    grown = [event.delta for event in events if isinstance(event, ArgumentsDelta)]
    assert grown == ["".join(pieces[:5]), *pieces[5:]]
    assert terminal(events).output[0]["arguments"] == "".join(pieces)


async def test_a_long_call_that_was_sent_and_is_no_object_is_reported_not_repeated() -> None:
    long = '{"text":"' + "word " * 500
    backend = plain([*called("count", long), STOP])

    response = await run(backend, tools=[LOOSE])

    assert response.output[0]["arguments"] == long
    assert isinstance(response.antiphon, Notes)
    assert "are no JSON object" in response.antiphon.degraded[0]
    assert len(backend.plans) == 1


async def test_a_loose_call_cut_short_by_the_limit_is_incomplete_and_not_repaired() -> None:
    backend = plain([*called("count", '{"n":'), Stopped("length")])

    response = await run(backend, tools=[LOOSE])

    (call,) = response.output
    assert (response.status, call["status"]) == ("incomplete", "incomplete")
    assert (call["name"], call["arguments"]) == ("count", '{"n":')
    assert response.antiphon == Notes(usage="estimated")
    assert len(backend.plans) == 1


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


# What the model is shown when it is asked again, and what it may say then.


async def test_the_model_is_shown_its_text_and_the_calls_that_were_handed_on() -> None:
    said = [TextGrew("Both: "), *called("count", '{"n":1}', 0, "a"), *called("sum", "{}", 1, "b")]
    backend = plain([*said, STOP], [*custom("2 + 2"), STOP])

    await run(backend, tools=[LOOSE, SUM])

    text, good, wrong, taken, complaint = backend.plans[1].items[1:]
    assert (text["role"], text["content"]) == ("assistant", "Both: ")
    assert (good["call_id"], good["arguments"], wrong["call_id"]) == ("a", '{"n":1}', "b")
    assert (taken["call_id"], complaint["call_id"]) == ("a", "b")
    assert "not run" in complaint["output"]
    assert "not run" not in taken["output"]


@pytest.mark.parametrize("tool", [STRICT, LOOSE])
async def test_a_call_that_was_handed_on_is_not_handed_on_again(tool: dict[str, Any]) -> None:
    first = [*called("count", '{"n":1}'), *called("sum", '{"input":"no"}', 1)]
    again = [*called("count", '{ "n": 1 }'), *called("sum", '{"input":"2 + 2"}', 1)]
    backend = plain([*first, STOP], [*again, STOP])

    response = await run(backend, tools=[tool, SUM])

    assert [item["type"] for item in response.output] == ["function_call", "custom_tool_call"]


@pytest.mark.parametrize(
    ("first", "again"),
    [
        (called("count", '{"n":"x"}'), custom("two and two")),
        (custom("two and two"), called("count", '{"n":"x"}')),
    ],
)
async def test_asked_again_a_wrong_call_of_another_tool_is_not_told_either(
    first: list[Delta], again: list[Delta]
) -> None:
    backend = plain([*first, STOP], [*again, STOP])

    response = await run(backend, tools=[STRICT, SUM])

    assert (response.status, response.output) == ("failed", [])
    assert response.error is not None
    assert response.error.code == "tool_call_invalid"


async def test_both_runs_together_keep_to_the_limit_of_output_tokens() -> None:
    backend = plain([*custom("no"), counted(9, 80), STOP], [*custom("2 + 2"), STOP])

    await run(backend, tools=[SUM], max_output_tokens=100)

    assert [plan.max_output_tokens for plan in backend.plans] == [100, 20]


async def test_usage_of_both_runs_is_told_when_the_second_breaks_off() -> None:
    broken = BackendError("gone", code="upstream_closed")
    backend = plain([*custom("no"), counted(10, 2), STOP], [counted(20, 3), broken])  # type: ignore[list-item] # a step of a script

    response = await run(backend, tools=[SUM])

    assert response.status == "failed"
    assert (response.usage.input_tokens, response.usage.output_tokens) == (30, 5)  # type: ignore[union-attr] # counted


# What is noted as repaired: only what is right in the end.


async def notes_of(backend: ScriptedBackend, **body: Any) -> Notes:
    response = await run(backend, **body)
    assert isinstance(response.antiphon, Notes)
    return response.antiphon


async def test_of_two_wrong_calls_only_the_one_made_right_is_noted_as_repaired() -> None:
    other = LOOSE | {"name": "other"}
    first = [*called("count", "[1]", 0), *called("other", "[2]", 1)]
    again = [*called("count", '{"n":1}', 0), *called("other", "[2]", 1)]

    notes = await notes_of(plain([*first, STOP], [*again, STOP]), tools=[LOOSE, other])

    assert notes.repaired == ("a call of 'count': the arguments are no JSON object",)
    (note,) = notes.degraded
    assert "of 'other' are no JSON object" in note


async def test_every_call_that_was_made_right_is_noted_as_repaired() -> None:
    first = [*called("count", "[1]", 0), *called("sum", '{"input":"no"}', 1)]
    again = [*called("count", '{"n":1}', 0), *called("sum", '{"input":"2 + 2"}', 1)]

    notes = await notes_of(plain([*first, STOP], [*again, STOP]), tools=[LOOSE, SUM])

    assert [note.split(":")[0] for note in notes.repaired] == [
        "a call of 'count'",
        "a call of 'sum'",
    ]
    assert notes.degraded == ()


async def test_a_wrong_call_answered_in_words_is_reported_as_left_out() -> None:
    notes = await notes_of(plain([*custom("no"), STOP], [TextGrew("Four."), STOP]), tools=[SUM])

    assert notes.repaired == ()
    (note,) = notes.degraded
    assert note.startswith("tools: a call of 'sum' was left out: ")


async def test_a_call_that_fails_the_turn_is_not_noted_as_repaired() -> None:
    notes = await notes_of(plain([*custom("no"), STOP], [*custom("nor this"), STOP]), tools=[SUM])

    assert notes.repaired == ()
    (note,) = notes.degraded
    assert note.startswith("tools: a call of 'sum' was left out: ")


async def test_a_wrong_call_is_reported_when_asking_again_breaks_off() -> None:
    broken = BackendError("gone", code="upstream_closed")
    notes = await notes_of(plain([*custom("no"), STOP], [broken]), tools=[SUM])  # type: ignore[list-item] # a step of a script

    assert notes.repaired == ()
    assert "'sum' was left out" in notes.degraded[0]


@pytest.mark.parametrize(
    ("again", "body"),
    [
        (TextGrew("two"), {"text": FORMAT}),
        (TextGrew("two"), {"tools": [LOOSE], "tool_choice": "required"}),
    ],
)
async def test_an_answer_that_stays_wrong_is_not_noted_as_repaired(
    again: Delta, body: dict[str, Any]
) -> None:
    notes = await notes_of(plain([TextGrew("one"), STOP], [again, STOP]), **body)

    assert notes.repaired == ()


@pytest.mark.parametrize(
    ("again", "body"),
    [
        ([TextGrew('{"n":2}')], {"text": FORMAT}),
        (called("count", '{"n":2}'), {"tools": [LOOSE], "tool_choice": "required"}),
    ],
)
async def test_an_answer_that_is_right_at_last_is_noted_as_repaired(
    again: list[Delta], body: dict[str, Any]
) -> None:
    notes = await notes_of(plain([TextGrew("one"), STOP], [*again, STOP]), **body)

    assert len(notes.repaired) == 1


# When there is no use in asking again.


@pytest.mark.parametrize(
    "calls",
    [
        [*called("count", '{"n":1}', 0), *called("count", '{"n":"x"}', 1)],
        [*called("count", '{"n":"x"}', 0), *called("count", '{"n":1}', 1)],
    ],
)
@pytest.mark.parametrize("strict", ["0", "1"])
async def test_a_wrong_call_beside_the_one_that_is_allowed_is_only_reported(
    calls: list[Delta], strict: str
) -> None:
    backend = plain([*calls, STOP])

    async with serve_gateway(backend) as gateway:
        headers = {"x-antiphon-strict": strict}
        events = await ask_stream(gateway, headers, tools=[STRICT], parallel_tool_calls=False)

    response = terminal(events)
    assert response.status == "completed"
    assert [item["arguments"] for item in response.output] == ['{"n":1}']
    assert "'count' was left out" in response.antiphon.degraded[0]  # type: ignore[union-attr] # reported


async def test_a_wrong_call_in_an_answer_cut_short_is_reported() -> None:
    backend = plain([*called("count", '{"n":"x"}'), TextGrew("and"), Stopped("length")])

    response = await run(backend, tools=[STRICT])

    assert (response.status, response.output_text) == ("incomplete", "and")
    assert "'count' was left out" in response.antiphon.degraded[0]  # type: ignore[union-attr] # reported


async def test_a_call_of_a_tool_that_is_not_there_is_not_the_one_that_is_required() -> None:
    backend = plain([*called("ghost", "{}"), STOP], [*called("count", '{"n":2}'), STOP])

    response = await run(backend, tools=[LOOSE], tool_choice="required")

    assert [item["name"] for item in response.output] == ["count"]


# A text that is held back, beside calls.


@pytest.mark.parametrize("is_enforced", [True, False])
@pytest.mark.parametrize("stream", [True, False])
async def test_what_is_said_before_a_call_comes_before_it_and_needs_no_format(
    stream: bool, is_enforced: bool
) -> None:
    enforces = frozenset({"format"} if is_enforced else ())
    script: list[Delta] = [
        TextGrew("Let me "),
        AnnotationAdded({"type": "url_citation", "url": "https://x.test"}),
        TextGrew("look."),
        *called("count", '{"n":1}'),
        STOP,
    ]
    backend = ScriptedBackend([script], enforces=enforces)

    response = await run(backend, stream=stream, tools=[LOOSE], text=FORMAT)

    assert response.status == "completed"
    message, call = response.output
    assert (message["content"][0]["text"], call["name"]) == ("Let me look.", "count")
    assert len(message["content"][0]["annotations"]) == 1


async def test_a_text_held_back_before_a_wrong_call_is_not_lost() -> None:
    backend = plain([TextGrew("Look."), *custom("no"), STOP], [*custom("2 + 2"), STOP])

    response = await run(backend, tools=[SUM], text=FORMAT)

    assert [item["type"] for item in response.output] == ["message", "custom_tool_call"]


# While it lasts.


async def test_a_stream_begins_when_the_model_speaks_even_if_nothing_can_be_told() -> None:
    go_on = asyncio.Event()
    backend = plain(
        [CallOpened(0, "sum"), CallGrew(0, '{"input":"2'), go_on, CallGrew(0, ' + 2"}'), STOP]  # type: ignore[list-item] # a step of a script
    )
    body = {"input": "x", "tools": [SUM], "stream": True}
    async with (
        asyncio.timeout(30),
        serve_gateway(backend) as gateway,
        aiohttp.ClientSession() as session,
        session.post(f"{gateway.base_url}/responses", json=body) as answer,
    ):
        assert (await answer.content.readline()).startswith(b"event: response.created")
        go_on.set()
        assert b"2 + 2" in await answer.content.read()


async def test_what_was_wrong_is_kept_nowhere() -> None:
    backend = plain(
        [TextGrew("So: "), *custom("wrong"), STOP], [*custom("2 + 2"), STOP], [TextGrew("4"), STOP]
    )
    async with serve_gateway(backend) as gateway:
        response = terminal(await ask_stream(gateway, tools=[SUM]))
        output = {"type": "custom_tool_call_output", "output": "4"}
        output["call_id"] = response.output[-1]["call_id"]
        await ask_stream(gateway, tools=[SUM], previous_response_id=response.id, input=[output])

    kinds = [item["type"] for item in backend.plans[2].items]
    assert kinds == ["message", "message", "custom_tool_call", "custom_tool_call_output"]
    assert backend.plans[2].items[2]["input"] == "2 + 2"


async def test_who_leaves_while_the_model_is_asked_again_stops_it() -> None:
    backend = plain([*custom("no"), STOP], [TextGrew("Well"), asyncio.Event()])  # type: ignore[list-item] # a step of a script
    body = {"input": "x", "tools": [SUM], "stream": True}
    async with serve_gateway(backend) as gateway, aiohttp.ClientSession() as session:
        async with session.post(f"{gateway.base_url}/responses", json=body) as answer:
            while b"Well" not in await answer.content.readline():
                pass
        await asyncio.wait_for(backend.stopped.wait(), 60)
        assert len(backend.plans) == 2

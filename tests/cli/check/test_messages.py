"""`antiphon check --wire-api messages`: a sound server passes, each fault is found by its rule."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from antiphon.cli import main
from antiphon.cli.check.case import Answer
from antiphon.cli.check.messages import rules
from antiphon.cli.check.messages.cases import MESSAGES
from antiphon.cli.check.messages.stream import judge_frames
from antiphon.cli.check.samples import TOOL_NAME
from antiphon.protocol.sse import Frame
from tests.cli.canned import Canned, Json, canned_server
from tests.cli.check.judging import DAMAGES, check, check_canned, replaced, rules_of, stream_of

Damage = Callable[[list[Json]], Any]

_USAGE = {"input_tokens": 3, "output_tokens": 2}
_MODEL = {"type": "model", "id": "m", "display_name": "M", "created_at": "2026-11-17T00:00:00Z"}
_PING: Json = {"type": "ping"}
_ERROR: Json = {"type": "error", "error": {"type": "invalid_request_error", "message": "no"}}


def _start() -> Json:
    message: Json = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": 3, "output_tokens": 0},
    }
    return {"type": "message_start", "message": message}


def _block(index: int, block: Json) -> Json:
    return {"type": "content_block_start", "index": index, "content_block": block}


def _delta(index: int, **delta: str) -> Json:
    return {"type": "content_block_delta", "index": index, "delta": delta}


def _stop(index: int) -> Json:
    return {"type": "content_block_stop", "index": index}


def _end(reason: str) -> list[Json]:
    delta = {"stop_reason": reason, "stop_sequence": None}
    return [
        {"type": "message_delta", "delta": delta, "usage": dict(_USAGE)},
        {"type": "message_stop"},
    ]


def _hello() -> list[Json]:
    return [
        _start(),
        _PING,
        _block(0, {"type": "text", "text": ""}),
        _delta(0, type="text_delta", text="Hel"),
        _delta(0, type="text_delta", text="lo"),
        _stop(0),
        *_end("end_turn"),
    ]


def _two_calls() -> list[Json]:
    events = [_start()]
    for index, city in enumerate(("Paris", "Oslo")):
        call = {"type": "tool_use", "id": f"toolu_{index}", "name": TOOL_NAME, "input": {}}
        events += [
            _block(index, call),
            _delta(index, type="input_json_delta", partial_json='{"city": '),
            _delta(index, type="input_json_delta", partial_json=f'"{city}"}}'),
            _stop(index),
        ]
    return [*events, *_end("tool_use")]


def _frame(event: Json) -> bytes:
    name = str(event.get("type")).encode()
    return b"event: %b\ndata: %b\n\n" % (name, msgspec.json.encode(event))


def _sse(events: list[Json]) -> Canned:
    return stream_of(map(_frame, events))


def _message(**changes: Any) -> Json:
    content = [{"type": "text", "text": "Hello"}]
    whole = {**_start()["message"], "content": content, "stop_reason": "end_turn"}
    return {**whole, "usage": dict(_USAGE), **changes}


def _whole(**changes: Any) -> Canned:
    return Canned(200, msgspec.json.encode(_message(**changes)))


def _lacking(name: str) -> Canned:
    message = _message()
    del message[name]
    return Canned(200, msgspec.json.encode(message))


def _listed(**changes: Any) -> Canned:
    body = {"data": [_MODEL], "has_more": False, "first_id": "m", "last_id": "m", **changes}
    return Canned(200, msgspec.json.encode(body))


def test_our_own_gateway_passes_every_case(runner: CliRunner, gateway_url: str) -> None:
    code, report = check(runner, gateway_url, "messages")
    verdicts = {result["name"]: result["verdict"] for result in report["results"]}
    assert verdicts == {case.name: "pass" for case in MESSAGES.cases}
    assert (code, report["wire_api"], report["model"]) == (0, "messages", "scripted")


def test_a_sound_stream_passes(runner: CliRunner) -> None:
    _, result = check_canned(runner, "messages", "stream", _sse(_hello()))
    assert result["verdict"] == "pass"


def test_new_kinds_of_events_and_deltas_are_passed_over(runner: CliRunner) -> None:
    events = _hello()
    events.insert(3, _delta(0, type="shade_delta", shade="red"))
    events.insert(2, {"type": "weather"})
    _, result = check_canned(runner, "messages", "stream", _sse(events))
    assert result["verdict"] == "pass"


def test_calls_at_once_and_their_results_pass(runner: CliRunner) -> None:
    _, result = check_canned(runner, "messages", "parallel-calls", _sse(_two_calls()), _whole())
    assert result["verdict"] == "pass"


def test_a_sound_list_of_models_passes(runner: CliRunner) -> None:
    _, result = check_canned(runner, "messages", "models", _listed())
    assert result["verdict"] == "pass"


def test_a_stream_that_equals_the_whole_answer_passes(runner: CliRunner) -> None:
    _, result = check_canned(runner, "messages", "stream-equal", _whole(), _sse(_hello()))
    assert result["verdict"] == "pass"


def test_a_key_is_sent_as_anthropic_wants_it(
    runner: CliRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VENDOR_KEY", "secret-of-vendor")
    seen: list[Mapping[str, str]] = []
    with canned_server(lambda *_: _whole(), seen) as base_url:
        check(runner, base_url, "messages", "--key-env", "VENDOR_KEY", "--only", "text")
    assert len(seen) == 3
    assert {headers["x-api-key"] for headers in seen} == {"secret-of-vendor"}
    assert {headers["anthropic-version"] for headers in seen} == {"2023-06-01"}
    assert not any("authorization" in headers for headers in seen)


@pytest.mark.parametrize("status", [400, 401])
def test_a_key_that_the_server_repeats_is_not_shown(
    runner: CliRunner, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    monkeypatch.setenv("VENDOR_KEY", "secret-of-vendor")
    error = {"type": "authentication_error", "message": "bad key secret-of-vendor"}
    refusal = Canned(status, msgspec.json.encode({"type": "error", "error": error}))
    with canned_server(lambda *_: refusal) as base_url:
        result = runner.invoke(
            main,
            ["check", base_url, "--wire-api", "messages", "--key-env", "VENDOR_KEY"],
        )
    assert result.exit_code in (1, 2)
    assert "bad key ***" in result.output
    assert "secret-of-vendor" not in result.output


def _set(at: int, **fields: Any) -> Damage:
    """Return a damage that changes fields of an event."""
    return lambda events: events[at].update(fields)


def _insert(at: int, *added: Json) -> Damage:
    def damage(events: list[Json]) -> None:
        events[at:at] = added

    return damage


def _without(at: int) -> Damage:
    return lambda events: events.pop(at)


@pytest.mark.parametrize(
    ("damage", "rule"),
    [
        (_set(3, type=None), "event_shape"),
        (_set(3, delta={"type": "text_delta"}), "event_shape"),
        (_set(3, delta=None), "event_shape"),
        (_set(2, content_block=None), "event_shape"),
        (_set(0, message=None), "event_shape"),
        (lambda events: events[0]["message"].pop("usage"), "event_shape"),
        (_without(0), "first"),
        (_insert(1, _start()), "first"),
        (lambda events: events[0]["message"].update(content=[{}]), "first"),
        (_set(2, index=1), "block_index"),
        (_insert(4, _block(1, {"type": "text", "text": ""})), "block_open"),
        (lambda events: events.insert(6, events.pop(5)), "block_open"),
        (lambda events: [events.pop(5), events.pop(5)], "block_open"),
        (_without(2), "block_closed"),
        (_set(4, index=1), "block_closed"),
        (_insert(6, _delta(0, type="text_delta", text="!")), "block_closed"),
        (_insert(6, _stop(0)), "block_closed"),
        (_set(2, content_block={"type": "text", "text": "Hel"}), "block_start"),
        (_set(3, delta={"type": "input_json_delta", "partial_json": "{}"}), "delta_type"),
        (_without(6), "message_delta"),
        (_set(6, usage=None), "message_delta"),
        (_insert(6, {**_end("end_turn")[0], "delta": None}), "message_delta"),
        (_set(6, delta={"stop_reason": None}), "message_delta"),
        (_insert(7, _block(1, {"type": "text", "text": ""}), _stop(1)), "message_delta"),
        (_set(6, delta={"stop_reason": "stop", "stop_sequence": None}), "stop_reason"),
        (_set(6, delta={"stop_reason": "tool_use", "stop_sequence": None}), "stop_reason"),
        (_without(7), "stop_missing"),
        (_insert(8, {"type": "message_stop"}), "after_stop"),
        (_insert(8, _PING), "after_stop"),
        (_insert(4, _ERROR), "stream_error"),
        (lambda events: events[0]["message"].update(role="user"), "message_shape"),
        (lambda events: events[0]["message"].pop("id"), "message_shape"),
    ],
)
def test_each_fault_of_a_stream_is_found(runner: CliRunner, damage: Damage, rule: str) -> None:
    events = msgspec.json.decode(msgspec.json.encode(_hello()))
    damage(events)
    code, result = check_canned(runner, "messages", "stream", _sse(events))
    assert (code, result["verdict"]) == (1, "fail")
    assert rule in rules_of(result)


@pytest.mark.parametrize(
    ("damage", "rule"),
    [
        (lambda events: events[5]["content_block"].update(id="toolu_0"), "call_id"),
        (lambda events: events[5]["content_block"].update(id=None), "call_id"),
        (lambda events: events[1]["content_block"].update(name="get_time"), "tool_name"),
        (lambda events: events[1]["content_block"].update(input={"city": "Rome"}), "block_start"),
        (_set(2, delta={"type": "text_delta", "text": "{"}), "delta_type"),
        (_without(3), "arguments"),
        (_without(4), "block_open"),
        (_set(5, index=0), "block_index"),
        (_set(9, delta={"stop_reason": "end_turn", "stop_sequence": None}), "stop_reason"),
    ],
)
def test_each_fault_of_a_call_is_found(runner: CliRunner, damage: Damage, rule: str) -> None:
    events = _two_calls()
    damage(events)
    code, result = check_canned(runner, "messages", "parallel-calls", _sse(events))
    assert (code, result["verdict"]) == (1, "fail")
    assert rule in rules_of(result)


def test_calls_that_are_open_at_once_are_found(runner: CliRunner) -> None:
    events = _two_calls()
    events[4], events[5] = events[5], events[4]
    _, result = check_canned(runner, "messages", "parallel-calls", _sse(events))
    assert "block_open" in rules_of(result)


def test_a_frame_without_its_name_is_found(runner: CliRunner) -> None:
    stream = stream_of(b"data: %b\n\n" % msgspec.json.encode(event) for event in _hello())
    _, result = check_canned(runner, "messages", "stream", stream)
    assert rules_of(result) == {"event_name"}


def test_the_end_marker_of_other_apis_is_found(runner: CliRunner) -> None:
    stream = stream_of([*map(_frame, _hello()), b"data: [DONE]\n\n"])
    _, result = check_canned(runner, "messages", "stream", stream)
    assert rules_of(result) == {"event_shape"}


@pytest.mark.parametrize(
    ("case", "answers", "rule"),
    [
        ("text", [Canned(200, b"oops")], "message_shape"),
        ("text", [_whole(type="response")], "message_shape"),
        ("text", [_whole(content=["Hello"])], "message_shape"),
        ("text", [_whole(content=[{"type": "text", "text": ""}])], "message_shape"),
        ("text", [_whole(content=[{"type": "text"}])], "message_shape"),
        ("text", [_lacking("stop_sequence")], "message_shape"),
        ("text", [_whole(content=[])], "text"),
        ("text", [_whole(stop_reason=None)], "stop_reason"),
        ("text", [_whole(usage={"input_tokens": 3})], "usage"),
        ("stream", [_whole()], "content_type"),
        ("stream-equal", [_whole(stop_sequence="."), _sse(_hello())], "stream_equal"),
        (
            "stream-equal",
            [_whole(usage={"input_tokens": 4, "output_tokens": 2}), _sse(_hello())],
            "stream_equal",
        ),
        ("tool-required", [_sse(_hello())], "tool_required"),
        ("tool-auto", [_sse([_start(), *_end("end_turn")])], "output"),
        ("max-tokens", [_sse([*_hello()[:-2], *_end("stop_sequence")])], "limit"),
        ("count-tokens", [Canned(200, b'{"tokens": 3}')], "token_count"),
        ("models", [_listed(data=None)], "models_shape"),
        ("models", [_listed(data=[{"id": "m", "object": "model"}])], "models_shape"),
        ("models", [Canned(200, msgspec.json.encode({"data": [_MODEL]}))], "models_shape"),
        ("unknown-model", [_whole()], "status"),
        ("unknown-model", [Canned(404, msgspec.json.encode(_ERROR))], "error_type"),
        ("bad-body", [Canned(400, b'{"error": {"message": "no"}}')], "error_shape"),
        (
            "bad-body",
            [Canned(400, b'{"type": "error", "error": {"type": "invalid_request_error"}}')],
            "error_shape",
        ),
        ("not-json", [Canned(422, msgspec.json.encode(_ERROR))], "status"),
    ],
)
def test_what_is_wrong_with_an_answer_is_found(
    runner: CliRunner, case: str, answers: list[Canned], rule: str
) -> None:
    code, result = check_canned(runner, "messages", case, *answers)
    assert (code, result["verdict"]) == (1, "fail")
    assert rule in rules_of(result)


@pytest.mark.parametrize(
    ("case", "answers", "reason"),
    [
        ("max-tokens", [_sse(_hello())], "stopped by itself within 16 tokens"),
        ("count-tokens", [Canned(404, msgspec.json.encode(_ERROR))], "no"),
        ("image", [Canned(400, msgspec.json.encode(_ERROR))], "no"),
        ("image", [_whole()._replace(headers={"x-antiphon-degraded": "image"})], "left the image"),
    ],
)
def test_what_cannot_be_judged_is_skipped(
    runner: CliRunner, case: str, answers: list[Canned], reason: str
) -> None:
    code, result = check_canned(runner, "messages", case, *answers)
    assert (code, result["verdict"]) == (0, "skip")
    assert reason in result["reason"]


def test_the_judge_survives_any_wrong_value() -> None:
    for stream in (_hello(), _two_calls()):
        for damage in DAMAGES:
            for events in replaced(stream, damage):
                frames = [Frame("", msgspec.json.encode(event)) for event in events]
                message, _ = judge_frames(frames)
                if message is not None:
                    _apply_rules(message)


def test_the_rules_survive_any_wrong_value() -> None:
    for damage in DAMAGES:
        for body in replaced(_message(), damage):
            message, _ = rules.judge_whole(Answer(status=200, body=body))
            if message is not None:
                _apply_rules(message)


def _apply_rules(message: Json) -> None:
    answer = Answer(status=200, result=message, previous=Answer(status=200, result=message))
    rules.stand_ins(answer)
    for expectation in (
        rules.is_finished,
        rules.has_output,
        rules.calls_are_sound,
        rules.equals_the_whole,
    ):
        list(expectation(answer))

"""`antiphon check --wire-api chat`: a sound server passes, and each fault is found by its rule."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from antiphon.cli.check.case import Answer
from antiphon.cli.check.chat import rules
from antiphon.cli.check.chat.cases import CHAT
from antiphon.cli.check.chat.stream import judge_frames
from antiphon.cli.check.samples import TOOL_NAME
from antiphon.protocol.sse import Frame
from tests.cli.canned import Canned, Json
from tests.cli.check.judging import DAMAGES, check, check_canned, replaced, rules_of, stream_of
from tests.cli.processes import Served

Damage = Callable[[list[Json]], Any]

_DONE = b"data: [DONE]\n\n"
_USAGE = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
_ERROR = {"error": {"message": "no", "type": "t", "param": None, "code": "c"}}
_MESSAGE: Json = {"role": "assistant", "content": "Hello"}
_NO_ID: Json = {"type": "function", "function": {"name": TOOL_NAME, "arguments": "{}"}}


def _chunk(delta: Json, finish_reason: str | None = None) -> Json:
    choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
    return {**_head("chat.completion.chunk"), "choices": [choice]}


def _head(kind: str) -> Json:
    return {"id": "chatcmpl-1", "object": kind, "created": 1, "model": "m"}


def _piece(index: int, arguments: str, **first: Any) -> Json:
    function = {"arguments": arguments}
    if first:
        function["name"] = TOOL_NAME
        first["type"] = "function"
    return {"tool_calls": [{"index": index, **first, "function": function}]}


def _counted() -> Json:
    return {**_head("chat.completion.chunk"), "choices": [], "usage": dict(_USAGE)}


def _hello() -> list[Json]:
    return [
        _chunk({"role": "assistant", "content": ""}),
        _chunk({"content": "Hel"}),
        _chunk({"content": "lo"}),
        _chunk({}, "stop"),
        _counted(),
    ]


def _two_calls() -> list[Json]:
    return [
        _chunk({"role": "assistant", "content": None}),
        _chunk(_piece(0, "", id="call_a")),
        _chunk(_piece(0, '{"city": "Paris"}')),
        _chunk(_piece(1, '{"city": ', id="call_b")),
        _chunk(_piece(1, '"Oslo"}')),
        _chunk({}, "tool_calls"),
        _counted(),
    ]


def _sse(chunks: list[Json], end: bytes = _DONE) -> Canned:
    return stream_of([*(b"data: %b\n\n" % msgspec.json.encode(chunk) for chunk in chunks), end])


def _whole(**changes: Any) -> Canned:
    body = {**_head("chat.completion"), "choices": _choice(), "usage": _USAGE, **changes}
    return Canned(200, msgspec.json.encode(body))


def _choice(**changes: Any) -> list[Json]:
    return [{"index": 0, "message": _MESSAGE, "finish_reason": "stop", **changes}]


def _refusal(**changes: Any) -> Canned:
    return Canned(400, msgspec.json.encode({"error": {**_ERROR["error"], **changes}}))


def test_our_own_gateway_passes_every_case(runner: CliRunner, gateway_url: str) -> None:
    code, report = check(runner, gateway_url, "chat")
    verdicts = {result["name"]: result["verdict"] for result in report["results"]}
    assert verdicts == {case.name: "pass" for case in CHAT.cases}
    assert (code, report["wire_api"], report["model"]) == (0, "chat", "scripted")


def test_a_model_that_makes_one_call_is_not_blamed_for_it(runner: CliRunner, echo: Served) -> None:
    code, report = check(runner, echo.base_url, "chat", "--only", "parallel-calls")
    assert code == 0
    assert report["results"][0]["reason"] == "the model made one call where two were asked for"


def test_a_sound_stream_passes(runner: CliRunner) -> None:
    _, result = check_canned(runner, "chat", "stream", _sse(_hello()))
    assert result["verdict"] == "pass"


def test_calls_at_once_and_their_results_pass(runner: CliRunner) -> None:
    _, result = check_canned(runner, "chat", "parallel-calls", _sse(_two_calls()), _whole())
    assert result["verdict"] == "pass"


def _set(at: int, **fields: Any) -> Damage:
    """Return a damage that changes fields of a chunk."""
    return lambda chunks: chunks[at].update(fields)


def _delta(at: int, **fields: Any) -> Damage:
    """Return a damage that changes fields of a delta."""
    return lambda chunks: chunks[at]["choices"][0]["delta"].update(fields)


def _call(at: int, **fields: Any) -> Damage:
    """Return a damage that changes fields of a piece of a call."""
    return lambda chunks: chunks[at]["choices"][0]["delta"]["tool_calls"][0].update(fields)


def _insert(index: int, *chunks: Json) -> Damage:
    def damage(stream: list[Json]) -> None:
        stream[index:index] = chunks

    return damage


def _without(index: int) -> Damage:
    return lambda chunks: chunks.pop(index)


@pytest.mark.parametrize(
    ("damage", "rule"),
    [
        (_set(1, object="chat.completion"), "chunk_shape"),
        (_set(1, created="now"), "chunk_shape"),
        (_set(1, choices=None), "chunk_shape"),
        (_delta(1, content=["Hel"]), "chunk_shape"),
        (_set(1, choices=[{"index": 0}]), "chunk_shape"),
        (_delta(1, tool_calls={}), "chunk_shape"),
        (lambda chunks: chunks[3]["choices"][0].update(finish_reason=7), "chunk_shape"),
        (_set(2, id="chatcmpl-2"), "chunk_same"),
        (_set(2, model="other"), "chunk_same"),
        (lambda chunks: chunks[1]["choices"][0].update(index=1), "choice_index"),
        (_without(0), "role"),
        (_delta(2, role="user"), "role"),
        (_without(3), "finish_missing"),
        (_insert(4, _chunk({}, "stop")), "after_finish"),
        (_insert(4, _chunk({"content": "!"})), "after_finish"),
        (_insert(4, {**_head("chat.completion.chunk"), "choices": []}), "after_finish"),
        (lambda chunks: chunks[3]["choices"][0].update(finish_reason="end"), "finish_reason"),
        (
            lambda chunks: chunks[3]["choices"][0].update(finish_reason="tool_calls"),
            "finish_reason",
        ),
        (_set(3, usage=_USAGE), "usage_chunk"),
        (lambda chunks: chunks[3].update(chunks.pop(4) | chunks[3]), "usage_chunk"),
        (_without(3), "usage_chunk"),
        (_set(4, usage=7), "usage_chunk"),
        (_insert(4, _counted()), "usage_chunk"),
        (_insert(1, _counted()), "usage_chunk"),
        (_without(4), "usage"),
        (_set(4, usage={"total_tokens": 5}), "usage"),
        (lambda chunks: [chunks.pop(1), chunks.pop(1)], "text"),
        (_set(4, usage={**_USAGE, "total_tokens": 9}), "usage"),
        (_insert(2, _ERROR), "stream_error"),
    ],
)
def test_each_fault_of_a_stream_is_found(runner: CliRunner, damage: Damage, rule: str) -> None:
    chunks = _hello()
    damage(chunks)
    code, result = check_canned(runner, "chat", "stream", _sse(chunks))
    assert (code, result["verdict"]) == (1, "fail")
    assert rule in rules_of(result)


@pytest.mark.parametrize(
    ("damage", "rule"),
    [
        (_call(3, index=2), "call_index"),
        (_call(1, index=None), "call_index"),
        (_call(2, function=None), "chunk_shape"),
        (_call(2, function={"arguments": {}}), "chunk_shape"),
        (_call(1, id=None), "call_begin"),
        (_call(1, type=None), "call_begin"),
        (_call(1, function={"arguments": ""}), "call_begin"),
        (_call(4, id="call_c"), "call_begin"),
        (_call(3, id="call_a"), "call_id"),
        (_call(1, function={"name": "get_time", "arguments": ""}), "tool_name"),
        (_without(4), "arguments"),
        (lambda chunks: chunks[5]["choices"][0].update(finish_reason="stop"), "finish_reason"),
    ],
)
def test_each_fault_of_a_call_is_found(runner: CliRunner, damage: Damage, rule: str) -> None:
    chunks = _two_calls()
    damage(chunks)
    code, result = check_canned(runner, "chat", "parallel-calls", _sse(chunks))
    assert (code, result["verdict"]) == (1, "fail")
    assert rule in rules_of(result)


@pytest.mark.parametrize("end", [b"", _DONE + _DONE, _DONE + b'data: {"choices": []}\n\n'])
def test_the_end_marker_comes_once_and_last(runner: CliRunner, end: bytes) -> None:
    _, result = check_canned(runner, "chat", "stream", _sse(_hello(), end))
    assert "done_marker" in rules_of(result)


def test_a_stream_that_fails_is_not_asked_for_an_end_marker(runner: CliRunner) -> None:
    _, result = check_canned(runner, "chat", "stream", _sse([*_hello()[:2], _ERROR], b""))
    assert rules_of(result) == {"stream_error"}


@pytest.mark.parametrize(
    ("case", "answers", "rule"),
    [
        ("text", [Canned(200, b"oops")], "completion_shape"),
        ("text", [_whole(object="completion")], "completion_shape"),
        ("text", [_whole(choices=[])], "completion_shape"),
        ("text", [_whole(choices=_choice(message=None))], "completion_shape"),
        ("text", [_whole(choices=_choice(message={"role": "assistant"}))], "completion_shape"),
        ("text", [_whole(id=None)], "completion_shape"),
        ("text", [_whole(choices=_choice(message=_MESSAGE | {"role": "user"}))], "role"),
        (
            "text",
            [_whole(choices=_choice(message=_MESSAGE | {"tool_calls": [{}]}))],
            "completion_shape",
        ),
        ("text", [_whole(choices=_choice(finish_reason=None))], "finish_missing"),
        ("tool-auto", [_sse([_hello()[0], *_hello()[3:]])], "output"),
        (
            "tool-whole",
            [_whole(choices=_choice(message=_MESSAGE | {"tool_calls": [_NO_ID]}))],
            "call_id",
        ),
        ("text", [_whole(choices=_choice(index=1))], "choice_index"),
        ("text", [_whole(usage=None)], "usage"),
        ("stream", [_whole()], "content_type"),
        (
            "stream-equal",
            [_whole(usage={**_USAGE, "prompt_tokens": 4, "total_tokens": 6}), _sse(_hello())],
            "stream_equal",
        ),
        ("tool-required", [_sse(_hello())], "tool_required"),
        ("json-schema", [_sse(_hello())], "json_schema"),
        (
            "json-schema",
            [_sse([_chunk({"role": "assistant", "content": '{"legs": 2}'}), *_hello()[3:]])],
            "json_schema",
        ),
        (
            "max-tokens",
            [
                _sse(
                    [
                        *_hello()[:4],
                        {
                            **_counted(),
                            "usage": {
                                "prompt_tokens": 3,
                                "completion_tokens": 20,
                                "total_tokens": 23,
                            },
                        },
                    ]
                )
            ],
            "limit",
        ),
        ("models", [Canned(200, b'{"data": [{"id": "m"}]}')], "models_shape"),
        ("models", [Canned(200, b'{"object": "list", "data": ["m"]}')], "models_shape"),
        ("models", [Canned(200, b'{"object": "list", "data": [{"id": "m"}]}')], "models_shape"),
        ("unknown-model", [_whole()], "status"),
        ("bad-body", [Canned(422, msgspec.json.encode(_ERROR))], "status"),
        ("bad-body", [Canned(400, b'{"detail": "no"}')], "error_shape"),
        ("bad-body", [Canned(400, b'{"error": {"message": "no"}}')], "error_shape"),
        ("bad-body", [_refusal(message="")], "error_shape"),
    ],
)
def test_what_is_wrong_with_an_answer_is_found(
    runner: CliRunner, case: str, answers: list[Canned], rule: str
) -> None:
    code, result = check_canned(runner, "chat", case, *answers)
    assert (code, result["verdict"]) == (1, "fail")
    assert rule in rules_of(result)


@pytest.mark.parametrize(
    ("case", "answers", "reason"),
    [
        ("max-tokens", [_sse(_hello())], "stopped by itself within 16 tokens"),
        ("image", [Canned(400, msgspec.json.encode(_ERROR))], "no"),
        (
            "image",
            [_whole()._replace(headers={"x-antiphon-degraded": "image: no eyes"})],
            "no eyes",
        ),
        (
            "stream-equal",
            [
                _whole(choices=_choice(message={"role": "assistant", "content": "Hi"})),
                _sse(_hello()),
            ],
            "two different answers",
        ),
    ],
)
def test_what_cannot_be_judged_is_skipped(
    runner: CliRunner, case: str, answers: list[Canned], reason: str
) -> None:
    code, result = check_canned(runner, "chat", case, *answers)
    assert (code, result["verdict"]) == (0, "skip")
    assert reason in result["reason"]


def test_an_answer_in_place_of_a_refusal_is_not_called_a_refusal(runner: CliRunner) -> None:
    _, result = check_canned(runner, "chat", "unknown-model", _whole())
    assert result["findings"] == [
        {"rule": "status", "detail": "the server answered HTTP 200; expected HTTP 404"}
    ]


def test_a_fault_is_not_hidden_by_what_cannot_be_judged(runner: CliRunner) -> None:
    message = {"role": "assistant", "content": "Hi"}
    whole = _whole(choices=_choice(message=message), model="other")
    code, result = check_canned(runner, "chat", "stream-equal", whole, _sse(_hello()))
    assert (code, rules_of(result)) == (1, {"stream_equal"})


def test_the_judge_survives_any_wrong_value() -> None:
    for stream in (_hello(), _two_calls()):
        for damage in DAMAGES:
            for chunks in replaced(stream, damage):
                frames = [Frame("", msgspec.json.encode(chunk)) for chunk in chunks]
                completion, _ = judge_frames(frames)
                if completion is not None:
                    _apply_rules(completion)


def test_the_rules_survive_any_wrong_value() -> None:
    for damage in DAMAGES:
        for body in replaced(msgspec.json.decode(_whole().body), damage):
            completion, _ = rules.judge_whole(Answer(status=200, body=body))
            if completion is not None:
                _apply_rules(completion)


def _apply_rules(completion: Json) -> None:
    answer = Answer(status=200, result=completion, previous=Answer(status=200, result=completion))
    rules.stand_ins(answer)
    for expectation in (
        rules.is_finished,
        rules.has_output,
        rules.has_usage,
        rules.calls_are_sound,
        rules.equals_the_whole,
    ):
        list(expectation(answer))

"""What refusals mean."""

from __future__ import annotations

import json

import pytest

from antiphon.protocol.errors import ContextOverflow
from antiphon.wires.faults import fault_from_body, fault_from_json, has_error


def body(message: str, **fields: object) -> bytes:
    return json.dumps({"error": {"message": message, **fields}}).encode()


@pytest.mark.parametrize(
    "message",
    [
        "This model's maximum context length is 4097 tokens. However, your messages had 5000.",
        "The decoder prompt (length 9000) is longer than the maximum model length of 4096.",
        "The input (5000 tokens) is longer than the model's context length (4096 tokens).",
        "the request exceeds the available context size, try increasing it",
        "Trying to keep the first 5000 tokens when context the overflows. context overflows",
        "`inputs` tokens + `max_new_tokens` must be <= 4096. Given: 4000 `inputs` tokens",
        "Prompt contains 40000 tokens, too large for model with 32768 maximum context length",
        "prompt is too long: 210000 tokens > 200000 maximum",
        "input length and `max_tokens` exceed context limit: 199000 + 8000 > 200000",
        "The input token count (1100000) exceeds the maximum number of tokens allowed (1048576).",
        "Invalid request: Your request exceeded model token limit: 8192",
        "This model's maximum prompt length is 131072 but the request contains 140000 tokens.",
        "Range of input length should be [1, 30720]",
    ],
)
@pytest.mark.parametrize("status", [400, 413, 422, 500])
def test_a_context_that_is_too_long_is_known_by_its_words(message: str, status: int) -> None:
    error = fault_from_body(status, body(message))
    assert isinstance(error, ContextOverflow)
    assert (error.status, error.message) == (400, message)


@pytest.mark.parametrize(
    "fields", [{"code": "context_length_exceeded"}, {"type": "exceed_context_size_error"}]
)
def test_a_context_that_is_too_long_is_known_by_its_code(fields: dict[str, str]) -> None:
    assert isinstance(fault_from_body(400, body("no", **fields)), ContextOverflow)


def test_too_large_a_limit_on_the_answer_is_no_overflow() -> None:
    message = "max_tokens is too large: 9000. This model supports at most 4096 completion tokens"
    error = fault_from_body(400, body(message, code="invalid_value", param="max_tokens"))
    assert (error.status, error.code, error.param) == (400, "invalid_value", "max_tokens")


@pytest.mark.parametrize(
    ("status", "raw"),
    [
        (404, body("The model `x` does not exist.", code=404)),
        (404, body("model 'x' not found", type="api_error")),
        (400, body("no", code="model_not_found")),
        (400, body("Invalid model: x")),
        (400, body("model `org/x-1.5` not found, try pulling it first")),
        (404, body("No endpoints found for this model")),
    ],
)
def test_a_model_that_is_not_there(status: int, raw: bytes) -> None:
    error = fault_from_body(status, raw)
    assert (error.status, error.code, error.param) == (404, "model_not_found", "model")


def test_something_else_that_the_model_lacks_is_another_mistake() -> None:
    error = fault_from_body(400, body("this model takes no tools; field not found", code="x"))
    assert (error.status, error.code) == (400, "x")


@pytest.mark.parametrize(
    ("status", "raw"),
    [
        (402, body("Insufficient Balance")),
        (429, body("You exceeded your current quota, check your plan", code=None)),
        (429, body("no", type="insufficient_quota")),
    ],
)
def test_an_account_without_money(status: int, raw: bytes) -> None:
    error = fault_from_body(status, raw, retry_after=3.0)
    assert (error.status, error.code, error.retry_after) == (429, "insufficient_quota", None)


def test_a_rate_limit_passes_on_when_to_come_back() -> None:
    error = fault_from_body(429, body("slow down", type="tokens"), retry_after=3.0)
    assert (error.status, error.code, error.retry_after) == (429, "rate_limit_exceeded", 3.0)
    assert error.message == "slow down"


def test_the_callers_mistake_keeps_message_code_and_param() -> None:
    raw = body("bad temperature", code="invalid_value", param="temperature", type="x")
    for status in (400, 422):
        error = fault_from_body(status, raw)
        assert (error.status, error.type) == (400, "invalid_request_error")
        assert (error.message, error.code, error.param) == (
            "bad temperature",
            "invalid_value",
            "temperature",
        )


@pytest.mark.parametrize("status", [401, 403])
def test_a_key_that_is_not_accepted_is_not_the_callers_fault(status: int) -> None:
    error = fault_from_body(status, body("Incorrect API key provided: sk-ab***yz"))
    assert (error.status, error.code) == (502, "upstream_auth")
    assert status == 403 or "sk-ab" not in error.message


@pytest.mark.parametrize(
    ("status", "ours", "code"),
    [
        (302, 502, "upstream_invalid_response"),
        (404, 502, "upstream_refused"),
        (405, 502, "upstream_refused"),
        (408, 504, "upstream_error"),
        (500, 502, "upstream_error"),
        (503, 503, "upstream_overloaded"),
        (504, 504, "upstream_error"),
        (529, 503, "upstream_overloaded"),
    ],
)
def test_every_other_status_is_a_fault_of_the_upstream(status: int, ours: int, code: str) -> None:
    error = fault_from_body(status, b"<html>proxy</html>")
    assert (error.status, error.code) == (ours, code)
    assert "html" not in error.message


@pytest.mark.parametrize(
    "raw",
    [
        b'{"error":"it broke"}',
        b'{"detail":"it broke"}',
        b'{"message":"it broke","object":"error","code":400}',
        b'[{"error":{"message":"it broke","status":"INVALID_ARGUMENT"}}]',
    ],
)
def test_messages_are_found_where_servers_put_them(raw: bytes) -> None:
    assert fault_from_body(400, raw).message == "it broke"


def test_a_list_of_details_is_shown_as_it_is() -> None:
    raw = b'{"detail":[{"loc":["body","x"],"msg":"field required"}]}'
    assert "field required" in fault_from_body(422, raw).message


@pytest.mark.parametrize("raw", [b"", b"[]", b"null", b"1", b"\xff", b"[" * 100_000])
def test_bodies_that_say_nothing_do_no_harm(raw: bytes) -> None:
    assert fault_from_body(500, raw).status == 502


def test_a_long_message_is_cut() -> None:
    assert len(fault_from_body(400, body("x" * 100_000)).message) == 2000


@pytest.mark.parametrize(
    ("value", "status"),
    [
        ({"error": {"message": "m", "code": 429}}, 429),
        ({"error": {"message": "m", "code": "503"}}, 503),
        ({"error": {"message": "m", "type": "overloaded_error"}}, 503),
        ({"error": {"message": "m", "type": "invalid_request_error"}}, 400),
        ({"error": {"message": "m"}}, 502),
        ({"error": "m"}, 502),
        ("m", 502),
    ],
)
def test_an_error_in_mid_stream_finds_its_status(value: object, status: int) -> None:
    error = fault_from_json(value)
    assert error.status == status
    assert error.message.endswith("m")


def test_an_error_is_told_from_an_answer() -> None:
    assert has_error({"error": {"message": "m"}})
    assert has_error({"object": "error"})
    assert not has_error({"error": None, "choices": []})
    assert not has_error([])

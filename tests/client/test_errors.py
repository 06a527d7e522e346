"""Errors: what an answer amounts to, in the words of whoever must act on it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

import antiphon
from antiphon.client import errors
from antiphon.client.errors import (
    error_from_answer,
    error_from_body,
    error_from_event,
    error_from_stream,
    error_from_transport,
)
from antiphon.protocol.errors import (
    AntiphonError,
    BackendError,
    BrokenStream,
    CallerError,
    PeerFault,
)
from antiphon.protocol.events import ErrorEvent
from antiphon.transport.secret import Secret

_UNREADABLE = "upstream_invalid_response"
CLASSES = [
    value
    for value in vars(errors).values()
    if isinstance(value, type) and issubclass(value, errors.ClientError)
]


def told(status: int, body: bytes, thread: str | None = None) -> errors.ClientError:
    return error_from_answer(status, body, {}, thread=thread)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"error":{"message":"m"}}', "m"),
        (b'{"error":"m"}', "m"),
        (b'{"detail":"m"}', "m"),
        (b'{"message":"m"}', "m"),
        (b"<h1>m</h1>", "<h1>m</h1>"),
        (b"[1]", "[1]"),
        (b'{"error":[]}', '{"error":[]}'),
        (b"", "it gave no reason"),
    ],
)
def test_the_reason_is_found_in_any_shape(body: bytes, message: str) -> None:
    assert str(told(400, body)) == f"the server refused (HTTP 400): {message}"


@pytest.mark.parametrize(
    ("status", "body", "thread", "expected"),
    [
        (400, b'{"error":{"code":"previous_response_not_found"}}', None, errors.ThreadGone),
        (404, b'{"error":{"message":"no previous_response"}}', "resp_1", errors.ThreadGone),
        (404, b'{"error":{"message":"Conversation gone"}}', "conv_1", errors.ThreadGone),
        (404, b'{"error":{"message":"no previous_response"}}', None, errors.ResourceNotFound),
        (404, b'{"error":{"message":"no model m"}}', "resp_1", errors.ResourceNotFound),
        (410, b"", None, errors.ThreadGone),
        (529, b"", None, errors.ServerFailed),
        (400, b'{"error":{"message":"prompt is too long"}}', None, errors.ContextTooLong),
        (429, b'{"error":"insufficient credit"}', None, errors.QuotaExceeded),
        (520, b"", None, errors.ServerFailed),
        (413, b"", None, errors.ServerRefused),
    ],
)
def test_an_answer_is_what_it_says_it_is(
    status: int, body: bytes, thread: str | None, expected: type[errors.ClientError]
) -> None:
    assert type(told(status, body, thread)) is expected


VLLM = "Response with id 'resp_1' not found."
LLAMA = "llama.cpp does not support 'previous_response_id'."


@pytest.mark.requirement("22-C5")
@pytest.mark.parametrize(
    ("status", "error"),
    [
        (404, {"message": VLLM, "param": "response_id", "code": 404}),
        (404, {"message": "Response resp_1 is gone"}),
        (400, {"message": LLAMA, "code": 400, "type": "invalid_request_error"}),
        (400, {"message": "Previous response with id 'resp_1' not found."}),
        (400, {"message": "Unknown parameter", "param": "previous_response_id"}),
        (400, {"message": "Unrecognized request argument supplied: conversation"}),
        (422, {"message": "Unknown parameter: 'conversation'."}),
        (500, {"message": "the previous response was lost"}),
        (400, {"message": "Conversation with id 'c' does not exist."}),
    ],
)
def test_a_thread_is_gone_in_any_words(status: int, error: dict[str, Any]) -> None:
    body = msgspec.json.encode({"error": error})

    gone = told(status, body, "resp_1")

    assert isinstance(gone, errors.ThreadGone)
    assert (gone.status, gone.thread) == (status, "resp_1")
    assert not isinstance(told(status, body), errors.ThreadGone)


@pytest.mark.parametrize(
    ("status", "error", "expected"),
    [
        (404, {"message": "The model `m` does not exist"}, errors.ResourceNotFound),
        (
            404,
            {"message": "no model conversation-7b", "code": "model_not_found"},
            errors.ResourceNotFound,
        ),
        (404, {"message": "Response with id 'resp_12' not found."}, errors.ResourceNotFound),
        (400, {"message": "Conversation roles must alternate"}, errors.ValidationFailed),
        (500, {"message": "Conversation roles must alternate"}, errors.ServerFailed),
        (400, {"message": "bad input", "param": "input"}, errors.ValidationFailed),
        (409, {"message": "the conversation is busy"}, errors.Conflict),
        (503, {"message": "previous_response_id store is down"}, errors.ServerFailed),
    ],
)
def test_a_thread_that_is_not_to_blame_is_not_gone(
    status: int, error: dict[str, Any], expected: type[errors.ClientError]
) -> None:
    assert type(told(status, msgspec.json.encode({"error": error}), "resp_1")) is expected


# What is shown.

PROMPT = "MY SECRET PROMPT"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            {"detail": [{"loc": ["body", "input", 0], "msg": "not a string", "input": PROMPT}]},
            "body.input.0: not a string",
        ),
        (
            {"detail": [{"msg": "a", "input": PROMPT}, {"loc": ["b"], "input": PROMPT}]},
            "a; b",
        ),
        ({"detail": [{"input": PROMPT}]}, "it gave no reason"),
        ({"error": [PROMPT]}, "it gave no reason"),
        ({"errors": [{"message": "a", "input": PROMPT}]}, "a"),
        ({"error": {"message": [{"loc": ["x"], "msg": "a", "input": PROMPT}]}}, "x: a"),
        (
            {
                "error": {
                    "message": "1 validation error:\n  {'type': 'missing', 'loc': ('body', 'a', 0),"
                    " 'msg': 'Field required', 'input': {'b': 'MY SECRET PROMPT'}} "
                    "[{'type': 'missing', 'loc': ('body', 'a', 0), 'msg': 'Field required', "
                    "'input': {'b': 'MY SECRET PROMPT'}}, {'type': 'x', 'loc': ('c',), "
                    "'msg': \"can't be\", 'input': 'MY SECRET PROMPT'}]"
                }
            },
            "body.a.0: Field required; c: can't be",
        ),
        (
            {"error": {"message": "{'loc': 'a', 'input': 'MY SECRET PROMPT'}"}},
            "{'loc': 'a', ",
        ),
        (
            {"error": {"message": "a [type=t, input_value='MY SECRET PROMPT', input_type=str]"}},
            "a [type=t, input_type=str]",
        ),
        ({"error": {"message": "the field 'input': not a list"}}, "the field 'input': not a list"),
    ],
)
def test_what_was_sent_is_not_shown(body: dict[str, Any], message: str) -> None:
    error = told(422, msgspec.json.encode(body))
    assert error.message == f"the server refused (HTTP 422): {message}"


@pytest.mark.parametrize("shape", ["{}", '{{"error":{{"message":"{}","code":"{}"}}}}'])
@pytest.mark.parametrize("length", range(490, 501))
def test_a_key_is_taken_out_before_the_text_is_cut(shape: str, length: int) -> None:
    secret = Secret("key-abcdefgh")
    for before in (length, length + 1500):
        text = "x" * before + secret.reveal()

        error = error_from_answer(401, shape.format(text, text).encode(), {}, redact=secret.redact)

        assert "key-" not in f"{error.message} {error.code}"


# An error under a 200.


@pytest.mark.parametrize(
    ("body", "status", "expected"),
    [
        ({"error": {"message": "slow down", "code": 429}}, 429, errors.RateLimited),
        ({"error": {"message": "slow", "type": "rate_limit_error"}}, 429, errors.RateLimited),
        ({"error": {"message": "m", "code": "insufficient_quota"}}, 429, errors.QuotaExceeded),
        ({"error": {"message": "prompt is too long", "code": 400}}, 400, errors.ContextTooLong),
        ({"error": {"message": "m", "code": "invalid_api_key"}}, 401, errors.AuthFailed),
        ({"error": {"message": "m", "code": "403"}}, 403, errors.AuthFailed),
        ({"error": {"message": "m", "code": 500}}, 500, errors.ServerFailed),
        ({"error": {"message": "m", "code": 422}}, 422, errors.ValidationFailed),
        ({"error": {"message": "m"}}, 502, errors.ServerFailed),
        ({"error": "m"}, 502, errors.ServerFailed),
        ({"object": "error", "message": "m", "code": 404}, 404, errors.ResourceNotFound),
        (
            {"error": {"message": "m", "code": "previous_response_not_found"}},
            404,
            errors.ThreadGone,
        ),
    ],
)
def test_an_answer_may_be_an_error_whatever_its_status(
    body: dict[str, Any], status: int, expected: type[errors.ClientError]
) -> None:
    headers = {"x-request-id": "req_1", "retry-after": "3"}
    error = error_from_body(msgspec.json.encode(body), headers)

    assert type(error) is expected
    assert (error.status, error.request_id, error.retry_after) == (status, "req_1", 3.0)
    assert error.message.startswith("the server answered with an error: ")
    assert "upstream" not in error.message


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>",
        b"[]",
        b"{}",
        b'{"id":"r","error":null}',
        b'{"id":"r","object":"response","status":"failed","error":{"message":"m"}}',
        b'{"id":"r","output":[],"error":"m"}',
    ],
)
def test_an_answer_is_no_error(body: bytes) -> None:
    assert error_from_body(body, {}) is None


# Faults below.


@pytest.mark.parametrize(
    ("fault", "status", "expected"),
    [
        ({"code": 429, "message": "m"}, 429, errors.RateLimited),
        ({"code": "insufficient_quota", "message": "m"}, 429, errors.QuotaExceeded),
        ({"message": "maximum context length is 10"}, 400, errors.ContextTooLong),
        ({"code": "model_not_found", "message": "m"}, 404, errors.ResourceNotFound),
        ({"code": 401, "message": "m"}, 401, errors.AuthFailed),
        ({"code": 403, "message": "m"}, 403, errors.AuthFailed),
        ({"code": 400, "message": "m", "param": "p"}, 400, errors.ValidationFailed),
        ({"code": 413, "message": "m"}, 413, errors.ServerRefused),
        ({"code": 409, "message": "m"}, 409, errors.Conflict),
        ({"code": 404, "message": "m"}, 404, errors.ResourceNotFound),
        ({"code": 503, "message": "m"}, 503, errors.ServerFailed),
        ({"message": "m"}, 502, errors.ServerFailed),
    ],
)
def test_an_error_event_in_place_of_an_answer_has_the_status_it_names(
    fault: dict[str, Any], status: int, expected: type[errors.ClientError]
) -> None:
    code = str(fault["code"]) if "code" in fault else None
    event = ErrorEvent(
        "m" if code else fault["message"], code, fault.get("param"), sequence_number=0
    )
    error = error_from_event(event, {"x-request-id": "req_1"})

    assert type(error) is expected
    assert (error.status, error.code, error.param) == (status, code, fault.get("param"))
    assert error.request_id == "req_1"


def test_the_type_of_an_error_event_counts_as_well() -> None:
    event = ErrorEvent("no", "key_7", None, "authentication_error", sequence_number=0)
    assert type(error_from_event(event, {})) is errors.AuthFailed


def test_what_is_wrong_is_named_and_the_wait_is_kept() -> None:
    fault = BackendError("m", code="c", status=400, param="p", retry_after=2.0)
    error = error_from_transport(fault)
    assert (error.code, error.param, error.retry_after) == ("c", "p", 2.0)


def test_a_fault_of_the_transport_has_no_status() -> None:
    fault = BackendError("the upstream did not answer", code="upstream_timeout", status=504)
    assert error_from_transport(fault).status == 0


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("upstream_unreachable", errors.ServerUnreachable),
        ("upstream_timeout", errors.TimedOut),
        ("upstream_invalid_response", errors.InvalidAnswer),
        ("upstream_closed", errors.StreamBroken),
        ("something_else", errors.ServerFailed),
    ],
)
def test_the_transport_speaks_of_the_server(code: str, expected: type[errors.ClientError]) -> None:
    error = error_from_transport(BackendError("the upstream fell over", code=code))

    assert type(error) is expected
    assert error.message == "the server fell over"
    assert error.code == code.replace("upstream", "server")


def test_the_tree_in_the_docstring_is_the_tree_there_is() -> None:
    tree = errors.__doc__ or ""
    missing = [cls.__name__ for cls in CLASSES if f"── {cls.__name__} " not in tree]
    assert missing == []
    assert issubclass(errors.ClientError, AntiphonError)


@pytest.mark.parametrize("error", [BrokenStream("no JSON"), BackendError("m", code=_UNREADABLE)])
def test_an_answer_that_becomes_unreadable_is_a_broken_stream(
    error: BackendError | BrokenStream,
) -> None:
    found = error_from_stream(error)
    assert (type(found), found.code) == (errors.StreamBroken, errors.UNREADABLE)


def test_every_error_is_the_callers_mistake_or_the_peers_fault() -> None:
    leaves = [cls for cls in CLASSES if cls is not errors.ClientError]
    branches = [(issubclass(c, CallerError), issubclass(c, PeerFault)) for c in leaves]
    assert set(branches) == {(True, False), (False, True)}
    assert issubclass(errors.BadCall, CallerError)
    assert issubclass(errors.StreamBroken, PeerFault)


def test_the_base_of_all_errors_is_in_the_package() -> None:
    assert antiphon.AntiphonError is AntiphonError
    assert issubclass(errors.ClientError, antiphon.AntiphonError)


def test_what_is_wrong_with_a_call_is_a_value_error_and_a_timeout_a_timeout() -> None:
    assert issubclass(errors.BadCall, ValueError)
    assert issubclass(errors.TimedOut, TimeoutError)

"""Errors as a user reads them: a code, a sentence, an action, and never a key."""

from __future__ import annotations

from pathlib import Path

import pytest

from antiphon.client import errors as client_errors
from antiphon.host import Message
from antiphon.host import errors as host_errors
from antiphon.host.bridge.client import BridgeError, Log, Notice, Options, Tool
from antiphon.host.bridge.faults import fault_of
from antiphon.protocol.deltas import TextGrew
from antiphon.protocol.response import Response
from antiphon.wires.host.messages import ErrorCode
from tests.building import COUNTED, STOP
from tests.cli.processes import closed_port
from tests.client.native import Answer, native, response
from tests.client.native import error as refusal
from tests.host.bridge.bridging import bridge, read_all, stream_of
from tests.host.streams import call_item, created, done, end

HELLO = [Message.user("Hello")]
KEY = "sk-very-secret-0123456789"
CUT = response(TextGrew("half an ans"), COUNTED, STOP).pieces[:5]
FAILED = {"code": "content_filter", "message": "this was filtered"}


@pytest.mark.parametrize(
    ("answer", "code", "words", "action"),
    [
        (refusal(400, None, "bad things"), "bad_request", "bad things", ""),
        (refusal(400, "context_length_exceeded"), "context_too_long", "too long", "Shorten"),
        (refusal(401, "invalid_api_key"), "auth_failed", "does not accept the key", "Set the key"),
        (refusal(403), "auth_failed", "does not accept the key", "Set the key"),
        (refusal(404, "model_not_found", "no model m"), "not_found", "no model m", "Choose"),
        (refusal(429, "insufficient_quota"), "quota_exceeded", "No credit", "Add credit"),
        (refusal(500, None, "oh dear"), "server_failed", "oh dear", "Ask again"),
        (Answer(pieces=[b"<html>"], content_type="text/html"), "invalid_answer", "html", "URL"),
        (Answer(pieces=CUT), "stream_cut", "broke off", "Ask again"),
        (
            stream_of(created(), end(kind="failed", error=FAILED)),
            "blocked",
            "this was filtered",
            "other words",
        ),
        (
            stream_of(created(), end(kind="failed", error=FAILED | {"code": "server_error"})),
            "response_failed",
            "this was filtered",
            "Ask again",
        ),
        (
            stream_of(created(), done(call_item(arguments="{")), end(call_item(arguments="{"))),
            "malformed_call",
            "cannot be run",
            "Ask again",
        ),
        (
            stream_of(created(), end()),
            "empty_answer",
            "no output",
            "Ask again",
        ),
    ],
)
async def test_each_failure_has_its_code_a_sentence_and_an_action(
    tmp_path: Path, answer: Answer, code: ErrorCode, words: str, action: str
) -> None:
    async with native(answer) as server, bridge(tmp_path, server.base_url) as client:
        with pytest.raises(BridgeError) as caught:
            await read_all(client.respond("m", HELLO))
        assert await client.count("m", ["still here"])
    fault = caught.value.fault
    assert fault.code == code
    assert words in fault.message
    assert fault.message[0].isupper() and fault.message.endswith(".")
    assert action in fault.action
    if answer.status != 200:
        assert fault.status == answer.status


async def test_the_time_to_wait_is_passed_on(tmp_path: Path) -> None:
    limited = refusal(429, "rate_limit_exceeded", "slow down", retry_after="120")
    async with native(limited) as server, bridge(tmp_path, server.base_url) as client:
        with pytest.raises(BridgeError) as caught:
            await read_all(client.respond("m", HELLO))
    fault = caught.value.fault
    assert (fault.code, fault.status, fault.retry_after) == ("rate_limited", 429, 120.0)
    assert len(server.requests) == 1


async def test_a_server_that_is_not_there_says_how_to_start_one(tmp_path: Path) -> None:
    with closed_port() as port:
        async with bridge(tmp_path, f"http://127.0.0.1:{port}/v1") as client:
            for ask in (client.models(), read_all(client.respond("m", HELLO))):
                with pytest.raises(BridgeError) as caught:
                    await ask
                assert caught.value.fault.code == "unreachable"
                assert "antiphon serve" in caught.value.fault.action


async def test_a_request_that_cannot_be_sent_is_refused(tmp_path: Path) -> None:
    twice = Options(tools=[Tool("a", "A."), Tool("a", "A.")])
    async with native(Answer(pieces=[])) as server, bridge(tmp_path, server.base_url) as client:
        for options in (twice, Options(tool_mode="required"), Options(model_options={"x": 1})):
            with pytest.raises(BridgeError) as caught:
                await read_all(client.respond("m", HELLO, options))
            assert caught.value.fault.code == "bad_request"
    assert not server.requests


@pytest.mark.parametrize("place", ["hello", "environment"])
async def test_the_key_is_sent_and_never_shown(tmp_path: Path, place: str) -> None:
    """The server repeats it, and the log has every line."""
    notices: list[Notice] = []
    given = {"api_key": KEY} if place == "hello" else {}
    environ = {"ANTIPHON_API_KEY": KEY} if place == "environment" else {}
    answers = [
        refusal(401, "invalid_api_key", f"the key {KEY} is wrong"),
        stream_of(created(), end(kind="failed", error={"code": "x", "message": f"no {KEY}"})),
    ]
    async with (
        native(*answers) as server,
        bridge(
            tmp_path,
            server.base_url,
            listen=notices.append,
            environ=environ,
            log_level="debug",
            **given,
        ) as client,
    ):
        faults = []
        for _ in answers:
            with pytest.raises(BridgeError) as caught:
                await read_all(client.respond("m", HELLO))
            faults.append(caught.value.fault)
    assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"
    assert any(isinstance(notice, Log) for notice in notices)
    assert KEY not in str([faults, notices])


def _subclasses(base: type[Exception]) -> set[type[Exception]]:
    return {base}.union(*(_subclasses(cls) for cls in base.__subclasses__()))


def test_every_error_of_client_and_host_is_in_the_table() -> None:
    """Only errors of our own are `internal`."""
    bases = {client_errors.ClientError, host_errors.HostError}
    known = [
        cls
        for cls in _subclasses(client_errors.ClientError) | _subclasses(host_errors.HostError)
        if cls.__module__.startswith("antiphon.") and cls not in bases
    ]
    assert len(known) > 20
    for cls in known:
        error = cls.__new__(cls)
        error.message = error.code = ""  # type: ignore[attr-defined]
        for name in ("status", "retry_after"):
            setattr(error, name, 0)
        assert fault_of(error).code != "internal", cls


def test_a_bug_of_ours_shows_its_kind_and_not_its_message() -> None:
    fault = fault_of(KeyError("a secret text"))
    assert (fault.code, fault.message) == ("internal", "The bridge has failed: KeyError.")
    assert fault.action


def test_a_response_that_failed_for_a_known_reason_has_the_code_of_it() -> None:
    failed = host_errors.ResponseFailed("rate_limit_exceeded", "later", Response(id="r", model="m"))
    assert fault_of(failed).code == "rate_limited"

"""`antiphon check`: a sound server passes, and each lie is found under its rule."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result

from antiphon.cli import main
from antiphon.cli.check.case import Case
from antiphon.cli.check.chat.cases import CHAT
from antiphon.cli.check.messages.cases import MESSAGES
from antiphon.cli.check.responses.cases import CASES
from antiphon.protocol.machines.referee import RULES
from tests.cli.canned import (
    Canned,
    Json,
    canned_server,
    hello_events,
    hello_response,
    sse,
    unnamed,
)
from tests.cli.processes import Served, closed_port

_REFERENCE = Path(__file__).parents[3] / "docs" / "reference" / "cli.md"
_SOURCE = Path(__file__).parents[3] / "src" / "antiphon" / "cli" / "check"
_ERROR = b'{"error": {"message": "no", "type": "t", "param": null, "code": "c"}}'

Damage = Callable[[list[Json]], Canned]


def _check(runner: CliRunner, base_url: str, *arguments: str) -> Result:
    return runner.invoke(main, ["check", base_url, *arguments])


def _report(runner: CliRunner, base_url: str, *arguments: str) -> tuple[int, Json]:
    result = _check(runner, base_url, "--json", *arguments)
    return result.exit_code, msgspec.json.decode(result.stdout)


def _broken(stream: Canned) -> Callable[[str, str, Json], Canned]:
    """Return a server that lists no models and always streams the same."""

    def answer(method: str, path: str, body: Json) -> Canned:
        if path == "/models":
            return Canned(404, _ERROR)
        return stream if body.get("stream") else Canned(200, hello_response())

    return answer


def test_our_own_gateway_passes_every_case(runner: CliRunner, echo: Served) -> None:
    code, report = _report(runner, echo.base_url)
    verdicts = {result["name"]: result["verdict"] for result in report["results"]}
    assert verdicts == {case.name: "pass" for case in CASES}
    assert (code, report["passed"], report["failed"]) == (0, len(CASES), 0)
    assert report["model"] == "scripted"


def test_the_table_has_a_row_for_each_case_and_a_sum(runner: CliRunner, echo: Served) -> None:
    result = _check(runner, echo.base_url)
    lines = result.stdout.splitlines()
    assert result.exit_code == 0
    assert lines[-1] == f"{len(CASES)} passed, 0 failed, 0 skipped"
    assert all(any(f"  {case.name} " in line for line in lines) for case in CASES)


def test_only_the_chosen_cases_run(runner: CliRunner, echo: Served) -> None:
    _, report = _report(runner, echo.base_url, "--only", "text", "--only", "delete")
    assert [result["name"] for result in report["results"]] == ["text", "delete"]


def test_an_unknown_case_is_told_with_the_known_ones(runner: CliRunner) -> None:
    result = _check(runner, "http://127.0.0.1:1/v1", "--only", "nope")
    assert result.exit_code == 2
    assert "there is no case 'nope'; the cases are text, stream," in result.stderr


def _without(kind: str) -> Damage:
    return lambda events: sse([event for event in events if event["type"] != kind])


def _changed(index: int, change: Callable[[Json], Any]) -> Damage:
    def damage(events: list[Json]) -> Canned:
        change(events[index])
        return sse(events)

    return damage


@pytest.mark.parametrize(
    ("damage", "rule"),
    [
        (lambda events: sse(events[:-1]), "terminal_missing"),
        (lambda events: sse(events[1:]), "first"),
        (_without("response.output_text.done"), "sequence"),
        (_changed(2, lambda event: event.update(output_index=1)), "item_index"),
        (_changed(4, lambda event: event.update(delta="Hal")), "text_equal"),
        (_changed(-1, lambda event: event["response"].update(id="resp_2")), "response_id"),
        (_changed(-1, lambda event: event["response"].update(output=[])), "terminal_output"),
        (_changed(-1, lambda event: event["response"].update(usage=None)), "terminal_usage"),
        (_changed(3, lambda event: event.update(item_id=7)), "event_shape"),
        (lambda events: sse([*events, events[-1]]), "terminal_once"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_each_lie_of_a_stream_is_found_under_its_rule(
    runner: CliRunner, damage: Damage, rule: str
) -> None:
    with canned_server(_broken(damage(hello_events()))) as base_url:
        code, report = _report(runner, base_url, "--only", "stream")
    [result] = report["results"]
    assert code == 1
    assert result["verdict"] == "fail"
    assert rule in [finding["rule"] for finding in result["findings"]]


def test_the_table_shows_the_rule_and_the_event(runner: CliRunner) -> None:
    events = hello_events()
    events[4]["delta"] = "Hal"
    with canned_server(_broken(sse(events))) as base_url:
        result = _check(runner, base_url, "--only", "stream")
    assert result.exit_code == 1
    assert "fail  stream " in result.stdout
    assert "text_equal: response.output_text.done: " in result.stdout
    assert '        at #6 {"type":"response.output_text.done"' in result.stdout


@pytest.mark.parametrize(
    ("stream", "case", "rule"),
    [
        (unnamed(hello_events()), "stream-frames", "event_name"),
        (sse(hello_events(), end=b""), "stream-frames", "done_marker"),
        (sse(hello_events(), end=b"data: [DONE]\n\ndata: {}\n\n"), "stream-frames", "done_marker"),
        (Canned(200, hello_response()), "stream", "content_type"),
        (sse(hello_events()[:5], end=b"", cut=True), "stream", "connection"),
        (sse(hello_events()), "tool-required", "tool_required"),
        (sse(hello_events()), "json-schema", "json_schema"),
    ],
)
def test_what_is_wrong_around_the_events_is_found_too(
    runner: CliRunner, stream: Canned, case: str, rule: str
) -> None:
    with canned_server(_broken(stream)) as base_url:
        code, report = _report(runner, base_url, "--only", case)
    [result] = report["results"]
    assert code == 1
    assert [finding["rule"] for finding in result["findings"]] == [rule]


def _always(said: Canned) -> Callable[[str, str, Json], Canned]:
    return lambda method, path, body: Canned(404, _ERROR) if path == "/models" else said


def _lacking(*names: str) -> Canned:
    body = msgspec.json.decode(hello_response())
    for name in names:
        del body[name]
    return Canned(200, msgspec.json.encode(body))


@pytest.mark.parametrize(
    ("said", "case", "rule"),
    [
        (Canned(500, b"oops"), "text", "status"),
        (Canned(200, b"oops"), "text", "response_shape"),
        (_lacking("usage"), "text", "response_shape"),
        (Canned(200, hello_response()), "unknown-previous", "status"),
        (Canned(400, _ERROR), "unknown-previous", "error_code"),
        (Canned(422, _ERROR), "bad-body", "status"),
        (Canned(400, b'{"detail": "no"}'), "bad-body", "error_shape"),
        (Canned(200, hello_response()), "delete", "deleted"),
        (Canned(400, b"plain text"), "image", "status"),
    ],
)
def test_what_is_wrong_with_an_answer_is_found(
    runner: CliRunner, said: Canned, case: str, rule: str
) -> None:
    with canned_server(_always(said)) as base_url:
        code, report = _report(runner, base_url, "--only", case)
    [result] = report["results"]
    assert code == 1
    assert rule in [finding["rule"] for finding in result["findings"]]


def test_a_stored_response_that_differs_from_the_stream_is_found(runner: CliRunner) -> None:
    def answer(method: str, path: str, body: Json) -> Canned:
        if method == "POST":
            return sse(hello_events())
        stored = msgspec.json.decode(hello_response())
        stored["output"][0]["content"][0]["text"] = "Goodbye"
        return (
            Canned(404, _ERROR) if path == "/models" else Canned(200, msgspec.json.encode(stored))
        )

    with canned_server(answer) as base_url:
        code, report = _report(runner, base_url, "--only", "retrieve")
    [finding] = report["results"][0]["findings"]
    assert (code, finding["rule"]) == (1, "stored_equal")
    assert finding["detail"].startswith("output was ")


@pytest.mark.parametrize(
    ("said", "case", "reason"),
    [
        (Canned(501, _ERROR), "text", "the server failed (HTTP 501): no"),
        (Canned(400, _ERROR), "image", "the server refused (HTTP 400): no"),
        (Canned(405, _ERROR), "retrieve", "the server refused (HTTP 405): no"),
        (sse(hello_events()), "max-output-tokens", "stopped by itself within 16 tokens"),
    ],
)
def test_what_a_server_does_not_do_is_skipped_with_the_reason(
    runner: CliRunner, said: Canned, case: str, reason: str
) -> None:
    def answer(method: str, path: str, body: Json) -> Canned:
        if case == "retrieve" and method == "POST":
            return sse(hello_events())
        return said

    with canned_server(answer) as base_url:
        code, report = _report(runner, base_url, "--model", "m", "--only", case)
    [result] = report["results"]
    assert (code, result["verdict"]) == (0, "skip")
    assert reason in result["reason"]


def test_a_server_that_stores_nothing_is_not_blamed_for_it(runner: CliRunner) -> None:
    events = hello_events()
    events[-1]["response"]["store"] = False
    with canned_server(_broken(sse(events))) as base_url:
        _, report = _report(runner, base_url, "--only", "continue")
    assert "store: false" in report["results"][0]["reason"]


def test_a_server_that_says_nothing_cannot_be_checked(runner: CliRunner) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        result = _check(runner, f"http://127.0.0.1:{port}/v1", "--timeout", "0.2")
    assert result.exit_code == 2
    assert "did not answer within 0.2 s" in result.stderr


@pytest.mark.parametrize(
    ("case", "said"),
    [("text", Canned(200, b"{", stall=True)), ("stream", sse(hello_events())._replace(stall=True))],
)
def test_an_answer_that_does_not_end_is_a_failure(
    runner: CliRunner, case: str, said: Canned
) -> None:
    with canned_server(_always(said)) as base_url:
        code, report = _report(runner, base_url, "--only", case, "--timeout", "0.3")
    [finding] = report["results"][0]["findings"]
    assert (code, finding["rule"]) == (1, "timeout")


def test_an_image_that_was_left_out_is_not_called_a_pass(runner: CliRunner) -> None:
    body = msgspec.json.decode(hello_response())
    body["antiphon"] = {"degraded": ["input[0].content[1] (input_image): no eyes"]}
    with canned_server(_always(Canned(200, msgspec.json.encode(body)))) as base_url:
        _, report = _report(runner, base_url, "--only", "image")
    assert report["results"][0]["verdict"] == "skip"
    assert "no eyes" in report["results"][0]["reason"]


def test_nobody_there_is_exit_code_2(runner: CliRunner) -> None:
    with closed_port() as port:
        result = _check(runner, f"http://127.0.0.1:{port}/v1")
    assert result.exit_code == 2
    assert result.stderr == (
        f"Error: no server answers at http://127.0.0.1:{port}/v1 (connection refused); "
        f"start one with `antiphon serve --port {port}`\n"
    )


def test_a_server_that_wants_a_key_says_how_to_pass_one(runner: CliRunner) -> None:
    with canned_server(lambda *_: Canned(401, _ERROR)) as base_url:
        result = _check(runner, base_url)
    assert result.exit_code == 2
    assert "pass --key-env NAME" in result.stderr


def test_a_key_that_is_refused_says_where_it_comes_from(
    runner: CliRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VENDOR_KEY", "not-good")
    with canned_server(lambda *_: Canned(401, _ERROR)) as base_url:
        result = _check(runner, base_url, "--key-env", "VENDOR_KEY")
    assert result.exit_code == 2
    assert result.stderr.endswith("; the key is read from VENDOR_KEY\n")


def test_a_server_that_speaks_no_http_cannot_be_checked(runner: CliRunner) -> None:
    with canned_server(lambda *_: Canned(200, b"", {"A\nB C": "\n\n"})) as base_url:
        result = _check(runner, base_url)
    assert result.exit_code == 2


def test_a_list_that_cannot_be_read_does_not_keep_from_checking(runner: CliRunner) -> None:
    def answer(method: str, path: str, body: Json) -> Canned:
        return Canned(200, b"<p>" if path == "/models" else hello_response())

    with canned_server(answer) as base_url:
        code, report = _report(runner, base_url, "--only", "text")
    assert (code, report["model"]) == (0, None)


def test_a_key_variable_that_is_not_set_is_told(runner: CliRunner) -> None:
    result = _check(runner, "http://127.0.0.1:1/v1", "--key-env", "NOPE")
    assert result.exit_code == 2
    assert "NOPE is not set" in result.stderr


@pytest.mark.parametrize(("table", "cases"), [(1, CASES), (2, CHAT.cases), (3, MESSAGES.cases)])
def test_the_reference_lists_the_cases_of_each_api(table: int, cases: Sequence[Case]) -> None:
    text = _REFERENCE.read_text().split("| case |")[table]
    rows = re.findall(r"^\| `([\w-]+)` \| (.+) \|$", text.partition("\n\n")[0], re.MULTILINE)
    assert rows == [(case.name, case.about) for case in cases]


def test_the_reference_lists_the_rules() -> None:
    text = _REFERENCE.read_text()
    code = "".join(path.read_text() for path in _SOURCE.rglob("*.py"))
    own = set(re.findall(r'Finding\(\s*"(\w+)"', code))
    assert {rule for rule in own - set(RULES) if f"`{rule}`" not in text} == set()


def test_the_judges_share_no_code_with_our_encoders() -> None:
    code = "".join(path.read_text() for path in _SOURCE.rglob("*.py"))
    assert "antiphon.wires" not in code


@pytest.mark.parametrize("refusal", [Canned(404, b"<h1>404</h1>"), Canned(405, _ERROR)])
def test_a_server_of_chat_completions_is_reported_in_one_sentence(
    runner: CliRunner, refusal: Canned
) -> None:
    def answer(method: str, path: str, body: Json) -> Canned:
        if path == "/models":
            return Canned(200, b'{"data": [{"id": "m"}]}')
        return refusal

    with canned_server(answer) as base_url:
        result = _check(runner, base_url)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr == (
        f"Error: {base_url} has no /responses (HTTP {refusal.status}), so there is nothing to "
        f"check; if it speaks chat completions, check those with --wire-api chat; `antiphon serve "
        f"--upstream {base_url}` gives it the Responses API\n"
    )


@pytest.mark.parametrize(
    ("wire_api", "path"), [("chat", "/chat/completions"), ("messages", "/messages")]
)
def test_a_server_without_the_api_is_reported_in_one_sentence(
    runner: CliRunner, wire_api: str, path: str
) -> None:
    with canned_server(lambda *_: Canned(404, b"<h1>404</h1>")) as base_url:
        result = _check(runner, base_url, "--wire-api", wire_api)
    assert result.exit_code == 2
    assert result.stderr == (
        f"Error: {base_url} has no {path} (HTTP 404), so there is nothing to check; --wire-api "
        "names the API to check\n"
    )


def test_an_unknown_model_is_not_taken_for_a_missing_api(runner: CliRunner) -> None:
    refusal = Canned(404, b'{"error": {"message": "The model `m` does not exist"}}')
    with canned_server(lambda *_: refusal) as base_url:
        code, report = _report(runner, base_url, "--only", "text")
    assert (code, report["failed"]) == (1, 1)

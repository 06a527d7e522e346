"""One fault, one wording: what a person is told about a server, in whichever command."""

from __future__ import annotations

import pytest

from antiphon.cli.errors import CliError
from antiphon.cli.remote import (
    Server,
    ending,
    explain,
    is_loopback,
    is_silent,
    keyed_server,
    own_server,
)
from antiphon.client.errors import (
    AuthFailed,
    ResourceNotFound,
    ServerUnreachable,
    StreamBroken,
    error_from_answer,
)
from antiphon.client.settings import WireApi
from antiphon.gateway.errors import BadSettings, how_to_install
from antiphon.host.errors import ResponseFailed
from antiphon.protocol.errors import AntiphonError
from antiphon.protocol.response import IncompleteDetails, Response

_AWAY = ServerUnreachable("the server at http://x cannot be reached: its name is not known")


@pytest.mark.parametrize(
    ("base_url", "advice"),
    [
        ("http://127.0.0.1:4680/v1", "start one with `antiphon serve`"),
        ("http://localhost:5000/v1", "start one with `antiphon serve --port 5000`"),
        ("http://[::1]:4680/v1", "start one with `antiphon serve`"),
        ("http://127.0.0.1/v1", "start one with `antiphon serve --port 80`"),
        ("https://api.example.com/v1", "check the URL and the network"),
        ("http://192.168.0.7:4680/v1", "check the URL and the network"),
    ],
)
def test_only_a_server_of_this_machine_can_be_started(base_url: str, advice: str) -> None:
    assert explain(_AWAY, Server(base_url)) == (
        f"no server answers at {base_url} (its name is not known); {advice}"
    )
    assert is_loopback(base_url) == ("start" in advice)


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (
            StreamBroken("the server closed the connection: its answer is cut off"),
            "the answer is cut off: the server closed the connection",
        ),
        (StreamBroken("it hung\nup"), "the answer is cut off: it hung up"),
        (ResponseFailed(None, "", None), "the response failed: no reason given"),
        (
            AuthFailed("who?", status=401),
            "who?; the key is read from ANTIPHON_API_KEY, else OPENAI_API_KEY",
        ),
        (AuthFailed("not you", status=403), "not you"),
    ],
)
def test_a_fault_is_one_sentence(error: AntiphonError, sentence: str) -> None:
    assert explain(error, Server("http://x/v1")) == sentence


@pytest.mark.parametrize(
    ("asked", "hint"),
    [("chat", "leave out --wire-api chat"), ("responses", "--wire-api chat`"), (None, "GET /x")],
)
def test_a_path_that_is_missing_has_a_hint_of_what_was_meant(
    asked: WireApi | None, hint: str
) -> None:
    body = b'{"error": {"message": "there is no GET /x", "code": "unknown_url"}}'
    error = error_from_answer(404, body, {})
    assert explain(error, Server("http://x/v1"), asked).endswith(hint)


def test_a_model_that_is_missing_is_no_path_that_is_missing() -> None:
    error = ResourceNotFound("The model 'x' does not exist", status=404)
    assert explain(error, Server("http://x/v1"), "chat") == "The model 'x' does not exist"


@pytest.mark.parametrize(
    ("response", "sentence"),
    [
        (Response(id="r", status="completed"), ""),
        (Response(id="r", status="failed"), "the response failed: no reason given"),
        (Response(id="r", status="incomplete"), "the answer is incomplete: no reason given"),
        (
            Response(
                id="r", status="incomplete", incomplete_details=IncompleteDetails("content_filter")
            ),
            "the answer is incomplete: content_filter",
        ),
        (Response(id="r", status="cancelled"), "the response was cancelled by the server"),
        (Response(id="r", status="in_progress"), "the response ended as in_progress"),
    ],
)
def test_an_ending_is_told(response: Response, sentence: str) -> None:
    assert ending(response) == sentence


def test_thoughts_alone_are_no_answer() -> None:
    thought = {"type": "reasoning", "summary": []}
    said = {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "refusal", "refusal": "n"}],
    }
    assert is_silent(Response(id="r", output=[thought]))
    assert not is_silent(Response(id="r", output=[thought, said]))
    assert not is_silent(Response(id="r", output=[{"type": "function_call"}]))


def test_a_key_is_the_first_that_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    assert own_server("http://127.0.0.1:4680").key is None
    monkeypatch.setenv("OPENAI_API_KEY", "two")
    monkeypatch.setenv("ANTIPHON_API_KEY", " ")
    key = own_server("http://127.0.0.1:4680").key
    assert key is not None
    assert key.reveal() == "two"


def test_a_key_that_cannot_be_sent_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VENDOR_KEY", "a\nb")
    with pytest.raises(BadSettings, match="VENDOR_KEY does not hold a key"):
        keyed_server(
            "http://127.0.0.1:1/v1", "VENDOR_KEY", url_flag="--base-url", key_flag="--key-env"
        )


def test_an_error_is_one_line() -> None:
    assert CliError("one\ntwo").format_message() == "one two"


def test_an_extra_is_installed_from_a_clone() -> None:
    assert how_to_install("plot") == "`pip install '.[plot]'` in antiphon's directory"

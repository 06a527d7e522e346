"""Webhooks in the settings: what can be used, and what is refused before anything starts."""

from __future__ import annotations

import base64
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import Queue
from threading import Thread

import pytest
from openai import OpenAI

from antiphon.gateway.config import Settings, Webhook
from antiphon.gateway.endpoints import read_endpoints
from antiphon.gateway.errors import BadSettings
from tests.cli.processes import ECHO, WATCHDOG_SECONDS, serve

_SECRET = "whsec_" + base64.b64encode(b"k" * 32).decode()
_OTHER = "whsec_" + base64.b64encode(b"o" * 32).decode()
_ENVIRON = {"HOOK": _SECRET, "BOTH": f"{_SECRET} {_OTHER}\n", "BAD": "whsec_short", "EMPTY": " "}


def _settings(url: str = "https://a.example/x", secret_env: str = "HOOK", **more: bool) -> Settings:
    return Settings(webhooks=(Webhook(url=url, secret_env=secret_env, **more),))  # type: ignore[arg-type]


def _refusal(settings: Settings) -> str:
    with pytest.raises(BadSettings) as caught:
        read_endpoints(settings, _ENVIRON)
    assert "whsec_s" not in caught.value.message
    return caught.value.message


def test_an_endpoint_has_the_secret_that_its_variable_holds() -> None:
    (endpoint,) = read_endpoints(_settings(), _ENVIRON)
    assert endpoint.url == "https://a.example/x"
    assert [secret.reveal() for secret in endpoint.secrets] == [_SECRET]


def test_two_secrets_in_a_variable_are_both_used() -> None:
    (endpoint,) = read_endpoints(_settings(secret_env="BOTH"), _ENVIRON)
    assert [secret.reveal() for secret in endpoint.secrets] == [_SECRET, _OTHER]


@pytest.mark.parametrize(
    "url",
    ["", "a.example", "ftp://a.example", "https://", "https://a b/", "http://[::1", "http://a:x/"],
)
def test_what_is_no_url_is_refused(url: str) -> None:
    assert "url must look like https://example.com/hook" in _refusal(_settings(url))


def test_a_password_in_a_url_is_refused_unsaid() -> None:
    message = _refusal(_settings("https://me:whsec_s@a.example/"))
    assert "must not hold a name or password" in message


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "10.0.0.1", "[::1]", "127.1", "169.254.169.254"]
)
def test_an_inner_address_needs_leave(host: str) -> None:
    url = f"http://{host}:8000/hook"
    assert "set allow_private = true" in _refusal(_settings(url))
    (endpoint,) = read_endpoints(_settings(url, allow_private=True), _ENVIRON)
    assert endpoint.allow_private


@pytest.mark.parametrize("url", ["http://1.1.1.1/", "https://[2606:4700::1111]/", "http://inner/"])
def test_public_addresses_and_names_need_none(url: str) -> None:
    assert len(read_endpoints(_settings(url), _ENVIRON)) == 1


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("GONE", "GONE is not set; `antiphon keys webhook` makes a secret for it"),
        ("EMPTY", "EMPTY is not set"),
        ("BAD", "BAD holds no secret"),
        ("whsec_secret", "name the environment variable that holds the secret, not the secret"),
        ("not a name", "name the environment variable that holds the secret, not the secret"),
    ],
)
def test_a_variable_without_a_secret_is_refused(name: str, complaint: str) -> None:
    assert complaint in _refusal(_settings(secret_env=name))


def test_one_url_is_one_endpoint() -> None:
    twice = Settings(webhooks=_settings().webhooks * 2)
    assert "the url at https://a.example is listed twice" in _refusal(twice)


def test_a_server_tells_the_endpoint_of_its_file(tmp_path: Path) -> None:
    heard: Queue[tuple[bytes, dict[str, str]]] = Queue()

    class Listener(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            self.send_response(204)
            self.end_headers()
            heard.put((body, dict(self.headers.items())))

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Listener) as listener:
        Thread(target=listener.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{listener.server_port}/hook"
        hook = f'[[webhooks]]\nurl = "{url}"\nsecret_env = "HOOK"\nallow_private = true\n'
        with (
            serve(home=tmp_path, extra={"HOOK": _SECRET}, config=ECHO + hook) as served,
            OpenAI(base_url=served.base_url, api_key="x") as client,
        ):
            asked = client.responses.create(model="echo", input="Good morning", background=True)
            body, headers = heard.get(timeout=WATCHDOG_SECONDS)
            event = client.webhooks.unwrap(body, headers, secret=_SECRET)
        listener.shutdown()
    assert event.type == "response.completed"
    assert event.data.id == asked.id


def test_no_events_and_too_many_endpoints_are_refused() -> None:
    empty = Webhook(url="https://a.example/", secret_env="HOOK", events=())
    assert "events is empty" in _refusal(Settings(webhooks=(empty,)))
    assert "at most 16" in _refusal(Settings(webhooks=_settings().webhooks * 17))

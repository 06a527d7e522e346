"""Base URLs: what is taken, and what is told about the rest."""

from __future__ import annotations

import pytest

from antiphon.gateway.address import read_base_url, read_server_url
from antiphon.gateway.errors import BadSettings


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("http://127.0.0.1:11434/v1", "http://127.0.0.1:11434/v1"),
        (" https://example.org/v1/ ", "https://example.org/v1"),
        ("https://example.org/v1beta/openai", "https://example.org/v1beta/openai"),
        ("http://[::1]:8000/v1", "http://[::1]:8000/v1"),
    ],
)
def test_a_base_url_loses_nothing_but_its_last_slash(text: str, url: str) -> None:
    assert read_base_url(text, "--upstream") == url


def test_a_missing_path_is_that_of_the_same_api() -> None:
    with pytest.raises(BadSettings, match=r"did you mean http://127.0.0.1:9/v1beta\?"):
        read_base_url("http://127.0.0.1:9", "base_url", "https://example.org/v1beta")
    host = "https://api.example.org"
    assert read_base_url(host, "base_url", "https://example.org") == host


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("localhost:8000/v1", "does not begin with http:// or https://"),
        ("ftp://example.org/v1", "does not begin with http:// or https://"),
        ("http://", "does not name a server"),
        ("http:///v1", "does not name a server"),
        ("http://exa mple.org/v1", "does not name a server"),
        ("http://example.org:port/v1", "is not a URL"),
        ("http://example.org:99999/v1", "is not a URL"),
        ("http://[::1/v1", "is not a URL"),
        ("http://example.org", "did you mean http://example.org/v1?"),
        ("http://example.org/v1/chat/completions", "leave /chat/completions out"),
        ("http://example.org/v1?key=1", "leave out what follows the path"),
    ],
)
def test_a_url_that_cannot_be_one_is_told_in_a_sentence(text: str, complaint: str) -> None:
    with pytest.raises(BadSettings) as caught:
        read_base_url(text, "--upstream")
    assert caught.value.message.startswith("--upstream: ")
    assert complaint in caught.value.message


def test_a_password_in_a_url_is_refused_and_not_repeated() -> None:
    with pytest.raises(BadSettings) as caught:
        read_base_url("http://me:hunter2@example.org/v1", "--upstream")
    assert "hunter2" not in caught.value.message


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("http://127.0.0.1:4680", "http://127.0.0.1:4680/v1"),
        ("http://127.0.0.1:4680/", "http://127.0.0.1:4680/v1"),
        ("http://127.0.0.1:4680/v1", "http://127.0.0.1:4680/v1"),
        ("http://127.0.0.1:4680/api/v1", "http://127.0.0.1:4680/api/v1"),
    ],
)
def test_a_server_without_a_path_is_looked_for_at_v1(text: str, url: str) -> None:
    assert read_server_url(text, "--base-url") == url

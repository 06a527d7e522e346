"""Settings: what is given counts, then the environment, then OpenAI's own address."""

from __future__ import annotations

import pytest

from antiphon.client.errors import BadCall
from antiphon.client.settings import OPENAI_BASE_URL, Timeouts, read_settings
from antiphon.transport.secret import Secret

ENVIRON = {
    "OPENAI_BASE_URL": "http://127.0.0.1:4680/v1/",
    "OPENAI_API_KEY": " sk-env\n",
    "OPENAI_ORG_ID": "org-env",
    "OPENAI_PROJECT_ID": "proj-env",
}


def test_what_is_not_given_comes_from_the_environment() -> None:
    settings = read_settings(ENVIRON)

    assert settings.base_url == "http://127.0.0.1:4680/v1"
    assert settings.key == Secret("sk-env")
    assert settings.headers == {"OpenAI-Organization": "org-env", "OpenAI-Project": "proj-env"}


def test_what_is_given_wins() -> None:
    settings = read_settings(
        ENVIRON,
        base_url="https://a.example/v1",
        api_key=Secret("sk-own"),
        organization="org-own",
        project="proj-own",
        headers={"X-Mine": "1"},
    )

    assert settings.base_url == "https://a.example/v1"
    assert settings.key == Secret("sk-own")
    assert settings.headers == {
        "OpenAI-Organization": "org-own",
        "OpenAI-Project": "proj-own",
        "X-Mine": "1",
    }


def test_without_anything_it_is_openai_without_a_key() -> None:
    settings = read_settings({})
    assert settings.base_url == OPENAI_BASE_URL
    assert settings.key is None
    assert settings.headers == {}


def test_an_empty_key_is_none() -> None:
    assert read_settings(ENVIRON, api_key="").key is None


@pytest.mark.parametrize("url", ["127.0.0.1:4680/v1", "ftp://a.example"])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(BadCall, match="base_url must begin with"):
        read_settings({}, base_url=url)


def test_a_key_that_is_none_is_refused_without_showing_it() -> None:
    with pytest.raises(BadCall, match="the API key cannot be used") as caught:
        read_settings({}, api_key="geheim-ä")
    assert "geheim" not in str(caught.value)


def test_a_silent_server_has_two_minutes_and_a_healthy_stream_all_the_time() -> None:
    limits = Timeouts().limits()
    assert (limits.first_byte, limits.idle) == (120.0, 120.0)
    assert limits.wall > 365 * 24 * 3600


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://me:secret@a.example/v1", "must not hold a name or a password"),
        ("http://me:secret@[::1", "its host or its port is not valid"),
        ("http://a.example:99999/v1", "its host or its port is not valid"),
        ("http://a.example:x/v1", "its host or its port is not valid"),
        ("http://a.example:0/v1", "names no host, or the port 0"),
        ("http:///v1", "names no host, or the port 0"),
        ("https://a.example/v1?api-version=2", "must have no query"),
        ("https://a.example/v1#x", "must have no query"),
    ],
)
def test_an_address_that_says_more_than_where_is_refused(url: str, why: str) -> None:
    with pytest.raises(BadCall, match=why) as caught:
        read_settings({}, base_url=url)
    assert "secret" not in str(caught.value)


def test_credentials_of_ones_own_go_out_alone() -> None:
    headers = {"authorization": "Basic mine"}
    assert read_settings(ENVIRON, headers=headers).key is None
    assert read_settings(ENVIRON, headers=headers, api_key="sk-own").key == Secret("sk-own")

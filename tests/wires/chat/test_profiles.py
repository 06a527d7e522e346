"""Which server gets which profile."""

from __future__ import annotations

import pytest

from antiphon.wires.chat.profiles import GENERIC, PROFILES, profile_for


@pytest.mark.parametrize(
    ("which", "name"),
    [
        (None, "generic"),
        ("generic", "generic"),
        ("vllm", "vllm"),
        ("https://api.openai.com/v1", "openai"),
        ("https://api.deepseek.com", "deepseek"),
        ("https://openrouter.ai/api/v1", "openrouter"),
        ("http://127.0.0.1:11434/v1", "ollama"),
        ("http://127.0.0.1:8000/v1", "generic"),
        ("http://127.0.0.1:port/v1", "generic"),
        ("https://api.openai.com.example.org/v1", "generic"),
    ],
)
def test_a_name_or_a_url_finds_its_profile(which: str | None, name: str) -> None:
    assert profile_for(which).name == name


def test_an_unknown_name_is_a_mistake() -> None:
    with pytest.raises(KeyError):
        profile_for("nobody")


def test_every_profile_is_listed_under_its_name() -> None:
    assert all(name == profile.name for name, profile in PROFILES.items())
    assert PROFILES["generic"] is GENERIC


def test_no_profile_passes_a_field_that_the_request_itself_writes() -> None:
    written = {"model", "messages", "stream", "tools", "tool_choice", "response_format", "n"}
    assert all(profile.extra_fields.isdisjoint(written) for profile in PROFILES.values())

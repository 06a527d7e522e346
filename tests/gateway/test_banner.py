"""What is said at the start, and that the command in it can be pasted."""

from __future__ import annotations

import shlex
from pathlib import Path

import msgspec
import pytest

from antiphon.gateway.banner import banner, curl

_URL = "http://127.0.0.1:4680/v1"


def test_it_tells_address_source_models_store_and_file() -> None:
    text = banner(
        _URL,
        store="sqlite:x.db",
        sources=["upstream, http://x/v1"],
        models=["a", "b", "c", "d", "e"],
        config=Path("antiphon.toml"),
        needs_key=True,
        ui="http://127.0.0.1:4680/ui",
    )
    first, *rest = text.splitlines()
    assert first.endswith(f"serves {_URL}")
    for expected in (
        "upstream, http://x/v1",
        "a, b, c and 2 more",
        "sqlite:x.db",
        "antiphon.toml",
        "0/ui",
    ):
        assert any(line.endswith(expected) for line in rest)
    assert "antiphon keys create" in text


@pytest.mark.parametrize("model", ["llama-3", "it's $HOME `x`", None])
def test_the_command_survives_the_shell(model: str | None) -> None:
    words = shlex.split(curl(_URL, model, needs_key=False))
    assert words[:2] == ["curl", f"{_URL}/responses"]
    assert msgspec.json.decode(words[-1]).get("model") == model


def test_with_keys_the_command_sends_one() -> None:
    assert "Authorization: Bearer $ANTIPHON_API_KEY" in curl(_URL, None, needs_key=True)


def test_on_windows_the_quotes_are_those_of_windows() -> None:
    command = curl(_URL, "m", needs_key=False, platform="win32")
    assert command.endswith(r'-d "{\"model\":\"m\",\"input\":\"Say hello.\"}"')

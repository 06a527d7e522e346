"""The start of a gateway: what is refused, in which order, and where it is reported."""

from __future__ import annotations

import socket

import pytest

from antiphon.gateway.errors import BadSettings, Unavailable
from antiphon.gateway.start import start


class _Console:
    """Keeps what the start reports."""

    def __init__(self) -> None:
        self.shown: list[str] = []
        self.fetched: list[str] = []

    def show(self, text: str) -> None:
        self.shown.append(text)

    def warn(self, text: str) -> None:
        self.shown.append(text)

    def fetch_weights(self, name: str) -> None:
        self.fetched.append(name)


def test_bad_settings_are_refused_before_anything_is_shown() -> None:
    console = _Console()
    flags = {"upstream": "http://127.0.0.1:9/v1", "store": "memory:", "workers": 2}
    with pytest.raises(BadSettings, match="cannot be shared by several workers"):
        start(flags, console)
    assert console.shown == []


def test_a_port_in_use_is_the_fault_of_the_machine() -> None:
    console = _Console()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        flags = {
            "upstream": "http://127.0.0.1:9/v1",
            "store": "memory:",
            "port": taken.getsockname()[1],
        }
        with pytest.raises(Unavailable, match="is in use"):
            start(flags, console)
    assert console.shown == []


def test_a_model_of_the_hub_is_fetched_before_it_is_looked_for() -> None:
    console = _Console()
    with pytest.raises(BadSettings):  # this console fetches nothing
        start({"local_model": "hf:ada/model/model.gguf", "store": "memory:"}, console)
    assert console.fetched == ["hf:ada/model/model.gguf"]

"""The start of a gateway: what is refused, in which order, and where it is reported."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from antiphon.gateway.errors import BadSettings, Unavailable
from antiphon.gateway.start import start


class _Reports:
    """Starts a gateway and keeps what the start reports."""

    def __init__(self) -> None:
        self.shown: list[str] = []
        self.fetched: list[str] = []

    def start(self, flags: dict[str, Any]) -> None:
        start(
            flags,
            show=self.shown.append,
            warn=self.shown.append,
            fetch_weights=self.fetched.append,
        )


def test_bad_settings_are_refused_before_anything_is_shown() -> None:
    reports = _Reports()
    flags = {"upstream": "http://127.0.0.1:9/v1", "store": "memory:", "workers": 2}
    with pytest.raises(BadSettings, match="cannot be shared by several workers"):
        reports.start(flags)
    assert reports.shown == []


def test_a_port_in_use_is_the_fault_of_the_machine() -> None:
    reports = _Reports()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        flags = {
            "upstream": "http://127.0.0.1:9/v1",
            "store": "memory:",
            "port": taken.getsockname()[1],
        }
        with pytest.raises(Unavailable, match="is in use"):
            reports.start(flags)
    assert reports.shown == []


def test_a_model_of_the_hub_is_fetched_before_it_is_looked_for() -> None:
    reports = _Reports()
    with pytest.raises(BadSettings):  # nothing is fetched
        reports.start({"local_model": "hf:ada/model/model.gguf", "store": "memory:"})
    assert reports.fetched == ["hf:ada/model/model.gguf"]

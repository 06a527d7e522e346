"""Sealing keys: where they are read from, and that they are never shown."""

from __future__ import annotations

import importlib.util

import pytest

from antiphon.gateway.config import Settings
from antiphon.gateway.errors import BadSettings
from antiphon.gateway.sealing import read_seal_keys

_KEY = "00" * 32


def test_without_the_variable_there_are_none() -> None:
    assert read_seal_keys(Settings(), {}) == ()
    assert read_seal_keys(Settings(), {"ANTIPHON_SEAL_KEYS": " "}) == ()


def test_they_are_read_in_order_from_the_variable_that_is_named() -> None:
    environ = {"ANTIPHON_SEAL_KEYS": "no", "MINE": f"{'11' * 32}, {_KEY}"}
    keys = read_seal_keys(Settings(seal_keys_env="MINE"), environ)
    assert keys == (b"\x11" * 32, bytes(32))


def test_what_is_no_key_is_refused_at_the_start_and_not_shown() -> None:
    with pytest.raises(BadSettings, match="ANTIPHON_SEAL_KEYS: key 2 is not") as caught:
        read_seal_keys(Settings(), {"ANTIPHON_SEAL_KEYS": f"{_KEY},hunter2"})
    assert "hunter2" not in caught.value.message
    assert _KEY not in caught.value.message


def test_a_key_in_the_place_of_its_variable_is_refused_and_not_shown() -> None:
    with pytest.raises(BadSettings, match="name the environment variable") as caught:
        read_seal_keys(Settings(seal_keys_env=_KEY), {})
    assert _KEY not in caught.value.message


def test_keys_that_nothing_can_use_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(BadSettings, match=r"pip install '\.\[seal\]'"):
        read_seal_keys(Settings(), {"ANTIPHON_SEAL_KEYS": _KEY})

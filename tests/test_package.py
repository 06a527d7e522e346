"""The package itself: cheap to import, and its main names at hand."""

from __future__ import annotations

import subprocess
import sys

import pytest

import antiphon
from antiphon.client import AsyncClient, Client
from antiphon.host import Provider


def test_the_main_names_are_those_of_their_rooms() -> None:
    assert antiphon.AsyncClient is AsyncClient
    assert antiphon.Client is Client
    assert antiphon.Provider is Provider


def test_a_name_that_is_none_is_told_as_python_does() -> None:
    with pytest.raises(AttributeError, match="module 'antiphon' has no attribute 'Nothing'"):
        _ = antiphon.Nothing


def test_importing_it_imports_nothing_large() -> None:
    program = "import antiphon, sys; print([m for m in ('aiohttp', 'msgspec') if m in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert ran.stdout.strip() == b"[]"

"""The package itself: cheap to import, and its main names at hand."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

import antiphon
from antiphon.client import AsyncClient, Client
from antiphon.host import Provider

SOURCES: Final = Path(antiphon.__file__).parent


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


def test_no_pattern_needs_more_than_the_first_python_3_11() -> None:
    """Early releases of 3.11 match possessive quantifiers and atomic groups wrongly."""
    plain = re.compile(r"\\.|\[\^?\]?(?:\\.|[^]\\])*\]", re.DOTALL)  # escapes and classes
    newer = re.compile(r"[*+?}]\+|\(\?>")
    found = [
        f"{path.name}: {pattern}"
        for path in SOURCES.rglob("*.py")
        for pattern in _patterns(path)
        if newer.search(plain.sub(".", pattern))
    ]
    assert found == []


def _patterns(path: Path) -> Iterator[str]:
    """Yield the literal patterns that a module passes to `re`."""
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id="re")),
                args=[ast.Constant(value=str() | bytes() as pattern), *_],
            ):
                yield pattern if isinstance(pattern, str) else pattern.decode()

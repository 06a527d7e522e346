"""Settings for every test: hypothesis never judges by time, and CI repeats what it finds."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from importlib.util import find_spec

import pytest
from hypothesis import HealthCheck, settings

from antiphon.store.sqlite import SqliteStore

settings.register_profile(
    "antiphon",
    deadline=None,
    max_examples=150,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("antiphon")

_PATIENCE = 60.0


@pytest.fixture(autouse=True, scope="session")
def patient_stores() -> None:
    """Let a store that is given no time wait longer than a caller should.

    A database that takes seconds is a fault in use. On a busy machine it is none of the test.
    """
    kinds: list[type] = [SqliteStore]
    if find_spec("asyncpg") is not None:
        from antiphon.store.postgres import PostgresStore

        kinds.append(PostgresStore)
    for kind in kinds:
        vars(kind)["__init__"].__kwdefaults__["patience"] = _PATIENCE


@pytest.fixture(autouse=True)
def ctrl_c() -> Iterator[None]:
    """Let Ctrl-C reach programs, also if the tests run in the background of a shell.

    What a shell starts there ignores it, and so does all that is started from there: then
    nothing interrupts a program, and what should be interrupted runs into its time limits.
    """
    found = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, found)

"""Settings for every test: hypothesis never judges by time, and CI repeats what it finds."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "antiphon",
    deadline=None,
    max_examples=150,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("antiphon")


@pytest.fixture(autouse=True)
def ctrl_c() -> Iterator[None]:
    """Let Ctrl-C reach programs, also if the tests run in the background of a shell.

    What a shell starts there ignores it, and so does all that is started from there: then
    nothing interrupts a program, and what should be interrupted runs into its time limits.
    """
    found = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, found)

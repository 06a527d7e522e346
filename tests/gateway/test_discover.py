"""The models that are shown when a gateway starts."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.cli.processes import WATCHDOG_SECONDS

# Not in this process: it forks, and the processes of a test run may have threads.
_PROGRAM = """
import threading
from antiphon.gateway import discover
from antiphon.gateway.config import ProviderSettings, Settings
from antiphon.gateway.providers import read_sources

settings = Settings(workers=2, providers={"echo": ProviderSettings(wire_api="scripted")})
sources = read_sources(settings, {})
discover._WAIT_SECONDS = %s
print(discover.model_names(settings, sources, print))
discover._list_models = lambda *_: threading.Event().wait()
discover._WAIT_SECONDS = 0.1
print(discover.model_names(settings, sources, print))
print(threading.active_count())
"""
_SCRIPT = """
import sys, threading
from antiphon.gateway.config import Settings
from antiphon.gateway.discover import model_names
from antiphon.gateway.providers import read_sources

class Never(threading.Thread):
    def run(self): ...

threading.Thread = Never
settings = Settings(upstream="http://127.0.0.1:9/v1")
said = []
assert model_names(settings, read_sources(settings, {}), said.append) == []
assert said == ["Provider upstream does not answer: no answer in time."], said
assert "antiphon.backends.http" in sys.modules
"""


@pytest.mark.skipif(sys.platform == "win32", reason="there is no fork")
def test_before_workers_are_forked_no_thread_asks_for_models() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM % WATCHDOG_SECONDS],
        capture_output=True,
        text=True,
        timeout=WATCHDOG_SECONDS,
        check=True,
    )
    assert done.stdout.splitlines() == [
        "['scripted', 'echo']",
        "Provider echo does not answer: no answer in time.",
        "[]",
        "1",
    ]


def test_backends_are_imported_before_the_thread_starts() -> None:
    subprocess.run([sys.executable, "-c", _SCRIPT], check=True, timeout=WATCHDOG_SECONDS)

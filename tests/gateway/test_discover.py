"""Listing models at the start, in a thread that may outlive it."""

from __future__ import annotations

import subprocess
import sys

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
assert "antiphon.backends.chat" in sys.modules
"""


def test_backends_are_imported_before_the_thread_starts() -> None:
    """The parent of workers forks after it: a lock of an import would stay locked in them."""
    subprocess.run([sys.executable, "-c", _SCRIPT], check=True, timeout=120)

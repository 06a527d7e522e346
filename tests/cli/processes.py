"""The command line as other programs meet it: real processes on loopback.

Nothing of the user's own settings reaches them, and nothing waits for a time: a server is
there when it has said where. The watchdog only keeps a test that hangs from hanging for ever.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

__all__ = [
    "ECHO",
    "WATCHDOG_SECONDS",
    "Served",
    "closed_port",
    "command",
    "environment",
    "serve",
    "start",
]

WATCHDOG_SECONDS: Final = 120.0
ECHO: Final = '[providers.echo]\nwire_api = "scripted"\n'


class Served(msgspec.Struct, frozen=True):
    """A gateway that runs in a process of its own."""

    base_url: str
    process: subprocess.Popen[str]
    errors: Path
    """What it writes to stderr."""

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send the signal and return the exit code."""
        self.process.send_signal(number)
        return self.process.wait(WATCHDOG_SECONDS)


@contextmanager
def closed_port() -> Iterator[int]:
    """Yield a port of this machine at which nobody listens, and nobody will."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


def environment(home: Path, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return an environment in which the home directory is elsewhere and nothing is set."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("ANTIPHON_", "OPENAI_", "XDG_"))
    }
    places = {"HOME": str(home), "LOCALAPPDATA": str(home), "USERPROFILE": str(home)}
    return kept | places | {"PYTHONWARNINGS": "error"} | dict(extra or {})


def command(
    *arguments: str, home: Path, extra: Mapping[str, str] | None = None, stdin: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return subprocess.run(
        [sys.executable, "-m", "antiphon", *arguments],
        cwd=home,
        env=environment(home, extra),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=WATCHDOG_SECONDS,
        check=False,
    )


def start(*arguments: str, home: Path, extra: Mapping[str, str] | None = None) -> Served:
    """Start a gateway on a free port; return once it has said where it is."""
    errors = home / "stderr.txt"
    with errors.open("w") as sink:
        process = subprocess.Popen(
            [sys.executable, "-m", "antiphon", "serve", "--port", "0", *arguments],
            cwd=home,
            env=environment(home, extra),
            stdout=subprocess.PIPE,
            stderr=sink,
            text=True,
        )
    watchdog = threading.Timer(WATCHDOG_SECONDS, process.kill)
    watchdog.start()
    assert process.stdout is not None
    said = process.stdout.readline()
    watchdog.cancel()
    found = re.search(r"https?://\S+", said)
    assert found is not None, (said, errors.read_text())
    return Served(found[0], process, errors)


@contextmanager
def serve(
    *arguments: str, home: Path, extra: Mapping[str, str] | None = None, config: str = ECHO
) -> Iterator[Served]:
    """Run a gateway, with the echo model unless another file is given, until the end."""
    (home / "antiphon.toml").write_text(config)
    served = start(*arguments, home=home, extra=extra)
    assert served.process.stdout is not None
    try:
        yield served
    finally:
        if served.process.poll() is None:
            served.stop()
        served.process.stdout.close()

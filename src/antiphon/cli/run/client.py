"""A client program in our terminal: it uses the keyboard and the screen, we wait for its end.

Ctrl-C reaches all programs of the terminal at once, so the client handles it and we ignore it.
Signals that would end only us are passed on to the client, which has some seconds to stop.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Final

import msgspec

from antiphon.cli.errors import CliError

__all__ = ["Client", "Launch", "Order", "local_environment", "raising_on_signals", "run_program"]

_GRACE_SECONDS: Final = 10.0
_TERMINALS: Final = ("SIGINT", "SIGQUIT")
_PASSED_ON: Final = ("SIGTERM", "SIGHUP")


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """What a client is to be started with. `directory` is there for its files, and then gone."""

    base_url: str
    model: str
    context: int | None
    models: Sequence[Mapping[str, object]]
    """The models as Codex has them listed; empty if the gateway lists none."""
    is_small: bool
    arguments: Sequence[str]
    directory: Path


class Launch(msgspec.Struct, frozen=True):
    """A program to start: what it is called with, and its environment."""

    arguments: Sequence[str]
    environ: Mapping[str, str]


class Client(msgspec.Struct, frozen=True):
    """A program that can use the gateway."""

    name: str
    """What it is called on the PATH, and in `antiphon run`."""
    package: str
    """What brings it, on npm."""
    prepare: Callable[[str, Order], Launch]
    """Returns how to start it so that it uses the gateway, its own settings untouched."""
    small: str = "few tools and a short prompt"
    """What it has on a model that takes little."""

    def find(self) -> str:
        """Return where the program is. Raise CliError with how to get it."""
        program = shutil.which(self.name)
        if program is None:
            raise CliError(
                f"{self.name} is not on the PATH; install it with `npm install -g {self.package}`, "
                "then run this again"
            )
        return program


def local_environment() -> dict[str, str]:
    """Return the user's environment, in which this machine is reached without a proxy."""
    found = dict(os.environ)
    for name in ("NO_PROXY", "no_proxy"):
        found[name] = ",".join(filter(None, [found.get(name, ""), "127.0.0.1"]))
    return found


@contextmanager
def raising_on_signals() -> Iterator[None]:
    """Have signals that would end us leave by the front door: everything is put away first."""

    def leave(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    with _handling(_PASSED_ON, leave):
        yield


def run_program(launch: Launch, on_start: Callable[[int], None]) -> int:
    """Run it to its end with our stdin, stdout and stderr; return its exit code as a shell does.

    `on_start` gets its process id.
    """
    relay = _Relay()
    # A handler, not SIG_IGN: that one would be inherited by the program.
    with _handling(_TERMINALS, lambda *_: None), _handling(_PASSED_ON, relay.note):
        try:
            process = subprocess.Popen(  # noqa: S603 - what the person asked for, no shell
                launch.arguments, env=launch.environ
            )
        except OSError as error:
            raise CliError(f"{launch.arguments[0]} cannot be started: {error.strerror}") from None
        try:
            relay.attach(process)
            on_start(process.pid)
            code = process.wait()
        finally:
            relay.close()
    return code if code >= 0 else 128 - code


class _Relay:
    """Passes signals on to a process, also those that came before it was there."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._noted: list[int] = []
        self._patience: threading.Timer | None = None

    def note(self, number: int, frame: FrameType | None) -> None:
        self._noted.append(number)
        if self._process is not None:
            self._pass_on(self._process, number)

    def attach(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        for number in self._noted:
            self._pass_on(process, number)

    def close(self) -> None:
        """Forget the process; it is ended if it has not ended yet."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        if self._patience is not None:
            self._patience.cancel()

    def _pass_on(self, process: subprocess.Popen[bytes], number: int) -> None:
        process.send_signal(number)
        if self._patience is None:
            self._patience = threading.Timer(_GRACE_SECONDS, process.kill)
            self._patience.daemon = True
            self._patience.start()


@contextmanager
def _handling(
    names: Sequence[str], handler: Callable[[int, FrameType | None], None]
) -> Iterator[None]:
    """Have signals handled for a while. Names that this system does not know are left out."""
    numbers = [getattr(signal, name) for name in names if hasattr(signal, name)]
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)

"""A gateway in its own process, for as long as a client needs it.

It does not use the terminal: its output goes to a file, and Ctrl-C does not reach it. A watchdog
in it ends it when our process ends, for whatever reason.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import msgspec

from antiphon.cli.errors import CliError
from antiphon.cli.remote import Remote, Server, refusal
from antiphon.transport.http import Limits

__all__ = ["GatewayProcess", "Listing", "open_gateway"]

_START_SECONDS: Final = 60.0
_STOP_SECONDS: Final = 10.0
_LISTING_SECONDS: Final = 30.0
_PASSED_ON: Final = ("upstream", "upstream_key_env", "profile", "config")
# What would make a gateway for one client on this machine into another: it is set here.
_FIXED: Final = ("--host", "127.0.0.1", "--port", "0", "--workers", "1", "--dialect", "openai")
_FIXED_VARIABLES: Final = {
    "ANTIPHON_REQUIRE_KEYS": "false",
    # A comma alone is an empty list; an empty variable would leave what the file sets.
    "ANTIPHON_ALLOWED_ORIGINS": ",",
    # A line for each request would make every log look as if there were trouble.
    "ANTIPHON_LOG_LEVEL": "warning",
}


class _Model(msgspec.Struct, frozen=True):
    id: str
    context_length: int | None = None


class Listing(msgspec.Struct, frozen=True):
    """The answer of `GET /v1/models`: for OpenAI's clients, and for Codex."""

    data: list[_Model] = []
    models: list[dict[str, Any]] = []

    def context_of(self, model: str) -> int | None:
        """Return how many tokens the model takes, if that is known."""
        return next((known.context_length for known in self.data if known.id == model), None)


class GatewayProcess(msgspec.Struct, frozen=True):
    """A gateway that runs."""

    base_url: str
    process: subprocess.Popen[str]

    @property
    def is_over(self) -> bool:
        """Return whether it has ended, which it does not do by itself."""
        return self.process.poll() is not None

    def guard(self, pid: int) -> None:
        """Have this process ended with the gateway, should we be gone; 0 stands for none."""
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            self.process.stdin.write(f"{pid}\n")
            self.process.stdin.flush()

    async def list_models(self) -> Listing:
        """Return what can be asked for. Raise CliError if that cannot be learnt."""
        async with Remote(Server(self.base_url), Limits(wall=_LISTING_SECONDS)) as remote:
            reply = await remote.fetch("GET", "/models")
        if reply.head.status != 200:
            raise CliError(
                f"the models cannot be listed: {refusal(reply.head.status, reply.body)}; "
                "is the upstream running?"
            )
        return msgspec.json.decode(reply.body, type=Listing)


@contextmanager
def open_gateway(flags: Mapping[str, Any], log: Path) -> Iterator[GatewayProcess]:
    """Run a gateway on a free port; its output goes to `log`. Raise CliError if it does not start.

    `flags` are those of `antiphon serve`. Leaving stops it and waits for its end.
    """
    with log.open("ab") as sink:
        process = subprocess.Popen(  # noqa: S603 - our own program, no shell
            [sys.executable, "-m", "antiphon.cli.run.watchdog", "serve", *_arguments(flags)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=sink,
            text=True,
            env=os.environ | _FIXED_VARIABLES,
            **_apart(),
        )
    try:
        yield GatewayProcess(_read_address(process, log), process)
    finally:
        _stop(process)


def _arguments(flags: Mapping[str, Any]) -> list[str]:
    given = [(f"--{name.replace('_', '-')}", flags.get(name)) for name in _PASSED_ON]
    chosen = [part for flag, value in given if value is not None for part in (flag, value)]
    return [*_FIXED, "--store", flags.get("store") or "memory:", *chosen]


def _apart() -> dict[str, Any]:  # Any: the options of Popen differ by system
    """Return what keeps the keys pressed at our terminal from the process."""
    if sys.platform == "win32":
        return {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP}
    return {"start_new_session": True}


def _read_address(process: subprocess.Popen[str], log: Path) -> str:
    """Return the base URL that it prints once it takes connections."""
    assert process.stdout is not None
    watchdog = threading.Timer(_START_SECONDS, process.kill)
    watchdog.start()
    said = process.stdout.readline()
    watchdog.cancel()
    found = re.search(r"http://\S+", said)
    if found is None:
        words = log.read_text(errors="replace").strip().splitlines() or ["it printed nothing"]
        raise CliError(f"the gateway did not start: {words[-1].removeprefix('Error: ')}")
    return found[0]


def _stop(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.close()
        process.wait(_STOP_SECONDS)
    except BrokenPipeError:
        process.wait()
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    finally:
        process.stdout.close()

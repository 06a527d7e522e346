"""A stand-in for Codex on the PATH: a program that does what its arguments say.

It tells in JSON how it was started, one line on stdout, before it does anything else. The
settings that come before its own arguments are `-c KEY=VALUE`, as with the real one.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

__all__ = ["Started", "put_codex", "started"]

_PROGRAM: Final = """\
#!{python}
import contextlib, json, os, select, signal, socket, sys, tomllib, urllib.request

settings, words = {{}}, sys.argv[1:]
while words[:1] == ["-c"]:
    key, _, value = words[1].partition("=")
    settings[key] = tomllib.loads("value = " + value)["value"]
    words = words[2:]
catalog = settings.get("model_catalog_json")
print(json.dumps({{
    "settings": settings,
    "arguments": words,
    "catalog": json.load(open(catalog))["models"] if catalog else None,
    "environ": {{name: os.environ.get(name) for name in ("NO_PROXY", "CODEX_HOME")}},
    "is_terminal": os.isatty(0),
    "hears_ctrl_c": signal.getsignal(signal.SIGINT) is not signal.SIG_IGN,
    "pid": os.getpid(),
}}), flush=True)
base_url = settings["model_providers.antiphon.base_url"]


def ask(text):
    body = json.dumps({{"model": settings["model"], "input": text}}).encode()
    request = urllib.request.Request(
        base_url + "/responses", body, {{"Content-Type": "application/json"}}
    )
    with urllib.request.build_opener(urllib.request.ProxyHandler({{}})).open(request) as answer:
        return json.load(answer)["output"][0]["content"][0]["text"]


def gateways():
    for entry in filter(str.isdecimal, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            with open("/proc/" + entry + "/stat") as file:
                parent = int(file.read().rpartition(")")[2].split()[1])
            with open("/proc/" + entry + "/cmdline") as file:
                if parent == os.getppid() and "watchdog" in file.read():
                    yield int(entry)


match words:
    case ["ask", text]:
        print(ask(text), flush=True)
    case ["exit", code]:
        sys.exit(int(code))
    case ["die"]:
        os.kill(os.getpid(), signal.SIGKILL)
    case ["wait"]:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(5))
        # Written without a buffer: a signal may come while `print` has not returned.
        answer = lambda: b"interrupted " + ask("still here").encode() + b"\\n"
        signal.signal(signal.SIGINT, lambda *_: os.write(1, answer()))
        # Python would not notice a signal that comes just before it begins to read.
        awake, bell = os.pipe()
        os.set_blocking(bell, False)
        signal.set_wakeup_fd(bell)
        print("waits", flush=True)
        while 0 not in select.select([0, awake], [], [])[0]:
            os.read(awake, 1)
        sys.exit(0 if sys.stdin.read() else 6)
    case ["kill-gateway"]:
        host = base_url.split("/")[2].split(":")
        watch = socket.create_connection((host[0], int(host[1])))
        for pid in gateways():
            os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ConnectionResetError):
            watch.recv(1)
"""


class Started(msgspec.Struct, frozen=True):
    """How the stand-in was started."""

    settings: dict[str, Any]
    arguments: list[str]
    catalog: list[dict[str, Any]] | None
    environ: dict[str, str | None]
    is_terminal: bool
    hears_ctrl_c: bool
    pid: int

    @property
    def address(self) -> tuple[str, int]:
        """Where the gateway is."""
        host, _, port = self.settings["model_providers.antiphon.base_url"][7:-3].partition(":")
        return host, int(port)


def put_codex(directory: Path, monkeypatch: pytest.MonkeyPatch | None = None) -> str:
    """Make the stand-in; return a PATH with it alone, which is also set if one can."""
    directory.mkdir(exist_ok=True)
    program = directory / "codex"
    program.write_text(_PROGRAM.format(python=sys.executable))
    program.chmod(0o755)
    if monkeypatch is not None:
        monkeypatch.setenv("PATH", str(directory))
    return str(directory)


def started(said: str) -> Started:
    """Return what the stand-in said first."""
    return msgspec.json.decode(said.splitlines()[0], type=Started)

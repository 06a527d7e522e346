"""How long until the first answer, how much is installed, and how much memory does it take?

Times are of fresh processes, from their start to an answer in hand, by the clock (which other
load on the machine lengthens) and in CPU seconds (which it does not). What is installed is
counted in a new directory, into which pip puts antiphon without extras; that needs a package
index, and is left out with --no-install. With --extras only the sizes of the extras are printed.

    python bench/start.py [--no-install | --extras]
"""

from __future__ import annotations

import http.client
import importlib.util
import json
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from processes import HERE, Process, Trouble, gateway, machine, scratch

__all__ = ["main"]

_REPEATS: Final = 7
_ANSWER_SECONDS: Final = 20.0
_INSTALL_SECONDS: Final = 600.0
_EXTRAS: Final = ("documents", "embed", "mcp")
_IMPORT: Final = (
    "import sys, time; b, c = time.perf_counter(), time.process_time(); import {module};"
    "print(time.perf_counter() - b, time.process_time() - c, len(sys.modules))"
)


class _Sample(NamedTuple):
    clock: float
    cpu: float
    memory: float = 0.0


def main(*, install: bool = True) -> None:
    """Measure and print."""
    print(f"Start-up and size ({machine()})")
    print(f"medians of {_REPEATS}, by the clock and in CPU\n")
    _print_import("antiphon", "< 150 ms")
    _print_import("antiphon.gateway.serve", "")
    with scratch() as directory:
        settings = directory / "antiphon.toml"
        settings.write_text('[providers.echo]\nwire_api = "scripted"\n')
        flags = ("--config", str(settings))
        _print_start("serve to its list of models", directory, flags, _list_models, "")
        _print_start("serve to its first stored turn", directory, flags, _ask, "< 2 s")
        if importlib.util.find_spec("xllamacpp") is not None:
            settings.write_text('[providers.local]\nwire_api = "local"\n')
            name = "the same, embedded model, to its list of models"
            _print_start(name, directory, flags, _list_models, "< 2 s")
        else:
            print("the embedded model is not installed here, so its start was not measured")
        if install:
            _print_installed(directory / "site")


def _print_import(module: str, goal: str) -> None:
    command = [sys.executable, "-c", _IMPORT.format(module=module)]
    samples = []
    for _ in range(_REPEATS):
        line = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
        clock, cpu, _modules = map(float, line.stdout.split())
        samples.append(_Sample(clock, cpu))
    _print_times(f"import {module}", samples, goal)


def _print_start(
    name: str, directory: Path, flags: tuple[str, ...], ask: Callable[[Process], None], goal: str
) -> None:
    samples = []
    for number in range(_REPEATS):
        began = time.monotonic()
        store = directory / f"{number}.db"
        with gateway(*flags, store=store) as process:
            _until(lambda: ask(process))
            samples.append(_Sample(time.monotonic() - began, process.cpu, process.memory))
        for path in directory.glob(f"{store.name}*"):
            path.unlink()
    _print_times(name, samples, goal)
    memory = statistics.median(sample.memory for sample in samples)
    print(f"{'':4}and then idle: {memory:.0f} MiB of memory")


def _print_times(name: str, samples: list[_Sample], goal: str) -> None:
    clock = statistics.median(sample.clock for sample in samples) * 1e3
    best = min(sample.clock for sample in samples) * 1e3
    cpu = statistics.median(sample.cpu for sample in samples) * 1e3
    shown = f"{clock:7.1f} ms (best {best:.1f})  {cpu:7.1f} ms CPU"
    print(f"{name:48} {shown:44} {goal}")


def _until(action: Callable[[], None]) -> None:
    """Repeat until nobody refuses the connection any more."""
    deadline = time.monotonic() + _ANSWER_SECONDS
    while True:
        try:
            action()
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise Trouble("the gateway does not answer") from None
            time.sleep(0.002)
        else:
            return


def _list_models(process: Process) -> None:
    _exchange(process, "GET", "/v1/models", None)


def _ask(process: Process) -> None:
    answer = _exchange(process, "POST", "/v1/responses", {"input": "Are you there?"})
    if json.loads(answer)["status"] != "completed":
        raise Trouble(f"the first turn ended as {answer[:300]!r}")


def _exchange(process: Process, method: str, path: str, body: object) -> bytes:
    connection = http.client.HTTPConnection("127.0.0.1", process.port, timeout=_ANSWER_SECONDS)
    data = None if body is None else json.dumps(body)
    connection.request(method, path, data, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    if answer.status != 200:
        raise Trouble(f"{path} was answered with {answer.status}: {content[:300]!r}")
    return content


def _print_installed(site: Path) -> None:
    count, size, compiled = _install(site, "")
    print(
        f"{'installed, without extras':48} {count} distributions, antiphon among them;"
        f" {size:.1f} MB, of which {compiled:.1f} MB is bytecode"
        "   at most 20, < 40 MB"
    )


def _print_extras(directory: Path) -> None:
    """Print by how much each extra makes the installation larger."""
    core = _install(directory / "core", "")
    for extra in _EXTRAS:
        count, size, _ = _install(directory / extra, f"[{extra}]")
        more = f"{count - core[0]:+} distributions; {size - core[1]:+.1f} MB with bytecode"
        print(f"{f'the extra {extra}':48} {more}")


def _install(site: Path, extra: str) -> tuple[int, float, float]:
    """Install into a directory; return distributions, megabytes, and those of bytecode."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    try:
        done = subprocess.run(
            [*command, "--target", str(site), f"{HERE.parent}{extra}"],
            capture_output=True,
            text=True,
            timeout=_INSTALL_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise Trouble("the installed size was not measured: pip took too long") from None
    if done.returncode:
        reason = re.sub(r"\s+", " ", done.stderr.strip())[-200:]
        raise Trouble(f"the installed size was not measured: pip failed: {reason}")
    sizes = {
        path: path.stat().st_size
        for path in site.rglob("*")
        if path.is_file() and not path.is_symlink()
    }
    compiled = sum(size for path, size in sizes.items() if path.suffix == ".pyc")
    count = len(list(site.glob("*.dist-info")))
    return count, sum(sizes.values()) / 1e6, compiled / 1e6


if __name__ == "__main__":
    try:
        if "--extras" in sys.argv[1:]:
            with scratch() as folder:
                _print_extras(folder)
        else:
            main(install="--no-install" not in sys.argv[1:])
    except Trouble as trouble:
        sys.exit(f"start.py: {trouble}")

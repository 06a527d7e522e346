"""Would the attacks notice if one protection were missing? Each is left out once.

bubblewrap alone is the one that is changed: with sandlock inside, most protections are there
twice. Every change starts from an engine that holds against the attack.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec
import pytest

from antiphon.tools.sandbox.base import SandboxLimits
from antiphon.tools.sandbox.engines import LocalEngine
from antiphon.tools.sandbox.process import Command
from antiphon.tools.sandbox.pythons import own_interpreter
from antiphon.tools.sandbox.watch import Watch
from tests.sandboxes import engine, opened, run
from tests.tools.sandbox.attacks import ALL, attack_once

Change = Callable[[list[str]], list[str]]
_NAMESPACES = ("--unshare-user", "--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts")
_AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root could write there")


class Weak(LocalEngine):
    """An engine without one of its protections."""

    def __init__(self, change: Change) -> None:
        super().__init__("bwrap", own_interpreter())
        self._change = change

    def command(self, folder: Path, limits: SandboxLimits, readable: Mapping[str, Path]) -> Command:
        whole = super().command(folder, limits, readable)
        return msgspec.structs.replace(whole, arguments=tuple(self._change(list(whole.arguments))))


def _sharing(kept: str) -> Change:
    """Leave out one namespace."""
    others = [name for name in _NAMESPACES if name not in (kept, "--unshare-user")]
    return lambda words: [
        word for old in words for word in (others if old == "--unshare-all" else [old])
    ]


def _without(option: str, values: int = 0, *, at: int = 0) -> Change:
    """Leave out the option, with its values, where it stands for the `at`th time."""

    def change(words: list[str]) -> list[str]:
        place = [number for number, word in enumerate(words) if word == option][at]
        return words[:place] + words[place + 1 + values :]

    return change


def _all(*changes: Change) -> Change:
    def change(words: list[str]) -> list[str]:
        for one in changes:
            words = one(words)
        return words

    return change


def _mounting(*words: str) -> Change:
    return lambda old: [*old[: old.index("--")], *words, *old[old.index("--") :]]


def _unlimited(name: str) -> Change:
    return lambda words: [
        f"{name}={1 << 40 if 'bytes' in name else 4096}" if word.startswith(f"{name}=") else word
        for word in words
    ]


def _leaking_environment(words: list[str]) -> list[str]:
    return ["/usr/bin/env", "SECRET_KEY=x", *(word for word in words if word != "--clearenv")]


def _writable_proc(words: list[str]) -> list[str]:
    pairs = list(itertools.pairwise(words))
    place = pairs.index(("--remount-ro", "/proc"))
    return words[:place] + words[place + 2 :]


def _large_files_in_memory(words: list[str]) -> list[str]:
    return _all(_without("--size", 1), _without("--size", 1))(words)


_PLANTS: dict[str, tuple[Change, str]] = {
    "network": (_sharing("--unshare-net"), "connect to an abstract socket"),
    "network, TCP": (_sharing("--unshare-net"), "connect to TCP"),
    "network, UDP": (_sharing("--unshare-net"), "send UDP to this machine"),
    "name of the machine": (_without("--hostname", 1), "learn the name of the machine"),
    "processes": (_sharing("--unshare-pid"), "signal a process outside"),
    "user namespaces": (
        _all(_without("--disable-userns"), _without("--seccomp", 1)),
        "make a user namespace",
    ),
    "system calls": (
        _without("--seccomp", 1),
        "trace and read other processes, io_uring, keys, bpf",
    ),
    "environment": (_leaking_environment, "read environments"),
    "files": (_mounting("--bind", "/tmp", "/tmp"), "read a file outside"),
    "root": (_without("--remount-ro", 1, at=-1), "write outside"),
    "size of files in memory": (_large_files_in_memory, "fill files"),
    "size of a file": (_unlimited("file_bytes"), "fill files"),
    "open files": (_unlimited("open_files"), "fill files"),
}


@pytest.mark.parametrize("name", _PLANTS)
async def test_missing_protection_is_noticed(name: str) -> None:
    engine("bwrap")
    change, attack = _PLANTS[name]
    await _compare(change, attack)


async def test_missing_limit_of_memory_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two protections: the limit of a process, and the look at all of them."""

    async def look(watch: Watch) -> int:
        return 0

    engine("bwrap")
    monkeypatch.setattr(Watch, "look", look)
    await _compare(_unlimited("memory_bytes"), "take memory")


@_AS_ROOT
async def test_writable_settings_of_the_system_are_noticed() -> None:
    engine("bwrap")
    await _compare(_writable_proc, "write outside")


async def _compare(change: Change, name: str) -> None:
    (attack,) = [attack for attack in ALL if attack.name == name]
    assert await attack_once(Weak(lambda words: words), attack) == ""
    assert "LEAK" in await attack_once(Weak(change), attack)


async def test_output_without_a_limit_is_noticed(tmp_path: Path) -> None:
    code = "import os\nfor _ in range(4): os.write(1, b'x' * (1 << 20))"
    for limit, is_cut in ((1 << 20, True), (1 << 40, False)):
        limits = SandboxLimits(output_bytes=limit)
        async with opened(engine("bwrap"), tmp_path, limits) as sandbox:
            ran = await run(sandbox, code)
        assert (len(ran.stdout) <= 1 << 20) == is_cut

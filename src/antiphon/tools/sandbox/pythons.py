"""Which interpreter runs in a sandbox, and which folders does it need?

By default the gateway's own, with the standard library only: its site-packages are hidden. Or one
of a virtual environment that is named in the settings, with everything that is installed there.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import msgspec

from antiphon.tools.sandbox.base import SandboxFailed

__all__ = ["Interpreter", "own_interpreter", "read_interpreter"]

_ASK: Final = (
    "import json, sys, sysconfig; print(json.dumps({"
    "'prefix': sys.prefix, 'base': sys.base_prefix, 'version': sys.version_info[:2]}))"
)
_PATIENCE: Final = 30.0
_OLDEST: Final = (3, 8)


class Interpreter(msgspec.Struct, frozen=True):
    """A Python: how it is started, which folders it reads, and which of them are hidden."""

    program: str
    options: tuple[str, ...]
    folders: tuple[str, ...]
    hidden: tuple[str, ...] = ()


def own_interpreter() -> Interpreter:
    """Return the interpreter of the gateway, without what is installed in it."""
    base = os.path.realpath(sys.base_prefix)
    return Interpreter(
        program=_program_of_base(base),
        options=("-I", "-S", "-B"),
        folders=(base,),
        hidden=tuple(sorted(map(str, filter(Path.is_dir, _site_folders(base))))),
    )


def read_interpreter(program: str) -> Interpreter:
    """Return the interpreter of a virtual environment. Raise SandboxFailed if it does not run."""
    try:
        done = subprocess.run(  # noqa: S603 - the operator has named it
            [program, "-I", "-c", _ASK],
            capture_output=True,
            timeout=_PATIENCE,
            check=True,
            env={},
            stdin=subprocess.DEVNULL,
        )
        facts = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        raise SandboxFailed(f"[sandbox] python = {program!r} does not run: {error}") from None
    if tuple(facts["version"]) < _OLDEST:
        raise SandboxFailed(f"[sandbox] python = {program!r} is older than Python 3.8")
    prefix, base = facts["prefix"], facts["base"]
    return Interpreter(
        program=os.path.abspath(program),  # noqa: PTH100 - a link must stay one
        options=("-I", "-B"),
        folders=tuple(dict.fromkeys([prefix, base, os.path.realpath(base)])),
    )


def _site_folders(base: str) -> set[Path]:
    """Return where packages may be installed for an interpreter; Debian has names of its own."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    return {
        Path(base, lib, python, name)
        for lib in ("lib", "lib64")
        for python in (version, "python3")
        for name in ("site-packages", "dist-packages")
    }


def _program_of_base(base: str) -> str:
    """Return the file of the interpreter itself, not a link to it in a virtual environment."""
    program = os.path.realpath(sys.executable)
    if Path(program).is_relative_to(base):
        return program
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    return str(Path(base, "bin", version))

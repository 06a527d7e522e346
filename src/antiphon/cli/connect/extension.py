"""How does the extension get into VS Code? With the editor's own command, from a file.

The file is package data of antiphon: `scripts/vsix` puts it there, so that a wheel that is built
afterwards has it. Nothing is fetched from a marketplace.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from antiphon.cli.errors import CliError

__all__ = ["EDITORS", "PACKAGED", "change_extension", "find_editors"]

EDITORS: Final = ("code", "code-insiders", "codium", "code-server")
"""The commands that install extensions, in the order in which they are looked for."""
PACKAGED: Final = Path(__file__).with_name("antiphon.vsix")
_ID: Final = "antiphon.antiphon"
_PATIENCE: Final = 300
_MAX_WORDS: Final = 2000


def change_extension(
    vsix: Path | None, *, removes: bool, shows_only: bool, note: Callable[[str], object]
) -> None:
    """Install the extension into the first editor that is there, or remove it again."""
    file = None if removes else _file(vsix)
    program, *others = find_editors() or _complain(file)
    what = ["--uninstall-extension", _ID] if file is None else ["--install-extension", str(file)]
    if shows_only:
        note(f"Would run: {' '.join([program, *what])}")
        return
    _run([program, *what])
    note(
        f"{'Removed the extension from' if removes else 'Installed the extension into'} {program}."
    )
    for other in others:
        note(f"There is {other} too: {other} {' '.join(what)}")


def find_editors() -> list[str]:
    """Return the paths of the commands of editors in PATH."""
    return [found for name in EDITORS if (found := shutil.which(name))]


def _file(vsix: Path | None) -> Path:
    file = vsix or PACKAGED
    if file.is_file():
        return file
    how = "" if vsix else "; this antiphon was built without it: scripts/vsix FILE makes one"
    raise CliError(f"there is no extension at {file}{how}")


def _complain(file: Path | None) -> list[str]:
    by_hand = f'; in the editor, "Install from VSIX..." takes {file}' if file else ""
    raise CliError(f"none of the commands {', '.join(EDITORS)} is in PATH{by_hand}")


def _run(command: Sequence[str]) -> None:
    try:
        done = subprocess.run(  # noqa: S603  the user's own editor, without a shell
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_PATIENCE,
            check=False,
            # Editors on Windows are batch files.
            shell=sys.platform == "win32",
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CliError(f"{command[0]} could not be run: {error}") from None
    if done.returncode != 0:
        words = f"{done.stdout}\n{done.stderr}".strip()[-_MAX_WORDS:]
        raise CliError(f"{command[0]} ended with {done.returncode}: {words}")

"""The steps of a Dockerfile, run in a directory instead of a container.

A directory stands for the root of the image: `RUN` and `COPY` use its paths. There is no container
engine and no base image: the system's own Python takes the place of the image's. The instructions
that make users change the machine, so they are only checked. Everything else of the file is real.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

__all__ = ["Image"]

_PATIENCE: Final = 900
_PLACES: Final = r"(?<![\w.])/(opt|var|build)\b"
_MAKES_USERS: Final = ("groupadd", "useradd", "install -d")


class Image:
    """What a Dockerfile says, and the directory in which its steps are done."""

    def __init__(self, dockerfile: Path, context: Path, root: Path, python: str) -> None:
        self._context = context
        self._root = root
        self._python = python
        self._folder = root
        self.stages: list[str] = []
        self.settings: dict[str, str] = {}
        self.commands: dict[str, list[str]] = {}
        self.user = ""
        self.users: list[str] = []
        text = re.sub(r"^#.*\n", "", dockerfile.read_text("utf-8"), flags=re.MULTILINE)
        for line in text.replace("\\\n", " ").splitlines():
            if line.strip():
                self._step(*line.strip().split(maxsplit=1))

    def here(self, text: str) -> str:
        """Return a text of the image with the paths of this machine."""
        return re.sub(_PLACES, rf"{self._root}/\1", text)

    def environment(self) -> dict[str, str]:
        """Return the environment of a process in the image."""
        kept = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8"}
        values = {name: self.here(value) for name, value in self.settings.items()}
        values["PATH"] = values.get("PATH", "$PATH").replace("$PATH", kept["PATH"])
        return kept | values

    def _step(self, word: str, rest: str) -> None:
        match word:
            case "FROM":
                self.stages.append(rest.split()[0])
                self.settings = {}
            case "ENV":
                self.settings |= dict(pair.split("=", 1) for pair in rest.split())
            case "WORKDIR":
                self._folder = Path(self.here(rest))
                self._folder.mkdir(parents=True, exist_ok=True)
            case "COPY":
                self._copy(*rest.split())
            case "RUN":
                self._run(rest)
            case "USER":
                self.user = rest
            case "HEALTHCHECK":
                self.commands[word] = json.loads(rest.partition("CMD ")[2])
            case "ENTRYPOINT" | "CMD":
                self.commands[word] = json.loads(rest)
            case "EXPOSE" | "VOLUME" | "STOPSIGNAL":
                pass  # for the engine
            case _:
                raise AssertionError(f"an instruction that is not tested: {word}")

    def _copy(self, *words: str) -> None:
        *sources, target = words
        if sources[0] == "--from=build":
            assert sources[1:] == [target], "both stages are one directory here"
            return
        for source in sources:
            place = self._folder / target
            origin = self._context / source
            if origin.is_dir():
                ignored = shutil.ignore_patterns("__pycache__")
                shutil.copytree(origin, place, dirs_exist_ok=True, ignore=ignored)
            else:
                shutil.copy(origin, place)

    def _run(self, line: str) -> None:
        for command in (part.strip() for part in line.split("&&")):
            if command.startswith(_MAKES_USERS):
                self.users.append(command)
                continue
            words = self.here(command).split()
            if words[0] == "python":
                words[0] = self._python
            done = subprocess.run(
                words,
                cwd=self._folder,
                env={**os.environ, **self.environment()},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                check=False,
                timeout=_PATIENCE,
            )
            assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"

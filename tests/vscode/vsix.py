"""How does the extension become a `.vsix`?

The official packager, at the version of `editors/vscode/package-lock.json`, packs the files that
`package.json` lists, with fixed times: the same sources make the same bytes. Git's own metadata
and what lies about in the folder stay outside.

    python -m tests.vscode.vsix [FILE]    the default is where `antiphon connect` looks for it
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from tests.clients.install import ROOT, node, node_modules, npm_environment

__all__ = ["EXTENSION", "PLACE", "build"]

EXTENSION: Final = Path("editors/vscode")
PLACE: Final = ROOT / "src/antiphon/cli/connect/antiphon.vsix"
"""Package data: a wheel that is built after this has the extension in it."""

_EPOCH: Final = "1767225600"  # any fixed time would do
_PATIENCE: Final = 300
_FLAGS: Final = ("--no-dependencies", "--allow-missing-repository", "--no-rewrite-relative-links")


def build(out: Path) -> Path:
    """Write the packed extension to a file, and return it."""
    modules = node_modules(EXTENSION)
    with tempfile.TemporaryDirectory() as folder:
        source = _copy_listed(Path(folder) / "extension")
        packer = modules / "@vscode" / "vsce" / "vsce"
        done = subprocess.run(
            [node(), packer, "package", *_FLAGS, "--out", out.resolve()],
            cwd=source,
            env={**npm_environment(), "SOURCE_DATE_EPOCH": _EPOCH, "TZ": "UTC"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_PATIENCE,
            check=False,
        )
    if done.returncode != 0:
        raise RuntimeError(f"the extension could not be packed:\n{done.stdout}\n{done.stderr}")
    return out


def _copy_listed(target: Path) -> Path:
    """Copy what `package.json` lists, so that nothing else can get in."""
    source = ROOT / EXTENSION
    target.mkdir()
    listed = json.loads((source / "package.json").read_text("utf-8"))["files"]
    for name in ("package.json", *listed):
        if (source / name).is_dir():
            shutil.copytree(source / name, target / name)
        else:
            shutil.copy(source / name, target / name)
    return target


if __name__ == "__main__":
    print(build(Path(sys.argv[1]) if len(sys.argv) > 1 else PLACE))

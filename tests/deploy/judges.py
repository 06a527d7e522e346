"""Programs of other projects that judge `deploy/` and the release, and where they are.

They have an environment of their own, made once from `requirements/deploy.txt`.
"""

from __future__ import annotations

import functools
import subprocess
from pathlib import Path
from typing import Final

__all__ = ["DEPLOY", "ROOT", "judge", "judges"]

ROOT: Final = Path(__file__).parents[2]
DEPLOY: Final = ROOT / "deploy"
_PATIENCE: Final = 900


@functools.cache
def judges() -> Path:
    """Return the directory of the judges' programs."""
    made = subprocess.run(
        [ROOT / "scripts/environment", "deploy"],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=_PATIENCE,
    )
    return Path(made.stdout.strip())


def judge(program: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a judge in the root of the project; return what it printed and its exit code."""
    return subprocess.run(
        [judges() / program, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=_PATIENCE,
    )

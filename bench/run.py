"""Every benchmark, one after the other: what antiphon costs on this machine.

    python bench/run.py [--quick]

Needs Linux and Python 3.11 or newer. Where antiphon is not installed, an environment for it is
made first, in .venvs/serve. Takes three to five minutes, or one and a half with --quick, which
repeats less, stops the conversation at 250 turns and installs nothing.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

__all__ = ["main"]

_ROOT: Final = Path(__file__).resolve().parent.parent


def main(*, quick: bool) -> None:
    """Run them all."""
    import chain
    import cost
    import start

    import client

    cost.main(repeats=2 if quick else cost.REPEATS)
    print()
    chain.main(turns=250 if quick else chain.TURNS)
    print()
    start.main(install=not quick)
    print()
    client.main(repeats=1 if quick else client.REPEATS)


def _enter_environment() -> None:
    """Begin again in an environment that has antiphon."""
    made = subprocess.run(
        [_ROOT / "scripts" / "environment", "serve"],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    python = str(Path(made.stdout.strip()) / "python")
    os.execv(python, [python, *sys.argv])


if __name__ == "__main__":
    if importlib.util.find_spec("antiphon") is None:
        _enter_environment()
    from processes import Trouble

    try:
        main(quick="--quick" in sys.argv[1:])
    except Trouble as trouble:
        sys.exit(f"bench: {trouble}")

"""Every benchmark, one after the other: what antiphon costs on this machine.

    python bench/run.py [--quick] [--peers DIR] [--plot FILE]

Needs Linux and Python 3.11 or newer. Where antiphon is not installed, an environment for it is
made first, in .venvs/serve. Takes an hour, or some four minutes with --quick, which
repeats less, stops the conversation at 250 turns, leaves out two workers and installs nothing.
peers.py says what is looked for in DIR; without it, and without nginx on the PATH, only the
direct road and antiphon are measured. The plot is an SVG.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

__all__ = ["main"]

_ROOT: Final = Path(__file__).resolve().parent.parent


def main(
    *, quick: bool, peers_directory: Path | None = None, plot_file: Path | None = None
) -> None:
    """Run them all."""
    import cost
    import peers
    import scale
    import start

    import client

    road = ",".join(name for name in peers.TARGETS if not quick or name != "antiphon-2")
    parts = ",".join(name for name in scale.PARTS if not quick or name != "workers")
    peers.main(peers=peers_directory, quick=quick, only=road)
    print()
    cost.main(repeats=1 if quick else cost.REPEATS)
    print()
    scale.main(quick=quick, only=parts, plot_file=plot_file)
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


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="What does antiphon cost on this machine?")
    parser.add_argument("--quick", action="store_true", help="less of everything")
    parser.add_argument("--peers", type=Path, metavar="DIR", help="where other gateways are")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw how it grows, as SVG")
    return parser.parse_args()


if __name__ == "__main__":
    given = _arguments()
    if importlib.util.find_spec("antiphon") is None:
        _enter_environment()
    from processes import Trouble

    try:
        main(quick=given.quick, peers_directory=given.peers, plot_file=given.plot)
    except Trouble as trouble:
        sys.exit(f"bench: {trouble}")

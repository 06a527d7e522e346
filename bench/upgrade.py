"""Do clients notice that the gateways are upgraded, or put back to the version before?

Two gateways on one PostgreSQL serve clients behind a load balancer, which asks `/readyz` and sends
requests to the gateways that are ready. They are replaced one after the other, first by this
version and then by the old one again: old old, new old, new new, old new, old old. Before the way
back `antiphon store allow-older` runs, as docs/howto/upgrade.md says. With SQLite there is one
gateway on one file, which is stopped and started with the other version.

This version is stopped by SIGTERM alone. The old one leaves the load balancer two seconds before:
it fails a background response that is being queued at the moment of the signal.

A turn has failed if its answer is not the one that was asked for, has a gap, or does not come. What
may be sent again is only what the documentation names: a request that was answered 503, one whose
connection was refused, and the rest of a background stream that was cut. Exits with 1 if a turn
failed, with 77 if there is no old version.

    python bench/upgrade.py [--store postgres|sqlite] [--seconds 5] [--old COMMIT] [--clients 8]
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from kill_load import MODEL, play
from kill_nodes import Node, database
from processes import HERE, Trouble, machine, scratch
from upgrade_load import Balancer, Clients, Turn, p99_of

from antiphon.testing import ScriptedUpstream

__all__ = ["main"]

OLD_COMMIT: Final = "ab6af2a003e97a233e7f7b7d3e28b2c22ebaa651"
"""The last commit before projects, budgets and partitions."""
_OLD_VERSIONS: Final = {"postgres": 6, "sqlite": 5}
"""What the old version knows: it says so when it refuses a newer database."""
_NO_OLD_VERSION: Final = 77
_SHOWN: Final = 20


class NoOldVersion(Exception):
    """The commit is not in this clone."""


def export(commit: str, directory: Path) -> Path:
    """Write the tree of a commit to a folder; return its `src`."""
    archive = subprocess.run(
        ["git", "archive", "--format=tar", commit, "src"],
        cwd=HERE.parent,
        capture_output=True,
        check=False,
    )
    if archive.returncode:
        raise NoOldVersion(
            f"commit {commit[:8]} is not in this clone (a shallow one has no history):"
            f" {archive.stderr.decode(errors='replace').strip()}"
        )
    directory.mkdir(parents=True, exist_ok=True)
    # The module `tarfile` extracts safely from Python 3.11.4 on; Debian has 3.11.2.
    subprocess.run(["tar", "-x"], cwd=directory, input=archive.stdout, check=True)
    return directory / "src"


async def main(store: str, seconds: float, old: str, clients: int) -> int:
    """Roll in both directions, print what the clients saw, and return how many turns failed."""
    print(f"upgrade and back under load ({machine()})")
    with scratch() as directory:
        source = export(old, directory / "old")
        upstream = ScriptedUpstream(play, models=[MODEL], remember=False)
        async with database(store, directory) as url, upstream:
            nodes = [
                Node(name, directory, store=url, upstream=upstream.base_url)
                for name in ("one", "two")[: 1 if store == "sqlite" else 2]
            ]
            try:
                turns = await _run(nodes, source, url, seconds, clients, store)
            finally:
                for node in nodes:
                    await node.stop()
            crashes = sum(node.tracebacks for node in nodes)
    return _print(turns, crashes, store)


async def _run(
    nodes: list[Node], source: Path, url: str, seconds: float, clients: int, store: str
) -> list[Turn]:
    for node in nodes:
        node.source = source
        await node.start()
    async with Balancer(nodes) as balancer, Clients(balancer, clients) as load:
        load.phase = _phase(nodes)
        await asyncio.sleep(seconds)
        for is_back in (False, True):
            if is_back:
                await _allow_old(nodes[0], url, _OLD_VERSIONS[store])
            for node in nodes:
                load.phase = f"{_phase(nodes)} ->"
                if node.source is not None:
                    await balancer.retire(node)
                await node.stop()
                node.source = source if is_back else None
                await node.start()
                load.phase = _phase(nodes)
                await asyncio.sleep(seconds)
        await load.finish()
    return load.turns


async def _allow_old(node: Node, url: str, version: int) -> None:
    """Allow the old version to start, as an operator does."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "antiphon", "store", "allow-older", str(version), url, "--yes"),
        stderr=asyncio.subprocess.PIPE,
        cwd=node.directory,
    )
    _, said = await process.communicate()
    if process.returncode:
        raise Trouble(said.decode(errors="replace"))


def _phase(nodes: list[Node]) -> str:
    return " ".join("new" if node.source is None else "old" for node in nodes)


def _print(turns: list[Turn], crashes: int, store: str) -> int:
    phases = list(dict.fromkeys(turn.phase for turn in turns))
    print(f"{store}: turns by what ran when they began; '->' while a gateway is replaced\n")
    heads = ("turns", "failed", "sent again", "median", "p99")
    print(f"{'':14}" + "".join(f"{head:>12}" for head in heads))
    for phase in phases:
        some = [turn for turn in turns if turn.phase == phase]
        times = sorted(turn.seconds for turn in some)
        cells = [
            f"{len(some):,}",
            f"{sum(bool(turn.fault) for turn in some):,}",
            f"{sum(turn.again for turn in some):,}",
            f"{times[len(times) // 2]:.2f} s",
            f"{p99_of(times):.2f} s",
        ]
        print(f"{phase:14}" + "".join(f"{cell:>12}" for cell in cells))
    failed = [turn for turn in turns if turn.fault]
    kinds = {kind: sum(turn.kind == kind for turn in turns) for kind in {t.kind for t in turns}}
    print("\n" + ", ".join(f"{kind} {count:,}" for kind, count in sorted(kinds.items())))
    print(f"tracebacks in the gateways' logs {crashes}")
    print(f"{len(turns):,} turns, {len(failed)} failed")
    for turn in failed[:_SHOWN]:
        print(f"  {turn.phase}, {turn.kind}: {turn.fault}")
    return len(failed) + crashes


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--store", choices=("postgres", "sqlite"), default="postgres")
    parser.add_argument("--seconds", type=float, default=5.0, help="in each state (5)")
    parser.add_argument("--clients", type=int, default=8, help="who ask at the same time (8)")
    parser.add_argument("--old", default=OLD_COMMIT, help="commit of the old version")
    options = parser.parse_args()
    began = time.monotonic()
    try:
        broken = asyncio.run(main(options.store, options.seconds, options.old, options.clients))
    except NoOldVersion as error:
        print(f"bench: {error}", file=sys.stderr)
        sys.exit(_NO_OLD_VERSION)
    except Trouble as trouble:
        sys.exit(f"bench: {trouble}")
    print(f"{time.monotonic() - began:.0f} s")
    sys.exit(1 if broken else 0)

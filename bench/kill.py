"""What does `kill -9` destroy? Nothing that anybody was told of.

Real gateways run on loopback before a slow model while clients ask in every way: with and without
a stream, in the foreground and in the background. At a random moment a gateway is killed. Then
everything that clients were told is held against what is there: see `kill_check` for the rules.
With SQLite the one gateway is started again; with PostgreSQL there are two, and the other one
takes over. Exits with 1 if one rule was broken once.

    python bench/kill.py [--rounds 100] [--store sqlite|postgres] [--quick] [--seed 1]

100 rounds take about three minutes with SQLite and twelve with PostgreSQL; --quick has five.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import sys
import time
from typing import Final

from kill_check import DEADLINE_SECONDS, Verdict, check_all, check_followed, check_kept
from kill_load import KINDS, MODEL, Load, Seen, play
from kill_nodes import Node, database
from processes import Trouble, machine, scratch

from antiphon.testing import ScriptedUpstream

__all__ = ["main"]

_CLIENTS: Final = 16
_QUICK_ROUNDS: Final = 5
_KILL_SECONDS: Final = (0.05, 1.5)
_SHOWN: Final = 20


async def main(rounds: int, store: str, seed: int) -> int:
    """Run the rounds, print the figures, and return how many rules were broken."""
    print(f"kill -9 under load ({machine()})")
    dice, verdict, seen = random.Random(seed), Verdict(), list[Seen]()
    began = time.monotonic()
    with scratch() as directory:
        upstream = ScriptedUpstream(play, models=[MODEL], remember=False)
        async with database(store, directory) as url, upstream:
            nodes = [
                Node(name, directory, store=url, upstream=upstream.base_url)
                for name in ("one", "two")[: 1 if store == "sqlite" else 2]
            ]
            try:
                restarts = await _run(nodes, rounds, dice, seen, verdict)
            finally:
                for node in nodes:
                    await node.stop()
            crashes = sum(node.tracebacks for node in nodes)
    print(f"{rounds} kills, {len(nodes)} node(s), {store}, {time.monotonic() - began:.0f} s\n")
    _print(seen, verdict, restarts, crashes)
    return len(verdict.violations)


async def _run(
    nodes: list[Node], rounds: int, dice: random.Random, seen: list[Seen], verdict: Verdict
) -> list[float]:
    """Kill and check again and again; return how long each start took."""
    for node in nodes:
        await node.start()
    restarts = []
    for number in range(rounds):
        victim = dice.choice(nodes)
        load = Load(nodes, _CLIENTS, number, dice)
        await asyncio.sleep(dice.uniform(*_KILL_SECONDS))
        since = await victim.kill()
        load.stop()
        survivor = next((node for node in nodes if node.is_up), None)
        if survivor is None:
            await victim.start()
            since = victim.started_at
            restarts.append(time.monotonic() - since)
        # What runs on the other node goes on, and must end as if nothing had happened.
        await load.answered()
        await check_all((survivor or victim).url, load.seen, since, verdict)
        await load.close()
        check_followed(load.seen, verdict)
        seen += load.seen
        if survivor is not None:
            await victim.start()
            restarts.append(time.monotonic() - victim.started_at)
        if sys.stderr.isatty():
            sys.stderr.write(f"\rround {number + 1} of {rounds}, {len(seen)} requests ")
    for node in nodes:
        await check_kept(node.url, verdict)
    return restarts


def _print(seen: list[Seen], verdict: Verdict, restarts: list[float], crashes: int) -> None:
    heads = ("asked", "told of", "cut off", "completed", "failed", "median", "p95", "longest")
    print(f"{'':20}" + "".join(f"{head:>10}" for head in heads))
    for kind in KINDS:
        of_kind = [one for one in seen if one.kind == kind]
        cells = [
            f"{len(of_kind):,}",
            f"{sum(bool(one.id) for one in of_kind):,}",
            f"{sum(one.is_cut for one in of_kind):,}",
            *(f"{verdict.statuses.get((kind, s), 0):,}" for s in ("completed", "failed")),
            *_times(verdict.ended_after.get(kind, [])),
        ]
        print(f"{kind:20}" + "".join(f"{cell:>10}" for cell in cells))
    print("\nmedian, p95, longest: until a response that was cut off had ended, goal", end=" ")
    print(f"{DEADLINE_SECONDS:.0f} s")
    print(f"streams resumed {verdict.resumed:,}, and {verdict.resumed_events:,} events in them")
    print(f"second readers {verdict.followers:,}, and {verdict.followed_events:,} events they saw")
    print(f"events replayed {verdict.replayed_events:,}")
    print(f"responses kept through all rounds {len(verdict.kept):,}")
    print(
        f"starts {statistics.median(restarts):.2f} s at the median, {max(restarts):.2f} s at most"
    )
    print(f"tracebacks in the gateways' logs {crashes}")
    counts = dict.fromkeys(("lost", "gap", "twice", "late", "changed", "fault"), 0)
    for violation in verdict.violations:
        counts[violation.partition(":")[0]] += 1
    print("broken: " + ", ".join(f"{what} {count}" for what, count in counts.items()))
    for violation in verdict.violations[:_SHOWN]:
        print(f"  {violation}")


def _times(seconds: list[float]) -> list[str]:
    if not seconds:
        return ["", "", ""]
    ordered = sorted(seconds)
    p95 = ordered[min(len(ordered) - 1, int(len(ordered) * 0.95))]
    return [f"{value:.2f} s" for value in (statistics.median(ordered), p95, ordered[-1])]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=100, help="how many kills (100)")
    parser.add_argument(
        "--store",
        choices=("sqlite", "postgres"),
        default="sqlite",
        help="one node on SQLite, or two on PostgreSQL",
    )
    parser.add_argument("--seed", type=int, default=1, help="of the load and the moments (1)")
    parser.add_argument("--quick", action="store_true", help=f"at most {_QUICK_ROUNDS} kills")
    options = parser.parse_args()
    count = min(options.rounds, _QUICK_ROUNDS) if options.quick else options.rounds
    try:
        broken = asyncio.run(main(count, options.store, options.seed))
    except Trouble as trouble:
        sys.exit(f"bench: {trouble}")
    sys.exit(1 if broken else 0)

"""What does a context cost that an agent sends whole, by its size?

An agent's history in our own words: the task, then again and again some reasoning, a call, what
the tool found, and now and then a sentence; 24 tools stand before it. Each request differs in
its last message. It is streamed, through the Responses door, once stored and once not, in front
of a chat upstream with a short answer. Figures are CPU of the gateway's process, all threads, for
one request and for each KiB of its body; beside them what msgspec needs to decode the body and
encode it again. The longest wait is that of a small request which comes meanwhile (`pinger.py`):
CPU time of the gateway until it is answered, the median of the rounds.

    python bench/contexts.py [--rounds 5] [--sizes 1,256,1024] [--before TREE] [--json FILE]
"""

from __future__ import annotations

import argparse
import http.client
import itertools
import json
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
from agent_request import agent_tools
from processes import Process, Trouble, code_of, gateway, machine, pinging, scratch, script

__all__ = ["SIZES", "agent_history", "main", "measure"]

SIZES: Final = (1, 16, 64, 256, 1024, 4096, 16384)
GOALS: Final = {"not stored": 10.0, "stored": 18.0}
"""CPU us per KiB, from 256 KiB to 4 MiB."""
_KIB: Final = 1024
_WARM_UP: Final = 2
_MOST_AT_ONCE: Final = 20
_KIB_A_ROUND: Final = 2048
_LONG: Final = 4096 * _KIB
"""From here on results of tools are longer: a gateway takes 100,000 values in a body at most."""
_PING_SECONDS: Final = 0.5
_PATH: Final = "/v1/responses"
_DONE: Final = b"data: [DONE]\n\n"

Body = dict[str, Any]


class Cost(NamedTuple):
    """What a request has cost: CPU seconds, and those until a small one was answered."""

    cpu: float
    longest: float


def main(rounds: int, sizes: Sequence[int], *, before: Path | None, to: Path | None) -> None:
    """Measure and print the table; write all samples to a file if there is one."""
    print(f"CPU of the gateway for a context sent whole, 24 tools, streamed ({machine()})")
    print(f"medians of {rounds}, lowest in brackets; goals us per KiB: {GOALS}\n")
    print(f"{'':9}{'':12}{'KiB':>7}{'ms':>22}{'us per KiB':>18}{'msgspec':>9}{'longest, ms':>13}")
    trees = {"before": before.resolve()} if before else {}
    found = measure(rounds, sizes, {**trees, "now": None})
    for (name, way, size), costs in found.items():
        kib, plain = _plain_cost(size)
        cpu = [one.cpu for one in costs]
        each = f"{_median(cpu) / kib * 1e6:.1f} ({min(cpu) / kib * 1e6:.1f})"
        whole = f"{_median(cpu) * 1e3:.2f} ({min(cpu) * 1e3:.2f})"
        longest = statistics.median(one.longest for one in costs) * 1e3
        row = f"{name:9}{way:12}{kib:7,.0f}{whole:>22}{each:>18}"
        print(f"{row}{plain / kib * 1e6:9.1f}{longest:13.1f}")
    if to is not None:
        to.write_text(json.dumps([[*key, costs] for key, costs in found.items()]))


def _median(costs: Sequence[float]) -> float:
    return statistics.median(costs)


def measure(
    rounds: int, sizes: Sequence[int], trees: dict[str, Path | None]
) -> dict[tuple[str, str, int], list[Cost]]:
    """Return what requests of each size have cost in each tree; the rounds take turns."""
    found: dict[tuple[str, str, int], list[Cost]] = {
        (name, way, size): [] for way in GOALS for size in sizes for name in trees
    }
    with ExitStack() as stack:
        serving = {name: stack.enter_context(_serving(tree)) for name, tree in trees.items()}
        numbers = itertools.count()
        for turn in range(rounds + 1):
            for (name, way, size), costs in found.items():
                cost = _ask(serving[name], size, way == "stored", numbers)
                if turn:  # the first is there to warm up
                    costs.append(cost)
    return found


@contextmanager
def _serving(tree: Path | None) -> Iterator[Process]:
    with ExitStack() as stack:
        directory = stack.enter_context(scratch())
        upstream = stack.enter_context(script("stamped.py"))
        url = f"http://127.0.0.1:{upstream.port}/v1"
        with code_of(tree):
            process = stack.enter_context(
                gateway("--upstream", url, store=directory / "contexts.db")
            )
        yield process


def _ask(process: Process, size: int, is_stored: bool, numbers: Iterator[int]) -> Cost:
    """Send some requests one after the other; return what one of them has cost.

    Small requests that come meanwhile cost something too, so they come with others.
    """
    count = max(1, min(_MOST_AT_ONCE, _KIB_A_ROUND // size))
    bodies = [_body(size, is_stored, next(numbers)) for _ in range(count)]
    connection = http.client.HTTPConnection("127.0.0.1", process.port, timeout=120)
    with closing(connection):
        cpu = process.cpu
        for body in bodies:
            _post(connection, body)
        cpu = process.cpu - cpu
        with pinging(process) as pings:
            time.sleep(_PING_SECONDS)
            _post(connection, _body(size, is_stored, next(numbers)))
    return Cost(cpu / count, pings["longest_cpu"])


def _post(connection: http.client.HTTPConnection, body: bytes) -> None:
    connection.request("POST", _PATH, body, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    told = answer.read()
    if answer.status != 200 or not told.endswith(_DONE):
        raise Trouble(f"{_PATH} answered with {answer.status}: {told[-300:]!r}")


def _plain_cost(size: int) -> tuple[float, float]:
    """Return the KiB of a body, and the CPU seconds to decode it and to encode that."""
    body = _body(size, False, 0)
    taken = []
    for _ in range(5):
        began = time.process_time()
        msgspec.json.encode(msgspec.json.decode(body))
        taken.append(time.process_time() - began)
    return len(body) / _KIB, min(taken)


def _body(size: int, is_stored: bool, turn: int) -> bytes:
    body: Body = {"model": "brief", "stream": True, "store": is_stored, "tools": agent_tools()}
    body["instructions"] = "You are a coding agent. Work in small steps and check each of them."
    body["input"] = agent_history(size * _KIB, turn)
    return msgspec.json.encode(body)


def agent_history(size: int, turn: int = 0) -> list[Body]:
    """Return items of about so many bytes, as an agent sends them back; `turn` is in the last."""
    items = [_said("user", "Find out why the build fails, and repair it.")]
    written = 0
    for step in itertools.count():
        more = _step(step, max(1, size // _LONG))
        written += len(msgspec.json.encode(more))
        if written > size:
            break
        items += more
    return [*items, _said("user", f"Go on with step {turn}.")]


def _step(step: int, times: int) -> list[Body]:
    """Return a thought, a call and what it has found; a sentence after every fourth.

    What it has found is so many `times` as long as usual.
    """
    call_id, path = f"call_{step:024}", f"src/package_{step % 7}/module_{step}.py"
    about = f"The test of {path} imports a name that is not there, so I read the file first."
    lines = [
        f'    value_{row} = settings.get("name_{row}", default={step})  # line {row} of the file'
        for row in range(times * (8 + step * 13 % 29))
    ]
    thought = {"type": "reasoning", "id": f"rs_{step:032}", "encrypted_content": "gAAAAAB" * 40}
    thought["summary"] = [{"type": "summary_text", "text": about}]
    call = {"type": "function_call", "id": f"fc_{step:032}", "call_id": call_id}
    call |= {"name": f"tool_{step % 24}", "arguments": json.dumps({"field_0": path, "limit": 200})}
    seen = {"type": "function_call_output", "call_id": call_id, "output": "\n".join(lines)}
    said = [_said("assistant", f"{path} needs another import; I change it.")]
    return [thought, call | {"status": "completed"}, seen, *(said if step % 4 == 3 else ())]


def _said(role: str, text: str) -> Body:
    kind = "output_text" if role == "assistant" else "input_text"
    part: Body = {"type": kind, "text": text}
    if role == "assistant":
        part["annotations"] = []
    return {"type": "message", "role": role, "content": [part]}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)), help="KiB, with commas")
    parser.add_argument("--before", type=Path, help="another checkout, in rounds that take turns")
    parser.add_argument("--json", type=Path, help="write every sample to this file")
    given = parser.parse_args()
    chosen = [int(size) for size in given.sizes.split(",")]
    try:
        main(given.rounds, chosen, before=given.before, to=given.json)
    except Trouble as trouble:
        sys.exit(f"contexts.py: {trouble}")

"""What does a request, and what does a streamed token, cost the gateway?

One worker with metrics on and a durable SQLite store, beside two processes that pass the
same upstream bytes on without looking at them (see proxy.py). Their repeats are interleaved, and
what is compared is CPU seconds of the server process alone; wall-clock figures are shown to
judge the run by, not to be believed on a busy machine.

    python bench/cost.py [REPEATS]
"""

from __future__ import annotations

import statistics
import sys
from contextlib import ExitStack
from typing import Final, NamedTuple

from processes import Process, Trouble, gateway, load, machine, scratch, script
from upstream import BURST_TOKENS, LAST_WORD, PACED_TOKENS

__all__ = ["main"]

REPEATS: Final = 5
_CHAT_TOKEN: Final = '"delta":{"content"'
_OUR_TOKEN: Final = "event: response.output_text.delta\n"  # no password


class _Case(NamedTuple):
    """What is asked for, how often, and how many units of work one answer is."""

    name: str
    model: str
    unit: str
    scale: float
    connections: int
    requests: int
    units: int
    goal: str


_CASES: Final = (
    _Case("stored request", "whole", "ms", 1e3, 16, 1500, 1, "< 1 ms"),
    _Case("streamed token, 16 to a read", "burst", "us", 1e6, 16, 160, BURST_TOKENS, "< 15 us"),
    _Case("streamed token, 1 to a read", "paced", "us", 1e6, 40, 40, PACED_TOKENS, ""),
)


class _Sample(NamedTuple):
    cost: float
    rate: float
    server: float
    load: float
    upstream: float


def main(repeats: int = REPEATS) -> None:
    """Measure and print the table."""
    print(f"CPU of the server process ({machine()})")
    with ExitStack() as stack:
        directory = stack.enter_context(scratch())
        upstream = stack.enter_context(script("upstream.py"))
        url = f"http://127.0.0.1:{upstream.port}/v1"
        targets = {
            "gateway": stack.enter_context(gateway("--upstream", url, store=directory / "cost.db")),
            "relay": stack.enter_context(script("proxy.py", "relay", upstream.port)),
            "pump": stack.enter_context(script("proxy.py", "pump", upstream.port)),
        }
        samples: dict[tuple[str, str], list[_Sample]] = {}
        for case in _CASES:  # the first requests of a process pay for its imports
            for name, target in targets.items():
                _measure(case._replace(requests=case.connections), name, target, upstream)
        for repeat in range(repeats):
            for case in _CASES:
                for name in sorted(targets, reverse=bool(repeat % 2)):
                    sample = _measure(case, name, targets[name], upstream)
                    samples.setdefault((case.model, name), []).append(sample)
        _print(samples, repeats)
        print(f"\nmemory after this: gateway {targets['gateway'].memory:.0f} MiB")


def _measure(case: _Case, name: str, target: Process, upstream: Process) -> _Sample:
    is_ours = name == "gateway"
    is_stream = case.model != "whole"
    prompt = "Tell me of the lighthouse and its keeper."
    body: dict[str, object] = {"model": case.model, "stream": is_stream}
    if is_ours:
        body |= {"instructions": "You are brief.", "input": prompt, "store": True}
    else:
        system = {"role": "system", "content": "You are brief."}
        body["messages"] = [system, {"role": "user", "content": prompt}]
    token = _OUR_TOKEN if is_ours else _CHAT_TOKEN
    before, upstream_before = target.cpu, upstream.cpu
    result = load(
        target,
        "/v1/responses" if is_ours else "/v1/chat/completions",
        body,
        connections=case.connections,
        requests=case.requests,
        marker=token if is_stream else LAST_WORD,
        times=case.units,
    )
    spent, units = target.cpu - before, case.requests * case.units
    seconds = result["seconds"]
    return _Sample(
        spent / units * case.scale,
        units / seconds,
        spent / seconds,
        result["cpu"] / seconds,
        (upstream.cpu - upstream_before) / seconds,
    )


def _print(samples: dict[tuple[str, str], list[_Sample]], repeats: int) -> None:
    print(f"medians of {repeats}, lowest and highest in brackets\n")
    print(f"{'':29} {'gateway':>24} {'relay':>8} {'pump':>8} {'to relay':>9} {'to pump':>8}  goal")
    for case in _CASES:
        costs = {
            name: [sample.cost for sample in samples[case.model, name]]
            for name in ("gateway", "relay", "pump")
        }
        middle = {name: statistics.median(values) for name, values in costs.items()}
        ours = costs["gateway"]
        shown = f"{middle['gateway']:.3g} {case.unit} [{min(ours):.3g} … {max(ours):.3g}]"
        print(
            f"{case.name:29} {shown:>24} {middle['relay']:8.3g} {middle['pump']:8.3g}"
            f" {middle['gateway'] / middle['relay']:8.1f}x"
            f" {middle['gateway'] / middle['pump']:7.1f}x  {case.goal}"
        )
    print("\nwho was busy, in cores, while the gateway was measured; what it did in a second")
    for case in _CASES:
        taken = [
            statistics.median(column)
            for column in zip(*samples[case.model, "gateway"], strict=True)
        ]
        _, rate, server, client, upstream = taken
        print(
            f"{case.name:29} gateway {server:.2f}, load {client:.2f}, upstream {upstream:.2f};"
            f" {rate:,.0f}/s"
        )


if __name__ == "__main__":
    try:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else REPEATS)
    except Trouble as trouble:
        sys.exit(f"cost.py: {trouble}")

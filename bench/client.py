"""What does an event cost whoever asks? Our clients beside the official SDK.

The same stream of 10,008 events over loopback, read to its end by each client in a process of
its own; what counts is the CPU time of that process. Each run is a fresh process, which reads
the stream once for nothing, and then for half a second of CPU for the record; runs of different
clients are interleaved. Ours keep account of the response, too; the SDK only hands out events.

    python bench/client.py [REPEATS] [--json FILE]

Without the SDK (`pip install openai`) only our own figures are shown.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from native import EVENTS, whole_response
from processes import HERE, Process, Trouble, machine, script

__all__ = ["main"]

REPEATS: Final = 3
_CALLS: Final = 50
_CPU_SECONDS: Final = 0.5
_PARSES: Final = 2000
_RUN_SECONDS: Final = 120.0
_SDK: Final = "openai SDK"


class _Sample(NamedTuple):
    cpu: float
    clock: float


# What a client process does: each returns what reads one answer to the end.


@contextmanager
def _sdk(port: int, model: str) -> Iterator[Callable[[], int]]:
    from openai import OpenAI

    with OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="x", max_retries=0) as client:

        def read() -> int:
            return sum(1 for _ in client.responses.create(model=model, input="hi", stream=True))

        def ask() -> int:
            return len(client.responses.create(model=model, input="hi").output_text)

        yield ask if model == "whole" else read


@contextmanager
def _sdk_async(port: int, model: str) -> Iterator[Callable[[], int]]:
    from openai import AsyncOpenAI

    client = AsyncOpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="x", max_retries=0)

    async def read() -> int:
        count = 0
        async for _ in await client.responses.create(model=model, input="hi", stream=True):
            count += 1
        return count

    with asyncio.Runner() as runner:
        yield lambda: runner.run(read())
        runner.run(client.close())


@contextmanager
def _ours(port: int, model: str) -> Iterator[Callable[[], int]]:
    from antiphon.client import Client

    with Client(base_url=f"http://127.0.0.1:{port}/v1", api_key="x", environ={}) as client:

        def read() -> int:
            with client.stream(model=model, input="hi") as stream:
                count = sum(1 for _ in stream)
                _check(stream.final_response().output_text)
            return count

        def ask() -> int:
            return len(client.create(model=model, input="hi").output_text)

        yield ask if model == "whole" else read


@contextmanager
def _ours_async(port: int, model: str) -> Iterator[Callable[[], int]]:
    from antiphon.client import AsyncClient

    client = AsyncClient(base_url=f"http://127.0.0.1:{port}/v1", api_key="x", environ={})

    async def read() -> int:
        count = 0
        async with client.stream(model=model, input="hi") as stream:
            async for _ in stream:
                count += 1
            _check((await stream.final_response()).output_text)
        return count

    async def ask() -> int:
        return len((await client.create(model=model, input="hi")).output_text)

    with asyncio.Runner() as runner:
        yield lambda: runner.run(ask() if model == "whole" else read())
        runner.run(client.close())


@contextmanager
def _ours_batches(port: int, model: str) -> Iterator[Callable[[], int]]:
    from antiphon.client import AsyncClient

    client = AsyncClient(base_url=f"http://127.0.0.1:{port}/v1", api_key="x", environ={})

    async def read() -> int:
        count = 0
        async with client.stream(model=model, input="hi") as stream:
            async for batch in stream.batches():
                count += len(batch)
            _check((await stream.final_response()).output_text)
        return count

    with asyncio.Runner() as runner:
        yield lambda: runner.run(read())
        runner.run(client.close())


_CLIENTS: Final = {
    _SDK: _sdk,
    "openai SDK, async": _sdk_async,
    "AsyncClient": _ours_async,
    "AsyncClient, batches": _ours_batches,
    "Client": _ours,
}
_PLAIN: Final = (_SDK, "AsyncClient", "Client")
_CASES: Final = {"fast": tuple(_CLIENTS), "single": _PLAIN, "whole": _PLAIN}


def _check(text: str) -> None:
    if not text.endswith(" w9999"):
        raise Trouble("the text is not whole")


def _run(name: str, port: int, model: str) -> _Sample:
    """Be the client process: once for nothing, then for the record. Return the cost of one."""
    with _CLIENTS[name](port, model) as work:
        for _ in range(_CALLS if model == "whole" else 1):
            count = work()
        if model != "whole" and count != EVENTS:
            raise Trouble(f"{name} saw {count} events, not {EVENTS}")
        times, cpu, clock = 0, time.process_time(), time.perf_counter()
        while (spent := time.process_time() - cpu) < _CPU_SECONDS:
            work()
            times += 1
        return _Sample(spent / times, (time.perf_counter() - clock) / times)


def _measure(name: str, server: Process, model: str) -> _Sample:
    done = subprocess.run(
        [sys.executable, str(HERE / "client.py"), "--be", name, str(server.port), model],
        capture_output=True,
        text=True,
        timeout=_RUN_SECONDS,
        check=False,
    )
    if done.returncode:
        raise Trouble(f"{name}: {done.stderr.strip().splitlines()[-1]}")
    return _Sample(*json.loads(done.stdout))


def _parse_seconds() -> float:
    """Return the CPU seconds from the bytes of a whole answer to the response."""
    from antiphon.client.wires import ResponsesWire
    from antiphon.protocol.machines.accumulator import ResponseAccumulator

    body = whole_response()

    def parse() -> None:
        accumulator = ResponseAccumulator()
        accumulator.feed_all(ResponsesWire({}).whole(body))
        if accumulator.finish().usage is None:
            raise Trouble("the response is not whole")

    for _ in range(_PARSES):
        parse()
    cpu = time.process_time()
    for _ in range(_PARSES):
        parse()
    return (time.process_time() - cpu) / _PARSES


def main(repeats: int = REPEATS, json_file: Path | None = None) -> None:
    """Measure and print the tables."""
    print(f"CPU of the client process ({machine()})")
    has_sdk = importlib.util.find_spec("openai") is not None
    samples: dict[tuple[str, str], list[_Sample]] = {}
    with script("native.py") as server:
        for repeat in range(repeats):
            for model, names in _CASES.items():
                for name in names[:: -1 if repeat % 2 else 1]:
                    if has_sdk or not name.startswith(_SDK):
                        sample = _measure(name, server, model)
                        samples.setdefault((model, name), []).append(sample)
    parses = [_parse_seconds() for _ in range(repeats)]
    print(f"medians of {repeats}, lowest and highest in brackets\n")
    figures = [
        *_print_streams(f"{EVENTS:,} events, as fast as they are read", "fast", samples, "40x"),
        *_print_streams(f"{EVENTS:,} events, one to a write", "single", samples, ""),
        *_print_calls(samples),
    ]
    micros = [seconds * 1e6 for seconds in parses]
    size = len(whole_response())
    print(
        f"\nfrom the {size:,} bytes of a whole answer to the response: "
        f"{statistics.median(micros):.1f} us [{min(micros):.1f} … {max(micros):.1f}]   < 100 us"
    )
    if not has_sdk:
        print("the openai SDK is not installed here, so it was not measured")
    figures.append({"what": "parse", "client": "ours", "cpu_us": micros, "bytes": size})
    if json_file is not None:
        json_file.write_text(json.dumps({"machine": machine(), "figures": figures}, indent=2))


def _print_streams(
    title: str, model: str, samples: dict[tuple[str, str], list[_Sample]], goal: str
) -> list[dict[str, object]]:
    print(f"{title:40} {'events per CPU second':>33} {'us each':>8} {'to SDK':>8}  goal")
    figures: list[dict[str, object]] = []
    base = _median_cpu(samples, model, _SDK)
    for name in _CLIENTS:
        taken = samples.get((model, name))
        if not taken:
            continue
        rates = [EVENTS / sample.cpu for sample in taken]
        cpu = _median_cpu(samples, model, name)
        ratio = "" if base is None or cpu is None else f"{base / cpu:.1f}x"
        middle = statistics.median(rates)
        shown = f"{middle:,.0f} [{min(rates):,.0f} … {max(rates):,.0f}]"
        ours = "" if name.startswith(_SDK) else goal
        print(f"  {name:38} {shown:>33} {1e6 / middle:8.2f} {ratio:>8}  {ours}")
        figures.append({"what": model, "client": name, "events_per_cpu_second": rates})
    print()
    return figures


def _print_calls(samples: dict[tuple[str, str], list[_Sample]]) -> list[dict[str, object]]:
    print(f"{'create(), not streamed':40} {'CPU us a call':>33} {'by clock':>8} {'to SDK':>8}")
    figures: list[dict[str, object]] = []
    base = _median_cpu(samples, "whole", _SDK)
    for name in _PLAIN:
        taken = samples.get(("whole", name))
        if not taken:
            continue
        costs = [sample.cpu * 1e6 for sample in taken]
        clock = statistics.median(sample.clock for sample in taken) * 1e6
        middle = statistics.median(costs)
        ratio = "" if base is None else f"{base * 1e6 / middle:.1f}x"
        shown = f"{middle:,.0f} [{min(costs):,.0f} … {max(costs):,.0f}]"
        print(f"  {name:38} {shown:>33} {clock:8,.0f} {ratio:>8}")
        figures.append({"what": "create", "client": name, "cpu_us": costs, "clock_us": clock})
    return figures


def _median_cpu(
    samples: dict[tuple[str, str], list[_Sample]], model: str, name: str
) -> float | None:
    taken = samples.get((model, name))
    return statistics.median(sample.cpu for sample in taken) if taken else None


def _read_arguments(arguments: list[str]) -> tuple[int, Path | None]:
    json_file = None
    if "--json" in arguments:
        place = arguments.index("--json")
        json_file = Path(arguments[place + 1])
        del arguments[place : place + 2]
    return int(arguments[0]) if arguments else REPEATS, json_file


if __name__ == "__main__":
    try:
        if sys.argv[1:2] == ["--be"]:
            print(json.dumps(_run(sys.argv[2], int(sys.argv[3]), sys.argv[4])))
        else:
            main(*_read_arguments(sys.argv[1:]))
    except Trouble as trouble:
        sys.exit(f"client.py: {trouble}")

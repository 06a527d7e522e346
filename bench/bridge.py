"""What does the bridge add to a provider in the same process, and how fast does it count?

The same questions go to the same gateway, in turns: through a `Provider` of this process, and
through `antiphon host`. First parts are compared at the median. CPU for a part is that of this
process with a provider, and that of the bridge's process: for an answer that comes as fast as it is
read, and so in large batches, and for one whose parts come one by one, as those of a model do.

    python bench/bridge.py [ROUNDS]
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final

from processes import Trouble, cpu_seconds, gateway, machine, run_loop, scratch

from antiphon.client import AsyncClient
from antiphon.host import RESPONSES_FOR_ALL, Message, Provider, ProviderSettings, ResponsePart
from antiphon.host.bridge.client import AskSettings, BridgeClient

__all__ = ["main"]

_ROUNDS: Final = 200
_WORDS: Final = 5000
_COUNTS: Final = 5000
_PACED: Final = 1000
_PACE_SECONDS: Final = 0.004
_MODEL: Final = "echo"
_DELTA: Final = {
    "type": "response.output_text.delta",
    "item_id": "msg_1",
    "output_index": 0,
    "content_index": 0,
    "delta": "word ",
}
_SHORT: Final = [Message.user("Hello there")]
_LONG: Final = [Message.user("word " * _WORDS)]

_Ask = Callable[[Sequence[Message]], AsyncIterator[ResponsePart]]


async def main(rounds: int) -> None:
    """Measure and print."""
    print(f"The bridge ({machine()})\n")
    with scratch() as directory:
        settings = directory / "antiphon.toml"
        settings.write_text('[providers.echo]\nwire_api = "scripted"\n')
        with gateway("--config", str(settings), store=directory / "store.db") as server:
            url = f"http://127.0.0.1:{server.port}/v1"
            async with (
                AsyncClient(base_url=url, environ={}) as client,
                Provider(client, ProviderSettings(gate=RESPONSES_FOR_ALL)) as provider,
                await BridgeClient.start(settings=AskSettings(base_url=url)) as bridge,
            ):
                await _measure(provider, bridge, rounds)
    await _measure_paced()


async def _measure(provider: Provider, bridge: BridgeClient, rounds: int) -> None:
    def direct(messages: Sequence[Message]) -> AsyncIterator[ResponsePart]:
        return aiter(provider.stream(_MODEL, messages))

    def bridged(messages: Sequence[Message]) -> AsyncIterator[ResponsePart]:
        return aiter(bridge.respond(_MODEL, messages))

    for ask in (direct, bridged):
        await _first_part(ask)
    times = [(await _first_part(direct), await _first_part(bridged)) for _ in range(rounds)]
    alone, through = (statistics.median(it) * 1000 for it in zip(*times, strict=True))
    added = through - alone
    print(
        f"first part, p50 of {rounds}   provider {alone:6.2f} ms   bridge {through:6.2f} ms", end=""
    )
    print(f"   added {added:+.2f} ms (goal: +5 ms)")

    before = time.process_time()
    parts = await _read(direct)
    alone = (time.process_time() - before) / parts * 1e6
    before = cpu_seconds(bridge.process.pid)
    parts = await _read(bridged)
    through = (cpu_seconds(bridge.process.pid) - before) / parts * 1e6
    print(f"CPU for a part, of {parts}    provider {alone:6.1f} us   bridge {through:6.1f} us\n")
    await _count(bridge)


async def _measure_paced() -> None:
    server = await asyncio.start_server(_answer_slowly, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    async with server, await BridgeClient.start(settings=AskSettings(base_url=url)) as bridge:
        await bridge.count(_MODEL, ["a"])
        before, count = cpu_seconds(bridge.process.pid), 0
        async for _ in bridge.respond(_MODEL, _SHORT):
            count += 1
        cost = (cpu_seconds(bridge.process.pid) - before) / count * 1e6
    print(
        f"CPU for a part, of {count}, one every {_PACE_SECONDS * 1000:g} ms    bridge {cost:.0f} us"
    )


async def _answer_slowly(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer one request, a word at a time."""
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n")
    text = {"type": "output_text", "text": "word " * _PACED, "annotations": []}
    item = {"id": "msg_1", "type": "message", "role": "assistant", "content": [text]}
    start = {"type": "response.created", "response": {"id": "resp_1", "status": "in_progress"}}
    whole = {"id": "resp_1", "status": "completed", "output": [item]}
    end = {"type": "response.completed", "response": whole}
    for event in (start, *[_DELTA] * _PACED, end):
        writer.write(b"data: %b\n\n" % json.dumps(event).encode())
        await writer.drain()
        await asyncio.sleep(_PACE_SECONDS)
    writer.close()


async def _first_part(ask: _Ask) -> float:
    begun = time.perf_counter()
    parts = ask(_SHORT)
    await anext(parts)
    took = time.perf_counter() - begun
    async for _ in parts:
        pass
    return took


async def _read(ask: _Ask) -> int:
    count = 0
    async for _ in ask(_LONG):
        count += 1
    if count < _WORDS // 2:
        raise Trouble(f"only {count} parts came")
    return count


async def _count(bridge: BridgeClient) -> None:
    texts = [
        f"text number {n} of a tool's description, as an editor counts them" for n in range(_COUNTS)
    ]
    await bridge.count(_MODEL, texts[:1])
    for what in ("new texts", "known texts"):
        times = []
        for text in texts:
            begun = time.perf_counter()
            await bridge.count(_MODEL, [text])
            times.append((time.perf_counter() - begun) * 1000)
        p50, p99 = statistics.median(times), statistics.quantiles(times, n=100)[98]
        print(
            f"{_COUNTS} counts one by one, {what:11}  p50 {p50:.3f} ms   p99 {p99:.3f} ms", end=""
        )
        print("   (goal: p99 1 ms)" if p99 > 0 else "")
    begun = time.perf_counter()
    await asyncio.gather(*(bridge.count(_MODEL, [text]) for text in texts))
    took = (time.perf_counter() - begun) * 1000
    print(f"{_COUNTS} counts in a burst    {took:.0f} ms, {took / _COUNTS:.3f} ms each")
    begun = time.perf_counter()
    await bridge.count(_MODEL, texts)
    took = (time.perf_counter() - begun) * 1000
    print(f"{_COUNTS} texts in one message {took:.0f} ms, {took / _COUNTS:.3f} ms each")


if __name__ == "__main__":
    try:
        run_loop(main(int(sys.argv[1]) if sys.argv[1:] else _ROUNDS))
    except Trouble as trouble:
        sys.exit(str(trouble))

"""How long does a revoked key work on?

A gateway with two workers on one SQLite file, and clients with a key of their own each: some read
streams whose model has fallen silent, the others ask again and again. Then `antiphon keys revoke`
revokes every key from another process. Printed is how long after that the last stream ended, with
which code, and when the last request was still answered.

    python bench/revoke.py [--keys 20] [--seconds 8]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from typing import Final

import aiohttp
from processes import gateway, machine, run_loop, scratch

from antiphon.server.auth import new_key
from antiphon.store import KeyRecord
from antiphon.store.sqlite import SqliteStore
from antiphon.testing import Script, ScriptedUpstream, Stall

__all__ = ["main"]

_STALLED: Final = Script(text="one two three", faults=[Stall(after=3)])
_PAUSE: Final = 0.02


async def main(keys: int, seconds: float) -> None:
    """Measure and print."""
    print(f"Revoked keys, two workers ({machine()})")
    with scratch() as directory:
        store = SqliteStore(directory / "store.db")
        made = [new_key(f"owner{number}", int(time.time())) for number in range(keys)]
        for _, record in made:
            await store.add_key(record)
        async with ScriptedUpstream(_STALLED) as upstream:
            settings = directory / "antiphon.toml"
            settings.write_text("require_keys = true\nworkers = 2\n")
            flags = ("--config", str(settings), "--upstream", upstream.base_url)
            with gateway(*flags, store=directory / "store.db") as process:
                records = [record for _, record in made]
                clients = _Clients(process.port, seconds)
                await clients.run([key for key, _ in made], store, records)
        await store.close()
    clients.report()


class _Clients:
    """Clients with a key of their own each."""

    def __init__(self, port: int, seconds: float) -> None:
        self._base = f"http://127.0.0.1:{port}/v1"
        self._seconds = seconds
        self._revoked_at = 0.0
        self._ends: list[tuple[float, str]] = []
        self._last_answer = 0.0

    async def run(self, keys: list[str], store: SqliteStore, records: list[KeyRecord]) -> None:
        """Let all clients work, revoke their keys in the middle, and wait for the ends."""
        async with aiohttp.ClientSession() as session, asyncio.TaskGroup() as group:
            started = [asyncio.Event() for _ in keys]
            for key, event in zip(keys, started, strict=True):
                headers = {"Authorization": f"Bearer {key}"}
                group.create_task(self._stream(session, headers, event))
            await asyncio.gather(*(event.wait() for event in started))
            for key in keys:
                group.create_task(self._ask(session, {"Authorization": f"Bearer {key}"}))
            await asyncio.sleep(1.0)
            for record in records:
                await store.revoke_key(record.id, int(time.time()))
            self._revoked_at = time.monotonic()

    async def _stream(
        self, session: aiohttp.ClientSession, headers: dict[str, str], started: asyncio.Event
    ) -> None:
        body = {"model": "echo", "input": "hello", "stream": True}
        url = f"{self._base}/responses"
        try:
            async with (
                asyncio.timeout(self._seconds + 5),
                session.post(url, json=body, headers=headers) as answer,
            ):
                async for line in answer.content:
                    if b'"response.output_text.delta"' in line:
                        started.set()
                    if line.startswith(b'data: {"type":"response.failed"'):
                        code = json.loads(line[6:])["response"]["error"]["code"]
                        self._ends.append((time.monotonic(), code))
        except TimeoutError:
            self._ends.append((time.monotonic(), "still running"))

    async def _ask(self, session: aiohttp.ClientSession, headers: dict[str, str]) -> None:
        until = time.monotonic() + 1.0 + self._seconds
        while time.monotonic() < until:
            async with session.get(f"{self._base}/responses/x", headers=headers) as answer:
                if answer.status != 401:
                    self._last_answer = max(self._last_answer, time.monotonic())
            await asyncio.sleep(_PAUSE)

    def report(self) -> None:
        """Print what was seen."""
        codes = sorted({code for _, code in self._ends})
        last = max(moment for moment, _ in self._ends) - self._revoked_at
        print(f"{len(self._ends)} streams ended: {', '.join(codes)}; the last after {last:.2f} s")
        print(
            f"the last request was answered {self._last_answer - self._revoked_at:.2f} s after it"
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=8.0)
    given = parser.parse_args()
    run_loop(main(given.keys, given.seconds))

"""How fast are the screens of the dashboard drawn, with many responses and charges stored?

    python bench/ui.py [--responses 1000000] [--charges 10000000] [--runs 12] [--folder FOLDER]

A file with so many charges (two a second, of 200 keys in 20 projects: see `ledger.py`) and stored
responses is generated once and kept in the folder. A real gateway serves it, with the interpreter
settings of `antiphon serve`, and a real browser opens each screen anew: the time is from the
beginning of the navigation until the figures are in the page and two frames were drawn. The clock
of the page stands at the last charge. Responses are copies of one that was stored, under ids of
their own; the one that is opened was streamed before.

It needs what `python -m tests.ui.install` installs, and prints p50 and max for each screen, the
bytes of the dashboard in the wheel, and the number of its files. Figures depend on the load, which
is printed too.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import secrets
import sqlite3
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from statistics import median
from typing import Any, Final

import aiohttp
import msgspec
from ledger import START, generate

from antiphon.backends.chat import ChatBackend
from antiphon.gateway.assemble import ServerSettings
from antiphon.gateway.config import Settings
from antiphon.gateway.serve import settle_interpreter
from antiphon.gateway.tool_terms import tool_terms
from antiphon.server.limits import ServerLimits
from antiphon.store.base import Project, Store
from antiphon.store.sqlite import SqliteStore
from antiphon.store.sqlite.connection import connect
from antiphon.testing import Script, ScriptedUpstream
from antiphon.testing.gateway import Gateway, serve_gateway

ROOT: Final = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from tests.clients.install import node, node_modules  # noqa: E402 # found by the line above
from tests.server.api.organization.books import key_of  # noqa: E402
from tests.ui.install import NPM  # noqa: E402
from tests.vscode.install import browser  # noqa: E402

__all__ = ["main"]

_GOAL_MS: Final = 300.0
_PATIENCE: Final = 900
_PROJECT: Final = "project3"
_KEEP: Final = ServerLimits(retention_days=36_500, charge_retention_days=36_500)
_DRIVER: Final = Path(__file__).parent / "ui.mjs"
_TEXT: Final = "A gateway keeps every event of a stream. " * 40
_SHORT: Final = "Yes."
"""What the response says that is copied: a million of them must fit on a disk."""


def main(options: argparse.Namespace) -> int:
    """Measure, and return the exit code."""
    path = _filled(options.folder, options.charges, options.responses)
    return _report(asyncio.run(_measure(path, options)), options)


async def _measure(path: Path, options: argparse.Namespace) -> dict[str, list[float]]:
    store = SqliteStore(path)
    try:
        async with ScriptedUpstream(lambda body: Script(text=_TEXT)) as upstream:
            terms = tool_terms(Settings(), {})
            settings = ServerSettings(ui=True, limits=_KEEP, tool_terms=terms)
            async with serve_gateway(
                {"farm": ChatBackend(upstream.base_url)}, store=store, settings=settings
            ) as gateway:
                await _prepare(store)
                screens = _screens(await _ask(gateway))
                end = START + options.charges // 2
                settle_interpreter()
                return await _open_screens(gateway, screens, end, options.runs)
    finally:
        await store.close()


def _filled(folder: Path, charges: int, responses: int) -> Path:
    """Return a file with so many charges and responses, generated if it is not there."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"ui-{charges}-{responses}.db"
    if not path.exists():
        part = folder / f"ui-{charges}.db"
        if not part.exists():
            generate(part, charges)
        begun = time.monotonic()
        _add_responses(part, responses)
        print(f"{responses:,} responses added in {time.monotonic() - begun:.0f} s")
        part.rename(path)
    print(f"{charges:,} charges and {responses:,} responses: {path.stat().st_size / 1e9:.2f} GB")
    return path


def _add_responses(path: Path, count: int) -> None:
    """Store one response, and copy its rows under other ids."""
    made = asyncio.run(_store_one(path))
    with closing(connect(path, patience=30.0)) as connection:
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("BEGIN")
        for table, key in (("responses", "key"), ("items", "response"), ("logs", "response")):
            _copy(connection, table, key, made, count)
        connection.execute("COMMIT")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


async def _store_one(path: Path) -> str:
    store = SqliteStore(path)
    async with (
        ScriptedUpstream(lambda body: Script(text=_SHORT)) as upstream,
        serve_gateway(
            ChatBackend(upstream.base_url), store=store, settings=ServerSettings(limits=_KEEP)
        ) as gateway,
    ):
        made = await _ask(gateway)
    await store.close()
    return made


def _copy(connection: sqlite3.Connection, table: str, key: str, made: str, count: int) -> None:
    """Copy the rows of one response in a table `count` times, with keys after the last one."""
    [(first,)] = connection.execute("SELECT key FROM responses WHERE id = ?", (made,)).fetchall()
    found = connection.execute(f"SELECT * FROM {table} WHERE {key} = ?", (first,))
    columns = [name for name, *_ in found.description]
    rows = [dict(zip(columns, row, strict=True)) for row in found]

    def copies() -> Iterator[tuple[Any, ...]]:
        for number in range(1, count + 1):
            for row in rows:
                fresh = {**row, key: first + number}
                if table == "responses":
                    fresh["id"] = f"resp_ap-{secrets.token_hex(24)}"
                yield tuple(fresh.values())

    marks = ", ".join("?" * len(columns))
    connection.executemany(f"INSERT INTO {table} VALUES ({marks})", copies())


async def _prepare(store: Store) -> None:
    """Make the project that is opened, with keys; the charges know it by its name only."""
    if await store.projects.get(_PROJECT) is None:
        await store.projects.create(Project(_PROJECT, "The third", START))
    if not await store.list_keys(_PROJECT):
        for number in range(10):
            await key_of(store, _PROJECT, name=f"key {number}")


async def _ask(gateway: Gateway) -> str:
    """Stream one response; return its id."""
    body = {"model": "echo", "input": "What is kept?", "stream": True}
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{gateway.base_url}/responses", json=body) as answer,
    ):
        lines = (await answer.text()).splitlines()
    first = next(line for line in lines if line.startswith("data: "))
    made: str = msgspec.json.decode(first.removeprefix("data: "))["response"]["id"]
    return made


def _screens(response: str) -> dict[str, tuple[str, str]]:
    """Return for each screen its address, and what is in the page when it is drawn."""
    overview, rows = ".plot canvas", ".list td a"
    return {
        "overview, 1 hour": ("/ui?range=1h", overview),
        "overview, 24 hours": ("/ui", overview),
        "overview, 7 days": ("/ui?range=7d", overview),
        "overview, 30 days": ("/ui?range=30d", overview),
        "overview of a project, 30 days": (f"/ui?range=30d&project={_PROJECT}", overview),
        "overview of a model, 30 days": ("/ui?range=30d&model=model3", overview),
        "requests": ("/ui/requests", rows),
        "requests of a project": (f"/ui/requests?project={_PROJECT}", rows),
        "requests of a key": ("/ui/requests?key=key7", rows),
        "requests of a model": ("/ui/requests?model=model3", rows),
        "requests that were cancelled": ("/ui/requests?status=cancelled", rows),
        "requests of a conversation": ("/ui/requests?conversation=conv_5", rows),
        "response": (f"/ui/responses/{response}", ".play:not([disabled])"),
        "playground": ("/ui/playground", ".pg-lane"),
        "keys and budgets": ("/ui/access", "td a"),
        "project": (f"/ui/access/{_PROJECT}", "td a"),
        "files": ("/ui/files", "main .note"),
        "vector stores": ("/ui/stores", "main .note"),
        "tools": ("/ui/tools", "td"),
        "health": ("/ui/health", ".card"),
    }


async def _open_screens(
    gateway: Gateway, screens: dict[str, tuple[str, str]], end: int, runs: int
) -> dict[str, list[float]]:
    facts = {
        "root": gateway.base_url.removesuffix("/v1"),
        "screens": {
            name: {"path": path, "ready": ready} for name, (path, ready) in screens.items()
        },
        "end": end,
        "runs": runs,
    }
    with tempfile.TemporaryDirectory() as profile:
        arguments = (_DRIVER, node_modules(NPM), browser(), profile)
        run = await asyncio.create_subprocess_exec(
            str(node()),
            *map(str, arguments),
            msgspec.json.encode(facts).decode(),
            stdout=asyncio.subprocess.PIPE,
        )
        async with asyncio.timeout(_PATIENCE):
            output, _ = await run.communicate()
    if run.returncode:
        raise SystemExit("the browser failed; its message is above")
    return msgspec.json.decode(output, type=dict[str, list[float]])


def _report(times: dict[str, list[float]], options: argparse.Namespace) -> int:
    width = max(map(len, times))
    for name, found in times.items():
        missed = " MISSED" if median(found) > _GOAL_MS else ""
        print(f"  {name:<{width}}  p50 {median(found):6.0f} ms  max {max(found):6.0f} ms{missed}")
    files = [path for path in (ROOT / "src/antiphon/ui").rglob("*") if path.is_file()]
    size = sum(path.stat().st_size for path in files)
    print(f"dashboard in the wheel: {size:,} bytes in {len(files)} files")
    slow = [name for name, found in times.items() if median(found) > _GOAL_MS]
    load = os.getloadavg()[0]
    print(
        f"{len(times) - len(slow)} of {len(times)} screens within {_GOAL_MS:.0f} ms at the "
        f"median of {options.runs} runs (load {load:.1f})"
    )
    return 1 if slow else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--responses", type=int, default=1_000_000)
    parser.add_argument("--charges", type=int, default=10_000_000)
    parser.add_argument("--runs", type=int, default=12)
    parser.add_argument("--folder", type=Path, default=ROOT / ".cache" / "bench")
    sys.exit(main(parser.parse_args()))

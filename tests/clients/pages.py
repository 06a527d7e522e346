"""The pages in docs/clients: what works with which version of which client.

They are made from the record of the suite and the table of clients, and by nothing else, so they
cannot claim what was not run.

    python -m tests.clients.pages            prints what would be written
    python -m tests.clients.pages --write    writes it
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.clients.index import CLIENTS, Client
from tests.clients.install import ROOT
from tests.clients.results import RECORD, Record, Turn, read

__all__ = ["FOLDER", "main", "pages", "stale"]

FOLDER: Final = RECORD.parent
_MADE: Final = (
    "This page is made from the results of the suite that runs the client: "
    "`python -m tests.clients.pages --write`."
)
_INTRODUCTION: Final = f"""\
# Clients

What unmodified clients do through antiphon on a plain chat-completions backend. Each row links to
a page with the turns that were run, and how. Unless a turn names the embedded model, the backend is
a scripted one: it shows what the client and the gateway do, not what a model makes of it.

`antiphon connect CLIENT` prints the settings for a client, and `--write` puts them in place.

{_MADE.replace("This page is", "These pages are").replace("the client", "the clients")}
"""
_HEAD: Final = "| client | version | API | turns | last run |\n|---|---|---|---|---|"


def pages(record: Mapping[str, Record]) -> dict[Path, str]:
    """Return every page by its path, seen from the root."""
    found = {
        FOLDER / f"{client.name}.md": _page(client, record[client.name])
        for client in CLIENTS
        if client.name in record
    }
    return {FOLDER / "README.md": _index(record), **found}


def _index(record: Mapping[str, Record]) -> str:
    rows = [_row(client, record.get(client.name)) for client in CLIENTS]
    return "\n".join([_INTRODUCTION, _HEAD, *rows]) + "\n"


def _row(client: Client, one: Record | None) -> str:
    if one is None:
        return f"| {client.title} | not tested; see `antiphon connect {client.name}` | | | |"
    passed = sum(turn.outcome == "passed" for turn in one.turns)
    title = f"[{client.title}]({client.name}.md)"
    cells = (title, f"`{client.package}` {one.version}", ", ".join(client.apis), passed, one.date)
    return f"| {' | '.join(map(str, cells))} |"


def _page(client: Client, one: Record) -> str:
    tested = f"Tested with `{client.package}` {one.version} on {one.date}."
    setup = client.setup or f"`antiphon connect {client.name}` prints what to set."
    parts = [f"# {client.title}", setup, "## What works", tested, _table(one.turns)]
    if others := [turn for turn in one.turns if turn.outcome != "passed"]:
        parts += ["## What did not pass", "\n".join(map(_line, others))]
    if client.limits:
        parts += ["## Known limits", "\n".join(f"- {limit}" for limit in client.limits)]
    return "\n\n".join([*parts, _MADE]) + "\n"


def _table(turns: Sequence[Turn]) -> str:
    """Return what passed, with the transports that it passed on."""
    transports: dict[str, list[str]] = {}
    for turn in turns:
        if turn.outcome == "passed":
            transports.setdefault(turn.what, []).append(turn.transport)
    rows = [f"| {_cell(what)} | {_over(names)} |" for what, names in transports.items()]
    return "\n".join(["| what it does | over |", "|---|---|", *rows])


def _over(names: Sequence[str]) -> str:
    shown = {"http": "HTTP", "websocket": "WebSocket", "-": ""}
    return ", ".join(shown.get(name, name) for name in names)


def _line(turn: Turn) -> str:
    over = f" over {_over([turn.transport])}" if turn.transport != "-" else ""
    return f"- {turn.what}{over}: {turn.outcome}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def stale(root: Path = ROOT) -> list[str]:
    """Return the pages that are not what would be written, and those nobody would write."""
    wanted = {root / path: text for path, text in pages(read(root / RECORD)).items()}
    found = {path: path.read_text("utf-8") for path in (root / FOLDER).glob("*.md")}
    return sorted(
        path.name for path in wanted.keys() | found.keys() if wanted.get(path) != found.get(path)
    )


def main(arguments: Sequence[str], root: Path = ROOT) -> None:
    """Print the pages, or write them."""
    for path, text in pages(read(root / RECORD)).items():
        if "--write" in arguments:
            (root / path).write_text(text, "utf-8")
        else:
            print(f"{path}\n\n{text}")


if __name__ == "__main__":
    main(sys.argv[1:])

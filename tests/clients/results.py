"""Which turns did which client complete, and is it on record?

A test of a client carries `@pytest.mark.turn("codex", "what works", transport="http")`. A run with
`--client-results FILE` records the outcome of each turn there; `docs/clients/results.json` is the
record that the pages are made from. Turns are known by what they say: one that no test claims any
more leaves the record, one that was not run this time stays as it was. The date of a client
changes only when something else about it does.

    python -m tests.clients.results FILE    fails unless FILE confirms what the record claims
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, Literal

import msgspec

from tests.clients.install import ROOT

__all__ = [
    "RECORD",
    "Outcome",
    "Record",
    "Turn",
    "claimed",
    "doubts",
    "main",
    "merged",
    "read",
    "read_turns",
    "write",
]

RECORD: Final = Path("docs/clients/results.json")
_FOLDERS: Final = ("tests/clients", "tests/vscode")

Outcome = Literal["passed", "failed", "skipped"]
Key = tuple[str, str, str]
"""A client, what it does, and over which transport."""


class Turn(msgspec.Struct, frozen=True, order=True):
    """What a client did, and how it went."""

    what: str
    transport: str
    outcome: Outcome


class Record(msgspec.Struct, frozen=True):
    """What is known of one client: its version, the day of the run, its turns."""

    version: str
    date: str
    turns: tuple[Turn, ...]


# Reading.


def claimed(root: Path = ROOT) -> list[Key]:
    """Return the turns that tests claim, in the order of their files."""
    paths = [path for folder in _FOLDERS for path in sorted((root / folder).rglob("test_*.py"))]
    found = [key for path in paths for key in read_turns(path.read_text("utf-8"))]
    return list(dict.fromkeys(found))


def read_turns(source: str) -> list[Key]:
    """Return the turns that one file claims. Raise ValueError where one is not written out."""
    calls = sorted(_marker_calls(ast.parse(source)), key=lambda call: call.lineno)
    return [_key(call) for call in calls]


def _marker_calls(node: ast.AST) -> Iterator[ast.Call]:
    for inner in ast.walk(node):
        match inner:
            case ast.Call(func=ast.Attribute(attr="turn", value=ast.Attribute(attr="mark"))):
                yield inner


def _key(call: ast.Call) -> Key:
    texts = [*call.args, *(word.value for word in call.keywords)]
    if [word.arg for word in call.keywords] not in ([], ["transport"]) or len(call.args) != 2:
        raise ValueError(f"line {call.lineno}: a turn is a client, what it does, and transport=")
    values = [text.value for text in texts if isinstance(text, ast.Constant)]
    if len(values) != len(texts):
        raise ValueError(f"line {call.lineno}: a turn is written out as strings")
    client, what, *transport = map(str, values)
    return client, what, transport[0] if transport else "-"


def read(path: Path) -> dict[str, Record]:
    """Return a record; nothing if there is none yet."""
    if not path.exists():
        return {}
    return msgspec.json.decode(path.read_bytes(), type=dict[str, Record])


# Recording.


def merged(
    old: Mapping[str, Record],
    ran: Mapping[Key, Outcome],
    versions: Mapping[str, str],
    claims: Sequence[Key],
    date: str,
) -> dict[str, Record]:
    """Return the record after a run. Raise LookupError for a client that nobody has pinned."""
    if strangers := {client for client, _, _ in ran} - versions.keys():
        raise LookupError(f"no lock file is known for {sorted(strangers)}; see tests.clients.index")
    known = {
        (client, turn.what, turn.transport): turn.outcome
        for client, record in old.items()
        for turn in record.turns
        if record.version == versions.get(client)
    }
    known.update(ran)
    turns: dict[str, list[Turn]] = {}
    for client, what, transport in claims:
        if outcome := known.get((client, what, transport)):
            turns.setdefault(client, []).append(Turn(what, transport, outcome))
    return {
        client: _dated(old.get(client), Record(versions[client], date, tuple(turns[client])))
        for client in sorted(turns)
    }


def _dated(before: Record | None, now: Record) -> Record:
    if before and msgspec.structs.replace(now, date=before.date) == before:
        return before
    return now


def write(path: Path, record: Mapping[str, Record]) -> None:
    """Write a record so that a change shows as few lines."""
    text = msgspec.json.format(msgspec.json.encode(dict(record)), indent=2)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text + b"\n")


# Judging.


def doubts(
    record: Mapping[str, Record], claims: Iterable[Key], versions: Mapping[str, str]
) -> list[str]:
    """Return a line for each thing on record that is not so, or not on record that should be."""
    keys = set(claims)
    lines = []
    for client, one in record.items():
        if one.version != versions.get(client):
            lines.append(f"{client} {one.version} is on record; {versions.get(client)} is pinned")
        for turn in one.turns:
            if turn.outcome != "passed":
                lines.append(f"{client}: {turn.what!r} ({turn.transport}) {turn.outcome}")
            if (client, turn.what, turn.transport) not in keys:
                lines.append(f"{client}: no test claims {turn.what!r} ({turn.transport})")
    known = {
        (name, turn.what, turn.transport) for name, one in record.items() for turn in one.turns
    }
    lines += [
        f"{client}: {what!r} ({transport}) is not on record"
        for client, what, transport in sorted(keys - known)
    ]
    return lines


def _is_shown(turn: Turn, ran: Record) -> bool:
    """Whether a run has the turn with its outcome; what it had to skip speaks against nothing."""
    skipped = msgspec.structs.replace(turn, outcome="skipped")
    return turn in ran.turns or skipped in ran.turns


def main(arguments: Sequence[str], root: Path = ROOT) -> int:
    """Compare a run with the record; tell on stderr what the run does not confirm."""
    (path,) = arguments
    ran, record = read(Path(path)), read(root / RECORD)
    missed = [
        f"{client}: {turn.what!r} ({turn.transport}) is claimed, and this run does not show it"
        for client, one in record.items()
        if client in ran
        for turn in one.turns
        if not _is_shown(turn, ran[client])
    ]
    for line in missed:
        print(line, file=sys.stderr)
    return 1 if missed or not ran else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

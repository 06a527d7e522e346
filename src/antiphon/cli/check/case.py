"""The parts of `antiphon check`: cases, their steps, answers and findings.

A case is a few steps, and a step is a request with what its answer must be. An `Api` is what
the command has to know about one API: where its requests go, its cases, and how its streams and
whole answers are judged. Nothing here knows a particular API.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal

import msgspec

from antiphon.protocol.sse import Frame

__all__ = [
    "Answer",
    "Api",
    "Case",
    "Expectation",
    "Finding",
    "Json",
    "Judged",
    "Skip",
    "Step",
    "brief",
    "json_of",
    "shown",
]

_MAX_SHOWN: Final = 300

Json = dict[str, Any]  # Any: what JSON holds


class Skip(Exception):
    """This cannot be judged here, and why."""


class Finding(msgspec.Struct, frozen=True, omit_defaults=True):
    """A rule that was broken: what happened, and the event at which, if it was one."""

    rule: str
    detail: str
    event: str = ""


class Answer(msgspec.Struct, kw_only=True):
    """What came back for one step.

    `result` is the model's answer as the server sent it last: a Response, or an object of the
    other APIs; None without one. `previous` is the last answer before that had one, and
    `asked` the body that was sent. `degraded` is what a gateway reports to have left out.
    """

    status: int
    degraded: str = ""
    asked: Json = {}
    raw: bytes = b""
    body: Any = None  # Any: what JSON holds
    result: Any = None  # Any: each API has a type of its own
    previous: Answer | None = None
    frames: Sequence[Frame] = ()
    findings: list[Finding] = []


Expectation = Callable[[Answer], Iterator[Finding]]
Judged = tuple[Any, list[Finding]]
"""The model's answer, or None, and every rule that is broken."""


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One request and what is expected of its answer.

    `raw` is a body that is not JSON. Without a `path` it goes where the API takes questions.
    `has_result`: whether a 200 holds an answer of the model.
    """

    body: Json = {}
    raw: bytes | None = None
    method: Literal["POST", "GET", "DELETE"] = "POST"
    path: str | None = None
    status: int = 200
    has_result: bool = True
    expect: Sequence[Expectation] = ()


class Case(msgspec.Struct, frozen=True):
    """What is to be shown, under a name to choose it by.

    A case that is `optional` needs something a server may lack: a clear 4xx is then a reason
    to skip it, not a failure.
    """

    name: str
    about: str
    steps: Sequence[Step]
    optional: bool = False


class Api(msgspec.Struct, frozen=True, kw_only=True):
    """One API that a server may have.

    `stand_ins` returns, for the last answer, the values that replace strings in the next step:
    a string that is a stand-in becomes its value, whatever that is. It raises Skip if the
    server reports that nothing can follow.
    """

    path: str
    cases: Sequence[Case]
    judge_frames: Callable[[Sequence[Frame]], Judged]
    judge_whole: Callable[[Answer], Judged]
    stand_ins: Callable[[Answer], Mapping[str, Any]]  # Any: what JSON holds
    key_header: str = ""
    """The header that carries a key, if that is not Authorization: Bearer."""
    headers: Mapping[str, str] = {}
    forgive: Callable[[Sequence[Frame]], Sequence[Frame]] | None = None
    """Returns a stream without the known deviations that are not to be judged."""


def json_of(text: object) -> Any:  # Any: what JSON holds
    """Return what a JSON text holds; None if it is not JSON."""
    try:
        return msgspec.json.decode(text) if isinstance(text, str | bytes) else None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def brief(value: object) -> str:
    """Return a value as JSON, for a person."""
    return shown(json.dumps(msgspec.to_builtins(value)).encode())


def shown(data: bytes) -> str:
    """Return bytes as text for a person: printable, and not too long."""
    text = data.decode("utf-8", "replace")
    text = "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}…"

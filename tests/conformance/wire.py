"""A client that takes a stream at its bytes and lets nothing pass.

`antiphon.protocol.sse` reads what any server may send. This reads what we may send: LF line
ends, one `event` and one `data` line to a frame, no ids, no comments, one `[DONE]` at the end.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Final

import aiohttp
import msgspec

from antiphon.protocol.codec import Dialect
from tests.conformance.judges import Json

__all__ = ["Answer", "ask", "ask_for_events", "fetch", "read_frames"]

_FRAME: Final = re.compile(rb"event: (?P<event>[^\n]+)\ndata: (?P<data>[^\n]+)")
_DONE: Final = b"data: [DONE]"


class Answer(msgspec.Struct, frozen=True):
    """What came back over HTTP, unread."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Json:
        """The body as a JSON object."""
        value = json.loads(self.body)
        assert isinstance(value, dict)
        return value

    @property
    def events(self) -> list[Json]:
        """The events of a stream; each of them must be a correct frame."""
        return read_frames(self.body)

    @property
    def response(self) -> Json:
        """The response itself, or the one that a stream ended in."""
        if self.headers["Content-Type"].startswith("application/json"):
            return self.json
        last = self.events[-1]["response"]
        assert isinstance(last, dict)
        return last


async def ask(
    base_url: str,
    body: Json,
    *,
    path: str = "/responses",
    dialect: Dialect = "openai",
    headers: Mapping[str, str] = {},
) -> Answer:
    """POST a body and return what came back."""
    known = {"Authorization": "Bearer x", "x-antiphon-dialect": dialect}
    async with (
        aiohttp.ClientSession() as session,
        session.post(base_url + path, json=body, headers={**known, **headers}) as answer,
    ):
        return Answer(answer.status, answer.headers.copy(), await answer.read())


async def fetch(base_url: str, path: str, *, dialect: Dialect = "openai") -> Answer:
    """GET a path and return what came back."""
    headers = {"Authorization": "Bearer x", "x-antiphon-dialect": dialect}
    async with (
        aiohttp.ClientSession() as session,
        session.get(base_url + path, headers=headers) as answer,
    ):
        return Answer(answer.status, answer.headers.copy(), await answer.read())


async def ask_for_events(base_url: str, body: Json, dialect: Dialect = "openai") -> Answer:
    """POST a body that asks for a stream; the answer must be one."""
    answer = await ask(base_url, body | {"stream": True}, dialect=dialect)
    assert answer.status == 200, answer.body
    return answer


def read_frames(body: bytes) -> list[Json]:
    """Return the events of a whole stream. Raise AssertionError if a byte is out of place."""
    assert b"\r" not in body
    assert body.endswith(b"\n\n")
    *frames, last = body[:-2].split(b"\n\n")
    assert last == _DONE
    events: list[Json] = []
    for frame in frames:
        match = _FRAME.fullmatch(frame)
        assert match is not None, frame
        event = json.loads(match["data"])
        assert event["type"] == match["event"].decode()
        events.append(event)
    return events

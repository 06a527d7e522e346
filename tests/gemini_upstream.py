"""A Gemini server on the loopback that verifies what it is sent, for tests.

It signs each part with an HMAC, and refuses a history in which a signature is in another part, a
call lacks one, or calls and results are not one to one. Requests must be of Google's own types.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from antiphon.wires.gemini.signatures import DUMMY
from tests.transport.raw import Connection, Request, chunk, head, raw_server, reply
from tests.wires.gemini.answers import body, finish, sse
from tests.wires.gemini.judge import judge

__all__ = ["Cut", "GeminiUpstream", "Json", "Refusal", "serve_gemini", "text"]

Json = dict[str, Any]


class Refusal:
    """An error with this status; `details` are as the service gives them."""

    def __init__(self, code: int, status: str, message: str = "no", *details: Json) -> None:
        error = {"code": code, "status": status, "message": message, "details": [*details]}
        self.code = code
        self.body = json.dumps([{"error": error}]).encode()


class Cut:
    """These bytes of a stream, and then the connection is lost."""

    def __init__(self, *chunks: Json) -> None:
        self.data = sse(*chunks)


Play = list[Json] | Refusal | Cut


def text(words: str) -> list[Json]:
    """Return an answer of two chunks."""
    half = len(words) // 2
    return [
        {"candidates": [{"content": {"parts": [{"text": words[:half]}]}}]},
        finish({"text": words[half:]}),
    ]


class GeminiUpstream:
    """What the server was asked, and what it answers next."""

    def __init__(self, secret: bytes) -> None:
        self.base_url = ""
        self.requests: list[Request] = []
        self.problems: list[str] = []
        self._secret = secret
        self._plays: list[Play] = []

    def play(self, *plays: Play) -> None:
        """Answer the next requests so."""
        self._plays += plays

    def signed(self, part: Json) -> Json:
        """Return the part with its signature."""
        return part | {"thoughtSignature": self._sign(part)}

    @property
    def contents(self) -> list[Json]:
        """The contents of the last request for an answer."""
        contents: list[Json] = json.loads(self.requests[-1].body)["contents"]
        return contents

    def _sign(self, part: Json) -> str:
        plain = {key: value for key, value in part.items() if key != "thoughtSignature"}
        data = json.dumps(plain, sort_keys=True).encode()
        return base64.b64encode(hmac.new(self._secret, data, hashlib.sha256).digest()).decode()

    async def answer(self, request: Request, connection: Connection) -> None:
        """Answer one request: a list of models, a count or an answer."""
        if request.path.startswith("/v1beta/models?"):
            await connection.write(reply(_models(request.path)))
        elif request.path.endswith(":countTokens"):
            judge(_without_model(json.loads(request.body)["generateContentRequest"]))
            await connection.write(reply(b'{"totalTokens": 42}'))
        else:
            await self._generate(request, connection)

    async def _generate(self, request: Request, connection: Connection) -> None:
        self.requests.append(request)
        asked = json.loads(request.body)
        judge(asked)
        problem = self._problem(asked["contents"], "gemini-3" in request.path)
        play = Refusal(400, "INVALID_ARGUMENT", problem) if problem else self._plays.pop(0)
        if problem:
            self.problems.append(problem)
        if isinstance(play, Refusal):
            await connection.write(reply(play.body, status=f"{play.code} No"))
        elif isinstance(play, Cut):
            await connection.write(head("text/event-stream") + chunk(play.data))
            connection.reset()
        elif "alt=sse" in request.path:
            await connection.write(head("text/event-stream") + chunk(sse(*play)) + chunk(b""))
        else:
            whole = body(*play) if play[-1].get("candidates") else json.dumps(play[-1]).encode()
            await connection.write(reply(whole))

    def _problem(self, contents: list[Json], is_new: bool) -> str | None:
        for place, content in enumerate(contents):
            if place and contents[place - 1]["role"] == content["role"]:
                return "roles do not alternate"
            calls = [part for part in content["parts"] if "functionCall" in part]
            if calls and is_new and "thoughtSignature" not in calls[0]:
                return "a functionCall is missing a thought_signature"
            for part in content["parts"]:
                signature = part.get("thoughtSignature")
                if signature not in (None, DUMMY, self._sign(part)):
                    return "corrupted thought signature"
            if calls and not _is_answered(calls, contents[place + 1 : place + 2]):
                return "the number of function response parts is not that of the calls"
        return None


def _is_answered(calls: list[Json], following: list[Json]) -> bool:
    parts = following[0]["parts"] if following else []
    answers = [part["functionResponse"] for part in parts if "functionResponse" in part]
    made = [part["functionCall"] for part in calls]
    return [(one["name"], one.get("id")) for one in made] == [
        (one["name"], one.get("id")) for one in answers
    ]


def _models(path: str) -> bytes:
    one = {"name": "models/gemini-3-flash", "supportedGenerationMethods": ["generateContent"]}
    two = {"name": "models/gemini-2.5-flash", "supportedGenerationMethods": ["generateContent"]}
    page = {"models": [two]} if "pageToken=" in path else {"models": [one], "nextPageToken": "n"}
    return json.dumps(page).encode()


def _without_model(request: Json) -> Json:
    return {key: value for key, value in request.items() if key != "model"}


@asynccontextmanager
async def serve_gemini(secret: bytes = b"secret") -> AsyncIterator[GeminiUpstream]:
    """Run the server."""
    upstream = GeminiUpstream(secret)
    async with raw_server(upstream.answer) as server:
        upstream.base_url = f"{server.url}/v1beta"
        yield upstream

"""An editor that offers its models over the bridge protocol, for tests.

It is as strict as an editor can be: it wants a greeting with the right token, requests of the
protocol's own types, each call answered in the message after it, and thoughts with the signature
that it gave them. It does what a script states, and cancels what it is asked to cancel.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from antiphon.wires.host.messages import Question

__all__ = [
    "CUT",
    "EditorDouble",
    "Json",
    "Raw",
    "Refuse",
    "call",
    "done",
    "serve_editor",
    "text",
]

Json = dict[str, Any]
TOKEN = "a-token-of-the-editor-0123456789"
MODELS: list[Json] = [
    {
        "id": "gpt-5",
        "name": "GPT-5",
        "family": "gpt-5",
        "max_input_tokens": 100_000,
        "max_output_tokens": 8_000,
        "image_input": True,
        "tool_calling": True,
    },
    {"id": "claude", "name": "Claude", "family": "claude", "version": "4"},
]


@dataclass(frozen=True)
class Raw:
    """These bytes as they are."""

    data: bytes


@dataclass(frozen=True)
class Refuse:
    """An error with this code."""

    code: str
    message: str = "No."
    action: str = ""
    retry_after: float | None = None


class _Cut:
    """The connection is lost."""


CUT = _Cut()

Step = Json | list[Json] | asyncio.Event | Raw | Refuse | _Cut | int
"""A number is that of the passes of the loop to wait for."""
Play = list[Step]


def text(words: str) -> Play:
    """Return an answer of two parts."""
    half = len(words) // 2
    return [part(words[:half]), part(words[half:])]


def part(words: str) -> Json:
    return {"type": "text", "value": words}


def call(name: str, call_id: str, **arguments: Any) -> Json:
    """Return a call."""
    return {"type": "tool_call", "call_id": call_id, "name": name, "input": arguments}


def done(**fields: Any) -> Json:
    """Return the end of an answer; without one, a script ends with the plainest."""
    return {"type": "done", "status": "completed", **fields}


@dataclass
class _Client:
    """One connection, and what runs for it."""

    writer: asyncio.StreamWriter
    is_greeted: bool = False
    sent_bytes: int = 0
    running: dict[Any, asyncio.Task[None]] = field(default_factory=dict)

    async def send(self, message: Json) -> None:
        await self.write(json.dumps(message).encode() + b"\n")

    async def write(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()
        self.sent_bytes += len(data)


class EditorDouble:
    """What the editor was asked, and what it answers next."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.port = 0
        self.requests: list[Json] = []
        self.hellos: list[Json] = []
        self.counts: list[Json] = []
        self.problems: list[str] = []
        self.cancelled: list[Any] = []
        self.cancels = asyncio.Semaphore(0)
        """Acquired once for each request that was cancelled."""
        self.was_asked = asyncio.Event()
        self.models = MODELS
        self.tokens: int | None = None
        """What each message has; None: as many as its JSON has characters."""
        self.max_requests = 256
        self.max_line_bytes = 64 * 1024 * 1024
        self.greeting: list[Step] | None = None
        self._plays: list[Play] = []
        self._server: asyncio.Server | None = None
        self._clients: set[asyncio.Task[None]] = set()
        self._last: _Client | None = None

    def play(self, *plays: Play) -> None:
        """Answer the next requests so; without a script, repeat what the user wrote."""
        self._plays += plays

    def thought(self, words: str, thought_id: str = "t1") -> Json:
        """Return a thought with its signature."""
        return {"type": "thinking", "value": words, "id": thought_id} | {
            "metadata": {"signature": self._sign(thought_id, words)}
        }

    @property
    def messages(self) -> list[Json]:
        """The messages of the last request."""
        messages: list[Json] = self.requests[-1]["messages"]
        return messages

    @property
    def options(self) -> Json:
        """The options of the last request."""
        options: Json = self.requests[-1]["options"]
        return options

    @property
    def sent_bytes(self) -> int:
        """How many bytes the last connection has taken from us."""
        return self._last.sent_bytes if self._last is not None else 0

    async def start(self) -> None:
        """Listen on a port, and write the file."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=2**27)
        self.port = self._server.sockets[0].getsockname()[1]
        self.write_file()

    async def stop(self) -> None:
        """Close everything. The file stays, as after a crash."""
        if self._server is not None:
            self._server.close()
        for task in [*self._clients]:
            task.cancel()
        await asyncio.gather(*self._clients, return_exceptions=True)

    def write_file(self, *, mode: int = 0o600, **fields: Any) -> None:
        """Write how the editor is reached."""
        known = {
            "version": 1,
            "address": f"127.0.0.1:{self.port}",
            "token": TOKEN,
            "pid": os.getpid(),
            "name": "Test Editor",
        }
        self.path.unlink(missing_ok=True)
        self.path.write_text(json.dumps(known | fields))
        self.path.chmod(mode)

    def _sign(self, thought_id: str, words: str) -> str:
        return hmac.new(b"secret", f"{thought_id} {words}".encode(), hashlib.sha256).hexdigest()

    # One connection.

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._clients.add(task)
        client = self._last = _Client(writer)
        try:
            while line := await reader.readline():
                await self._take(json.loads(line), line, client)
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            for running in client.running.values():
                running.cancel()
            writer.transport.abort()
            self._clients.discard(task)

    async def _take(self, message: Json, line: bytes, client: _Client) -> None:
        msgspec.json.decode(line, type=Question)  # raises what is not of the protocol
        if message["type"] == "hello":
            await self._greet(message, client)
        elif not client.is_greeted:
            await client.send(_error(message.get("id"), Refuse("not_greeted")))
        elif message["type"] == "models":
            await client.send({"type": "models", "id": message["id"], "models": self.models})
        elif message["type"] == "count":
            self.counts.append(message)
            tokens = [self.tokens or len(json.dumps(one)) for one in message["contents"]]
            await client.send({"type": "counted", "id": message["id"], "tokens": tokens})
        elif message["type"] == "cancel":
            self._cancel(message["id"], client)
        else:
            assert message["type"] == "respond" and message["id"] not in client.running
            running = asyncio.create_task(self._respond(message, client))
            client.running[message["id"]] = running

    async def _greet(self, message: Json, client: _Client) -> None:
        self.hellos.append(message)
        if message["token"] != TOKEN:
            refusal = Refuse("auth_failed", f"The token {message['token']} is wrong.", "Wait.")
            await client.send(_error(None, refusal))
            client.writer.close()
        elif self.greeting is not None:
            await self._play(self.greeting, "hello", client)
        else:
            client.is_greeted = True
            welcome = {"type": "welcome", "version": 1, "name": "test", "software": "test 1"}
            limits = {"max_line_bytes": self.max_line_bytes, "max_requests": self.max_requests}
            await client.send(welcome | limits)

    def _cancel(self, request_id: Any, client: _Client) -> None:
        running = client.running.get(request_id)
        if running is not None and not running.done():
            self.cancelled.append(request_id)
            self.cancels.release()
            running.cancel()

    async def _respond(self, message: Json, client: _Client) -> None:
        request_id = message["id"]
        try:
            self.requests.append(message)
            self.was_asked.set()
            problem = self._problem(message)
            if problem is not None:
                self.problems.append(problem)
                await client.send(_error(request_id, Refuse("bad_request", problem)))
                return
            play = self._plays.pop(0) if self._plays else _echo(message)
            await self._play(play, request_id, client)
        except asyncio.CancelledError:
            if not client.writer.is_closing():
                await client.send(_error(request_id, Refuse("cancelled")))
        except ConnectionError:
            pass

    async def _play(self, play: Play, request_id: Any, client: _Client) -> None:
        for step in play:
            match step:
                case asyncio.Event():
                    await step.wait()
                case int():
                    for _pass in range(step):
                        await asyncio.sleep(0)
                case Raw():
                    await client.write(step.data)
                case Refuse():
                    await client.send(_error(request_id, step))
                    return
                case _Cut():
                    client.writer.transport.abort()
                    return
                case dict() if step["type"] == "done":
                    await client.send(step | {"id": request_id})
                    return
                case dict():
                    await client.send({"type": "parts", "id": request_id, "parts": [step]})
                case list():
                    await client.send({"type": "parts", "id": request_id, "parts": step})
        if request_id != "hello":
            await client.send(done(id=request_id))

    # What an editor refuses.

    def _problem(self, request: Json) -> str | None:
        options = request["options"]
        if options["tool_mode"] == "required" and not options["tools"]:
            return "a tool is required and there is none"
        for tool in options["tools"]:
            if not tool["name"].replace("-", "_").isidentifier():
                return f"the name {tool['name']!r} is not valid"
        for place, message in enumerate(request["messages"]):
            problem = self._message_problem(message, request["messages"][place + 1 : place + 2])
            if problem is not None:
                return f"messages[{place}]: {problem}"
        return None

    def _message_problem(self, message: Json, following: list[Json]) -> str | None:
        content = message["content"]
        kinds = {one["type"] for one in content}
        allowed = {"system": {"text"}, "user": {"text", "data", "tool_result"}}
        allowed["assistant"] = {"text", "data", "tool_call", "thinking"}
        if not content or not kinds <= allowed[message["role"]]:
            return f"it has the parts {sorted(kinds)}"
        for one in content:
            if one["type"] == "thinking":
                signature = one["metadata"].get("signature")
                if signature != self._sign(one["id"], one["value"]):
                    return "its thought has another signature"
        calls = [one["call_id"] for one in content if one["type"] == "tool_call"]
        after = following[0]["content"] if following else []
        results = [one["call_id"] for one in after if one["type"] == "tool_result"]
        return None if calls == results else "its calls have other results"


def _echo(message: Json) -> Play:
    words = [
        one["value"]
        for said in message["messages"]
        for one in said["content"]
        if said["role"] == "user" and one["type"] == "text"
    ]
    return [part(words[-1] if words else "Hello.")]


def _error(request_id: Any, refusal: Refuse) -> Json:
    error = {
        "code": refusal.code,
        "message": refusal.message,
        "action": refusal.action,
        "retry_after": refusal.retry_after,
    }
    return {"type": "error", "error": error} | ({"id": request_id} if request_id else {})


@asynccontextmanager
async def serve_editor(path: Path) -> AsyncIterator[EditorDouble]:
    """Run an editor that has written its file at `path`."""
    editor = EditorDouble(path)
    await editor.start()
    try:
        yield editor
    finally:
        await editor.stop()

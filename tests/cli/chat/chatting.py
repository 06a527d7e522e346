"""Ways to chat in tests: through a pipe, with a server in the same event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec
from click.testing import CliRunner, Result

from antiphon.backends.scripted import Script, ScriptedBackend
from antiphon.cli import main
from antiphon.protocol.codec import encode_event
from antiphon.protocol.deltas import CallGrew, CallOpened, Delta, TextGrew
from antiphon.protocol.items import text_of
from antiphon.testing import serve_gateway
from tests.building import COUNTED, STOP, build
from tests.cli.canned import Canned, Json, sse

__all__ = ["END", "Typist", "calling", "canned_stream", "chat", "chat_with", "heard", "saying"]

END: list[Delta] = [COUNTED, STOP]


class Typist:
    """A person at a terminal: types lines, presses keys (as exceptions), then leaves."""

    def __init__(self, *does: str | type[BaseException]) -> None:
        self.offers: list[str] = []
        self.remembered: list[str] = []
        self.has_text = False
        self._does = iter(does)

    def read(self, prompt: str, offer: str = "") -> str:
        """Return the next line; note what was offered."""
        self.offers.append(offer)
        return self.read_once(prompt)

    def read_once(self, _: str) -> str:
        """Return the next line."""
        does = next(self._does, EOFError)
        if isinstance(does, str):
            return does
        raise does

    def remember(self, message: str) -> None:
        """Note what can be called up."""
        self.remembered.append(message)


def saying(text: str) -> Script:
    """Return a script that says this."""
    return [TextGrew(text), END]


def calling(name: str, arguments: str = "{}", *, index: int = 0) -> list[Delta]:
    """Return what a model does to call a tool."""
    return [CallOpened(index, name), CallGrew(index, arguments)]


def canned_stream(deltas: Sequence[Delta], response_id: str = "resp_1") -> Canned:
    """Return the stream that these deltas make, of a response of this id."""
    events: list[Json] = [msgspec.json.decode(encode_event(event)) for event in build(deltas)]
    for event in events:
        if "response" in event:
            event["response"]["id"] = response_id
    return sse(events)


def chat(base_url: str, *lines: str, args: Sequence[str] = ()) -> Result:
    """Pipe lines into a chat."""
    given = "".join(f"{line}\n" for line in lines)
    return CliRunner().invoke(main, ["chat", "--base-url", base_url, *args], input=given)


async def chat_with(backend: ScriptedBackend, *lines: str, args: Sequence[str] = ()) -> Result:
    """Pipe lines into a chat with a gateway before this backend."""
    async with serve_gateway(backend) as gateway:
        return await asyncio.to_thread(chat, gateway.base_url, *lines, args=args)


def heard(backend: ScriptedBackend, call: int) -> list[str]:
    """Return the texts of all messages that the model was given in a call, counted from 0."""
    return [text_of(item["content"]) for item in backend.plans[call].items if "content" in item]

"""What Anthropic's own SDK makes of a stream: the judge of the Messages door.

The bytes go through the SDK's public client as the body of an answer, in any pieces.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any

import anthropic
import httpx2

from antiphon.protocol.events import Event
from antiphon.wires.messages.ask import Thinking
from antiphon.wires.messages.encode import MessagesEncoder

__all__ = ["OMITTED", "SHOWN", "encode", "read_stream", "split"]

SHOWN = Thinking(is_shown=True)
OMITTED = Thinking(is_shown=True, is_omitted=True)


class _Pieces(httpx2.SyncByteStream):
    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = pieces

    def __iter__(self) -> Iterator[bytes]:
        yield from self._pieces


def encode(
    events: Sequence[Event],
    thinking: Thinking = SHOWN,
    *,
    batch: int = 0,
    make: type[MessagesEncoder] = MessagesEncoder,
) -> bytes:
    """Return a whole stream; with `batch`, encoded so many events at a time."""
    encoder = make(thinking, prompt_tokens=3)
    size = batch or len(events) or 1
    pieces = [encoder.encode(events[at : at + size]) for at in range(0, len(events), size)]
    return b"".join([*pieces, encoder.end()])


def split(data: bytes, sizes: Sequence[int]) -> list[bytes]:
    """Return the bytes in pieces of these sizes, over and over."""
    pieces, at, turn = [], 0, 0
    while at < len(data):
        size = sizes[turn % len(sizes)]
        pieces.append(data[at : at + size])
        at, turn = at + size, turn + 1
    return pieces


def read_stream(pieces: Sequence[bytes], *, beta: bool = False) -> dict[str, Any]:
    """Return the message that the SDK has accumulated. Raise what it raises.

    Its accumulator for betas knows more kinds of blocks.
    """
    _body[:] = pieces
    said: Any = {"role": "user", "content": "hello"}
    api: Any = _client().beta.messages if beta else _client().messages
    with api.stream(model="m", max_tokens=9, messages=[said]) as stream:
        message: dict[str, Any] = stream.get_final_message().to_dict(mode="json", warnings=False)
        return message


_body: list[bytes] = []
"""What the next answer is: making a client takes longer than an answer."""


@cache
def _client() -> anthropic.Anthropic:
    return anthropic.Anthropic(
        api_key="none",
        base_url="http://gateway.invalid",
        max_retries=0,
        http_client=httpx2.Client(transport=httpx2.MockTransport(_answer)),
    )


def _answer(_: httpx2.Request) -> httpx2.Response:
    headers = {"content-type": "text/event-stream"}
    return httpx2.Response(200, headers=headers, stream=_Pieces(_body[:]))

"""A response as it comes into being: events, and at the end the response.

    async with client.stream(model="m", input="Hello") as stream:
        async for event in stream:
            ...
        response = await stream.final_response()

Every event is returned once, in the server's order; a caller that stops in the middle and goes on
later misses nothing. A stream that breaks returns what arrived and then raises, with the part
that arrived in `partial`, on every further call. Leaving early closes the connection, and that
stops the model.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from operator import length_hint
from typing import Final, Self

from antiphon.client.answer import OpenAnswer, broken
from antiphon.client.errors import ClientError
from antiphon.client.follow import Following
from antiphon.client.wires import TERMINAL
from antiphon.protocol.errors import BrokenStream
from antiphon.protocol.events import Event, OutputTextDelta
from antiphon.protocol.halves import join_halves, split_half
from antiphon.protocol.machines.accumulator import ResponseAccumulator
from antiphon.protocol.response import Response

__all__ = [
    "AsyncStream",
    "Outbox",
    "TextReader",
    "has_more_waiting",
]

EventSource = OpenAnswer | Following
"""Where the events of a stream come from."""

_NOT_ENTERED: Final = (
    "enter the stream first: with client.stream(…) as stream; async with for an AsyncClient"
)


class Outbox:
    """The events that were read together, on their way to the caller.

    A caller may leave in the middle of them. `last_number` is the sequence number of the last
    event that it got.
    """

    def __init__(self) -> None:
        self._batch: list[Event] = []
        self._before: int | None = None
        self.rest: Iterator[Event] = iter(())
        """The events that were not handed out yet."""

    def put(self, batch: list[Event]) -> None:
        """Take the next events, when none is left."""
        self.put_out(batch)
        self.rest = iter(batch)

    def put_out(self, batch: list[Event]) -> list[Event]:
        """Take events that are handed out at once, when none is left, and return them."""
        if batch:
            if batch[0].sequence_number is None:
                self._before = self.last_number
            self._batch = batch
        return batch

    def drop(self) -> None:
        """Forget what was not handed out."""
        self._batch = self._batch[: self._count()]
        self.rest = iter(())

    @property
    def last_number(self) -> int | None:
        """The number of the last event that was handed out; None if there was none with one."""
        for index in range(self._count() - 1, -1, -1):
            number = self._batch[index].sequence_number
            if number is not None and number >= 0:
                return number
        return self._before

    def _count(self) -> int:
        """Return how many were handed out: an iterator of a list knows what is left."""
        return len(self._batch) - length_hint(self.rest)


class AsyncStream:
    """The events of one response. Enter it once, to begin.

    `is_whole` is whether they begin with the first event of the response.
    """

    def __init__(
        self,
        begin: Callable[[], Awaitable[EventSource]],
        remember: Callable[[Response], None] = lambda response: None,
        redact: Callable[[ClientError], None] = lambda error: None,
        *,
        is_whole: bool = True,
    ) -> None:
        self._begin = begin
        self._remember = remember
        self._redact = redact
        self._is_whole = is_whole
        self._source: EventSource | None = None
        self._outbox = Outbox()
        self._accumulator = ResponseAccumulator()
        self._is_over = False
        self._final: Response | None = None
        self._fault: ClientError | None = None

    async def __aenter__(self) -> Self:
        """Send the request; return when the first event is here."""
        if self._source is not None:
            raise RuntimeError("a stream is entered once; ask again for another")
        self._source = await self._begin()
        return self

    async def __aexit__(self, *reason: object) -> None:
        await self.close()

    async def __aiter__(self) -> AsyncGenerator[Event, None]:
        """Yield every event."""
        outbox = self._outbox
        while True:
            for event in outbox.rest:
                yield event
            if not (batch := await self._read()):
                return
            outbox.put(batch)

    async def batches(self) -> AsyncGenerator[list[Event], None]:
        """Yield the events in batches: what one read of the wire brought."""
        while batch := await self.next_batch():
            yield batch

    async def text(self) -> AsyncGenerator[str, None]:
        """Yield the text alone, piece by piece: what the response's `output_text` will be."""
        reader = TextReader(is_whole=self._is_whole)
        async for event in self:
            if piece := reader.feed(event):
                yield piece

    async def next_batch(self) -> list[Event]:
        """Return the next events; none at the end. Raise if the stream breaks."""
        return list(self._outbox.rest) or self._outbox.put_out(await self._read())

    async def final_response(self) -> Response:
        """Read to the end and return the response, with any status."""
        while await self.next_batch():
            pass
        if self._final is None:
            raise self._broken(BrokenStream("the stream was closed before its end"))
        return self._final

    @property
    def response(self) -> Response | None:
        """The response so far; None until an event has named it."""
        return self._accumulator.response

    @property
    def last_sequence_number(self) -> int | None:
        """The number of the last event that was handed out: where `follow` goes on after a cut."""
        return self._outbox.last_number

    @property
    def deviations(self) -> list[str]:
        """Where the stream broke the rules, and was repaired."""
        return self._accumulator.deviations

    @property
    def skipped_choices(self) -> int:
        """How many answers beyond the first there were; only chat servers have any."""
        return self._source.skipped_choices if self._source else 0

    async def close(self) -> None:
        """Close the connection, which stops the model. Closing twice does nothing."""
        self._is_over = True
        self._outbox.drop()
        if self._source is not None:
            self._source.close()

    async def _read(self) -> list[Event]:
        """Read the next events and add them to the response."""
        source = self._source
        if source is None:
            raise RuntimeError(_NOT_ENTERED)
        if self._fault is not None:
            raise self._fault
        batch = [] if self._is_over else await source.read()
        self._accumulator.feed_all(batch)
        if source.is_done:
            self._note_final(source)
        if not batch and not self._is_over:
            await self._end(source)
        return batch

    def _note_final(self, source: EventSource) -> BrokenStream | None:
        """Keep the response once it is whole; return why it is not.

        A caller may leave at the last event: the session goes on from it all the same.
        """
        if self._final is None:
            try:
                self._final = source.ending or self._accumulator.finish()
            except BrokenStream as error:
                return error
            self._remember(self._final)
        return None

    async def _end(self, source: EventSource) -> None:
        self._is_over = True
        fault = self._note_final(source)
        if fault is None:
            await source.finish()
            return
        source.close()
        self._fault = self._broken(source.fault or fault)
        raise self._fault

    def _broken(self, fault: ClientError | BrokenStream) -> ClientError:
        error = broken(fault, self._accumulator.response)
        self._redact(error)
        return error


class TextReader:
    """The text of a stream, piece by piece: whole characters, nothing twice, nothing left out.

    Of a stream that does not begin with the first event (`is_whole`), only what its deltas hold.
    """

    def __init__(self, *, is_whole: bool = True) -> None:
        self._is_whole = is_whole
        self._accumulator = ResponseAccumulator()
        self._said: list[str] = []
        self._half = ""

    def feed(self, event: Event) -> str:
        """Return the text that this event adds."""
        piece = ""
        if self._accumulator.feed(event) and isinstance(event, OutputTextDelta):
            piece, self._half = split_half(self._half + event.delta)
            piece = join_halves(piece)
        elif isinstance(event, TERMINAL) and self._is_whole:
            # The text that had no delta: all of it, if the server answered in one piece.
            whole, said = self._accumulator.finish().output_text, "".join(self._said)
            piece = whole[len(said) :] if whole.startswith(said) else ""
        self._said.append(piece)
        return piece


def has_more_waiting(stream: AsyncStream) -> bool:
    """Return whether more of the stream has arrived than has been read."""
    return stream._source is not None and stream._source.is_behind

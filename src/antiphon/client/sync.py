"""The same client for programs without an event loop.

A thread of its own runs the asynchronous client, so that the two can never differ; a call
waits for it. Events cross over in batches, one crossing for each read of the wire. A client
may be used from several threads, and inside a program whose own loop is running.
"""

from __future__ import annotations

import asyncio
import atexit
import threading
import weakref
from collections.abc import (
    AsyncIterator,
    Callable,
    Coroutine,
    Generator,
    Mapping,
    Sequence,
)
from concurrent.futures import CancelledError
from types import TracebackType
from typing import Any, Final, Self, TypeVar, Unpack

from antiphon.client.client import AsyncClient, ClientOptions
from antiphon.client.conversation import ConversationCache
from antiphon.client.conversation_api import AsyncConversations
from antiphon.client.errors import ClientError
from antiphon.client.follow import MAX_RECONNECTS
from antiphon.client.parameters import Params
from antiphon.client.resources import (
    Compaction,
    Conversation,
    Deleted,
    InputTokens,
    ItemPage,
    Model,
)
from antiphon.client.settings import WireApi
from antiphon.client.stream import AsyncStream, Outbox, has_more_waiting, text_reader
from antiphon.protocol.events import Event
from antiphon.protocol.items import Item
from antiphon.protocol.response import Response

__all__ = ["Client", "Conversations", "Stream"]

_T = TypeVar("_T")
_CLOSED: Final = "the client is closed"
_CROSSING: Final = 2000
"""About how many events cross over at once, at most."""


class _Portal:
    """An event loop in a thread of its own, and the way into it.

    `clean_up` runs in the loop when the thread ends. The thread does not keep the client
    alive: a client that is dropped without being closed ends it too.
    """

    def __init__(self, clean_up: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._loop: Final = asyncio.new_event_loop()
        self._clean_up = clean_up
        self._is_closing = False
        self._thread: Final = threading.Thread(
            target=self._live, name="antiphon-client", daemon=True
        )
        self._thread.start()

    @property
    def is_closed(self) -> bool:
        """Whether the thread is ending or has ended."""
        return self._is_closing

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run a coroutine in the loop and return its result; an interrupted call cancels it."""
        if self._is_closing:
            work.close()
            raise RuntimeError(_CLOSED)
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except CancelledError:
            raise RuntimeError(_CLOSED) from None
        except BaseException:
            future.cancel()
            raise

    def each(self, items: AsyncIterator[_T]) -> Generator[_T, None, None]:
        """Yield what an asynchronous iterator there yields, one after the other."""

        async def following() -> tuple[_T, ...]:
            async for item in items:
                return (item,)
            return ()

        while found := self.run(following()):
            yield from found

    def stop(self) -> None:
        """Let the thread end, without waiting for it. Stopping twice does nothing."""
        if not self._is_closing:
            self._is_closing = True
            self._loop.call_soon_threadsafe(self._loop.stop)

    def close(self) -> None:
        """End the thread and wait for its end; calls that wait for an answer are ended."""
        self.stop()
        self._thread.join()

    def _live(self) -> None:
        try:
            self._loop.run_forever()
            self._loop.run_until_complete(self._wind_up())
        finally:
            self._loop.close()

    async def _wind_up(self) -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._clean_up()


_PORTALS: Final[weakref.WeakSet[_Portal]] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """Close the clients that are still open when the program ends."""
    for portal in list(_PORTALS):
        portal.close()


class Stream:
    """The events of one response. Enter it to begin; iterate over it once."""

    def __init__(self, portal: _Portal, stream: AsyncStream) -> None:
        self._portal = portal
        self._stream = stream
        self._outbox = Outbox()
        self._is_read_out = False

    def __enter__(self) -> Self:
        """Send the request; return when the first event is here."""
        self._portal.run(self._stream.__aenter__())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __iter__(self) -> Generator[Event, None, None]:
        """Yield every event."""
        outbox = self._outbox
        while True:
            yield from outbox.rest
            if not (batch := self._portal.run(self._gather())):
                return
            outbox.put(batch)

    def batches(self) -> Generator[list[Event], None, None]:
        """Yield the events in batches: what one read of the wire brought."""
        while batch := self.next_batch():
            yield batch

    def text(self) -> Generator[str, None, None]:
        """Yield the text alone, piece by piece: what the response's `output_text` will be."""
        reader = text_reader(self._stream)
        for event in self:
            if piece := reader.feed(event):
                yield piece

    def next_batch(self) -> list[Event]:
        """Return the next events; none at the end. Raise if the stream breaks."""
        return list(self._outbox.rest) or self._outbox.put_out(self._portal.run(self._gather()))

    async def _gather(self) -> list[Event]:
        """Take along what is waiting already: every crossing costs as much as many events."""
        batch = await self._stream.next_batch()
        events = batch
        while batch and has_more_waiting(self._stream) and len(events) < _CROSSING:
            try:
                batch = await self._stream.next_batch()
            except ClientError:
                # Return the events before it first; the stream raises it again.
                break
            events = events + batch
        return events

    def final_response(self) -> Response:
        """Read to the end and return the response, with any status."""
        self._outbox.drop()
        self._is_read_out = True
        return self._portal.run(self._stream.final_response())

    @property
    def response(self) -> Response | None:
        """The response so far; None until an event has named it."""
        return self._stream.response

    @property
    def last_sequence_number(self) -> int | None:
        """The number of the last event that was handed out: where `follow` goes on after a cut."""
        if self._is_read_out:
            return self._stream.last_sequence_number
        return self._outbox.last_number

    @property
    def deviations(self) -> list[str]:
        """Where the stream broke the rules, and was repaired."""
        return self._stream.deviations

    @property
    def skipped_choices(self) -> int:
        """How many answers beyond the first there were; only chat servers have any."""
        return self._stream.skipped_choices

    def close(self) -> None:
        """Hang up, and let the model stop. Closing twice does nothing."""
        self._outbox.drop()
        if not self._portal.is_closed:
            self._portal.run(self._stream.close())


class Client:
    """AsyncClient, synchronous: the same parameters, the same methods."""

    def __init__(self, **options: Unpack[ClientOptions]) -> None:
        self._client = AsyncClient(**options)
        self._portal = _Portal(self._client.close)
        self.conversations: Final = Conversations(self._portal, self._client.conversations)
        _PORTALS.add(self._portal)
        weakref.finalize(self, self._portal.stop).atexit = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def base_url(self) -> str:
        """Where the server is."""
        return self._client.base_url

    @property
    def wire_api(self) -> WireApi:
        """Which API the server speaks, unless a call names another."""
        return self._client.wire_api

    @property
    def cache(self) -> ConversationCache:
        """Where threads are remembered."""
        return self._client.cache

    @property
    def asynchronous(self) -> AsyncClient:
        """The client that does the work; it belongs to the event loop of `run`."""
        return self._client

    @property
    def is_closed(self) -> bool:
        """Whether the client is closed; it accepts no more calls."""
        return self._portal.is_closed

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run a coroutine in the event loop of this client, and return what it returns."""
        return self._portal.run(work)

    def close(self) -> None:
        """Close the connections and end the thread. Closing twice does nothing."""
        self._portal.close()

    def create(self, *, wire_api: WireApi | None = None, **params: Unpack[Params]) -> Response:
        """Ask, and return the response when it is whole. Its `status` is how it ended."""
        return self._portal.run(self._client.create(wire_api=wire_api, **params))

    def stream(self, *, wire_api: WireApi | None = None, **params: Unpack[Params]) -> Stream:
        """Ask, and return the response as it comes into being. Nothing is sent until entered."""
        return Stream(self._portal, self._client.stream(wire_api=wire_api, **params))

    def follow(
        self,
        response_id: str,
        *,
        starting_after: int | None = None,
        max_reconnects: int = MAX_RECONNECTS,
    ) -> Stream:
        """Return the events of a stored response, live or finished, each of them once.

        They begin after the sequence number `starting_after`, else with the first. A connection
        that is lost is replaced, `max_reconnects` times in a row without a new event at most.
        """
        stream = self._client.follow(
            response_id, starting_after=starting_after, max_reconnects=max_reconnects
        )
        return Stream(self._portal, stream)

    def retrieve(self, response_id: str) -> Response:
        """Return a stored response."""
        return self._portal.run(self._client.retrieve(response_id))

    def delete(self, response_id: str) -> Deleted:
        """Delete a stored response."""
        return self._portal.run(self._client.delete(response_id))

    def cancel(self, response_id: str) -> Response:
        """Stop a response that runs in the background."""
        return self._portal.run(self._client.cancel(response_id))

    def input_items(
        self,
        response_id: str,
        *,
        after: str | None = None,
        limit: int | None = None,
        order: str | None = None,
    ) -> ItemPage:
        """Return a page of what a response was asked with, newest first by default."""
        return self._portal.run(
            self._client.input_items(response_id, after=after, limit=limit, order=order)
        )

    def iterate_input_items(
        self, response_id: str, *, order: str = "asc"
    ) -> Generator[Item, None, None]:
        """Yield all that a response was asked with, page after page."""
        yield from self._portal.each(self._client.iterate_input_items(response_id, order=order))

    def models(self) -> list[Model]:
        """Return the models that the server offers."""
        return self._portal.run(self._client.models())

    def input_tokens(self, **params: Unpack[Params]) -> InputTokens:
        """Return how many tokens a request would send to the model. Nothing is run or stored."""
        return self._portal.run(self._client.input_tokens(**params))

    def compact(self, **params: Unpack[Params]) -> Compaction:
        """Return items that take the place of a long context: give them as the next input."""
        return self._portal.run(self._client.compact(**params))


class Conversations:
    """The conversations that a server keeps: `client.conversations`."""

    def __init__(self, portal: _Portal, conversations: AsyncConversations) -> None:
        self._portal = portal
        self._conversations = conversations

    def create(
        self,
        *,
        items: Sequence[Mapping[str, Any]] | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> Conversation:
        """Begin a conversation, with a few items if there are some."""
        return self._portal.run(self._conversations.create(items=items, metadata=metadata))

    def retrieve(self, conversation_id: str) -> Conversation:
        """Return a conversation, without its items."""
        return self._portal.run(self._conversations.retrieve(conversation_id))

    def update(self, conversation_id: str, *, metadata: Mapping[str, str]) -> Conversation:
        """Replace the metadata of a conversation."""
        return self._portal.run(self._conversations.update(conversation_id, metadata=metadata))

    def delete(self, conversation_id: str) -> Deleted:
        """Delete a conversation with its items."""
        return self._portal.run(self._conversations.delete(conversation_id))

    def items(
        self,
        conversation_id: str,
        *,
        after: str | None = None,
        limit: int | None = None,
        order: str | None = None,
    ) -> ItemPage:
        """Return a page of the items, newest first unless `order` is "asc"."""
        return self._portal.run(
            self._conversations.items(conversation_id, after=after, limit=limit, order=order)
        )

    def iterate_items(
        self, conversation_id: str, *, order: str = "asc"
    ) -> Generator[Item, None, None]:
        """Yield all items, page after page."""
        yield from self._portal.each(
            self._conversations.iterate_items(conversation_id, order=order)
        )

    def add_items(self, conversation_id: str, items: Sequence[Mapping[str, Any]]) -> ItemPage:
        """Add items at the end; return them as they are kept. Servers take up to 20 at a time."""
        return self._portal.run(self._conversations.add_items(conversation_id, items))

    def retrieve_item(self, conversation_id: str, item_id: str) -> Item:
        """Return one item."""
        return self._portal.run(self._conversations.retrieve_item(conversation_id, item_id))

    def delete_item(self, conversation_id: str, item_id: str) -> Conversation:
        """Delete one item; return the conversation it was in."""
        return self._portal.run(self._conversations.delete_item(conversation_id, item_id))

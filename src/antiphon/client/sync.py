"""The same client for programs without an event loop.

A thread of its own runs the asynchronous client, so that the two can never differ; a call
waits for it. Events cross over in batches, one crossing for each read of the wire. A client
may be used from several threads, and inside a program whose own loop is running.
"""

from __future__ import annotations

import asyncio
import atexit
import functools
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Sequence
from concurrent.futures import CancelledError
from typing import Any, Concatenate, Final, Generic, ParamSpec, Self, TypeVar, Unpack

from antiphon.client.client import AsyncClient, ClientOptions
from antiphon.client.conversation_api import AsyncConversations
from antiphon.client.errors import ClientError
from antiphon.client.file_api import AsyncFiles
from antiphon.client.follow import MAX_RECONNECTS
from antiphon.client.parameters import Params
from antiphon.client.settings import WireApi
from antiphon.client.stream import AsyncStream, TextReader, has_more_waiting
from antiphon.client.vector_store_api import AsyncVectorStores
from antiphon.protocol.events import Event
from antiphon.protocol.files import FileObject
from antiphon.protocol.items import Item
from antiphon.protocol.response import Response
from antiphon.protocol.vector_stores import AttachedFileObject, VectorStoreObject

__all__ = ["Blocking", "Client", "Conversations", "Files", "Stream", "VectorStores", "blocking"]

_P = ParamSpec("_P")
_T = TypeVar("_T")
_Async = TypeVar("_Async")
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
        self.is_closed = False
        """Whether the thread is ending or has ended."""
        self._thread: Final = threading.Thread(
            target=self._live, name="antiphon-client", daemon=True
        )
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run a coroutine in the loop and return its result; an interrupted call cancels it."""
        if self.is_closed:
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
        if not self.is_closed:
            self.is_closed = True
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


class Blocking(Generic[_Async]):
    """An asynchronous object, and the event loop that it belongs to."""

    def __init__(self, portal: _Portal, asynchronous: _Async) -> None:
        self._portal = portal
        self._asynchronous = asynchronous


def blocking(
    method: Callable[Concatenate[_Async, _P], Coroutine[Any, Any, _T]],
) -> Callable[Concatenate[Blocking[_Async], _P], _T]:
    """Return a method that runs an asynchronous one and waits for its result."""

    @functools.wraps(method)
    def call(self: Blocking[_Async], /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        return self._portal.run(method(self._asynchronous, *args, **kwargs))

    return call


class Stream(Blocking[AsyncStream]):
    """The events of one response. Enter it to begin; iterate over it once."""

    def __enter__(self) -> Self:
        """Send the request; return when the first event is here."""
        self._portal.run(self._asynchronous.__aenter__())
        return self

    def __exit__(self, *reason: object) -> None:
        self.close()

    def __iter__(self) -> Generator[Event, None, None]:
        """Yield every event."""
        outbox = self._asynchronous._outbox
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
        reader = TextReader(is_whole=self._asynchronous._is_whole)
        for event in self:
            if piece := reader.feed(event):
                yield piece

    def next_batch(self) -> list[Event]:
        """Return the next events; none at the end. Raise if the stream breaks."""
        outbox = self._asynchronous._outbox
        return list(outbox.rest) or outbox.put_out(self._portal.run(self._gather()))

    async def _gather(self) -> list[Event]:
        """Take along what is waiting already: every crossing costs as much as many events."""
        stream = self._asynchronous
        batch = await stream._read()
        events = batch
        while batch and has_more_waiting(stream) and len(events) < _CROSSING:
            try:
                batch = await stream._read()
            except ClientError:
                # Return the events before it first; the stream raises it again.
                break
            events = events + batch
        return events

    final_response = blocking(AsyncStream.final_response)

    @property
    def response(self) -> Response | None:
        """The response so far; None until an event has named it."""
        return self._asynchronous.response

    @property
    def last_sequence_number(self) -> int | None:
        """The number of the last event that was handed out: where `follow` goes on after a cut."""
        return self._asynchronous.last_sequence_number

    @property
    def deviations(self) -> list[str]:
        """Where the stream broke the rules, and was repaired."""
        return self._asynchronous.deviations

    @property
    def skipped_choices(self) -> int:
        """How many answers beyond the first there were; only chat servers have any."""
        return self._asynchronous.skipped_choices

    def close(self) -> None:
        """Hang up, and let the model stop. Closing twice does nothing."""
        self._asynchronous._outbox.drop()
        if not self._portal.is_closed:
            self._portal.run(self._asynchronous.close())


class Conversations(Blocking[AsyncConversations]):
    """The conversations that a server keeps: `client.conversations`."""

    create = blocking(AsyncConversations.create)
    retrieve = blocking(AsyncConversations.retrieve)
    update = blocking(AsyncConversations.update)
    delete = blocking(AsyncConversations.delete)
    items = blocking(AsyncConversations.items)
    add_items = blocking(AsyncConversations.add_items)
    retrieve_item = blocking(AsyncConversations.retrieve_item)
    delete_item = blocking(AsyncConversations.delete_item)

    def iterate_items(
        self, conversation_id: str, *, order: str = "asc"
    ) -> Generator[Item, None, None]:
        """Yield all items, page after page."""
        items = self._asynchronous.iterate_items(conversation_id, order=order)
        return self._portal.each(items)


class Files(Blocking[AsyncFiles]):
    """The files that a server keeps: `client.files`."""

    upload = blocking(AsyncFiles.upload)
    retrieve = blocking(AsyncFiles.retrieve)
    delete = blocking(AsyncFiles.delete)
    page = blocking(AsyncFiles.page)
    content = blocking(AsyncFiles.content)
    download = blocking(AsyncFiles.download)

    def iterate(
        self, *, order: str | None = None, purpose: str | None = None
    ) -> Generator[FileObject, None, None]:
        """Yield all files, page after page."""
        return self._portal.each(self._asynchronous.iterate(order=order, purpose=purpose))


class VectorStores(Blocking[AsyncVectorStores]):
    """The vector stores that a server keeps: `client.vector_stores`."""

    create = blocking(AsyncVectorStores.create)
    retrieve = blocking(AsyncVectorStores.retrieve)
    delete = blocking(AsyncVectorStores.delete)
    page = blocking(AsyncVectorStores.page)
    search = blocking(AsyncVectorStores.search)
    attach = blocking(AsyncVectorStores.attach)
    batch = blocking(AsyncVectorStores.batch)
    wait = blocking(AsyncVectorStores.wait)
    files_page = blocking(AsyncVectorStores.files_page)
    detach = blocking(AsyncVectorStores.detach)

    def iterate(self, *, order: str | None = None) -> Generator[VectorStoreObject, None, None]:
        """Yield all vector stores, page after page."""
        return self._portal.each(self._asynchronous.iterate(order=order))

    def iterate_files(
        self,
        vector_store_id: str,
        *,
        status: str | None = None,
        batch_id: str | None = None,
        order: str | None = None,
    ) -> Generator[AttachedFileObject, None, None]:
        """Yield all files, page after page."""
        files = self._asynchronous.iterate_files(
            vector_store_id, status=status, batch_id=batch_id, order=order
        )
        return self._portal.each(files)


class Client(Blocking[AsyncClient]):
    """AsyncClient, synchronous: the same parameters, the same methods."""

    def __init__(self, **options: Unpack[ClientOptions]) -> None:
        client = AsyncClient(**options)
        super().__init__(_Portal(client.close), client)
        self.asynchronous: Final = client
        """The client that does the work; it belongs to the event loop of `run`."""
        self.base_url: Final = client.base_url
        self.wire_api: Final = client.wire_api
        self.cache: Final = client.cache
        self.conversations: Final = Conversations(self._portal, client.conversations)
        self.files: Final = Files(self._portal, client.files)
        self.vector_stores: Final = VectorStores(self._portal, client.vector_stores)
        _PORTALS.add(self._portal)
        weakref.finalize(self, self._portal.stop).atexit = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *reason: object) -> None:
        self.close()

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

    create = blocking(AsyncClient.create)
    retrieve = blocking(AsyncClient.retrieve)
    delete = blocking(AsyncClient.delete)
    cancel = blocking(AsyncClient.cancel)
    input_items = blocking(AsyncClient.input_items)
    models = blocking(AsyncClient.models)
    input_tokens = blocking(AsyncClient.input_tokens)
    compact = blocking(AsyncClient.compact)

    def stream(self, *, wire_api: WireApi | None = None, **params: Unpack[Params]) -> Stream:
        """Ask, and return the response as it comes into being. Nothing is sent until entered."""
        return Stream(self._portal, self._asynchronous.stream(wire_api=wire_api, **params))

    def follow(
        self,
        response_id: str,
        *,
        starting_after: int | None = None,
        include: Sequence[str] = (),
        max_reconnects: int = MAX_RECONNECTS,
    ) -> Stream:
        """Return the events of a stored response, live or finished, each of them once.

        They begin after the sequence number `starting_after`, else with the first. A connection
        that is lost is replaced, `max_reconnects` times in a row without a new event at most.
        `include` is what hosted items show, as in `create`; every connection asks for it.
        """
        stream = self._asynchronous.follow(
            response_id,
            starting_after=starting_after,
            include=include,
            max_reconnects=max_reconnects,
        )
        return Stream(self._portal, stream)

    def iterate_input_items(
        self, response_id: str, *, order: str = "asc"
    ) -> Generator[Item, None, None]:
        """Yield all that a response was asked with, page after page."""
        items = self._asynchronous.iterate_input_items(response_id, order=order)
        return self._portal.each(items)

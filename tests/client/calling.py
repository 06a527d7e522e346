"""One way to call both clients, so that one suite holds for both.

The synchronous client runs in a thread, because the servers of a test live in its event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any, Protocol

from antiphon.client import AsyncClient, Client
from antiphon.client.conversation import ConversationCache
from antiphon.client.resources import Deleted, ItemPage, Model
from antiphon.protocol.errors import AntiphonError
from antiphon.protocol.events import Event
from antiphon.protocol.items import Item
from antiphon.protocol.response import Response

__all__ = ["KINDS", "Caller", "Seen", "calling"]

KINDS = ("async", "sync")


class Seen:
    """What a stream told: its events, the response, and the error that ended it, if one did."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.response: Response | None = None
        self.error: AntiphonError | None = None


class Caller(Protocol):
    """A client, whichever."""

    cache: ConversationCache

    async def create(self, **params: Any) -> Response: ...

    async def follow(self, **params: Any) -> Seen:
        """Stream to the end, and never raise."""
        ...

    async def peek(self, count: int, **params: Any) -> list[Event]:
        """Stream, take so many events, and leave."""
        ...

    async def retrieve(self, response_id: str) -> Response: ...

    async def delete(self, response_id: str) -> Deleted: ...

    async def cancel(self, response_id: str) -> Response: ...

    async def input_items(self, response_id: str, **query: Any) -> ItemPage: ...

    async def all_input_items(self, response_id: str) -> list[Item]: ...

    async def models(self) -> list[Model]: ...

    async def replay(self, response_id: str, **options: Any) -> Seen:
        """Follow a stored response to its end, and never raise."""
        ...

    async def call(self, method: Callable[[Any], Any]) -> Any:
        """Return what a call of the client returns; of an iterator, all that it yields."""
        ...


class _AsyncCaller:
    def __init__(self, client: AsyncClient) -> None:
        self._client = client
        self.cache = client.cache

    async def create(self, **params: Any) -> Response:
        return await self._client.create(**params)

    async def follow(self, **params: Any) -> Seen:
        seen = Seen()
        try:
            async with self._client.stream(**params) as stream:
                async for event in stream:
                    seen.events.append(event)
                seen.response = await stream.final_response()
        except AntiphonError as error:
            seen.error = error
        return seen

    async def peek(self, count: int, **params: Any) -> list[Event]:
        events = []
        async with self._client.stream(**params) as stream:
            async for event in stream:
                events.append(event)
                if len(events) == count:
                    break
        return events

    async def retrieve(self, response_id: str) -> Response:
        return await self._client.retrieve(response_id)

    async def delete(self, response_id: str) -> Deleted:
        return await self._client.delete(response_id)

    async def cancel(self, response_id: str) -> Response:
        return await self._client.cancel(response_id)

    async def input_items(self, response_id: str, **query: Any) -> ItemPage:
        return await self._client.input_items(response_id, **query)

    async def all_input_items(self, response_id: str) -> list[Item]:
        return [item async for item in self._client.iterate_input_items(response_id)]

    async def models(self) -> list[Model]:
        return await self._client.models()

    async def replay(self, response_id: str, **options: Any) -> Seen:
        seen = Seen()
        try:
            async with self._client.follow(response_id, **options) as stream:
                async for event in stream:
                    seen.events.append(event)
                seen.response = await stream.final_response()
        except AntiphonError as error:
            seen.error = error
        return seen

    async def call(self, method: Callable[[Any], Any]) -> Any:
        result = method(self._client)
        if isinstance(result, AsyncIterator):
            return [item async for item in result]
        return await result


class _SyncCaller:
    def __init__(self, client: Client) -> None:
        self._client = client
        self.cache = client.cache

    async def create(self, **params: Any) -> Response:
        return await asyncio.to_thread(lambda: self._client.create(**params))

    async def follow(self, **params: Any) -> Seen:
        def follow() -> Seen:
            seen = Seen()
            try:
                with self._client.stream(**params) as stream:
                    for event in stream:
                        seen.events.append(event)
                    seen.response = stream.final_response()
            except AntiphonError as error:
                seen.error = error
            return seen

        return await asyncio.to_thread(follow)

    async def peek(self, count: int, **params: Any) -> list[Event]:
        def peek() -> list[Event]:
            events = []
            with self._client.stream(**params) as stream:
                for event in stream:
                    events.append(event)
                    if len(events) == count:
                        break
            return events

        return await asyncio.to_thread(peek)

    async def retrieve(self, response_id: str) -> Response:
        return await asyncio.to_thread(self._client.retrieve, response_id)

    async def delete(self, response_id: str) -> Deleted:
        return await asyncio.to_thread(self._client.delete, response_id)

    async def cancel(self, response_id: str) -> Response:
        return await asyncio.to_thread(self._client.cancel, response_id)

    async def input_items(self, response_id: str, **query: Any) -> ItemPage:
        return await asyncio.to_thread(lambda: self._client.input_items(response_id, **query))

    async def all_input_items(self, response_id: str) -> list[Item]:
        return await asyncio.to_thread(lambda: list(self._client.iterate_input_items(response_id)))

    async def models(self) -> list[Model]:
        return await asyncio.to_thread(self._client.models)

    async def replay(self, response_id: str, **options: Any) -> Seen:
        def replay() -> Seen:
            seen = Seen()
            try:
                with self._client.follow(response_id, **options) as stream:
                    for event in stream:
                        seen.events.append(event)
                    seen.response = stream.final_response()
            except AntiphonError as error:
                seen.error = error
            return seen

        return await asyncio.to_thread(replay)

    async def call(self, method: Callable[[Any], Any]) -> Any:
        def call() -> Any:
            result = method(self._client)
            return list(result) if isinstance(result, Iterator) else result

        return await asyncio.to_thread(call)


@asynccontextmanager
async def calling(kind: str, base_url: str, **options: Any) -> AsyncIterator[Caller]:
    """Yield a client of this kind for the server there; nothing comes from the environment."""
    options = {"base_url": base_url or None, "environ": {}, "sleep": _no_wait, **options}
    if kind == "async":
        async with AsyncClient(**options) as client:
            yield _AsyncCaller(client)
        return
    sync_client = Client(**options)
    try:
        yield _SyncCaller(sync_client)
    finally:
        await asyncio.to_thread(sync_client.close)


async def _no_wait(seconds: float) -> None:
    await asyncio.sleep(0)

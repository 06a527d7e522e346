"""Requests about things that a server keeps: conversations, files, vector stores.

Requests that add something carry an Idempotency-Key, so that a retry adds nothing twice on servers
that know the key. Answers are read as the types of the wire; fields that we do not know are left
out.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import Any, Generic, TypeVar

import msgspec

from antiphon.client.errors import InvalidAnswer, ResourceNotFound, ThreadGone
from antiphon.client.resources import read_object
from antiphon.client.sender import Sender

__all__ = ["Page", "Rest", "iterate_objects", "read_as"]

_T = TypeVar("_T", bound=msgspec.Struct)


class Page(msgspec.Struct, Generic[_T], frozen=True):
    """A page of a list. `last_id` is where the next one begins, if `has_more`."""

    objects: list[_T]
    last_id: str | None
    has_more: bool


class Rest:
    """Sends such requests to one server."""

    def __init__(self, sender: Sender) -> None:
        self._sender = sender

    async def fetch(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> bytes:
        """Return the body of an answer. Raise ClientError for a refusal."""
        try:
            return await self._sender.fetch(method, path, body=body, headers=headers)
        except ThreadGone as error:
            # Nothing is continued here, so there is no thread that could be gone.
            raise ResourceNotFound(
                error.message, status=error.status, code=error.code, request_id=error.request_id
            ) from None

    async def post(
        self, path: str, body: Mapping[str, Any] | bytes, content_type: str = "application/json"
    ) -> bytes:
        """Post something that is done once, however often it must be sent."""
        data = body if isinstance(body, bytes) else msgspec.json.encode(body)
        headers = {"Idempotency-Key": secrets.token_urlsafe(24), "Content-Type": content_type}
        return await self.fetch("POST", path, data, headers)

    async def page(self, path: str, shape: type[_T]) -> Page[_T]:
        """Return a page of a list."""
        fields = read_object(await self.fetch("GET", path))
        found = fields.get("data")
        if not isinstance(found, list):
            raise InvalidAnswer("the server's answer has no list of data; check the base URL")
        objects = [_convert(one, shape) for one in found]
        last = fields.get("last_id")
        return Page(
            objects,
            last
            if isinstance(last, str)
            else getattr(objects[-1], "id", None)
            if objects
            else None,
            fields.get("has_more") is True,
        )


def read_as(body: bytes, shape: type[_T]) -> _T:
    """Return an answer as this type. Raise InvalidAnswer if it is something else."""
    return _convert(read_object(body), shape)


def _convert(value: object, shape: type[_T]) -> _T:
    try:
        return msgspec.convert(value, shape)
    except msgspec.ValidationError as error:
        raise InvalidAnswer(f"the server's answer cannot be read: {error}") from None


async def iterate_objects(
    page_after: Callable[[str | None], Awaitable[Page[_T]]],
) -> AsyncGenerator[_T, None]:
    """Yield the objects of all pages, each asked for when the one before it is used up."""
    after: str | None = None
    while True:
        page = await page_after(after)
        for one in page.objects:
            yield one
        if not page.has_more or not page.last_id or page.last_id == after:
            return
        after = page.last_id

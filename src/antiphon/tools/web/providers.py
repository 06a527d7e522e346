"""Who searches the web? One interface for the providers of the settings.

`HttpProvider` asks one of the APIs in `formats`. Another kind of provider, such as a tool of an
MCP server, implements `SearchProvider` and is handed to the runner instead. A provider that
fails raises SearchFailed: a failure is never an empty list.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Protocol

import msgspec

from antiphon.protocol.errors import BackendError
from antiphon.tools.web.formats import Format, Hit, Query, SearchFailed
from antiphon.transport.http import HttpClient, Limits, Reply
from antiphon.transport.secret import Secret

__all__ = ["HttpProvider", "SearchProvider"]

_MIB: Final = 1024 * 1024
_REASONS: Final = {
    401: "the search provider does not accept the gateway's key",
    402: "the search provider wants to be paid",
    403: "the search provider refuses the gateway",
    429: "the search provider has had too many requests; try again later",
}


class SearchProvider(Protocol):
    """Searches the web."""

    @property
    def takes(self) -> frozenset[str]:
        """Fields of a location that it takes: `city`, `country`, `region`, `timezone`."""
        ...

    async def search(self, query: Query) -> Sequence[Hit]:
        """Return what was found, the best first. Raise SearchFailed if the search failed."""
        ...

    async def close(self) -> None:
        """Close its connections."""
        ...


class HttpProvider:
    """A provider with an HTTP API. Its address comes from the operator, so it is not guarded."""

    def __init__(
        self, form: Format, base_url: str, key: Secret | None, seconds: float, *, proxies: bool
    ) -> None:
        self._form = form
        self._base_url = base_url.rstrip("/")
        self._seconds = seconds
        self._client = HttpClient(
            key=key if form.key_header else None,
            key_header=form.key_header or "Authorization",
            limits=Limits(connect=min(5.0, seconds), idle=seconds, wall=seconds, body=4 * _MIB),
            proxies=proxies,
        )

    @property
    def takes(self) -> frozenset[str]:
        """Fields of a location that it takes."""
        return self._form.takes

    async def search(self, query: Query) -> Sequence[Hit]:
        """Return what was found, the best first. Raise SearchFailed if the search failed."""
        request = self._form.write(query)
        body = None if request.body is None else msgspec.json.encode(request.body)
        try:
            reply = await self._client.fetch(
                "GET" if body is None else "POST",
                self._base_url + request.path,
                body=body,
                headers=request.headers,
            )
        except BackendError as error:
            why = error.message.replace("the upstream", "the search provider")
            raise SearchFailed(self._client.redact(why)) from None
        return self._form.read(_decode(reply))

    async def close(self) -> None:
        """Close its connections."""
        await self._client.close()


def _decode(reply: Reply) -> Any:  # Any: JSON of the provider
    """Return the JSON of an answer. Raise SearchFailed if it is an error, or no JSON object."""
    status = reply.head.status
    if status != 200:
        raise SearchFailed(_REASONS.get(status, f"the search provider answered HTTP {status}"))
    try:
        answer = msgspec.json.decode(reply.body)
    except (msgspec.DecodeError, RecursionError):
        raise SearchFailed("the search provider did not answer with JSON") from None
    if not isinstance(answer, dict):
        raise SearchFailed("the search provider did not answer with a JSON object")
    return answer

"""The public keys of one issuer: fetched when needed, kept, and never fetched in a storm.

They are kept for an hour. A key id that is not among them causes one fetch, and then none for a
while, whatever is asked for: callers can invent key ids. While the issuer cannot be reached, keys
that are known stay good for a day. Requests that need the keys at once share one fetch.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from antiphon.protocol.errors import AntiphonError, PeerFault
from antiphon.transport.egress import open_public_socket
from antiphon.transport.http import HttpClient, Limits

__all__ = ["IssuerUnavailable", "KeySet", "PublicKey", "open_client", "read_configuration"]

_FRESH_SECONDS: Final = 3600.0
_STALE_SECONDS: Final = 24 * 3600.0
_COOL_DOWN_SECONDS: Final = 60.0
_FAILURE_SECONDS: Final = 10.0
_MAX_KEYS: Final = 100
_LIMITS: Final = Limits(connect=5.0, first_byte=5.0, idle=5.0, wall=10.0, body=1024 * 1024)
_DISCOVERY: Final = "/.well-known/openid-configuration"


class IssuerUnavailable(PeerFault):
    """The keys of the issuer are not known and cannot be fetched now."""

    status = 503
    code = "issuer_unavailable"


class PublicKey(NamedTuple):
    """A key as the issuer lists it."""

    kid: str | None
    kind: str
    """`kty`: RSA, EC or OKP."""
    algorithm: str | None
    """`alg`, if the issuer states it."""
    value: Mapping[str, Any]  # Any: a JSON object


def open_client(*, allow_private: bool) -> HttpClient:
    """Return a client that reaches public addresses only, unless private ones are allowed."""
    return HttpClient(limits=_LIMITS, open_socket=None if allow_private else open_public_socket)


async def read_configuration(client: HttpClient, issuer: str) -> dict[str, Any]:
    """Return the OpenID configuration of an issuer. Raise ValueError if it is another's."""
    document = await _get(client, issuer.rstrip("/") + _DISCOVERY)
    if document.get("issuer") != issuer:
        raise ValueError("the document is of another issuer")
    return document


async def _get(client: HttpClient, url: str) -> dict[str, Any]:
    reply = await client.fetch("GET", url, headers={"accept": "application/json"})
    if reply.head.status != 200:
        raise ValueError(f"the issuer answered with {reply.head.status}")
    return msgspec.json.decode(reply.body, type=dict[str, Any])


class KeySet:
    """The keys of one issuer. `clock` is monotonic seconds."""

    def __init__(
        self,
        client: HttpClient,
        issuer: str,
        url: str | None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._issuer = issuer
        self._url = url
        self._clock = clock
        self._keys: list[PublicKey] | None = None
        self._fetched_at = 0.0
        self._next_fetch = 0.0
        self._fetching: asyncio.Task[None] | None = None
        self.fetches = 0
        """How often the keys were asked for."""

    async def find(self, kid: str | None) -> list[PublicKey]:
        """Return the keys with this id, or all without one. Raise IssuerUnavailable."""
        if self._age() > _FRESH_SECONDS:
            await self._fetch()
        found = self._with(kid)
        if not found and kid is not None:
            await self._fetch()
            found = self._with(kid)
        return found

    def _with(self, kid: str | None) -> list[PublicKey]:
        if self._keys is None or self._age() > _STALE_SECONDS:
            raise IssuerUnavailable("the keys of the issuer of this token cannot be fetched now")
        return [key for key in self._keys if kid is None or key.kid == kid]

    def _age(self) -> float:
        return float("inf") if self._keys is None else self._clock() - self._fetched_at

    async def _fetch(self) -> None:
        """Fetch the keys, unless that was tried a short while ago."""
        if self._fetching is None:
            if self._clock() < self._next_fetch:
                return
            self._fetching = asyncio.create_task(self._renew())
        await asyncio.shield(self._fetching)

    async def _renew(self) -> None:
        self.fetches += 1
        try:
            self._keys = await self._read()
            self._fetched_at = self._clock()
            self._next_fetch = self._clock() + _COOL_DOWN_SECONDS
        except (AntiphonError, ValueError, msgspec.MsgspecError):
            self._next_fetch = self._clock() + _FAILURE_SECONDS
        finally:
            self._fetching = None

    async def _read(self) -> list[PublicKey]:
        url = self._url or await self._discover()
        listed = (await _get(self._client, url)).get("keys")
        if not isinstance(listed, list) or len(listed) > _MAX_KEYS:
            raise ValueError("not a set of keys")
        return [_read_key(one) for one in listed if _is_for_signatures(one)]

    async def _discover(self) -> str:
        url = (await read_configuration(self._client, self._issuer)).get("jwks_uri")
        if not isinstance(url, str):
            raise ValueError("the document names no keys")
        if self._issuer.startswith("https://") and not url.startswith("https://"):
            raise ValueError("the keys would be fetched without TLS")
        return url


def _is_for_signatures(value: object) -> bool:
    return (
        isinstance(value, dict)
        and value.get("kty") in ("RSA", "EC", "OKP")
        and value.get("use") in (None, "sig")
    )


def _read_key(value: dict[str, Any]) -> PublicKey:
    kid, algorithm = value.get("kid"), value.get("alg")
    return PublicKey(
        kid if isinstance(kid, str) else None,
        value["kty"],
        algorithm if isinstance(algorithm, str) else None,
        value,
    )

"""Where does a page send a person to log in? The issuers in the settings that have a `client_id`.

The page does the authorization code flow with PKCE itself: there is no client secret, and no state
here. What is needed is in the issuer's OpenID configuration, which is kept for an hour. The page
may connect to a token endpoint only if the content policy lists it, so one that cannot be written
there is refused.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from antiphon.protocol.errors import AntiphonError
from antiphon.protocol.gateway import LoginIssuer, LoginObject
from antiphon.server.issuers import IssuerSettings
from antiphon.server.jwks import open_client, read_configuration
from antiphon.transport.http import HttpClient

__all__ = ["LoginDirectory"]

_log = logging.getLogger(__name__)
_FRESH_SECONDS: Final = 3600.0
_FAILURE_SECONDS: Final = 10.0
# A page waits for this long at most for an issuer that does not answer.
_PATIENCE_SECONDS: Final = 3.0
_ENDPOINT: Final = re.compile(r"https?://[A-Za-z0-9.:\[\]-]+(/[A-Za-z0-9._~/%-]*)?")


class LoginDirectory:
    """The issuers that a person can be sent to. `clock` is monotonic seconds."""

    def __init__(
        self,
        settings: Sequence[IssuerSettings] = (),
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings: list[IssuerSettings] = []
        self._clients: dict[bool, HttpClient] = {}  # by whether private addresses are allowed
        self._clock = clock
        self._known: LoginObject | None = None
        self._good_until = 0.0
        self._reading: asyncio.Task[None] | None = None
        self.use(settings)

    def use(self, settings: Sequence[IssuerSettings]) -> None:
        """Send people to these from now on. What is known of the same ones is kept."""
        wanted = [one for one in settings if one.client_id is not None]
        if wanted == self._settings:
            return
        self._settings, self._known, self._good_until = wanted, None, 0.0
        for flag in {one.allow_private for one in wanted} - self._clients.keys():
            self._clients[flag] = open_client(allow_private=flag)
        if self._reading is not None:
            self._reading.cancel()

    async def find(self) -> LoginObject:
        """Return how a person can log in now."""
        if not self._settings:
            return LoginObject(issuers=[], unavailable=[])
        if self._clock() >= self._good_until:
            self._reading = self._reading or asyncio.create_task(self._read())
            await asyncio.wait([self._reading], timeout=_PATIENCE_SECONDS)
        names = [one.issuer for one in self._settings]
        return self._known or LoginObject(issuers=[], unavailable=names)

    async def token_endpoints(self) -> list[str]:
        """Return the addresses that the page may connect to."""
        return [one.token_endpoint for one in (await self.find()).issuers]

    async def close(self) -> None:
        """Close the connections to issuers."""
        if self._reading is not None:
            self._reading.cancel()
        for client in self._clients.values():
            await client.close()

    async def _read(self) -> None:
        try:
            found = await asyncio.gather(*map(self._read_one, self._settings))
        finally:
            self._reading = None
        known = [one for one in found if one is not None]
        names = {one.issuer for one in known}
        missing = [one.issuer for one in self._settings if one.issuer not in names]
        self._known = LoginObject(issuers=known, unavailable=missing)
        self._good_until = self._clock() + (_FAILURE_SECONDS if missing else _FRESH_SECONDS)

    async def _read_one(self, one: IssuerSettings) -> LoginIssuer | None:
        try:
            client = self._clients[one.allow_private]
            document = await read_configuration(client, one.issuer)
            endpoints = [
                _endpoint(document.get(name), one)
                for name in ("authorization_endpoint", "token_endpoint")
            ]
        except (AntiphonError, ValueError, msgspec.MsgspecError) as error:
            _log.warning("nobody can log in with %s: %s", one.issuer, error)
            return None
        return LoginIssuer(
            issuer=one.issuer,
            client_id=one.client_id or "",
            scopes=list(one.scopes),
            token=one.login_with,
            authorization_endpoint=endpoints[0],
            token_endpoint=endpoints[1],
        )


def _endpoint(value: object, one: IssuerSettings) -> str:
    """Return an address of an issuer, if it can be written into the policy. Raise ValueError."""
    if not isinstance(value, str) or not _ENDPOINT.fullmatch(value):
        raise ValueError(f"its OpenID configuration has the endpoint {value!r}")
    if not value.startswith("https://") and not one.allow_private:
        raise ValueError(f"{value} is not an https URL")
    return value

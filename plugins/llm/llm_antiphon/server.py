"""Where is the gateway, and with which key is it asked?

`LLM_ANTIPHON_URL` or `ANTIPHON_BASE_URL` names it; without them it is the one on this machine. The
key is the one that llm keeps under `antiphon`, or `ANTIPHON_API_KEY`. A gateway on loopback needs
none, so a missing key is not an error here: the gateway decides. The key of another service, which
the client would take from `OPENAI_API_KEY`, is never sent.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import llm

if TYPE_CHECKING:
    from antiphon.client.client import ClientOptions
    from antiphon.host import Provider, ProviderSettings, SyncProvider

__all__ = ["KEY_ALIAS", "KEY_VARIABLE", "AsyncConnection", "base_url", "find_key", "open_sync"]

KEY_ALIAS: Final = "antiphon"
KEY_VARIABLE: Final = "ANTIPHON_API_KEY"
_VARIABLES: Final = ("LLM_ANTIPHON_URL", "ANTIPHON_BASE_URL")
_DEFAULT: Final = "http://127.0.0.1:4680/v1"


def base_url() -> str:
    """Return the address of the gateway."""
    given = (os.environ.get(name, "").strip() for name in _VARIABLES)
    return next(filter(None, given), _DEFAULT).rstrip("/")


def find_key(explicit: str | None = None) -> str | None:
    """Return the key to send: the one that is given, or the name of one, or the one that is set."""
    key: str | None = llm.get_key(explicit_key=explicit, key_alias=KEY_ALIAS, env_var=KEY_VARIABLE)
    return key


@contextmanager
def open_sync(key: str | None) -> Iterator[SyncProvider]:
    """Give a provider, and close it."""
    from antiphon.client import Client
    from antiphon.host import SyncProvider

    with (
        Client(**_where(key)) as client,
        SyncProvider(client, _settings()) as provider,
    ):
        yield provider


class AsyncConnection:
    """A provider in the running event loop, to be entered.

    It is no generator: an event loop that ends closes all of those at once, also those that
    another one of them is about to close.
    """

    def __init__(self, key: str | None) -> None:
        from antiphon.client import AsyncClient
        from antiphon.host import Provider

        self._client = AsyncClient(**_where(key))
        self._provider = Provider(self._client, _settings())

    async def __aenter__(self) -> Provider:
        return self._provider

    async def __aexit__(self, *reason: object) -> None:
        await self._provider.close()
        await self._client.close()


def _where(key: str | None) -> ClientOptions:
    """Return what a client is made with. Which tools are too many or too long, the model judges."""
    from antiphon.client import ToolLimits

    limits = ToolLimits(max_count=None, max_size=None, max_description=None)
    return {"base_url": base_url(), "api_key": key or "", "tool_limits": limits}


def _settings() -> ProviderSettings:
    from antiphon.host import RESPONSES_FOR_ALL, ProviderSettings

    # llm joins the pieces of a text, so links in it could not be distinguished from its words
    # when they come back. The log has the citations, in the response.
    return ProviderSettings(shows_thinking=True, annotations="none", gate=RESPONSES_FOR_ALL)

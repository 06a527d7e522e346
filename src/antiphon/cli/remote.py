"""How commands reach a server, and how they report what went wrong with it.

`open_client` returns a client, `first_model` and `list_models` return what the server offers.
`explain` words an error and `ending` the end of an answer, so that all commands use the same
words. `Remote` is bare HTTP for commands that check the answers themselves.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Final, TypeVar, Unpack
from urllib.parse import urlsplit

import msgspec

from antiphon.cli.errors import CliError
from antiphon.cli.options import DEFAULT_URL
from antiphon.client import AsyncClient
from antiphon.client.client import ClientOptions
from antiphon.client.errors import (
    AuthFailed,
    ClientError,
    InvalidAnswer,
    ResourceNotFound,
    ServerUnreachable,
    StreamBroken,
    error_from_answer,
    error_from_transport,
)
from antiphon.client.parameters import Params
from antiphon.client.settings import WireApi
from antiphon.gateway.address import read_server_url
from antiphon.gateway.errors import BadSettings
from antiphon.host.errors import ResponseFailed
from antiphon.host.models import ModelDirectory
from antiphon.host.outcome import spoken_text
from antiphon.protocol.errors import AntiphonError, BackendError
from antiphon.protocol.items import item_type
from antiphon.protocol.response import Response
from antiphon.protocol.sse import Frame, SseDecoder
from antiphon.transport.http import HttpClient, Limits, Reply
from antiphon.transport.secret import Secret
from antiphon.transport.stream import ByteStream, open_stream

__all__ = [
    "Remote",
    "Server",
    "ServerFault",
    "ending",
    "explain",
    "first_model",
    "is_loopback",
    "is_silent",
    "keyed_server",
    "lacks_list",
    "lacks_path",
    "list_models",
    "open_client",
    "own_server",
    "refusal",
    "run_with_client",
    "thinking_of",
]

_OWN_KEYS: Final = ("ANTIPHON_API_KEY", "OPENAI_API_KEY")
_EMPTY: Final[Mapping[str, str]] = {}
_OWN_PORT: Final = urlsplit(DEFAULT_URL).port
_T = TypeVar("_T")
_CUT_TWICE: Final = ": its answer is cut off"


class Server(msgspec.Struct, frozen=True):
    """Where requests go, with which key, and in which environment.

    `key_source` names where the key comes from; it is shown when the key is refused.
    """

    base_url: str
    key: Secret | None = None
    environ: Mapping[str, str] = {}
    key_source: str = f"the key is read from {', else '.join(_OWN_KEYS)}"
    headers: Mapping[str, str] = {}
    """Sent with every request."""
    key_header: str = ""
    """The header that carries the key, if that is not Authorization: Bearer."""

    @property
    def bearer(self) -> Secret | None:
        """The key, if it is sent as Authorization: Bearer."""
        return None if self.key_header else self.key

    @property
    def sent_headers(self) -> Mapping[str, str]:
        """All headers that are sent, without Authorization."""
        if self.key is None or not self.key_header:
            return self.headers
        return {**self.headers, self.key_header: self.key.reveal()}

    def redact(self, text: str) -> str:
        """Return the text without the key: some servers repeat it."""
        return text if self.key is None else self.key.redact(text)


def own_server(url: str) -> Server:
    """Return the server that the user talks to, with the key that the environment has for it."""
    return Server(read_server_url(url, "--base-url"), _key_from(*_OWN_KEYS), os.environ)


def keyed_server(
    url: str, key_env: str, *, url_flag: str, key_flag: str, environ: Mapping[str, str] = _EMPTY
) -> Server:
    """Return a server with the key of a variable. Raise BadSettings if that is not set."""
    base_url, key = read_server_url(url, url_flag), _key_from(key_env)
    if key is None:
        raise BadSettings(f"{key_flag}: the environment variable {key_env} is not set")
    return Server(base_url, key, environ, f"the key is read from {key_env}")


def _key_from(*names: str) -> Secret | None:
    """Return the key of the first variable that is set."""
    for name in names:
        value = os.environ.get(name, "").strip()
        if not value:
            continue
        try:
            return Secret(value)
        except ValueError as error:
            raise BadSettings(f"{name} does not hold a key: {error}") from None
    return None


def is_loopback(base_url: str) -> bool:
    """Return whether the URL can only mean this machine."""
    # Imported here: it loads the HTTP server, which most commands do not need.
    from antiphon.server.origin import is_loopback_name

    return is_loopback_name(urlsplit(base_url).netloc.rpartition("@")[2])


def open_client(server: Server, **options: Unpack[ClientOptions]) -> AsyncClient:
    """Return a client of the server."""
    options["base_url"] = server.base_url
    # Empty means none, while None would have it read from the environment.
    options["api_key"] = server.bearer or ""
    options["environ"] = server.environ
    options["headers"] = server.sent_headers
    return AsyncClient(**options)


def run_with_client(base_url: str, work: Callable[[AsyncClient], Awaitable[_T]]) -> _T:
    """Return what the work with a client of the user's server returns. Raise CliError."""
    server = own_server(base_url)

    async def run() -> _T:
        async with open_client(server) as client:
            return await work(client)

    try:
        return asyncio.run(run())
    except ClientError as error:
        raise CliError(explain(error, server)) from error


async def list_models(server: Server) -> list[str]:
    """Return the names of the server's models. Raise ClientError."""
    async with open_client(server, max_retries=0) as client:
        return [model.id for model in await client.models()]


async def first_model(server: Server) -> str:
    """Return the first model that the server lists. Raise CliError if it lists no model."""
    try:
        names = await list_models(server)
    except ClientError as error:
        advice = "; pass --model NAME" if lacks_list(error) else ""
        raise CliError(f"{explain(error, server)}{advice}") from error
    if not names:
        raise CliError(f"{server.base_url} lists no models; pass --model NAME")
    return names[0]


def lacks_list(error: ClientError) -> bool:
    """Return whether only the list is missing, so that the server may answer all the same."""
    return isinstance(error, InvalidAnswer) or error.status in (404, 405, 501)


def thinking_of(directory: ModelDirectory, model: str | None) -> Params:
    """Return the parameters that ask for a model's thinking: some servers send it only then."""
    known = directory.get(model) if model else None
    if known is None or known.capabilities.reasoning is not True:
        return {}
    return {"reasoning": {"summary": "auto"}}


# What went wrong, in words.


def explain(error: AntiphonError, server: Server, asked: WireApi | None = None) -> str:
    """Return what went wrong, in one sentence for the user.

    `asked` is the API that a turn used: many servers have only one of the two.
    """
    said = server.redact(" ".join(error.message.split()))
    match error:
        case ServerUnreachable():
            return _nobody(error, said, server.base_url)
        case StreamBroken():
            return f"the answer is cut off: {said.removesuffix(_CUT_TWICE)}"
        case ResponseFailed():
            return f"the response failed: {said or 'no reason given'}"
        case AuthFailed(status=401) if server.key_source:
            return f"{said}; {server.key_source}"
    return said + (_hint(asked) if asked and lacks_path(error) else "")


def lacks_path(error: AntiphonError) -> bool:
    """Return whether the server is there and lacks what was asked of it, and not just a model."""
    return isinstance(error, ResourceNotFound) and (
        error.code == "unknown_url" or "model" not in error.message.lower()
    )


def _hint(asked: WireApi) -> str:
    if asked == "chat":
        return "; it may speak Responses: leave out --wire-api chat"
    return "; if it speaks only chat completions, use `antiphon chat --wire-api chat`"


def _nobody(error: AntiphonError, said: str, base_url: str) -> str:
    reason = _system_words(error) or said.rpartition(": ")[2]
    if is_loopback(base_url):
        port = urlsplit(base_url).port
        flag = "" if port == _OWN_PORT else f" --port {port or 80}"
        return f"no server answers at {base_url} ({reason}); start one with `antiphon serve{flag}`"
    return f"no server answers at {base_url} ({reason}); check the URL and the network"


def _system_words(error: BaseException | None) -> str:
    """Return the system's words for the cause; the library's would name addresses."""
    while error is not None:
        if isinstance(error, OSError) and error.errno and error.errno > 0:
            return os.strerror(error.errno).lower()
        error = error.__cause__
    return ""


def ending(response: Response) -> str:
    """Return what is wrong with how a response ended; nothing if it is whole."""
    match response.status:
        case "completed":
            return ""
        case "failed":
            reason = response.error.message if response.error else ""
            return f"the response failed: {' '.join(reason.split()) or 'no reason given'}"
        case "incomplete":
            details = response.incomplete_details
            return f"the answer is incomplete: {(details and details.reason) or 'no reason given'}"
        case "cancelled":
            return "the response was cancelled by the server"
        case status:
            return f"the response ended as {status}"


def is_silent(response: Response) -> bool:
    """Return whether a response has neither text nor calls, at most reasoning."""
    return not any(
        spoken_text(item).strip() or item_type(item) not in ("message", "reasoning")
        for item in response.output
    )


# Bare HTTP.


class ServerFault(CliError):
    """The server is away, broke off, fell silent or answered with nonsense."""


class Remote(AbstractAsyncContextManager["Remote"]):
    """A server without a client before it. Enter it; leaving closes the connections."""

    def __init__(self, server: Server, limits: Limits | None = None) -> None:
        self.server: Final = server
        self._client = HttpClient(key=server.bearer, headers=server.sent_headers, limits=limits)

    async def __aexit__(self, *_: object) -> None:
        await self._client.close()

    async def fetch(self, method: str, path: str, body: bytes | None = None) -> Reply:
        """Return the whole answer, of any status. Raise ServerFault."""
        try:
            return await self._client.fetch(method, self.server.base_url + path, body=body)
        except BackendError as error:
            raise self._fault(error) from error

    async def stream(self, body: bytes, path: str = "/responses") -> ByteStream:
        """Return the answer to a streaming turn, of any status. Close it."""
        try:
            return await open_stream(
                self._client,
                self.server.base_url + path,
                body,
                headers={"Accept": "text/event-stream"},
            )
        except BackendError as error:
            raise self._fault(error) from error

    async def frames_of(self, stream: ByteStream) -> AsyncIterator[Frame]:
        """Yield the frames of the stream as they arrive. Raise ServerFault if it breaks off."""
        decoder = SseDecoder()
        try:
            async for data in stream:
                for frame in decoder.feed(data):
                    yield frame
        except BackendError as error:
            raise self._fault(error) from error
        for frame in decoder.end():
            yield frame

    def _fault(self, error: BackendError) -> ServerFault:
        told = error_from_transport(error)
        told.__cause__ = error
        return ServerFault(explain(told, self.server))


def refusal(status: int, body: bytes) -> str:
    """Return the message of an answer that is not 2xx."""
    return error_from_answer(status, body, {}).message

"""How commands reach a server, and how they report what went wrong with it.

`open_client` returns a client, `first_model` and `list_models` return what the server offers.
`explain` words an error and `ending` the end of an answer, so that all commands use the same
words. `Remote` is bare HTTP for commands that check the answers themselves.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self, Unpack
from urllib.parse import urlsplit

import msgspec

from antiphon.cli.errors import CliError
from antiphon.cli.options import DEFAULT_URL
from antiphon.gateway.errors import BadSettings
from antiphon.protocol.errors import AntiphonError, BackendError
from antiphon.protocol.items import item_type
from antiphon.protocol.sse import Frame, SseDecoder
from antiphon.transport.http import HttpClient, Limits, Reply
from antiphon.transport.secret import Secret
from antiphon.transport.stream import ByteStream, open_stream

if TYPE_CHECKING:
    from antiphon.client import AsyncClient
    from antiphon.client.client import ClientOptions
    from antiphon.client.errors import ClientError
    from antiphon.client.parameters import Params
    from antiphon.client.settings import WireApi
    from antiphon.host.models import ModelDirectory
    from antiphon.protocol.response import Response

__all__ = [
    "Remote",
    "Server",
    "ServerFault",
    "ending",
    "explain",
    "first_model",
    "is_loopback",
    "is_silent",
    "lacks_list",
    "lacks_path",
    "list_models",
    "named_key",
    "open_client",
    "own_server",
    "refusal",
    "thinking_of",
]

_OWN_KEYS: Final = ("ANTIPHON_API_KEY", "OPENAI_API_KEY")
_OWN_PORT: Final = urlsplit(DEFAULT_URL).port
_CUT_TWICE: Final = ": its answer is cut off"


class Server(msgspec.Struct, frozen=True):
    """Where requests go, with which key, and in which environment.

    `key_source` names where the key comes from; it is shown when the key is refused.
    """

    base_url: str
    key: Secret | None = None
    environ: Mapping[str, str] = {}
    key_source: str = f"the key is read from {', else '.join(_OWN_KEYS)}"


def own_server(url: str) -> Server:
    """Return the server that the user talks to, with the key that the environment has for it."""
    from antiphon.gateway.address import read_server_url

    return Server(read_server_url(url, "--base-url"), _key_from(*_OWN_KEYS), os.environ)


def named_key(name: str, flag: str) -> Secret:
    """Return the key of a variable that a flag names. Raise BadSettings if it has none."""
    key = _key_from(name)
    if key is None:
        raise BadSettings(f"{flag}: the environment variable {name} is not set")
    return key


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
    from antiphon.server.origin import is_loopback_name

    return is_loopback_name(urlsplit(base_url).netloc.rpartition("@")[2])


def open_client(server: Server, **options: Unpack[ClientOptions]) -> AsyncClient:
    """Return a client of the server."""
    from antiphon.client import AsyncClient

    options["base_url"] = server.base_url
    # Empty means none, while None would have it read from the environment.
    options["api_key"] = server.key or ""
    options["environ"] = server.environ
    return AsyncClient(**options)


async def list_models(server: Server) -> list[str]:
    """Return the names of the server's models. Raise ClientError."""
    async with open_client(server, max_retries=0) as client:
        return [model.id for model in await client.models()]


async def first_model(server: Server) -> str:
    """Return the first model that the server lists. Raise CliError if it lists no model."""
    from antiphon.client.errors import ClientError

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
    from antiphon.client.errors import InvalidAnswer

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
    from antiphon.client.errors import AuthFailed, ServerUnreachable, StreamBroken
    from antiphon.host.errors import ResponseFailed

    said = " ".join(error.message.split())
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
    from antiphon.client.errors import ResourceNotFound

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
    from antiphon.host.outcome import spoken_text

    return not any(
        spoken_text(item).strip() or item_type(item) not in ("message", "reasoning")
        for item in response.output
    )


# Bare HTTP.


class ServerFault(CliError):
    """The server is away, broke off, fell silent or answered with nonsense."""


class Remote:
    """A server without a client before it. Enter it; leaving closes the connections."""

    def __init__(self, server: Server, limits: Limits | None = None) -> None:
        self.server: Final = server
        self._client = HttpClient(key=server.key, limits=limits)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._client.close()

    async def fetch(self, method: str, path: str, body: bytes | None = None) -> Reply:
        """Return the whole answer, of any status. Raise ServerFault."""
        try:
            return await self._client.fetch(method, self.server.base_url + path, body=body)
        except BackendError as error:
            raise self._fault(error) from error

    async def stream(self, body: bytes) -> ByteStream:
        """Return the answer to a streaming turn, of any status. Close it."""
        try:
            return await open_stream(
                self._client,
                f"{self.server.base_url}/responses",
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
        from antiphon.client.errors import error_from_transport

        told = error_from_transport(error)
        told.__cause__ = error
        return ServerFault(explain(told, self.server))


def refusal(status: int, body: bytes) -> str:
    """Return the message of an answer that is not 2xx."""
    from antiphon.client.errors import error_from_answer

    return error_from_answer(status, body, {}).message

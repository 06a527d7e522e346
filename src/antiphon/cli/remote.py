"""A Responses server, as the commands reach it.

Who asks it something takes `open_client`, and tells what went wrong with `explain`. `Remote` is
bare HTTP, for those who judge the answers themselves. Faults are told from this side, where the
peer is the server and nobody's upstream.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

import msgspec

from antiphon.cli.errors import BadSettings, CliError
from antiphon.protocol.errors import AntiphonError, BackendError
from antiphon.protocol.sse import Frame, SseDecoder
from antiphon.transport.http import HttpClient, Limits, Reply
from antiphon.transport.secret import Secret
from antiphon.transport.stream import ByteStream, open_stream

if TYPE_CHECKING:
    from antiphon.client import AsyncClient
    from antiphon.client.settings import WireApi

__all__ = [
    "Refused",
    "Remote",
    "ServerFault",
    "ServerGone",
    "explain",
    "frames_of",
    "key_from",
    "open_client",
    "own_key",
    "refusal",
]

_MAX_SHOWN: Final = 500


class ServerGone(CliError):
    """Nobody answers at the address."""

    def __init__(self, base_url: str, reason: str) -> None:
        super().__init__(
            f"no server answers at {base_url} ({reason}); start one with `antiphon serve`"
        )


class ServerFault(CliError):
    """The server broke off, fell silent or answered with something that cannot be read."""


class Refused(CliError):
    """The server said no, with this status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"the server refused (HTTP {status}): {message}")
        self.status = status


class Remote:
    """A Responses server at a base URL. Enter it; leaving closes the connections."""

    def __init__(self, base_url: str, key: Secret | None, limits: Limits | None = None) -> None:
        self.base_url: Final = base_url
        self._client = HttpClient(key=key, limits=limits)

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
        """Return the whole answer, whatever its status."""
        try:
            return await self._client.fetch(method, self.base_url + path, body=body)
        except BackendError as error:
            raise self._fault(error) from error

    async def stream(self, body: bytes) -> ByteStream:
        """Return the answer to a turn that streams, whatever its status. Close it."""
        try:
            return await open_stream(
                self._client,
                f"{self.base_url}/responses",
                body,
                headers={"Accept": "text/event-stream"},
            )
        except BackendError as error:
            raise self._fault(error) from error

    def _fault(self, error: BackendError) -> CliError:
        if error.code == "upstream_unreachable":
            return ServerGone(self.base_url, error.message.rpartition(": ")[2])
        return _server_fault(error)


async def frames_of(stream: ByteStream) -> AsyncIterator[Frame]:
    """Yield the frames of the stream as they arrive. Raise ServerFault if it breaks off."""
    decoder = SseDecoder()
    try:
        async for data in stream:
            for frame in decoder.feed(data):
                yield frame
    except BackendError as error:
        raise _server_fault(error) from error
    for frame in decoder.end():
        yield frame


def refusal(status: int, body: bytes) -> Refused:
    """Return the error of a body in OpenAI's shape, or of one in any other."""
    return Refused(status, _message(body) or _shown(body) or "it gave no reason")


def open_client(base_url: str, wire_api: WireApi = "responses") -> AsyncClient:
    """Return a client of the server, with the key that the environment has for it."""
    from antiphon.client import AsyncClient

    return AsyncClient(base_url=base_url, api_key=own_key(), wire_api=wire_api)


def explain(error: AntiphonError, base_url: str) -> str:
    """Return what went wrong with a turn, in one sentence for the person who asked."""
    from antiphon.client.errors import AuthFailed, ServerUnreachable, StreamBroken
    from antiphon.host.errors import ResponseFailed

    said = " ".join(error.message.split())
    match error:
        case ServerUnreachable():
            reason = said.rpartition(": ")[2].partition(" (")[0]  # the address is named already
            return ServerGone(base_url, reason).message
        case StreamBroken():
            return f"the answer is cut off: {said}"
        case ResponseFailed():
            return f"the response failed: {said or 'no reason given'}"
        case AuthFailed(status=401):
            return f"{said}; the key is taken from ANTIPHON_API_KEY, else OPENAI_API_KEY"
    return said


def own_key() -> Secret | None:
    """Return the key for the server that the user talks to."""
    return key_from("ANTIPHON_API_KEY", "OPENAI_API_KEY")


def key_from(*names: str, environ: Mapping[str, str] = os.environ) -> Secret | None:
    """Return the key of the first variable that is set."""
    for name in names:
        value = environ.get(name, "").strip()
        if not value:
            continue
        try:
            return Secret(value)
        except ValueError as error:
            raise BadSettings(f"{name} holds no key: {error}") from None
    return None


def _server_fault(error: BackendError) -> ServerFault:
    # The transport speaks of upstreams, because that is whom the gateway talks to.
    return ServerFault(error.message.replace("the upstream", "the server"))


def _message(body: bytes) -> str | None:
    try:
        fields: Any = msgspec.json.decode(body)
    except msgspec.DecodeError:
        return None
    error = fields.get("error") if isinstance(fields, dict) else None
    message = error.get("message") if isinstance(error, dict) else error
    return message if isinstance(message, str) else None


def _shown(body: bytes) -> str:
    return " ".join(body[:_MAX_SHOWN].decode("utf-8", "replace").split())

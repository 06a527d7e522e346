"""A token that expires, printed by a command: Entra, Vertex, Bedrock and others have one.

The command runs without a shell, for a limited time, and its output is limited too. What it
prints is a secret: neither its output nor its errors are logged or repeated in a message.

A token is used until it is `refresh_seconds` old or a server refuses it with 401. Requests that
need one at the same time share one run, and a request that is cancelled does not end the run for
the others.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Callable, Sequence
from typing import Final

from antiphon.protocol.errors import BackendError
from antiphon.transport.secret import Secret

__all__ = ["TokenSource"]

_MAX_OUTPUT: Final = 64 * 1024
# A token younger than this that is refused would be refused again if it were printed anew.
_YOUNG: Final = 10.0
_GRACE: Final = 5.0


class TokenSource:
    """Returns the token for a request when it is called. `clock` is monotonic seconds."""

    def __init__(
        self,
        command: Sequence[str],
        refresh_seconds: float,
        *,
        limit: float = 30.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._command = tuple(command)
        self._refresh = refresh_seconds
        self._limit = limit
        self._clock = clock
        self._token: Secret | None = None
        self._since = 0.0
        self._run: asyncio.Task[Secret] | None = None

    async def __call__(self) -> Secret:
        """Return a token that is not old. Raise BackendError if there is none to be had."""
        if self._token is not None and self._age() < self._refresh:
            return self._token
        if self._run is None:
            self._run = asyncio.create_task(self._renew())
        return await asyncio.shield(self._run)

    def refuse(self, token: Secret) -> bool:
        """Note that a server refused this token. Return whether another one is to be had."""
        if token != self._token:
            return True  # it was replaced while the request was under way
        if self._age() < _YOUNG:
            return False
        self._token = None
        return True

    def _age(self) -> float:
        return self._clock() - self._since

    async def _renew(self) -> Secret:
        try:
            began = self._clock()
            token = _read_token(await self._print())
            self._token, self._since = token, began
            return token
        finally:
            self._run = None

    async def _print(self) -> bytes:
        """Return what the command prints."""
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            raise _no_token(f"it cannot be started ({type(error).__name__})") from error
        try:
            async with asyncio.timeout(self._limit):
                return await _read_output(process)
        except TimeoutError:
            raise _no_token(f"it took longer than {self._limit:g} seconds") from None
        finally:
            if process.returncode is None:
                await _stop(process)


async def _stop(process: asyncio.subprocess.Process) -> None:
    """Kill the command and what it has started.

    Its end is seen only when its pipe is empty and closed, so that is read too. A process that
    has left the session may hold the pipe open: it is not waited for.
    """
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_GRACE):
            await process.communicate()


async def _read_output(process: asyncio.subprocess.Process) -> bytes:
    assert process.stdout is not None
    output = bytearray()
    while piece := await process.stdout.read(_MAX_OUTPUT):
        output += piece
        if len(output) > _MAX_OUTPUT:
            raise _no_token(f"it printed more than {_MAX_OUTPUT} bytes")
    if status := await process.wait():
        raise _no_token(f"it ended with status {status}")
    return bytes(output)


def _read_token(output: bytes) -> Secret:
    try:
        return Secret(output.decode())
    except (ValueError, UnicodeDecodeError):
        raise _no_token("it did not print one line of printable ASCII") from None


def _no_token(why: str) -> BackendError:
    return BackendError(
        f"the command that prints the upstream's token failed: {why}; check `auth` of the provider",
        code="upstream_auth",
    )

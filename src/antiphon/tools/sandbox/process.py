"""The process of a sandbox, seen from outside: how it is started and how everything in it ends.

The process gets three streams and an empty environment. bubblewrap reports the process id of the
first process inside; killing that one makes the kernel of the system kill all others in its
namespace, and the process outside ends after them. The death of the gateway ends both, because
each of them asks to die with its parent; the parent is the thread that runs the event loop.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from asyncio.subprocess import Process
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import msgspec

from antiphon.tools.sandbox.base import SandboxFailed
from antiphon.tools.sandbox.channel import Channel

__all__ = ["Command", "SandboxProcess", "start_process"]

_START_SECONDS: Final = 30.0
_GRACE_SECONDS: Final = 5.0
_MAX_WORDS: Final = 500


class Command(msgspec.Struct, frozen=True):
    """What is started. `{info}` and `{filter}` in the arguments become descriptors."""

    arguments: tuple[str, ...]
    reports_child: bool = False
    """Whether it writes the id of its first process to `{info}`."""
    filter: bytes = b""
    """A seccomp program, readable at `{filter}`."""


class SandboxProcess:
    """A process with its channel."""

    def __init__(self, process: Process, channel: Channel, inner: int | None) -> None:
        self.channel = channel
        self._process = process
        self._inner = inner
        self._reaper: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int:
        """The id of the process outside; everything else descends from it."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """Its exit code, or None while it runs."""
        return self._process.returncode

    def kill(self) -> None:
        """Kill everything in it, now. Nothing is awaited."""
        if self._process.returncode is not None:
            return
        if self._inner is None:
            self._kill_outer()
        else:
            with suppress(ProcessLookupError):
                os.kill(self._inner, signal.SIGKILL)

    async def end(self) -> None:
        """Kill everything in it and wait until all of it is gone."""
        self.kill()
        if self._reaper is None:
            self._reaper = asyncio.get_running_loop().create_task(self._reap())
        await asyncio.shield(self._reaper)

    async def _reap(self) -> None:
        try:
            async with asyncio.timeout(_GRACE_SECONDS):
                await self._process.wait()
        except TimeoutError:
            self._kill_outer()
            await self._process.wait()
        finally:
            self.channel.close()

    def _kill_outer(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)


async def start_process(command: Command, image_bytes: int) -> SandboxProcess:
    """Start it and wait until its kernel is ready. Raise SandboxFailed."""
    ours, theirs = socket.socketpair()
    out_read, out_write = os.pipe()
    err_read, err_write = os.pipe()
    info_read, info_write = os.pipe()
    given = [theirs.fileno(), out_write, err_write]
    passed = [info_write, *_open_filter(command)]
    for fd in (ours.fileno(), out_read, err_read):
        os.set_blocking(fd, False)
    channel = Channel(ours, out_read, err_read, image_bytes)
    try:
        process = await _spawn(command, given, passed)
    except BaseException as error:
        channel.close()
        os.close(info_read)
        if isinstance(error, OSError):
            raise SandboxFailed(f"the sandbox cannot be started: {error}") from None
        raise
    finally:
        theirs.close()
        for fd in (out_write, err_write, *passed):
            os.close(fd)
    started = SandboxProcess(process, channel, None)
    try:
        await _become_ready(channel)
        return SandboxProcess(process, channel, _read_child(command, info_read))
    except BaseException:
        await started.end()
        raise
    finally:
        os.close(info_read)


async def _spawn(command: Command, given: Sequence[int], passed: Sequence[int]) -> Process:
    names = {"{info}": str(passed[0]), "{filter}": str(passed[-1])}
    arguments = [names.get(argument, argument) for argument in command.arguments]
    return await asyncio.create_subprocess_exec(
        *arguments,
        stdin=given[0],
        stdout=given[1],
        stderr=given[2],
        env={},
        cwd="/",
        pass_fds=passed,
        start_new_session=True,
    )


def _open_filter(command: Command) -> list[int]:
    if not command.filter:
        return []
    fd = os.memfd_create("filter")
    os.write(fd, command.filter)
    os.lseek(fd, 0, os.SEEK_SET)
    return [fd]


async def _become_ready(channel: Channel) -> None:
    """Wait for the first frame. What comes on the error stream before it is the reason."""
    words: list[str] = []
    channel.listen()
    try:
        async with asyncio.timeout(_START_SECONDS):
            while not channel.is_ready and not channel.fault:
                await channel.changed.wait()
                words += [output.text for output in channel.take()]
    except TimeoutError:
        raise SandboxFailed(f"the sandbox was not ready after {_START_SECONDS:g} s") from None
    finally:
        channel.pause()
    if not channel.is_ready:
        reason = "".join(words).strip()[-_MAX_WORDS:] or "it ended at once"
        raise SandboxFailed(f"the sandbox cannot be started: {reason}")


def _read_child(command: Command, info: int) -> int | None:
    """Return the process id that bubblewrap has written before it started the kernel."""
    if not command.reports_child:
        return None
    return int(msgspec.json.decode(os.read(info, 4096), type=dict[str, int])["child-pid"])

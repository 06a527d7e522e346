"""The watcher of all sockets: who is pinged, who is too old, who must go."""

from __future__ import annotations

import asyncio

import pytest

from antiphon.protocol.errors import AntiphonError, Overloaded
from antiphon.server.delivery.sockets import LIMIT_REACHED, RESTART, Sockets, TooOld
from antiphon.server.limits import ServerLimits


class Socket:
    """A socket that notes what is done to it."""

    def __init__(self) -> None:
        self.opened_at = asyncio.get_running_loop().time()
        self.beaten = asyncio.Event()
        self.ended = asyncio.Event()
        self.end_with: tuple[AntiphonError, int] | None = None

    async def beat(self) -> None:
        self.beaten.set()

    def end(self, error: AntiphonError, code: int) -> asyncio.Task[None]:
        self.end_with = (error, code)
        self.ended.set()
        return asyncio.create_task(asyncio.sleep(0))


async def test_every_socket_is_pinged_in_every_round() -> None:
    sockets = Sockets(ServerLimits(websocket_ping_seconds=0.01))
    many = [Socket() for _ in range(450)]
    contexts = [sockets.watching(socket) for socket in many]
    for context in contexts:
        context.__enter__()
    for _ in range(2):
        async with asyncio.timeout(60):
            await asyncio.gather(*(socket.beaten.wait() for socket in many))
        for socket in many:
            socket.beaten.clear()
    for context in contexts:
        context.__exit__(None, None, None)

    assert len(sockets) == 0
    assert not any(socket.ended.is_set() for socket in many)


async def test_a_socket_that_is_too_old_is_ended_once_and_a_younger_one_stays() -> None:
    sockets = Sockets(ServerLimits(websocket_seconds=1000.0, websocket_ping_seconds=0.01))
    old, young = Socket(), Socket()
    old.opened_at -= 1000.0
    with sockets.watching(old), sockets.watching(young):
        async with asyncio.timeout(60):
            await old.ended.wait()
            old.ended.clear()
            await young.beaten.wait()

    assert old.end_with is not None
    assert isinstance(old.end_with[0], TooOld)
    assert old.end_with[1] == LIMIT_REACHED
    assert not old.ended.is_set()
    assert not young.ended.is_set()


async def test_when_the_server_goes_all_sockets_end_and_none_is_opened() -> None:
    sockets = Sockets(ServerLimits())
    before, after = Socket(), Socket()
    with sockets.watching(before):
        tasks = sockets.close_all()
        with pytest.raises(Overloaded):
            sockets.check_room()
        with sockets.watching(after):
            await asyncio.wait(tasks)

    assert [socket.end_with and socket.end_with[1] for socket in (before, after)] == [RESTART] * 2


async def test_without_sockets_nobody_watches() -> None:
    sockets = Sockets(ServerLimits())
    tasks = asyncio.all_tasks()
    with sockets.watching(Socket()):
        assert len(asyncio.all_tasks() - tasks) == 1
    await asyncio.sleep(0)

    assert asyncio.all_tasks() == tasks


@pytest.mark.parametrize(("seconds", "told"), [(3600.0, "60 minutes"), (90.0, "1.5 minutes")])
def test_the_limit_is_told_in_minutes(seconds: float, told: str) -> None:
    assert told in TooOld(seconds).message

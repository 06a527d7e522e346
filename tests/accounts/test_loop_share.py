"""Sharing the event loop: whose piece of work is next, counted in pieces and passes."""

from __future__ import annotations

import asyncio
import math
import random
import time

import pytest

from antiphon.accounts import loop_share
from antiphon.accounts.fair_queue import FairWaiters
from antiphon.accounts.loop_share import LoopShare, Way

# Pieces that may begin in one pass of the loop, and so before a piece that comes at that time.
_IN_A_PASS = 8


async def _be_late(share: LoopShare) -> None:
    """Let the event loop be late until work is paced."""
    for _ in range(100):
        if share.is_paced:
            return
        time.sleep(0.03)  # noqa: ASYNC251 # the event loop is to be late
        await asyncio.sleep(0)
    raise AssertionError("the loop is late, and nothing is paced")


async def _paced(noisy_pieces: int = 200) -> LoopShare:
    """Return a share between a noisy and a quiet owner, whose loop was late."""
    share = LoopShare()
    share.note("quiet")
    for _ in range(noisy_pieces):
        share.note("noisy")
    await _be_late(share)
    return share


async def _pass() -> None:
    await asyncio.sleep(0)


class _Noise:
    """So many tasks of the noisy owner that each want to do one piece after the other."""

    def __init__(self, share: LoopShare, tasks: int) -> None:
        self.begun = 0
        self._share = share
        self._tasks = [asyncio.create_task(self._work()) for _ in range(tasks)]

    async def _work(self) -> None:
        while True:
            await self._share.turn("noisy")
            self.begun += 1

    async def end(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def test_an_owner_that_is_alone_is_never_paced() -> None:
    share = LoopShare()
    for _ in range(20):
        assert not share.note("a")
        time.sleep(0.01)  # noqa: ASYNC251 # the event loop is late
        await _pass()
    assert not share.is_paced


async def test_owners_are_not_paced_while_the_loop_keeps_up() -> None:
    share = LoopShare()
    for _ in range(1000):
        share.note("noisy")
    share.note("quiet")
    assert not share.is_paced


class _CoarseLoop(asyncio.SelectorEventLoop):
    """A loop whose clock stands between its ticks, as that of uvloop does."""

    def time(self) -> float:
        return math.floor(super().time() * 100) / 100


def test_a_loop_is_late_although_its_own_clock_does_not_show_it() -> None:
    # Passes of one length can fall into step with the ticks of the clock, and look punctual.
    passes = random.Random(24)

    async def work() -> bool:
        share = LoopShare()
        share.note("quiet")
        for _ in range(2000):
            if share.note("noisy"):
                return True
            time.sleep(passes.uniform(0.001, 0.004))  # noqa: ASYNC251 # work for the event loop
            await _pass()
        return False

    with asyncio.Runner(loop_factory=_CoarseLoop) as runner:
        assert runner.run(work())


async def test_few_pieces_of_a_busy_owner_begin_in_one_pass() -> None:
    share = await _paced()
    noise = _Noise(share, 64)
    most = before = 0
    for _ in range(200):
        await _pass()
        most, before = max(most, noise.begun - before), noise.begun
    assert before > 100
    assert most <= _IN_A_PASS
    await noise.end()
    assert share.waiting == 0


async def _begun_before_quiet(share: LoopShare) -> int:
    """Return how many noisy pieces begin between the arrival of a quiet one and its turn."""
    noise = _Noise(share, 64)
    for _ in range(20):
        await _pass()
    before = noise.begun
    await share.turn("quiet")
    begun = noise.begun - before
    await noise.end()
    return begun


async def test_a_quiet_owner_waits_for_nobody() -> None:
    assert await _begun_before_quiet(await _paced()) == 0


async def test_busy_owners_take_turns() -> None:
    share, done = await _paced(200), list[str]()
    for _ in range(200):
        share.note("also noisy")

    async def work(owner: str) -> None:
        await share.turn(owner)
        done.append(owner)

    owners = [*["noisy"] * 20, *["also noisy"] * 20]
    await asyncio.gather(*(asyncio.create_task(work(owner)) for owner in owners))
    assert all(len({*pair}) == 2 for pair in zip(done[::2], done[1::2], strict=True))


class _FirstComeWaiters(FairWaiters):
    """A planted bug: all owners wait in one line."""

    def add(self, owner: str) -> asyncio.Future[None]:
        return super().add("everybody")


async def test_first_come_first_served_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_share, "FairWaiters", _FirstComeWaiters)
    monkeypatch.setattr(LoopShare, "is_ahead", lambda *_: True)
    assert await _begun_before_quiet(await _paced()) > 2 * _IN_A_PASS


@pytest.fixture
def _no_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let requests keep right of way on a machine that is slow just now."""
    monkeypatch.setattr(loop_share, "_LONGEST_WAY", 600.0)
    monkeypatch.setattr(loop_share, "_LONGEST_STOP", 600.0)


@pytest.mark.usefixtures("_no_limits")
async def test_while_a_request_has_right_of_way_others_begin_nothing() -> None:
    share = await _paced()
    noise = _Noise(share, 64)
    await _pass()
    way = await share.enter("quiet")
    assert way is not None and Way.of_this_task() is way
    await _pass()  # what was woken before it came
    before = noise.begun
    for _ in range(20):
        await _pass()
    assert noise.begun == before
    way.end()
    way.end()
    for _ in range(5):
        await _pass()
    assert noise.begun > before
    await noise.end()


async def test_a_busy_owner_has_no_right_of_way() -> None:
    share = await _paced()
    assert await share.enter("noisy") is None


async def test_right_of_way_ends_by_itself() -> None:
    share = await _paced()
    await share.enter("quiet")
    await asyncio.wait_for(share.turn("noisy"), 30)


async def test_requests_with_right_of_way_cannot_stop_the_others() -> None:
    share, stop = await _paced(100_000), False

    async def hurry() -> None:
        while not stop:
            way = await share.enter("quiet")
            await asyncio.sleep(0.001)
            assert way is not None
            way.end()

    hurrying = [asyncio.create_task(hurry()) for _ in range(5)]
    for _ in range(5):
        await asyncio.wait_for(share.turn("noisy"), 30)
    stop = True
    await asyncio.gather(*hurrying)


@pytest.mark.usefixtures("_no_limits")
async def test_a_piece_that_is_cancelled_is_forgotten() -> None:
    share = await _paced()
    await share.enter("quiet")
    waiting = asyncio.create_task(share.turn("noisy"))
    await _pass()
    assert share.waiting == 1
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert share.waiting == 0


async def test_pacing_ends_when_nobody_waits() -> None:
    share = await _paced()
    for _ in range(1000):
        await asyncio.sleep(0.03)
        if not share.is_paced:
            return
    raise AssertionError("nobody waits, and work is paced all the same")


async def test_what_one_owner_did_long_ago_is_forgotten() -> None:
    share = LoopShare()
    for _ in range(100):
        share.note("noisy")
    share.note("quiet")
    assert share.is_ahead("noisy") and not share.is_ahead("quiet")
    for _ in range(1000):
        await asyncio.sleep(0.03)
        share.note("quiet")
        if not share.is_ahead("noisy"):
            return
    raise AssertionError("what was done long ago counts for ever")

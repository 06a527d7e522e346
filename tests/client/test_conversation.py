"""The conversation cache: who is remembered for how long, and what a thread has cost."""

from __future__ import annotations

import logging
import threading

import msgspec
import pytest

from antiphon.client.conversation import ConversationCache, Thread
from antiphon.client.errors import BadCall
from antiphon.protocol.response import Notes, Response, Usage

HOURS = 3600.0


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def thread(response_id: str) -> Thread:
    return Thread(response_id=response_id)


@pytest.mark.requirement("22-C3")
def test_a_thread_is_found_by_session_and_model() -> None:
    cache = ConversationCache()
    cache.set("s", "m", thread("resp_1"))
    assert cache.get("s", "m") == thread("resp_1")
    assert cache.get("s", "other") is None
    assert cache.get("other", "m") is None
    assert cache.get("s", None) is None


@pytest.mark.requirement("22-C3")
def test_the_last_thread_set_is_the_one() -> None:
    cache = ConversationCache()
    cache.set("s", "m", thread("resp_1"))
    cache.set("s", "m", thread("resp_2"))
    assert cache.get("s", "m") == thread("resp_2")
    assert len(cache) == 1


@pytest.mark.requirement("22-C3")
def test_a_hundred_threads_are_kept_and_the_oldest_goes_first() -> None:
    cache = ConversationCache()
    for number in range(101):
        cache.set(f"s{number}", "m", thread(f"resp_{number}"))
    assert len(cache) == 100
    assert cache.get("s0", "m") is None
    assert cache.get("s1", "m") == thread("resp_1")


@pytest.mark.requirement("22-C3")
def test_the_thread_not_used_for_longest_goes_first() -> None:
    cache = ConversationCache(max_threads=2)
    cache.set("a", "m", thread("resp_a"))
    cache.set("b", "m", thread("resp_b"))
    cache.get("a", "m")
    cache.set("c", "m", thread("resp_c"))
    assert cache.get("b", "m") is None
    assert cache.get("a", "m") == thread("resp_a")


@pytest.mark.requirement("22-C3")
def test_a_thread_is_forgotten_two_hours_after_its_last_use() -> None:
    clock = Clock()
    cache = ConversationCache(clock=clock)
    cache.set("s", "m", thread("resp_1"))
    clock.now = 2 * HOURS - 1
    assert cache.get("s", "m") == thread("resp_1")
    clock.now = 4 * HOURS - 2
    assert cache.get("s", "m") == thread("resp_1")
    clock.now = 6 * HOURS - 2
    assert cache.get("s", "m") is None


@pytest.mark.requirement("22-C3")
def test_what_has_expired_takes_no_room() -> None:
    clock = Clock()
    cache = ConversationCache(max_threads=2, ttl=10, clock=clock)
    cache.set("a", "m", thread("resp_a"))
    clock.now = 5
    cache.set("b", "m", thread("resp_b"))
    clock.now = 12
    assert len(cache) == 1
    cache.set("c", "m", thread("resp_c"))
    assert cache.get("b", "m") == thread("resp_b")


@pytest.mark.requirement("22-C3")
def test_a_thread_can_be_forgotten_by_hand() -> None:
    cache = ConversationCache()
    cache.set("s", "m", thread("resp_1"))
    cache.set("s", "n", thread("resp_2"))
    cache.invalidate("s", "m")
    cache.invalidate("s", "never known")
    assert cache.get("s", "m") is None
    assert cache.get("s", "n") == thread("resp_2")
    cache.clear()
    assert len(cache) == 0


@pytest.mark.parametrize(("max_threads", "ttl"), [(0, 1.0), (1, 0.0)])
def test_a_cache_without_room_or_time_is_refused(max_threads: int, ttl: float) -> None:
    with pytest.raises(BadCall):
        ConversationCache(max_threads, ttl)


@pytest.mark.requirement("22-C3")
def test_threads_of_a_program_can_share_a_cache() -> None:
    cache = ConversationCache(max_threads=10)
    begin = threading.Barrier(8)
    failures: list[BaseException] = []

    def use(worker: int) -> None:
        try:
            begin.wait(30)
            for number in range(300):
                cache.set(f"s{(worker * number) % 17}", "m", thread("resp"))
                cache.get(f"s{number % 17}", "m")
                cache.invalidate(f"s{number % 5}", "m")
                assert len(cache) <= 10
        except BaseException as error:  # noqa: BLE001 - told to the test, which fails
            failures.append(error)

    workers = [threading.Thread(target=use, args=(number,)) for number in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert failures == []


def counted(total: int) -> Response:
    return Response(id="resp", usage=Usage(total_tokens=total))


@pytest.mark.requirement("REQ-002.1")
def test_tokens_add_up_as_the_server_counts_them() -> None:
    after = Thread().add_usage(counted(100), estimate=7).add_usage(counted(250), estimate=9)
    assert (after.tokens, after.context_tokens, after.is_estimate) == (350, 250, False)


@pytest.mark.requirement("REQ-002.2")
def test_an_estimate_stands_in_only_where_the_server_says_nothing() -> None:
    after = Thread().add_usage(Response(id="resp"), estimate=7)
    assert (after.tokens, after.context_tokens, after.is_estimate) == (7, 7, True)
    later = after.add_usage(counted(100), estimate=9)
    assert (later.tokens, later.context_tokens, later.is_estimate) == (107, 100, True)


@pytest.mark.requirement("REQ-002.2")
def test_a_server_that_counted_nothing_is_still_believed() -> None:
    assert Thread().add_usage(counted(0), estimate=99).tokens == 0


def test_a_server_that_gives_no_total_gives_a_sum() -> None:
    response = Response(id="resp", usage=Usage(input_tokens=3, output_tokens=4))
    assert Thread().add_usage(response, estimate=99).tokens == 7


def test_a_gateway_that_estimated_says_so() -> None:
    response = msgspec.structs.replace(counted(5), antiphon=Notes(usage="estimated"))
    assert Thread().add_usage(response, 9) == Thread(tokens=5, context_tokens=5, is_estimate=True)
    response = msgspec.structs.replace(counted(5), antiphon=Notes(degraded=("seed",)))
    assert Thread().add_usage(response, 9).is_estimate is False


@pytest.mark.requirement("REQ-010.1")
def test_the_log_tells_the_tokens_and_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "antiphon.client"):
        Thread(response_id="resp_secret", tokens=10).add_usage(counted(5), estimate=0)
    (record,) = caplog.records
    assert record.levelno == logging.DEBUG
    assert record.getMessage() == "cache tokens updated: 15, of these 5 new"


def test_a_lost_thread_keeps_its_items_and_what_it_cost() -> None:
    whole = Thread("resp_1", items=({"type": "x"},), tokens=7)
    assert whole.without("resp_1") == Thread(None, items=({"type": "x"},), tokens=7)


def test_a_lost_thread_of_which_we_hold_a_part_is_nothing() -> None:
    assert Thread("resp_1", is_whole=False).without("resp_1") is None
    assert Thread("resp_1", conversation="conv_1", is_whole=False).without("conv_1") is None


@pytest.mark.parametrize("gone", ["resp_0", None])
def test_a_thread_that_has_moved_on_is_not_lost(gone: str | None) -> None:
    moved = Thread("resp_1", is_whole=False)
    assert moved.without(gone) is moved


def test_a_thread_is_changed_in_one_step() -> None:
    cache = ConversationCache(max_threads=2)
    cache.set("other", "m", thread("resp_0"))
    cache.update("s", "m", lambda found: thread("resp_1") if found is None else None)
    assert cache.get("s", "m") == thread("resp_1")
    cache.update("s", "m", lambda found: found and found.without("resp_1"))
    assert cache.get("s", "m") == Thread()
    cache.update("new", "m", lambda found: thread("resp_2"))
    assert [cache.get(name, "m") for name in ("other", "s")] == [None, Thread()]


def test_a_change_may_forget_a_thread() -> None:
    cache = ConversationCache()
    cache.set("s", "m", thread("resp_1"))
    cache.update("s", "m", lambda found: None)
    cache.update("unknown", "m", lambda found: found)
    assert len(cache) == 0


def test_a_change_that_fails_leaves_the_thread() -> None:
    cache = ConversationCache()
    cache.set("s", "m", thread("resp_1"))
    with pytest.raises(ZeroDivisionError):
        cache.update("s", "m", lambda found: thread(str(1 / 0)))
    assert cache.get("s", "m") == thread("resp_1")


@pytest.mark.requirement("REQ-002.1")
def test_turns_that_end_in_many_threads_lose_no_tokens() -> None:
    cache = ConversationCache()
    answer = Response(id="resp_1", status="completed", usage=Usage(total_tokens=1))

    def end_turns() -> None:
        for _ in range(200):
            cache.update("s", "m", lambda found: (found or Thread()).add_usage(answer, 0))

    workers = [threading.Thread(target=end_turns) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    found = cache.get("s", "m")
    assert found is not None
    assert found.tokens == 800

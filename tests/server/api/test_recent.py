"""What this process remembers of requests it ran: bounded in time and in bytes."""

from __future__ import annotations

from antiphon.protocol.response import Response
from antiphon.server.api.recent import Recent

ANSWER = Response(id="resp_1", status="completed", metadata={"k": "v"})


def run(recent: Recent, token: str, response: Response | None, now: int = 0) -> None:
    recent.end("ann", token, recent.begin("ann", token, b"d"), response, now)


def test_an_answer_is_found_again_and_never_shared() -> None:
    recent = Recent()
    run(recent, "t", ANSWER)

    found = recent.find("ann", "t", 0)
    assert found is not None
    assert found.digest == b"d"
    assert found.response == ANSWER
    assert found.response is not ANSWER
    assert recent.find("bob", "t", 0) is None


def test_what_runs_has_no_answer_and_does_not_grow_old() -> None:
    recent = Recent(seconds=10)
    recent.begin("ann", "t", b"d")

    found = recent.find("ann", "t", 1000)
    assert found is not None
    assert not found.ended.is_set()
    assert found.response is None


def test_an_answer_is_forgotten_in_time() -> None:
    recent = Recent(seconds=10)
    run(recent, "t", ANSWER, now=100)

    assert recent.find("ann", "t", 109) is not None
    assert recent.find("ann", "t", 110) is None


def test_the_oldest_make_room_for_the_newest() -> None:
    recent = Recent(max_bytes=10 * 1024)
    for number in range(100):
        run(recent, str(number), ANSWER)

    kept = [number for number in range(100) if recent.find("ann", str(number), 0)]
    assert 1 <= len(kept) <= 10
    assert kept == list(range(100 - len(kept), 100))


def test_an_answer_that_is_too_large_is_not_kept() -> None:
    recent = Recent(max_bytes=10 * 1024)
    run(recent, "t", Response(id="resp_1", status="completed", user="x" * 20_000))

    assert recent.find("ann", "t", 0) is None


def test_what_came_to_nothing_is_forgotten_and_whoever_waits_is_told() -> None:
    recent = Recent()
    entry = recent.begin("ann", "t", b"d")
    recent.forget("ann", "t", entry, 0)

    assert entry.ended.is_set()
    assert recent.find("ann", "t", 0) is None


def test_an_older_run_does_not_speak_for_a_newer_one() -> None:
    recent = Recent()
    old = recent.begin("ann", "t", b"d")
    new = recent.begin("ann", "t", b"d")
    recent.end("ann", "t", old, ANSWER, 0)
    recent.forget("ann", "t", old, 0)

    assert recent.find("ann", "t", 0) is new


def test_room_is_given_back() -> None:
    recent = Recent(max_bytes=10 * 1024)
    for _ in range(100):
        run(recent, "same", ANSWER)
    for number in range(5):
        run(recent, str(number), ANSWER)

    assert recent.find("ann", "same", 0) is not None

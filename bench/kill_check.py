"""Is everything that clients were told before a crash still true after it?

lost      a response whose id a client has is not there, or an answer it got is another one
gap       an event is missing between what was seen and what came when the stream was resumed
twice     an event came twice, or the model's words stand twice in one log
late      a response had not ended in time
changed   the log now differs from what was seen, or from the response it leads to
fault     a request failed although its gateway lived
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import aiohttp
from kill_load import TERMINAL, Json, Seen, answer_to, events_in, hash_of

__all__ = ["DEADLINE_SECONDS", "Verdict", "check_all", "check_followed", "check_kept"]

DEADLINE_SECONDS: Final = 10.0
_GRACE_SECONDS: Final = 20.0
_AT_ONCE: Final = 64
_DONE: Final = ("completed", "incomplete", "failed", "cancelled")


@dataclass
class Verdict:
    """What was found, over all rounds."""

    violations: list[str] = field(default_factory=list)
    ended_after: dict[str, list[float]] = field(default_factory=dict)
    """Seconds until responses that the crash cut off had ended, by kind."""
    resumed: int = 0
    resumed_events: int = 0
    followers: int = 0
    followed_events: int = 0
    replayed_events: int = 0
    statuses: dict[tuple[str, str], int] = field(default_factory=dict)
    kept: dict[str, Json] = field(default_factory=dict)

    def note(self, what: str, one: Seen, detail: str = "") -> None:
        """Remember a violation."""
        self.violations.append(f"{what}: {one.kind} {one.id or one.prompt} {detail}".rstrip())


async def check_all(url: str, seen: Sequence[Seen], since: float, verdict: Verdict) -> None:
    """Check everything that was seen in a round. `since` is when the time to end began."""
    room = asyncio.Semaphore(_AT_ONCE)
    timeout = aiohttp.ClientTimeout(total=DEADLINE_SECONDS + _GRACE_SECONDS)
    async with aiohttp.ClientSession(timeout=timeout, read_bufsize=2**20) as session:

        async def check(one: Seen) -> None:
            async with room:
                await _check(_Asker(session, url), one, since, verdict)

        # What may not have ended yet comes first: its time is running.
        for has_ended in (False, True):
            await asyncio.gather(*(check(one) for one in seen if one.has_ended is has_ended))


def check_followed(seen: Sequence[Seen], verdict: Verdict) -> None:
    """Check that second readers saw nothing else. The last check of a round: it clears up."""
    for one in seen:
        if one.log[: len(one.followed)] != one.followed:
            verdict.note("changed", one, "a second reader saw another stream")
        verdict.followers += bool(one.followed)
        verdict.followed_events += len(one.followed)
        one.events, one.followed, one.log = [], [], []  # they have been judged


async def check_kept(url: str, verdict: Verdict) -> None:
    """Check that no response of any round has changed or gone since it was checked."""
    room = asyncio.Semaphore(_AT_ONCE)
    async with aiohttp.ClientSession() as session:
        asker = _Asker(session, url)

        async def check(response_id: str, response: Json) -> None:
            async with room:
                if await asker.get(response_id) != response:
                    verdict.violations.append(f"lost: {response_id} is not what it was")

        await asyncio.gather(*(check(name, found) for name, found in verdict.kept.items()))


class _Asker:
    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session = session
        self._url = url

    async def get(self, response_id: str) -> Json | None:
        """Return a response, None if it is not there."""
        async with self._session.get(f"{self._url}/responses/{response_id}") as reply:
            if reply.status == 404:
                return None
            found: Json = await reply.json()
            return found

    async def follow(self, response_id: str, after: int | None = None) -> list[Json]:
        """Return the events of a response behind this one, to the end of the stream."""
        query = {"stream": "true"} | ({} if after is None else {"starting_after": str(after)})
        path = f"{self._url}/responses/{response_id}"
        async with self._session.get(path, params=query) as reply:
            return [event async for event in events_in(reply)]


async def _check(asker: _Asker, one: Seen, since: float, verdict: Verdict) -> None:
    if one.fault:
        verdict.note("fault", one, one.fault)
    if not one.id:
        return  # nothing was promised
    try:
        await _check_response(asker, one, since, verdict)
    except (aiohttp.ClientError, TimeoutError) as error:
        verdict.note("late", one, f"asking for it failed: {type(error).__name__}")


async def _check_response(asker: _Asker, one: Seen, since: float, verdict: Verdict) -> None:
    if one.kind == "foreground":
        found = await asker.get(one.id)
        if found != one.answer:
            verdict.note("lost", one)
    elif one.events:
        found = await _check_stream(asker, one, since, verdict)
    else:
        found = await _wait(asker, one, since, verdict)
        if found is not None:
            _check_log(one, await asker.follow(one.id), found, verdict)
    if found is None:
        verdict.note("lost", one)
        return
    verdict.kept[one.id] = found
    key = (one.kind, found["status"])
    verdict.statuses[key] = verdict.statuses.get(key, 0) + 1


async def _wait(asker: _Asker, one: Seen, since: float, verdict: Verdict) -> Json | None:
    """Ask until the response has ended, and note how long that took."""
    found = await asker.get(one.id)
    while found is not None and found["status"] not in _DONE:
        one.is_cut = True
        if time.monotonic() - since > DEADLINE_SECONDS + _GRACE_SECONDS:
            break
        await asyncio.sleep(0.05)
        found = await asker.get(one.id)
    # Where the one gateway starts again, it has ended what it found before it answers.
    one.is_cut |= found is not None and found["status"] == "failed"
    _note_end(one, since, verdict)
    return found


async def _check_stream(asker: _Asker, one: Seen, since: float, verdict: Verdict) -> Json | None:
    rest: list[Json] = []
    if not one.has_ended:
        rest = await asker.follow(one.id, one.last)
        _note_end(one, since, verdict)
        verdict.resumed += 1
        verdict.resumed_events += len(rest)
        if [event["sequence_number"] for event in rest[:1]] != [one.last + 1]:
            what = "twice" if rest and rest[0]["sequence_number"] <= one.last else "gap"
            verdict.note(what, one, f"resumed after {one.last}")
    found = await asker.get(one.id)
    if found is None:
        return None
    whole = await asker.follow(one.id)
    if whole != one.events + rest:
        verdict.note("changed", one, "the replay is not what was seen")
    one.log = whole
    middle = hash_of(one.prompt) % max(len(whole), 1)
    if await asker.follow(one.id, middle) != whole[middle + 1 :]:
        verdict.note("changed", one, f"from {middle} on it is another stream")
    _check_log(one, whole, found, verdict)
    return found


def _note_end(one: Seen, since: float, verdict: Verdict) -> None:
    seconds = time.monotonic() - since
    if one.is_cut:
        verdict.ended_after.setdefault(one.kind, []).append(seconds)
    if seconds > DEADLINE_SECONDS:
        verdict.note("late", one, f"it ended after {seconds:.1f} s")


def _check_log(one: Seen, events: Sequence[Json], found: Json, verdict: Verdict) -> None:
    """Check a whole log by itself: numbers, words, end."""
    verdict.replayed_events += len(events)
    numbers = [event["sequence_number"] for event in events]
    if len(set(numbers)) != len(numbers):
        verdict.note("twice", one, "in the log")
    elif numbers != list(range(len(numbers))):
        verdict.note("gap", one, "in the log")
    ends = [event for event in events if event["type"] in TERMINAL]
    if len(ends) != 1 or ends[0] is not events[-1]:
        verdict.note("changed", one, f"the log has {len(ends)} ends")
    elif ends[0]["response"] != found:
        verdict.note("changed", one, "the log ends in another response")
    _check_words(one, events, found, verdict)


def _check_words(one: Seen, events: Sequence[Json], found: Json, verdict: Verdict) -> None:
    deltas = (e["delta"] for e in events if e["type"] == "response.output_text.delta")
    text, expected = "".join(deltas), answer_to(one.prompt)
    stored = "".join(part["text"] for item in found["output"] for part in item["content"])
    if not expected.startswith(text):
        verdict.note("twice", one, "the words are not the model's, in its order")
    if stored != text or (found["status"] == "completed" and text != expected):
        verdict.note("changed", one, "words are missing")

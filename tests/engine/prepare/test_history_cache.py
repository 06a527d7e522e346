"""What this process knows by heart: the same as the store says, as long as nothing was removed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from antiphon.backends.chat import ChatBackend
from antiphon.backends.scripted import Script, ScriptedBackend
from antiphon.engine.prepare.history_cache import HistoryCache, Past
from antiphon.gateway.assemble import ServerSettings
from antiphon.plans.plan import Plan
from antiphon.protocol.deltas import Stopped, TextGrew
from antiphon.protocol.items import Item, text_of
from antiphon.protocol.response import Response
from antiphon.protocol.thread import Thread
from antiphon.server.auth import new_key
from antiphon.store.base import MAX_DEPTH, Admit, History
from antiphon.store.memory import MemoryStore
from antiphon.store.sqlite import SqliteStore
from antiphon.testing.gateway import Gateway, serve_gateway
from antiphon.testing.upstream import ScriptedUpstream
from tests.asking import Answer, ask, request

OWNER = "alice"
LONG = "word " * 4000


class Watched:
    """Stores that note which histories were read from them."""

    def __init__(self) -> None:
        self.read: list[str] = []

    def open(self, path: Path) -> SqliteStore:
        """Return a store in this file."""
        read = self.read

        class Noting(SqliteStore):
            async def history(
                self, owner: str, response_id: str, *, admit: Admit | None = None
            ) -> History | None:
                read.append(response_id)
                return await super().history(owner, response_id, admit=admit)

        return Noting(path)


def answering(plan: Plan) -> Script:
    return [TextGrew(text_of(plan.items[-1]["content"]).upper()), Stopped("stop")]


async def say(gateway: Gateway, text: str, previous: str | None, **more: Any) -> str:
    answer = await ask(gateway, input=text, previous_response_id=previous, **more)
    assert answer.status == 200, answer.body
    response_id: str = answer.json["id"]
    return response_id


@asynccontextmanager
async def opened(path: Path, watched: Watched | None = None) -> AsyncIterator[SqliteStore]:
    store = watched.open(path) if watched else SqliteStore(path)
    try:
        yield store
    finally:
        await store.close()


async def long_chain(gateway: Gateway, turns: int = 3) -> list[str]:
    """Return the ids of a chain whose first turn alone is worth remembering."""
    ids = [await say(gateway, LONG, None)]
    while len(ids) < turns:
        ids.append(await say(gateway, f"turn {len(ids)}", ids[-1]))
    return ids


def texts(plan: Plan) -> list[str]:
    return [text_of(item["content"]) for item in plan.items]


def refusal(answer: Answer) -> tuple[int, str, str]:
    return answer.status, answer.error["code"], answer.error["message"]


async def test_a_chain_goes_on_without_reading_it_again(tmp_path: Path) -> None:
    watched, backend = Watched(), ScriptedBackend(answering)
    async with (
        opened(tmp_path / "a.db", watched) as store,
        serve_gateway(backend, store=store) as gateway,
    ):
        ids = await long_chain(gateway, 6)

    # The first turn knows no count of removals yet, so the second one reads it.
    assert watched.read == [ids[0]]
    said = [LONG, *(f"turn {number}" for number in range(1, 6))]
    assert texts(backend.plans[-1]) == [t for text in said for t in (text, text.upper())][:-1]


async def test_short_chains_are_read_each_time(tmp_path: Path) -> None:
    watched = Watched()
    async with (
        opened(tmp_path / "a.db", watched) as store,
        serve_gateway(ScriptedBackend(answering), store=store) as gateway,
    ):
        ids = [await say(gateway, "a", None)]
        for _ in range(3):
            ids.append(await say(gateway, "b", ids[-1]))

    assert watched.read == ids[:-1]


async def test_the_model_is_sent_the_same_bytes_from_memory_and_after_restarts(
    tmp_path: Path,
) -> None:
    texts = (LONG, "b", "c", "d")
    sent = []
    # All in one process, and each in a process of its own.
    for name, groups in (("a.db", [texts]), ("b.db", [(text,) for text in texts])):
        previous: str | None = None
        async with ScriptedUpstream() as upstream:
            for group in groups:
                backend = ChatBackend(upstream.base_url)
                async with (
                    opened(tmp_path / name) as store,
                    serve_gateway(backend, store=store) as gateway,
                ):
                    for text in group:
                        previous = await say(gateway, text, previous, instructions="Be brief.")
            sent.append([received.body for received in upstream.requests])

    assert sent[0] == sent[1]
    roles = [message["role"] for message in msgspec.json.decode(sent[0][-1])["messages"]]
    assert roles == ["system", *["user", "assistant"] * 3, "user"]


async def test_a_fork_of_a_remembered_turn_sees_only_its_own_line() -> None:
    backend = ScriptedBackend(answering)
    async with serve_gateway(backend) as gateway:
        ids = await long_chain(gateway, 5)
        fork = await say(gateway, "fork", ids[2])
        await say(gateway, "on", fork)
        await say(gateway, "main", ids[4])

    ends = [texts(plan)[4:] for plan in backend.plans[-3:]]
    assert ends[0] == ["turn 2", "TURN 2", "fork"]
    assert ends[1] == ["turn 2", "TURN 2", "fork", "FORK", "on"]
    assert ends[2][:5] == ["turn 2", "TURN 2", "turn 3", "TURN 3", "turn 4"]
    assert ends[2][-1] == "main"


@pytest.mark.parametrize("place", [0, 1, 2])
async def test_an_ancestor_that_was_deleted_is_refused(tmp_path: Path, place: int) -> None:
    async with (
        opened(tmp_path / "a.db") as store,
        serve_gateway(ScriptedBackend(answering), store=store) as gateway,
    ):
        ids = await long_chain(gateway)
        assert (await request(gateway, "DELETE", f"/responses/{ids[place]}")).status == 200
        answer = await ask(gateway, input="x", previous_response_id=ids[-1])

    status, code, text = refusal(answer)
    assert (status, code) == (400, "previous_response_not_found")
    assert ids[place] in text


async def test_an_ancestor_that_another_process_deleted_is_refused(tmp_path: Path) -> None:
    async with (
        opened(tmp_path / "a.db") as store,
        opened(tmp_path / "a.db") as other,
        serve_gateway(ScriptedBackend(answering), store=store) as gateway,
    ):
        ids = await long_chain(gateway)
        assert await other.delete("local", ids[0])
        answer = await ask(gateway, input="x", previous_response_id=ids[-1])

    assert refusal(answer)[:2] == (400, "previous_response_not_found")


async def test_what_was_swept_away_is_refused() -> None:
    store = MemoryStore()
    async with serve_gateway(ScriptedBackend(answering), store=store) as gateway:
        ids = await long_chain(gateway)
        assert await store.sweep(2**40, 0) == 3
        answer = await ask(gateway, input="x", previous_response_id=ids[-1])
    await store.close()

    assert refusal(answer)[:2] == (400, "previous_response_not_found")


async def test_what_was_pushed_out_is_refused() -> None:
    store = MemoryStore(max_responses=3)
    async with serve_gateway(ScriptedBackend(answering), store=store) as gateway:
        ids = await long_chain(gateway, 3)
        await say(gateway, "another", None)
        answer = await ask(gateway, input="x", previous_response_id=ids[-1])
    await store.close()

    assert refusal(answer)[:2] == (400, "previous_response_not_found")


async def test_a_removal_elsewhere_only_makes_it_read_again(tmp_path: Path) -> None:
    watched, backend = Watched(), ScriptedBackend(answering)
    async with (
        opened(tmp_path / "a.db", watched) as store,
        serve_gateway(backend, store=store) as gateway,
    ):
        other = await say(gateway, "other", None)
        ids = await long_chain(gateway, 4)
        assert (await request(gateway, "DELETE", f"/responses/{other}")).status == 200
        ids.append(await say(gateway, "after", ids[-1]))
        await say(gateway, "later", ids[-1])

    assert watched.read == [ids[0], ids[3]]
    assert len(backend.plans[-1].items) == 11


async def test_another_owner_does_not_go_on_with_it() -> None:
    store, secrets = MemoryStore(), []
    for owner in ("alice", "mallory"):
        secret, record = new_key(owner, 1)
        await store.add_key(record)
        secrets.append({"Authorization": f"Bearer {secret}"})
    settings = ServerSettings(require_keys=True)
    async with serve_gateway(ScriptedBackend(answering), store=store, settings=settings) as gateway:
        first = (await ask(gateway, secrets[0], input=LONG)).json["id"]
        more = {"input": "x", "previous_response_id": first}
        second = (await ask(gateway, secrets[0], **more)).json["id"]
        more["previous_response_id"] = second
        foreign = await ask(gateway, secrets[1], **more)
        own = await ask(gateway, secrets[0], **more)
    await store.close()

    assert refusal(foreign)[:2] == (400, "previous_response_not_found")
    assert own.status == 200


async def test_a_response_that_is_not_stored_is_not_remembered(tmp_path: Path) -> None:
    watched = Watched()
    async with (
        opened(tmp_path / "a.db", watched) as store,
        serve_gateway(ScriptedBackend(answering), store=store) as gateway,
    ):
        ids = await long_chain(gateway)
        unknown = await say(gateway, "x", ids[-1], store=False)
        answer = await ask(gateway, input="y", previous_response_id=unknown)

    assert refusal(answer)[:2] == (400, "previous_response_not_found")


# By itself.


def item(name: str, size: int = 0) -> Item:
    return {"type": "message", "id": name, "role": "user", "content": "x" * size}


def past(*items: Item, turns: int = 1, removals: int = 0) -> Past:
    weight = sum(len(msgspec.json.encode(one)) for one in items)
    return Past(Thread(items, weight), turns, removals)


def ended(
    name: str, *output: Item, parent: str | None = None, status: str = "completed"
) -> Response:
    return Response(
        id=name, created_at=1, status=status, output=list(output), previous_response_id=parent
    )


def keep(threads: HistoryCache, before: Past, own: list[Item], response: Response) -> Past | None:
    threads.keep(OWNER, before, before.thread.grow(own), response)
    return threads.find(OWNER, response.id)


def test_a_thread_grows_by_what_was_asked_and_answered() -> None:
    before = past(item("a", 20_000), turns=7, removals=3)
    found = keep(HistoryCache(), before, [item("b")], ended("r", item("c")))

    assert found is not None
    assert [one["id"] for one in found.thread] == ["a", "b", "c"]
    assert (found.turns, found.removals) == (8, 3)
    assert found.thread.weight == sum(len(msgspec.json.encode(one)) for one in found.thread)


def test_nothing_is_shared_with_the_turn() -> None:
    own, answer = item("b"), item("c")
    found = keep(HistoryCache(), past(item("a", 20_000)), [own], ended("r", answer))
    own["content"] = answer["content"] = "changed"

    assert found is not None
    assert found.thread[1:] == (item("b"), item("c"))


def test_what_was_learned_of_the_turn_s_items_stays_known() -> None:
    before = past(item("a", 20_000))
    whole = before.thread.grow([item("b")])
    whole.learn("x", 1)
    threads = HistoryCache()
    threads.keep(OWNER, before, whole, ended("r"))

    found = threads.find(OWNER, "r")
    assert found is not None
    assert found.thread.recall("x") == 1


def test_what_was_learned_of_items_that_the_store_gives_back_otherwise_is_forgotten() -> None:
    before = past(item("a", 20_000))
    whole = before.thread.grow([item("b") | {"n": (1, 2)}])  # a tuple comes back as a list
    whole.learn("x", 1)
    threads = HistoryCache()
    threads.keep(OWNER, before, whole, ended("r"))

    found = threads.find(OWNER, "r")
    assert found is not None
    assert found.thread[-1]["n"] == [1, 2]
    assert found.thread.recall("x") is None


@pytest.mark.parametrize("status", ["failed", "cancelled"])
def test_what_cannot_be_continued_is_not_kept(status: str) -> None:
    assert keep(HistoryCache(), past(item("a", 20_000)), [], ended("r", status=status)) is None


def test_an_answer_that_was_cut_short_can_be_continued() -> None:
    response = ended("r", status="incomplete")
    assert keep(HistoryCache(), past(item("a", 20_000)), [], response) is not None


def test_what_is_short_is_not_kept() -> None:
    assert keep(HistoryCache(), past(item("a", 10_000)), [item("b")], ended("r")) is None
    assert keep(HistoryCache(), past(item("a", 10_000)), [item("b", 8_000)], ended("r")) is not None


def test_a_chain_as_long_as_can_be_read_is_not_made_longer() -> None:
    before = past(item("a", 20_000), turns=MAX_DEPTH - 1)
    assert keep(HistoryCache(), before, [], ended("r")) is not None
    assert keep(HistoryCache(), before._replace(turns=MAX_DEPTH), [], ended("s")) is None


def test_each_owner_has_its_own() -> None:
    threads = HistoryCache()
    keep(threads, past(item("a", 20_000)), [], ended("r"))

    assert threads.find("mallory", "r") is None
    threads.forget("mallory", "r")
    assert threads.find(OWNER, "r") is not None
    threads.forget(OWNER, "r")
    assert threads.find(OWNER, "r") is None


def test_what_was_not_asked_for_the_longest_makes_room() -> None:
    threads = HistoryCache(room=200_000)  # for three of these
    for name in ("r", "s", "t"):
        keep(threads, past(item("a", 20_000)), [], ended(name))
    assert threads.find(OWNER, "r") is not None
    keep(threads, past(item("a", 20_000)), [], ended("u"))

    assert [name for name in "rstu" if threads.find(OWNER, name)] == ["r", "t", "u"]


def test_a_thread_that_has_grown_goes_before_others() -> None:
    threads = HistoryCache(room=200_000)
    for name in ("r", "s"):
        keep(threads, past(item("a", 20_000)), [], ended(name))
    keep(threads, past(item("a", 20_000)), [], ended("s2", parent="s"))
    keep(threads, past(item("a", 20_000)), [], ended("t"))

    assert [name for name in ("r", "s", "s2", "t") if threads.find(OWNER, name)] == ["r", "s2", "t"]


def test_a_thread_for_which_there_is_no_room_leaves_the_others_alone() -> None:
    threads = HistoryCache(room=100_000)
    keep(threads, past(item("a", 20_000)), [], ended("r"))
    assert keep(threads, past(item("a", 50_000)), [], ended("big")) is None
    assert threads.find(OWNER, "r") is not None


def test_room_is_given_back() -> None:
    threads = HistoryCache(room=100_000)  # for one
    for _ in range(5):
        assert keep(threads, past(item("a", 20_000)), [], ended("r")) is not None
    assert keep(threads, past(item("a", 50_000)), [], ended("big")) is None
    assert keep(threads, past(item("a", 20_000)), [], ended("r")) is not None

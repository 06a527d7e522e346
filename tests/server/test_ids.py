"""Ids: unique, also after a fork; and each carries the mark of the gateway that made it."""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from antiphon.backends.scripted import ScriptedBackend, Step
from antiphon.gateway.assemble import ServerSettings
from antiphon.protocol.deltas import CallOpened, ReasoningGrew, Stopped, TextGrew
from antiphon.protocol.items import item_prefix
from antiphon.server.ids import DEFAULT_MARK, IdMint
from antiphon.store.base import Store
from antiphon.store.memory import MemoryStore
from antiphon.store.sqlite import SqliteStore
from antiphon.testing.gateway import Gateway, serve_gateway
from tests.asking import ask, events_of, request, terminal

SCRIPT: list[Step] = [ReasoningGrew("hm"), TextGrew("so"), CallOpened(0, "f"), Stopped("stop")]
FUNCTION = {"type": "function", "name": "f"}
OUTPUT_AND_TEXT = [
    {"type": "function_call_output", "call_id": "c", "output": "1"},
    {"role": "user", "content": "hello"},
]
MAX_ID = 64  # the limit of a call_id, and of an item's id, in the Responses API


@pytest.mark.requirement("003-ids-1")
def test_ids_are_different_and_long_enough() -> None:
    mint = IdMint()
    ids = {mint("resp") for _ in range(5000)}
    assert len(ids) == 5000
    assert {len(value) for value in ids} == {len("resp_") + len(DEFAULT_MARK) + 48}


FORK = """
import os
from antiphon.server.ids import IdMint
mint = IdMint()
mint("x")
if child := os.fork():
    os.waitpid(child, 0)
print(mint("x"), flush=True)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="there is no fork")
def test_a_forked_child_does_not_repeat_its_parents_ids() -> None:
    output = subprocess.run([sys.executable, "-c", FORK], capture_output=True, check=True).stdout
    ids = output.split()
    assert len(ids) == len(set(ids)) == 2


@pytest.mark.requirement("003-ids-1", "003-ids-2", "003-ids-3", "003-ids-4")
async def test_every_id_names_its_kind_and_then_the_gateway_that_made_it() -> None:
    found: dict[str, str] = {}
    settings = ServerSettings(id_mark="eu-7")
    async with serve_gateway(ScriptedBackend([SCRIPT]), settings=settings) as gateway:
        answer = await ask(gateway, tools=[FUNCTION])
        response = answer.json
        reasoning, message, call = response["output"]
        found |= {"resp": response["id"], "rs": reasoning["id"], "msg": message["id"]}
        found |= {"fc": call["id"], "call": call["call_id"], "req": answer.headers["x-request-id"]}

        conversation = await request(gateway, "POST", "/conversations", {"items": OUTPUT_AND_TEXT})
        found["conv"] = conversation.json["id"]
        path = f"/conversations/{found['conv']}/items"
        for item in (await request(gateway, "GET", path)).json["data"]:
            found[f"stored {item['type']}"] = item["id"]

    kinds = {"stored message": "msg", "stored function_call_output": "fco"}
    assert len(found) == 9
    for kind, value in found.items():
        assert re.fullmatch(rf"{kinds.get(kind, kind)}_eu-7[0-9a-f]{{48}}", value)


@pytest.mark.requirement("003-ids-1")
async def test_without_a_setting_the_mark_names_antiphon() -> None:
    async with serve_gateway(ScriptedBackend()) as gateway:
        response = (await ask(gateway)).json
    assert response["id"].startswith("resp_ap-")
    assert response["output"][0]["id"].startswith("msg_ap-")


def test_no_id_is_longer_than_the_api_allows() -> None:
    mint = IdMint("12345678")
    items = ("message", "reasoning", "function_call_output", "local_shell_call_output", "unknown")
    kinds = ["resp", "conv", "call", "req", "evt", *map(item_prefix, items)]
    assert max(len(mint(kind)) for kind in kinds) <= MAX_ID


async def test_a_call_id_has_at_most_64_characters_whoever_made_it() -> None:
    script: list[Step] = [CallOpened(0, "f", "x" * 65), CallOpened(1, "f"), Stopped("stop")]
    settings = ServerSettings(id_mark="12345678")
    async with serve_gateway(ScriptedBackend([script]), settings=settings) as gateway:
        calls = (await ask(gateway, tools=[FUNCTION])).json["output"]
    theirs, ours = [call["call_id"] for call in calls]
    assert ours.startswith("call_12345678")
    assert max(len(theirs), len(ours)) <= MAX_ID


@pytest.mark.parametrize("mark", ["", "123456789", "a_b", "ä", "a b", "ab\n"])
def test_a_mark_that_is_not_one_is_refused(mark: str) -> None:
    with pytest.raises(ValueError, match="1 to 8 letters, digits or hyphens"):
        IdMint(mark)


# Ids from before there were marks.

NUMBERS = itertools.count()


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    store: Store = MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "db")
    yield store
    await store.close()


def unmarked(prefix: str) -> str:
    return f"{prefix}_{next(NUMBERS):048x}"


async def fill(store: Store) -> tuple[str, str, str]:
    """Store a streamed turn in a conversation, with ids as they were; return three of the ids."""
    async with serve_gateway(ScriptedBackend(), store=store) as gateway:
        gateway.app.engine.mint = unmarked
        conversation = (await request(gateway, "POST", "/conversations", {})).json["id"]
        stream = await ask(gateway, stream=True, conversation=conversation)
        response = terminal(events_of(stream.body))
    return response.id, response.output[0]["id"], conversation


async def test_ids_from_before_there_were_marks_keep_working(store: Store) -> None:
    response_id, item_id, conversation = await fill(store)
    assert re.fullmatch(r"resp_[0-9a-f]{48}", response_id)

    async with serve_gateway(ScriptedBackend(), store=store) as gateway:
        chained = (await ask(gateway, previous_response_id=response_id)).json
        assert chained["previous_response_id"] == response_id
        assert (await request(gateway, "GET", f"/responses/{response_id}")).json["id"] == (
            response_id
        )
        replay = await request(gateway, "GET", f"/responses/{response_id}?stream=true")
        assert terminal(events_of(replay.body)).id == response_id
        reference = [{"type": "item_reference", "id": item_id}]
        assert (await ask(gateway, input=reference)).status == 200
        assert await _continues(gateway, conversation)


async def _continues(gateway: Gateway, conversation: str) -> bool:
    """Say whether a turn in the conversation adds marked items to the unmarked ones."""
    await ask(gateway, conversation=conversation)
    path = f"/conversations/{conversation}/items?order=asc"
    ids = [item["id"] for item in (await request(gateway, "GET", path)).json["data"]]
    return [DEFAULT_MARK in value for value in ids] == [False, False, True, True]

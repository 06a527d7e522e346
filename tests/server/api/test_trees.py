"""Trees of responses and conversations: pages of turns, and which continues which."""

from __future__ import annotations

from typing import Any

import pytest

from antiphon.backends.scripted import ScriptedBackend
from antiphon.gateway.assemble import ServerSettings
from antiphon.testing.gateway import Gateway, serve_gateway
from tests.asking import ask, request
from tests.server.keyed import make_key


async def turn(gateway: Gateway, text: str, **more: Any) -> str:
    answer = await ask(gateway, input=text, **more)
    assert answer.status == 200, answer.body
    return str(answer.json["id"])


async def test_the_tree_of_a_response_has_all_branches() -> None:
    async with serve_gateway(ScriptedBackend()) as gateway:
        first = await turn(gateway, "one")
        second = await turn(gateway, "two", previous_response_id=first)
        fork = await turn(gateway, "other two", previous_response_id=first)
        third = await turn(gateway, "three", previous_response_id=second)
        answer = await request(gateway, "GET", f"/responses/{third}/antiphon/tree")
    data = answer.json["data"]
    assert [one["id"] for one in data] == [first, second, fork, third]
    assert [one["previous_response_id"] for one in data] == [None, first, first, second]
    assert [one["children"] for one in data] == [2, 1, 0, 0]
    assert [one["text"] for one in data] == ["one", "two", "other two", "three"]
    assert data[0]["usage"]["total_tokens"] > 0
    assert answer.json["has_more"] is False


async def test_a_tree_has_pages() -> None:
    async with serve_gateway(ScriptedBackend()) as gateway:
        names = [await turn(gateway, "0")]
        for number in range(1, 5):
            names.append(await turn(gateway, str(number), previous_response_id=names[-1]))
        path = f"/responses/{names[2]}/antiphon/tree"
        first = await request(gateway, "GET", f"{path}?limit=3")
        after = first.json["last_id"]
        second = await request(gateway, "GET", f"{path}?limit=3&after={after}")
        wrong = await request(gateway, "GET", f"{path}?after=nothing")
    pages = [[one["id"] for one in page.json["data"]] for page in (first, second)]
    assert pages == [names[:3], names[3:]]
    assert [first.json["has_more"], second.json["has_more"]] == [True, False]
    assert (wrong.status, wrong.error["param"]) == (400, "after")


async def test_the_tree_of_a_conversation_has_its_turns_and_their_forks() -> None:
    async with serve_gateway(ScriptedBackend()) as gateway:
        made = await request(gateway, "POST", "/conversations", {})
        name = made.json["id"]
        first = await turn(gateway, "one", conversation=name)
        second = await turn(gateway, "two", conversation=name)
        fork = await turn(gateway, "fork", previous_response_id=first)
        await turn(gateway, "elsewhere")
        answer = await request(gateway, "GET", f"/conversations/{name}/antiphon/tree")
        missing = await request(gateway, "GET", "/conversations/nothing/antiphon/tree")
    data = answer.json["data"]
    assert [one["id"] for one in data] == [first, second, fork]
    assert [one["conversation_id"] for one in data] == [name, name, None]
    assert missing.status == 404


@pytest.mark.parametrize("end", ["tree", "export"])
async def test_a_conversation_of_another_project_is_not_found(end: str) -> None:
    settings = ServerSettings(require_keys=True)
    async with serve_gateway(ScriptedBackend(), settings=settings) as gateway:
        ann = await make_key(gateway.store, "ann")
        bob = await make_key(gateway.store, "bob")
        made = await request(gateway, "POST", "/conversations", {}, ann)
        path = f"/conversations/{made.json['id']}/antiphon/{end}"
        mine = await request(gateway, "GET", path, headers=ann)
        other = await request(gateway, "GET", path, headers=bob)
    assert (mine.status, other.status) == (200, 404)

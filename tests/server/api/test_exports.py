"""Export and import of conversations: exact, or refused whole."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from antiphon.backends.scripted import ScriptedBackend
from antiphon.gateway.assemble import ServerSettings
from antiphon.server.api.exports import write_export
from antiphon.server.limits import ServerLimits
from antiphon.testing.gateway import Gateway, serve_gateway
from tests.asking import Answer, ask, request
from tests.store.conftest import KINDS, open_database

LINES = {"Content-Type": "application/x-ndjson"}
ITEMS: list[dict[str, Any]] = [
    {"type": "message", "role": "user", "content": "Gr\u00fc\u00dfe \u2028 \u0000 <b>\n"},
    {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c", "output": "\U0001f600"},
    {"type": "something_new", "deep": [{"a": 1.5, "b": None}]},
]
IMPORT = "/conversations/antiphon/import"


@pytest.fixture(params=KINDS)
async def gateway(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Gateway]:
    async with open_database(request.param, tmp_path) as database:
        store = await database.open()
        limits = ServerLimits(context_items=50)
        settings = ServerSettings(limits=limits)
        async with serve_gateway(ScriptedBackend(), store=store, settings=settings) as served:
            yield served


async def exported(gateway: Gateway, name: str) -> bytes:
    answer = await request(gateway, "GET", f"/conversations/{name}/antiphon/export")
    assert answer.status == 200, answer.body
    assert answer.headers["Content-Type"].startswith("application/x-ndjson")
    return answer.body


async def make(gateway: Gateway) -> str:
    body = {"items": ITEMS, "metadata": {"topic": "x"}}
    made = await request(gateway, "POST", "/conversations", body)
    assert made.status == 200, made.body
    await ask(gateway, input="And now?", conversation=made.json["id"])
    return str(made.json["id"])


async def test_an_import_has_exactly_what_was_exported(gateway: Gateway) -> None:
    name = await make(gateway)
    first = await exported(gateway, name)
    made = await request(gateway, "POST", IMPORT, first, LINES)
    assert made.status == 200, made.body
    again = await request(gateway, "POST", IMPORT, {"jsonl": first.decode()})
    copies = [made.json["id"], again.json["id"]]
    assert len({name, *copies}) == 3
    for copy in copies:
        second = await exported(gateway, copy)
        assert second.split(b"\n")[1:] == first.split(b"\n")[1:]
        assert second == first.replace(name.encode(), copy.encode())
    listed = [
        await request(gateway, "GET", f"/conversations/{one}/items?limit=100")
        for one in (name, copies[0])
    ]
    assert listed[0].json == listed[1].json
    assert len(listed[0].json["data"]) == 6
    assert made.json["metadata"] == {"topic": "x"}
    after = await ask(gateway, input="Go on.", conversation=copies[0])
    assert after.status == 200


async def test_an_import_that_is_sent_again_is_made_once(gateway: Gateway) -> None:
    data = await exported(gateway, await make(gateway))
    headers = {**LINES, "Idempotency-Key": "k"}
    first = await request(gateway, "POST", IMPORT, data, headers)
    again = await request(gateway, "POST", IMPORT, data, headers)
    other = await request(gateway, "POST", IMPORT, written([]), headers)
    assert (first.status, again.json) == (200, first.json)
    assert again.headers["x-antiphon-replayed"] == "1"
    assert other.status == 422


async def test_a_chain_can_be_exported_and_imported(gateway: Gateway) -> None:
    first = await ask(gateway, input="one")
    second = await ask(gateway, input="two", previous_response_id=first.json["id"])
    path = f"/responses/{second.json['id']}/antiphon/export"
    chain = await request(gateway, "GET", path)
    made = await request(gateway, "POST", IMPORT, chain.body, LINES)
    copy = await exported(gateway, made.json["id"])
    assert copy.split(b"\n")[1:] == chain.body.split(b"\n")[1:]
    assert copy.count(b"\n") == 6


async def refused(gateway: Gateway, data: bytes) -> Answer:
    answer = await request(gateway, "POST", IMPORT, data, LINES)
    assert answer.status == 400, (data, answer.body)
    return answer


async def test_what_is_damaged_is_refused_whole(gateway: Gateway) -> None:
    name = await make(gateway)
    good = await exported(gateway, name)
    lines = good.split(b"\n")[:-1]
    for number in range(len(lines)):
        cut = b"\n".join([*lines[:number], *lines[number + 1 :]])
        assert (await refused(gateway, cut)).error["code"] == "invalid_import"
    for place in range(len(lines[0]), len(good) - 1, 37):
        changed = good[:place] + bytes([good[place] ^ 1]) + good[place + 1 :]
        if changed != good:
            await refused(gateway, changed)
    for place in range(1, len(good) - 1, 41):
        await refused(gateway, good[:place])
    for rubbish in (b"", b"\n", b"[]\n[]", b"{}\n{}", b"\xff\xfe", b"null\nnull\n"):
        await refused(gateway, rubbish)
    wrong = await request(gateway, "POST", IMPORT, {"jsonl": 1})
    assert wrong.status == 400


def written(items: list[dict[str, Any]]) -> bytes:
    """Return an export with a hash that fits, of any items."""
    return write_export("conv_x", {}, [{"id": f"k{n}"} | item for n, item in enumerate(items)])


@pytest.mark.parametrize(
    "item",
    [
        {"type": "message", "role": "user"},
        {"type": "message", "role": 5, "content": "x"},
        {"type": "item_reference", "id": "msg_1"},
        {"type": "reasoning", "summary": [], "antiphon.native": {"a": 1}},
    ],
)
async def test_items_that_are_not_valid_are_refused(item: dict[str, Any]) -> None:
    async with serve_gateway(ScriptedBackend()) as gateway:
        data = _with_native(item)
        answer = await refused(gateway, data)
    assert "2" in answer.error["message"]


def _with_native(item: dict[str, Any]) -> bytes:
    """Write the export by hand: the one of the gateway leaves private fields out."""
    line = msgspec.json.encode({"id": "a"} | item)
    digest = hashlib.sha256(line + b"\n").hexdigest()
    head = {"type": "antiphon.conversation", "version": 1, "id": "c", "metadata": {}, "items": 1}
    end = {"type": "antiphon.end", "items": 1, "sha256": digest}
    return b"\n".join([msgspec.json.encode(head), line, msgspec.json.encode(end)])


async def test_more_items_than_a_context_may_have_are_refused(gateway: Gateway) -> None:
    many = [{"type": "message", "role": "user", "content": str(n)} for n in range(51)]
    answer = await refused(gateway, written(many))
    assert "50" in answer.error["message"]

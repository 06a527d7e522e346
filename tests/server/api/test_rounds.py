"""Rounds of a response: which upstreams were called, and what they were sent."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from antiphon.engine.keep.kept_requests import KeptRequests
from antiphon.gateway.assemble import ServerSettings
from antiphon.plans.plan import Plan
from antiphon.plans.toolbox import Toolbox
from antiphon.protocol.errors import StoreUnavailable
from antiphon.store.base import Store
from antiphon.store.memory import MemoryStore
from antiphon.testing import ChatBackend, Script, ScriptedUpstream, Status, serve_gateway
from antiphon.testing.gateway import Gateway
from antiphon.transport.http import Secret
from tests.asking import Answer, ask, request
from tests.server.keyed import make_key
from tests.store.conftest import KINDS, open_database

KEPT = ServerSettings(keep_upstream_requests=True)
KEYED = ServerSettings(keep_upstream_requests=True, require_keys=True)
SECRET = "canary-of-the-key"


@asynccontextmanager
async def house(
    *scripts: Script, settings: ServerSettings = KEPT, store: Store | None = None
) -> AsyncIterator[tuple[Gateway, ScriptedUpstream]]:
    async with ScriptedUpstream(list(scripts) or [Script(text="Hello.")]) as upstream:
        backend = ChatBackend(upstream.base_url, key=Secret(SECRET))
        async with serve_gateway(backend, settings=settings, store=store) as gateway:
            yield gateway, upstream


async def rounds_of(gateway: Gateway, response_id: str) -> list[dict[str, Any]]:
    answer = await request(gateway, "GET", f"/responses/{response_id}/antiphon/rounds")
    assert answer.status == 200, answer.body
    found: list[dict[str, Any]] = answer.json["data"]
    return found


async def request_of(gateway: Gateway, response_id: str, number: int = 0) -> Answer:
    path = f"/responses/{response_id}/antiphon/rounds/{number}"
    return await request(gateway, "GET", path)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("stream", [False, True])
async def test_what_an_upstream_was_sent_is_kept(kind: str, stream: bool, tmp_path: Path) -> None:
    async with open_database(kind, tmp_path) as database:
        store = await database.open()
        async with house(store=store) as (gateway, upstream):
            first = await ask(gateway, input="one", instructions="Be brief.")
            asked = {"input": "two", "previous_response_id": first.json["id"]}
            await ask(gateway, **asked, stream=stream)
            (node,) = (await store.trees.page("local", [first.json["id"]], limit=9))[1:]
            response_id = node.response.id
            (found,) = await rounds_of(gateway, response_id)
            sent = await request_of(gateway, response_id)
            body = upstream.requests[1].json
    assert sent.json["source"] == found["source"] == "kept"
    assert sent.json["body"] == body
    assert found["kind"] == "model"
    assert found["outcome"] == "completed"
    assert found["request_bytes"] == len(upstream.requests[1].body)
    assert found["total_ms"] >= 0
    assert found["used"]["total_tokens"] > 0
    assert [one["role"] for one in body["messages"]] == ["user", "assistant", "user"]


async def test_rounds_are_named_after_their_reason() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    form = {"type": "json_schema", "name": "n", "schema": schema, "strict": True}
    scripts = [Script(faults=[Status(503)]), Script(text="no"), Script(text='{"a": 1}')]
    async with house(*scripts) as (gateway, upstream):
        answer = await ask(gateway, text={"format": form})
        assert answer.status == 200, answer.body
        found = await rounds_of(gateway, answer.json["id"])
        bodies = [await request_of(gateway, answer.json["id"], n) for n in range(3)]
    assert [one["kind"] for one in found] == ["model", "attempt", "repair"]
    assert [one["outcome"] for one in found] == ["released", "completed", "completed"]
    assert [one.json["body"] for one in bodies] == [one.json for one in upstream.requests]


async def test_what_was_not_kept_is_written_again_and_says_so() -> None:
    async with house(settings=ServerSettings()) as (gateway, upstream):
        first = await ask(gateway, input="one")
        more = {"previous_response_id": first.json["id"], "stream": False}
        second = await ask(gateway, input="two", instructions="Be brief.", temperature=0.5, **more)
        (found,) = await rounds_of(gateway, second.json["id"])
        sent = await request_of(gateway, second.json["id"])
        missing = await request_of(gateway, second.json["id"], 1)
        requests = len(upstream.requests)
    assert requests == 2  # nothing was sent for the look
    assert found["source"] == sent.json["source"] == "rendered"
    assert found["request_bytes"] is None
    real = upstream.requests[1].json
    assert sent.json["body"]["messages"] == real["messages"]
    assert sent.json["body"]["temperature"] == real["temperature"]
    assert (missing.status, missing.error["code"]) == (404, "round_not_kept")


async def test_a_turn_of_a_conversation_is_written_again_with_what_was_before() -> None:
    async with house(settings=ServerSettings()) as (gateway, upstream):
        made = await request(gateway, "POST", "/conversations", {})
        answers = [
            await ask(gateway, input=text, conversation=made.json["id"]) for text in ("1", "2", "3")
        ]
        sent = await request_of(gateway, answers[1].json["id"])
    assert sent.json["body"]["messages"] == upstream.requests[1].json["messages"]


def _bytes_in(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


async def test_nothing_is_kept_of_what_is_not_stored(tmp_path: Path) -> None:
    async with open_database("sqlite", tmp_path) as database:
        store = await database.open()
        async with house(store=store, settings=KEYED) as (gateway, upstream):
            never = await make_key(store, "bob", never_store=True)
            headers = await make_key(store)
            await ask(gateway, headers, input="canary-one", store=False)
            await ask(gateway, never, input="canary-two")
            await ask(gateway, headers, input="canary-three")
            assert len(upstream.requests) == 3
        await store.close()
    data = _bytes_in(tmp_path)
    assert b"canary-one" not in data
    assert b"canary-two" not in data
    assert SECRET.encode() not in data


async def test_credentials_of_tools_are_not_kept() -> None:
    tool = {
        "type": "mcp",
        "server_label": "files",
        "server_url": "https://mcp.example",
        "authorization": "canary-token",
        "headers": {"X-Key": 'canary "header"'},
    }

    plan = Plan(model="m", items=[], toolbox=Toolbox(upstream=(tool,)))
    kept = KeptRequests("ann", "r1", lambda: 1)
    await kept.add(0, "model", msgspec.json.encode({"tools": [tool]}), plan)
    (entry,) = await kept.entries()
    assert entry.body is not None
    body = zlib.decompress(entry.body)
    assert b"canary" not in body
    assert msgspec.json.decode(body)["tools"][0]["authorization"] == "[not kept]"


async def test_rounds_of_another_project_are_not_found() -> None:
    async with house(settings=KEYED) as (gateway, _):
        ann, bob = await asyncio.gather(
            make_key(gateway.store, "ann"), make_key(gateway.store, "bob")
        )
        answer = await ask(gateway, ann, input="hi")
        path = f"/responses/{answer.json['id']}/antiphon"
        for end in ("rounds", "rounds/0", "tree", "export"):
            mine = await request(gateway, "GET", f"{path}/{end}", headers=ann)
            other = await request(gateway, "GET", f"{path}/{end}", headers=bob)
            none = await request(gateway, "GET", f"/responses/nothing/antiphon/{end}", headers=bob)
            assert (mine.status, other.status, none.status) == (200, 404, 404)
            assert (
                other.error["message"].replace(answer.json["id"], "nothing")
                == (none.error["message"])
            )


class _Failing(MemoryStore):
    """Fails to store the first end."""

    has_failed = False

    async def finish(self, *args: Any, **more: Any) -> None:
        if not self.has_failed:
            self.has_failed = True
            raise StoreUnavailable("not now")
        await super().finish(*args, **more)


async def test_what_was_sent_is_kept_with_an_end_that_is_stored_later() -> None:
    store = _Failing()
    async with house(store=store) as (gateway, upstream):
        answer = await ask(gateway, input="hi")
        await gateway.app.engine.pending_writes.settle()
        charges = await store.ledger.charges()
        found = await store.rounds.find("local", charges[0].response_id)
    await store.close()
    assert answer.status == 503
    assert [one.size for one in found] == [len(upstream.requests[0].body)]


async def test_a_summary_is_a_round_of_its_own() -> None:
    async with house(Script(text="Notes."), Script(text="Hello.")) as (gateway, upstream):
        management = [{"type": "compaction", "compact_threshold": 200}]
        messages = [
            {"role": role, "content": "word " * 300} for role in ("user", "assistant", "user")
        ]
        more = {"context_management": management}
        answer = await ask(gateway, input=[*messages, {"role": "user", "content": "Go."}], **more)
        assert answer.status == 200, answer.body
        found = await rounds_of(gateway, answer.json["id"])
        assert len(upstream.requests) == 2
    assert [one["kind"] for one in found] == ["compaction", "model"]

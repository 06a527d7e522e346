"""Files in requests: what each model gets of them, what is refused, and what is stored."""

from __future__ import annotations

import base64
import os
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web as http

from antiphon.backends.scripted import ScriptedBackend
from antiphon.engine.prepare.fetched_files import FetchedFiles
from antiphon.engine.prepare.input_files import InputFileSettings
from antiphon.engine.prepare.window import digest_of
from antiphon.gateway.assemble import ServerSettings
from antiphon.plans.plan import Plan
from antiphon.protocol.items import ORIGINAL, Item
from antiphon.store.base import Store, StoredFile
from antiphon.store.memory import MemoryStore
from antiphon.store.sqlite import SqliteStore
from antiphon.testing.gateway import Gateway, serve_gateway
from antiphon.tools.web.fetch import Fetched
from antiphon.wires.chat.profiles import profile_for as chat_profile
from antiphon.wires.chat.wire import ChatWire
from antiphon.wires.gemini.profiles import profile_for as gemini_profile
from antiphon.wires.gemini.wire import GeminiWire
from antiphon.wires.messages.wire import MessagesWire
from antiphon.wires.responses.profiles import profile_for as responses_profile
from antiphon.wires.responses.wire import ResponsesWire
from antiphon.wires.wire import Wire
from tests.asking import Answer, request
from tests.talking import talk
from tests.tools.documents.making import make_docx, make_pdf
from tests.transport.raw import Connection, RawServer, Request, raw_server, reply
from tests.transport.test_egress import LOOPBACK_HOSTS, OTHER_HOSTS, resolving
from tests.web import LoopbackWeb, loopback_web

OWNER = "local"
PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 20


async def _upload(store: Store, name: str, data: bytes, **more: Any) -> str:
    writer = await store.blobs.create(more.pop("owner", OWNER))
    await writer.write(data)
    blob = await writer.finish()
    file_id = f"file-ap-{os.urandom(24).hex()}"
    now = int(time.time())
    file = StoredFile(
        id=file_id, filename=name, purpose="user_data", created_at=now, blob=blob, **more
    )
    return await _add(store, file)


async def _add(store: Store, file: StoredFile) -> str:
    await store.files.add(OWNER, file)
    return file.id


class _Desk:
    """A gateway with a model that takes some parts, and what it was sent."""

    def __init__(self, gateway: Gateway, backend: ScriptedBackend, store: Store) -> None:
        self.gateway = gateway
        self.backend = backend
        self.store = store

    async def ask(self, *parts: dict[str, Any], **more: Any) -> Answer:
        body = {"model": "scripted", "input": [{"role": "user", "content": list(parts)}], **more}
        return await request(self.gateway, "POST", "/responses", body)

    @property
    def plan(self) -> Plan:
        return self.backend.plans[-1]

    @property
    def sent(self) -> list[dict[str, Any]]:
        """The parts of the last message that the model got."""
        content: list[dict[str, Any]] = self.plan.items[-1]["content"]
        return content


@asynccontextmanager
async def _desk(
    *takes: str, settings: InputFileSettings | None = None, strict: bool = False
) -> AsyncIterator[_Desk]:
    backend = ScriptedBackend(parts=frozenset(takes))
    store = MemoryStore()
    server = ServerSettings(input_files=settings or InputFileSettings(), strict=strict)
    async with serve_gateway(backend, store=store, settings=server) as gateway:
        yield _Desk(gateway, backend, store)
    await store.close()


def _data(name: str, content: bytes, media: str = "application/octet-stream") -> dict[str, Any]:
    url = f"data:{media};base64,{base64.b64encode(content).decode()}"
    return {"type": "input_file", "filename": name, "file_data": url}


def _by_id(file_id: str) -> dict[str, Any]:
    return {"type": "input_file", "file_id": file_id}


def _degraded(answer: Answer) -> list[str]:
    notes: list[str] = (answer.json.get("antiphon") or {}).get("degraded", [])
    return notes


# By data.


async def test_a_text_is_sent_as_text_and_that_is_no_loss() -> None:
    async with _desk() as desk:
        answer = await desk.ask(_data("a.csv", b"x,y\n1,2\n", "text/csv"))
        assert desk.sent == [
            {"type": "input_text", "text": "[File a.csv]\nx,y\n1,2\n[End of the file a.csv]"}
        ]
        assert (answer.status, _degraded(answer)) == (200, [])


async def test_bare_base64_and_plain_data_urls_are_read() -> None:
    async with _desk() as desk:
        bare = {"type": "input_file", "filename": "a.txt", "file_data": "aGVsbG8="}
        plain = {"type": "input_file", "filename": "b.txt", "file_data": "data:text/plain,a%20b"}
        await desk.ask(bare, plain)
        assert ["hello" in desk.sent[0]["text"], "a b" in desk.sent[1]["text"]] == [True, True]


@pytest.mark.parametrize(
    ("name", "content", "kind"),
    [
        ("a.pdf", make_pdf([["words of the PDF"]]), "PDF"),
        ("a.docx", make_docx(["words of the document"]), "office"),
        ("a.html", b"<p>words of the page", "HTML"),
    ],
)
async def test_a_document_is_sent_as_its_text_and_reported(
    name: str, content: bytes, kind: str
) -> None:
    async with _desk("image") as desk:
        answer = await desk.ask(_data(name, content))
        assert desk.sent[0]["text"].startswith(f"[File {name}]\nwords of the")
        assert _degraded(answer) == [
            f"input[0].content[0] (input_file): sent as text; the model takes no {kind} files"
        ]
        assert "sent as text" in answer.headers["x-antiphon-degraded"]


async def test_strict_mode_refuses_what_would_be_sent_as_text() -> None:
    async with _desk(strict=True) as desk:
        assert (await desk.ask(_data("a.pdf", make_pdf([["x"]])))).status == 400
        assert (await desk.ask(_data("a.txt", b"x"))).status == 200
        assert len(desk.backend.plans) == 1


async def test_a_model_that_takes_files_gets_them_as_they_are() -> None:
    part = _data("a.docx", make_docx(["x"]))
    async with _desk("file") as desk:
        answer = await desk.ask(part)
        assert (desk.sent, _degraded(answer)) == ([part], [])


async def test_a_model_that_takes_pdf_gets_other_documents_as_text() -> None:
    pdf = _data("a.pdf", make_pdf([["x"]]), "application/pdf")
    async with _desk("pdf") as desk:
        await desk.ask(pdf, _data("a.docx", make_docx(["words"])))
        assert desk.sent[0] == pdf
        assert "words" in desk.sent[1]["text"]


async def test_a_long_text_is_cut_and_the_cut_is_stated_everywhere() -> None:
    async with _desk(settings=InputFileSettings(text_bytes=1000)) as desk:
        answer = await desk.ask(_data("a.txt", "ü".encode() * 5000))
        text = desk.sent[0]["text"]
        assert text.count("ü") == 500
        assert text.endswith(
            "[The file a.txt is longer: only the first 1000 bytes of its text are shown]"
        )
        assert _degraded(answer) == [
            "input[0].content[0] (input_file): cut after 1000 bytes of its text"
        ]


async def test_the_estimate_counts_the_text_that_is_sent() -> None:
    async with _desk() as desk:
        short = await desk.ask(_data("a.docx", make_docx(["w " * 4])))
        long = await desk.ask(_data("a.docx", make_docx(["w " * 20_000])))
        grown = long.json["usage"]["input_tokens"] - short.json["usage"]["input_tokens"]
        assert grown == 20_000 - 4  # the scripted model counts words


@pytest.mark.parametrize(
    ("part", "why"),
    [
        (_data("a.docx", make_docx(["x"])[:-30]), "damaged"),
        (_data("a.pdf", b"%PDF-1.7\n"), "damaged"),
        (_data("a.txt", b""), "empty"),
        ({"type": "input_file", "filename": "a.txt", "file_data": "not base64!"}, "base64"),
    ],
)
async def test_a_file_that_cannot_be_read_is_refused_before_the_model_is_asked(
    part: dict[str, Any], why: str
) -> None:
    async with _desk() as desk:
        answer = await desk.ask({"type": "input_text", "text": "see"}, part)
        assert (answer.status, answer.error["code"]) == (400, "invalid_file")
        assert answer.error["param"] == "input[0].content[1].file_data"
        assert why in answer.error["message"]
        assert desk.backend.plans == []


async def test_a_file_without_text_is_left_to_the_wire_and_reported() -> None:
    part = _data("a.zip", b"Rar!\x1a\x07")
    async with _desk() as desk:
        answer = await desk.ask(part)
        assert (answer.status, desk.sent) == (200, [part])
        assert "an archive" in _degraded(answer)[0]


async def test_too_many_files_are_refused() -> None:
    async with _desk(settings=InputFileSettings(count=2)) as desk:
        answer = await desk.ask(*[_data("a.txt", b"x")] * 3)
        assert (answer.status, answer.error["code"]) == (400, "too_many_files")


# By id.


async def test_a_file_by_id_is_read_from_the_store() -> None:
    async with _desk() as desk:
        file_id = await _upload(desk.store, "notes.md", b"# Notes")
        answer = await desk.ask(_by_id(file_id))
        assert desk.sent[0]["text"] == "[File notes.md]\n# Notes\n[End of the file notes.md]"
        given = await request(desk.gateway, "GET", f"/responses/{answer.json['id']}/input_items")
        assert given.json["data"][0]["content"] == [_by_id(file_id)]


async def test_a_model_that_takes_files_gets_the_data_of_an_id() -> None:
    content = make_pdf([["x"]])
    async with _desk("pdf", "image") as desk:
        file_id = await _upload(desk.store, "a.pdf", content)
        picture = await _upload(desk.store, "a.png", PNG)
        await desk.ask(_by_id(file_id), {"type": "input_image", "file_id": picture})
        assert desk.sent == [
            _data("a.pdf", content, "application/pdf"),
            {
                "type": "input_image",
                "image_url": f"data:image/png;base64,{base64.b64encode(PNG).decode()}",
            },
        ]


async def test_a_screenshot_may_be_given_by_id() -> None:
    call = {
        "type": "computer_call",
        "call_id": "c1",
        "action": {"type": "screenshot"},
        "pending_safety_checks": [],
        "status": "completed",
    }
    async with _desk("image") as desk:
        picture = await _upload(desk.store, "a.png", PNG)
        shown = {"type": "computer_screenshot", "file_id": picture}
        output = {"type": "computer_call_output", "call_id": "c1", "output": shown}
        body = {"model": "scripted", "input": [call, output], "tools": [{"type": "computer"}]}
        answer = await request(desk.gateway, "POST", "/responses", body)
        assert answer.status == 200, answer.body
        sent = desk.plan.items[-1]["output"]
        assert sent["image_url"].startswith("data:image/png;base64,")
        body["input"] = [call, {**output, "output": {**shown, "file_id": "file-ap-none"}}]
        answer = await request(desk.gateway, "POST", "/responses", body)
        assert (answer.status, answer.error["param"]) == (404, "input[1].output.file_id")


async def test_files_in_the_output_of_a_function_are_read() -> None:
    call = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"}
    async with _desk() as desk:
        file_id = await _upload(desk.store, "a.txt", b"found")
        output = {"type": "function_call_output", "call_id": "c1", "output": [_by_id(file_id)]}
        body = {"model": "scripted", "input": [call, output]}
        await request(desk.gateway, "POST", "/responses", body)
        assert "found" in desk.plan.items[-1]["output"][0]["text"]


@pytest.mark.parametrize("kind", ["input_file", "input_image"])
async def test_an_unknown_foreign_or_expired_file_is_not_found_before_a_token_is_spent(
    kind: str,
) -> None:
    async with _desk("image") as desk:
        foreign = await _foreign(desk.store)
        expired = await _upload(desk.store, "a.txt", b"x", expires_at=1)
        for file_id in ("file-ap-nothing", "file-abc", foreign, expired):
            part = {"type": kind, "file_id": file_id}
            answer = await desk.ask({"type": "input_text", "text": "see"}, part)
            assert (answer.status, answer.error["code"]) == (404, "file_not_found")
            assert answer.error["param"] == "input[0].content[1].file_id"
            assert answer.error["message"] == f"File with id '{file_id}' not found."
        assert desk.backend.plans == []


async def _foreign(store: Store) -> str:
    writer = await store.blobs.create("another")
    await writer.write(b"secret")
    file = StoredFile(
        id="file-ap-foreign",
        filename="a.txt",
        purpose="user_data",
        created_at=1,
        blob=await writer.finish(),
    )
    await store.files.add("another", file)
    return file.id


async def test_an_id_of_the_provider_is_passed_on_but_not_one_of_ours() -> None:
    async with _desk("file", "file_id") as desk:
        part = _by_id("file-of-the-provider")
        await desk.ask(part)
        assert desk.sent == [part]
        assert (await desk.ask(_by_id("file-ap-deleted"))).status == 404


async def test_a_picture_by_id_that_is_none_is_refused() -> None:
    async with _desk("image") as desk:
        file_id = await _upload(desk.store, "a.png", b"no picture")
        answer = await desk.ask({"type": "input_image", "file_id": file_id})
        assert (answer.status, answer.error["code"]) == (400, "invalid_file")


async def test_later_turns_read_the_file_again_and_are_told_when_it_is_gone() -> None:
    async with _desk() as desk:
        file_id = await _upload(desk.store, "notes.md", b"the notes")
        first = await desk.ask(_by_id(file_id))
        more = {"model": "scripted", "input": "go on", "previous_response_id": first.json["id"]}
        second = await request(desk.gateway, "POST", "/responses", more)
        assert "the notes" in desk.plan.items[0]["content"][0]["text"]
        await desk.store.files.remove(OWNER, file_id)
        more["previous_response_id"] = second.json["id"]
        third = await request(desk.gateway, "POST", "/responses", more)
        assert third.status == 200
        told = desk.plan.items[0]["content"][0]["text"]
        assert told == f"[file left out: the file {file_id[:100]} is no longer there]"
        assert "no longer there" in _degraded(third)[0]


async def test_a_conversation_and_the_background_work_as_well() -> None:
    async with _desk() as desk:
        file_id = await _upload(desk.store, "notes.md", b"the notes")
        made = await request(desk.gateway, "POST", "/conversations", {})
        await desk.ask(_by_id(file_id), conversation=made.json["id"])
        await desk.ask({"type": "input_text", "text": "and"}, conversation=made.json["id"])
        assert "the notes" in desk.plan.items[0]["content"][0]["text"]
        queued = await desk.ask(_by_id(file_id), background=True)
        assert queued.status == 200
        assert (await desk.ask(_by_id("file-ap-none"), background=True)).status == 404


async def test_the_original_goes_no_further_than_the_plan() -> None:
    """What replaces an item for the model knows the item; stored responses do not."""
    async with _desk() as desk:
        await desk.ask(_data("a.txt", b"x"))
        item: Item = desk.plan.items[-1]
        assert item[ORIGINAL]["content"][0]["type"] == "input_file"
        assert digest_of(item) == digest_of(item[ORIGINAL])  # a compaction covers both


async def test_a_compaction_returns_what_the_caller_sent() -> None:
    async with _desk() as desk:
        part = _data("a.txt", b"the text")
        body = {"model": "scripted", "input": [{"role": "user", "content": [part]}]}
        answer = await request(desk.gateway, "POST", "/responses/compact", body)
        assert answer.status == 200, answer.body
        assert answer.json["output"][0]["content"] == [part]
        assert "[File a.txt]" in str(desk.plan.items)


async def test_a_text_is_parsed_once_for_all_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    async with _desk() as desk:
        part = _data("a.docx", make_docx(["words"]))
        await desk.ask(part)
        reader = desk.gateway.app.engine.setup.input_files.texts._reader
        monkeypatch.setattr(reader, "read", None)
        await desk.ask(part)
        assert "words" in desk.sent[0]["text"]


@pytest.mark.parametrize(
    "wire",
    [
        ChatWire(chat_profile(None)),
        ResponsesWire(responses_profile(None)),
        ResponsesWire(responses_profile("openai")),
        MessagesWire(),
        GeminiWire(gemini_profile("gemini")),
    ],
    ids=["chat", "responses", "openai", "messages", "gemini"],
)
async def test_no_wire_sends_or_reports_the_id_or_the_original(wire: Wire) -> None:
    """Whatever a server takes, it gets a file of ours by its content."""
    store = MemoryStore()
    backend = ScriptedBackend()
    backend.capabilities = wire.capabilities
    async with serve_gateway(backend, store=store) as gateway:
        pdf = await _upload(store, "a.pdf", make_pdf([["words"]]))
        text = await _upload(store, "a.txt", b"found")
        picture = await _upload(store, "a.png", PNG)
        call = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"}
        output = {"type": "function_call_output", "call_id": "c1", "output": [_by_id(text)]}
        content = [_by_id(pdf), {"type": "input_image", "file_id": picture}]
        items = [{"role": "user", "content": content}, call, output]
        answer = await request(gateway, "POST", "/responses", {"model": "echo", "input": items})
        assert answer.status == 200, answer.body
    await store.close()
    exchange = wire.exchange(backend.plans[-1], 1024)
    assert ORIGINAL not in str(exchange.degraded)
    sent = bytes(exchange.body)
    assert b"file-ap-" not in sent
    assert ORIGINAL.encode() not in sent
    assert b"data:image/png;base64" in sent or b"image/png" in sent
    assert b"found" in sent or base64.b64encode(b"found") in sent


async def test_a_file_in_a_database_is_found_after_a_restart(tmp_path: Path) -> None:
    first = SqliteStore(tmp_path / "a.db")
    file_id = await _upload(first, "notes.md", b"kept notes")
    await first.close()
    store = SqliteStore(tmp_path / "a.db")
    backend = ScriptedBackend()
    async with serve_gateway(backend, store=store) as gateway:
        desk = _Desk(gateway, backend, store)
        answer = await desk.ask(_by_id(file_id))
        assert answer.status == 200
        assert "kept notes" in desk.sent[0]["text"]
        await store.files.remove(OWNER, file_id)
        assert (await desk.ask(_by_id(file_id))).status == 404
    await store.close()


async def test_a_websocket_takes_files_and_reports_those_that_are_not_there() -> None:
    async with _desk() as desk, talk(desk.gateway.base_url) as socket:
        file_id = await _upload(desk.store, "notes.md", b"the notes")
        for part, kind in ((_by_id(file_id), "response.completed"), (_by_id("x"), "error")):
            last = await socket.turn(input=[{"role": "user", "content": [part]}])
            assert last["type"] == kind
        assert last["error"]["code"] == "file_not_found"
        assert len(desk.backend.plans) == 1


# The other doors.


async def test_the_chat_door_takes_files() -> None:
    async with _desk() as desk:
        file_id = await _upload(desk.store, "notes.md", b"the notes")
        part = _data("a.docx", make_docx(["words"]))
        files = [
            {"filename": part["filename"], "file_data": part["file_data"]},
            {"file_id": file_id},
        ]
        content = [{"type": "file", "file": file} for file in files]
        body = {"model": "scripted", "messages": [{"role": "user", "content": content}]}
        answer = await request(desk.gateway, "POST", "/chat/completions", body)
        assert answer.status == 200
        assert ["words" in desk.sent[0]["text"], "the notes" in desk.sent[1]["text"]] == [True] * 2
        content[1]["file"] = {"file_id": "file-ap-none"}
        assert (await request(desk.gateway, "POST", "/chat/completions", body)).status == 404


async def test_the_messages_door_takes_documents() -> None:
    async with _desk() as desk:
        pdf = base64.b64encode(make_pdf([["words of the PDF"]])).decode()
        source = {"type": "base64", "media_type": "application/pdf", "data": pdf}
        content = [{"type": "document", "title": "a.pdf", "source": source}]
        body = {
            "model": "scripted",
            "max_tokens": 100,
            "messages": [{"role": "user", "content": content}],
        }
        answer = await request(desk.gateway, "POST", "/messages", body)
        assert answer.status == 200
        assert "words of the PDF" in desk.sent[0]["text"]
        counted = await request(desk.gateway, "POST", "/messages/count_tokens", body)
        assert counted.status == 200


# By address.


@pytest.fixture
async def web() -> AsyncIterator[LoopbackWeb]:
    async with loopback_web() as running:
        yield running


@pytest.fixture
async def inside() -> AsyncIterator[RawServer]:
    """A server on loopback that no file may come from."""

    async def tell(_: Request, connection: Connection) -> None:
        await connection.write(reply(b"inner secret"))

    async with raw_server(tell) as running:
        yield running


def _serve(web: LoopbackWeb, path: str, **answer: Any) -> dict[str, Any]:
    async def give(_: http.Request) -> http.Response:
        return http.Response(**answer)

    web.pages[path] = give
    return {"type": "input_file", "file_url": web.url + path}


def _open(web: LoopbackWeb, **more: Any) -> InputFileSettings:
    return InputFileSettings(open_places=(web.place,), **more)


async def test_a_file_by_address_is_fetched(web: LoopbackWeb) -> None:
    part = _serve(web, "/paper.pdf", body=make_pdf([["from the web"]]))
    async with _desk(settings=_open(web)) as desk:
        await desk.ask(part)
        assert desk.sent[0]["text"].startswith("[File paper.pdf]\nfrom the web\n")
    async with _desk("pdf", settings=_open(web)) as desk:
        await desk.ask(part)
        assert desk.sent[0]["file_data"].startswith("data:application/pdf;base64,")
        assert "file_url" not in desk.sent[0]


@pytest.mark.parametrize("is_stored", [True, False])
async def test_an_address_that_was_answered_to_is_not_fetched_again(
    web: LoopbackWeb, is_stored: bool
) -> None:
    """It may have expired since, or have other content now."""
    part = _serve(web, "/note.txt", text="as it was")
    first: list[Any] = [{"role": "user", "content": [part]}]
    async with _desk(settings=_open(web)) as desk:
        body = {"model": "scripted", "store": is_stored}
        answer = await request(desk.gateway, "POST", "/responses", body | {"input": first})
        _serve(web, "/note.txt", status=403)
        more: dict[str, Any] = {"input": "and now?", "previous_response_id": answer.json["id"]}
        if not is_stored:
            further = {"role": "user", "content": "and now?"}
            more = {"input": [*first, *answer.json["output"], further]}
        later = await request(desk.gateway, "POST", "/responses", body | more)
        assert (later.status, _degraded(later)) == (200, [])
        assert "as it was" in desk.plan.items[0]["content"][0]["text"]
        again = await request(desk.gateway, "POST", "/responses", body | {"input": first})
        assert again.status == 400, "what was not answered to is fetched"


def test_only_the_last_fetched_files_of_the_same_owner_are_remembered() -> None:
    kept = FetchedFiles()
    page = Fetched("http://a/", "text/plain", b"x" * (30 * 1024 * 1024), is_cut=False)
    for url in ("http://a/1", "http://a/2"):
        kept.keep("alice", url, page, 100)
    assert kept.find("bob", "http://a/1", 100) is None
    assert kept.find("alice", "http://a/1", 100 + 3601) is None
    assert kept.find("alice", "http://a/1", 101) is page
    kept.keep("alice", "http://a/1", page, 102)  # in the place of the first
    kept.keep("alice", "http://a/3", page, 102)
    found = [kept.find("alice", f"http://a/{number}", 103) is page for number in (1, 2, 3)]
    assert found == [True, False, True]


@pytest.mark.parametrize("host", [*LOOPBACK_HOSTS, *OTHER_HOSTS])
async def test_no_spelling_of_an_inner_address_is_fetched(host: str, inside: RawServer) -> None:
    port = inside.url.rpartition(":")[2]
    async with _desk() as desk:
        part = {"type": "input_file", "file_url": f"http://{host}:{port}/"}
        answer = await desk.ask(part)
        assert (answer.status, answer.error["code"]) == (400, "invalid_file")
        assert answer.error["param"] == "input[0].content[0].file_url"
        assert "inner secret" not in answer.error["message"]
        assert (desk.backend.plans, inside.connections) == ([], 0)


@pytest.mark.parametrize("host", [*LOOPBACK_HOSTS, *OTHER_HOSTS])
async def test_no_redirect_leads_a_file_to_an_inner_address(
    host: str, web: LoopbackWeb, inside: RawServer
) -> None:
    port = inside.url.rpartition(":")[2]
    part = _serve(web, "/away", status=302, headers={"Location": f"http://{host}:{port}/"})
    async with _desk(settings=_open(web)) as desk:
        assert (await desk.ask(part)).status == 400
        assert inside.connections == 0


async def test_a_name_that_leads_inside_is_not_fetched(
    inside: RawServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = inside.url.rpartition(":")[2]
    async with _desk() as desk:
        find = socket.getaddrinfo
        inner = resolving("127.0.0.1")

        def look_up(host: Any, *rest: Any, **named: Any) -> Any:
            return (inner if host == "files.example.com" else find)(host, *rest, **named)

        monkeypatch.setattr(socket, "getaddrinfo", look_up)
        part = {"type": "input_file", "file_url": f"http://files.example.com:{port}/"}
        assert "not a public one" in (await desk.ask(part)).error["message"]
        assert inside.connections == 0


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://example.com/a", "gopher://x/", "x"])
async def test_other_schemes_are_refused(url: str) -> None:
    async with _desk() as desk:
        assert (await desk.ask({"type": "input_file", "file_url": url})).status == 400


async def test_what_is_too_large_or_fails_is_refused(web: LoopbackWeb) -> None:
    async with _desk(settings=_open(web, bytes=1024 * 1024)) as desk:
        large = await desk.ask(_serve(web, "/large.txt", body=b"x" * (1024 * 1024 + 1)))
        assert "larger than 1 MiB" in large.error["message"]
        gone = await desk.ask(_serve(web, "/gone.txt", status=404))
        assert "HTTP 404" in gone.error["message"]
        assert desk.backend.plans == []


async def test_fetching_can_be_turned_off(web: LoopbackWeb) -> None:
    part = _serve(web, "/a.txt", body=b"x")
    async with _desk(settings=_open(web, urls="off")) as desk:
        answer = await desk.ask(part)
        assert (answer.status, desk.sent, web.opened) == (200, [part], [])
        assert "not fetched here" in _degraded(answer)[0]


async def test_a_later_turn_goes_on_without_a_file_that_cannot_be_fetched_again(
    web: LoopbackWeb,
) -> None:
    part = _serve(web, "/a.txt", body=b"the file")
    async with _desk(settings=_open(web)) as desk:
        first = await desk.ask(part)
        _serve(web, "/a.txt", status=500)
        desk.gateway.app.engine.setup.input_files.fetched = FetchedFiles()  # as after a restart
        more = {"model": "scripted", "input": "go on", "previous_response_id": first.json["id"]}
        assert (await request(desk.gateway, "POST", "/responses", more)).status == 200
        assert "cannot be fetched" in desk.plan.items[0]["content"][0]["text"]

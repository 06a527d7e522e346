"""/v1/files through the official client, on every kind of store."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import msgspec
import openai
import pytest

from antiphon.testing.gateway import Gateway
from tests.asking import request
from tests.server.api.conftest import LIMITS
from tests.server.api.filing import form, key_of, post_form, sdk_of, upload

CONTENT = bytes(range(256)) * 5000 + b"the end"


async def test_a_file_is_stored_listed_read_and_deleted(sdk: openai.AsyncOpenAI) -> None:
    made = await sdk.files.create(file=("a b.bin", CONTENT), purpose="user_data")
    assert re.fullmatch(r"file-[\w-]+", made.id)
    assert (made.bytes, made.filename, made.purpose) == (len(CONTENT), "a b.bin", "user_data")
    assert (made.object, made.status, made.expires_at) == ("file", "processed", None)
    assert await sdk.files.retrieve(made.id) == made
    assert (await sdk.files.list()).data == [made]
    assert (await sdk.files.content(made.id)).content == CONTENT
    deleted = await sdk.files.delete(made.id)
    assert (deleted.id, deleted.deleted, deleted.object) == (made.id, True, "file")
    for gone in (sdk.files.retrieve, sdk.files.content, sdk.files.delete):
        with pytest.raises(openai.NotFoundError) as caught:
            await gone(made.id)
        assert caught.value.body == {
            "message": f"No such File object: {made.id}",
            "type": "invalid_request_error",
            "param": None,
            "code": "file_not_found",
        }


async def test_the_synchronous_client_works_too(shelf: Gateway, tmp_path: Path) -> None:
    key, path = await key_of(shelf, "alice"), tmp_path / "naïve.txt"
    path.write_bytes(CONTENT)

    def work() -> tuple[str, bytes]:
        with openai.OpenAI(base_url=shelf.base_url, api_key=key, max_retries=0) as client:
            made = client.files.create(file=path, purpose="assistants")
            client.files.wait_for_processing(made.id)
            return made.filename, client.files.content(made.id).read()

    assert await asyncio.to_thread(work) == ("naïve.txt", CONTENT)


async def test_empty_files_are_stored(sdk: openai.AsyncOpenAI) -> None:
    made = await upload(sdk, b"")
    assert (await sdk.files.retrieve(made)).bytes == 0
    assert (await sdk.files.content(made)).content == b""


async def test_lists_have_pages_in_both_orders(sdk: openai.AsyncOpenAI) -> None:
    ids = [await upload(sdk, b"x", f"{n}.txt") for n in range(5)]
    vision = (await sdk.files.create(file=("v.png", b"y"), purpose="vision")).id
    first = await sdk.files.list(limit=2, order="asc")
    assert [file.id for file in first.data] == ids[:2]
    assert first.has_more
    assert [file.id async for file in sdk.files.list(limit=2, order="asc")] == [*ids, vision]
    assert [file.id async for file in sdk.files.list(limit=4)] == [vision, *reversed(ids)]
    assert [file.id async for file in sdk.files.list(purpose="vision")] == [vision]
    assert [file.id async for file in sdk.files.list(purpose="assistants", limit=2)] == ids[::-1]
    assert not (await sdk.files.list(purpose="batch")).data


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ("limit=0", "limit"),
        ("limit=10001", "limit"),
        ("limit=x", "limit"),
        ("order=up", "order"),
        ("after=file-0", "after"),
    ],
)
async def test_wrong_queries_are_refused(shelf: Gateway, query: str, param: str) -> None:
    headers = {"Authorization": f"Bearer {await key_of(shelf, 'alice')}"}
    answer = await request(shelf, "GET", f"/files?{query}", headers=headers)
    assert (answer.status, answer.error["param"]) == (400, param)


async def test_files_expire(
    shelf: Gateway, sdk: openai.AsyncOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = await sdk.files.create(
        file=("a.txt", b"hello"),
        purpose="user_data",
        expires_after={"anchor": "created_at", "seconds": 3600},
    )
    assert made.expires_at == made.created_at + 3600
    batch = await sdk.files.create(file=("b.txt", b"x"), purpose="batch")
    assert batch.expires_at == batch.created_at + 2_592_000
    now = shelf.app.engine.now
    monkeypatch.setattr(shelf.app.engine, "now", lambda: now() + 3601)
    with pytest.raises(openai.NotFoundError):
        await sdk.files.retrieve(made.id)
    assert [file.id for file in (await sdk.files.list()).data] == [batch.id]
    await shelf.store.files.sweep(now() + 3601, 100)
    assert await shelf.store.files.used_bytes("alice") == 1


async def test_contents_are_downloads_that_no_browser_shows(
    shelf: Gateway, sdk: openai.AsyncOpenAI
) -> None:
    made = await upload(sdk, b"<script>alert(1)</script>", "ev'il;€.html")
    key = await key_of(shelf, "alice")
    answer = await request(
        shelf, "GET", f"/files/{made}/content", headers={"Authorization": f"Bearer {key}"}
    )
    assert answer.headers["Content-Type"] == "application/octet-stream"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    disposition = answer.headers["Content-Disposition"]
    assert disposition == "attachment; filename*=UTF-8''ev%27il%3B%E2%82%AC.html"


@pytest.mark.parametrize(
    ("wish", "status", "expected"),
    [
        ("bytes=0-4", 206, CONTENT[:5]),
        ("bytes=300000-300009", 206, CONTENT[300000:300010]),
        ("bytes=-7", 206, b"the end"),
        (f"bytes={len(CONTENT) - 3}-", 206, b"end"),
        (f"bytes={len(CONTENT)}-", 416, None),
        ("bytes=0-", 200, CONTENT),
        ("lines=1-2", 200, CONTENT),
    ],
)
async def test_ranges_are_sent(
    shelf: Gateway, sdk: openai.AsyncOpenAI, wish: str, status: int, expected: bytes | None
) -> None:
    made = await upload(sdk, CONTENT)
    headers = {"Authorization": f"Bearer {await key_of(shelf, 'alice')}", "Range": wish}
    answer = await request(shelf, "GET", f"/files/{made}/content", headers=headers)
    assert answer.status == status
    if expected is not None:
        assert answer.body == expected


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("../../etc/passwd", "passwd"),
        ("C:\\\\temp\\\\a.txt", "a.txt"),
        ("/etc/cron.d/x", "x"),
        ("日本.md", "日本.md"),
    ],
)
async def test_names_are_data_without_folders(shelf: Gateway, given: str, shown: str) -> None:
    answer = await post_form(shelf, await key_of(shelf, "alice"), form(filename=given))
    assert (answer.status, answer.json["filename"]) == (200, shown)


@pytest.mark.parametrize("name", ["", "..", "a/..", "x" * 256, "a\tb"])
async def test_names_that_are_none_are_refused(shelf: Gateway, name: str) -> None:
    answer = await post_form(shelf, await key_of(shelf, "alice"), form(filename=name))
    assert (answer.status, answer.error["param"]) == (400, "file")
    assert await shelf.store.files.used_bytes("alice") == 0


async def test_a_key_stores_a_form_once(shelf: Gateway) -> None:
    key = await key_of(shelf, "alice")
    same = {"Idempotency-Key": "k1"}
    first = await post_form(shelf, key, form(), **same)
    # The same form may be written in another way.
    body = form().replace(b"--X", b"--YY")
    again = await post_form(
        shelf, key, body, **same, **{"Content-Type": "multipart/form-data; boundary=YY"}
    )
    assert (first.status, again.status) == (200, 200)
    assert again.json == first.json
    assert again.headers["x-antiphon-replayed"] == "1"
    for other in (form(b"other"), form(filename="b.txt"), form(purpose="vision")):
        answer = await post_form(shelf, key, other, **same)
        assert (answer.status, answer.error["code"]) == (422, "idempotency_mismatch")
    assert await shelf.store.files.used_bytes("alice") == 5


async def test_racing_keys_store_one_file_each(shelf: Gateway) -> None:
    key = await key_of(shelf, "alice")

    async def race(number: int) -> None:
        body, same = form(f"content {number}".encode()), {"Idempotency-Key": f"race-{number}"}
        answers = await asyncio.gather(*(post_form(shelf, key, body, **same) for _ in range(2)))
        assert [answer.status for answer in answers] == [200, 200]
        assert answers[0].json == answers[1].json
        marks = [answer.headers.get("x-antiphon-replayed") for answer in answers]
        assert sorted(marks, key=str) == ["1", None]

    for start in range(0, 100, 10):
        await asyncio.gather(*(race(number) for number in range(start, start + 10)))
    client = openai.AsyncOpenAI(base_url=shelf.base_url, api_key=key)
    names = [file.id async for file in client.files.list(limit=37)]
    assert len(set(names)) == len(names) == 100
    expected = sum(len(f"content {number}") for number in range(100))
    assert await shelf.store.files.used_bytes("alice") == expected
    await client.close()


async def test_files_are_limited_in_size(shelf: Gateway) -> None:
    key = await key_of(shelf, "alice")
    largest = form(b"x" * LIMITS.max_bytes)
    assert (await post_form(shelf, key, largest)).status == 200
    for size in (1, 100_000):
        answer = await post_form(shelf, key, form(b"x" * (LIMITS.max_bytes + size)))
        assert (answer.status, answer.error["code"]) == (413, "file_too_large")
    assert await shelf.store.files.used_bytes("alice") == LIMITS.max_bytes


async def test_owners_have_a_quota_of_their_own(shelf: Gateway) -> None:
    alice, bob = await key_of(shelf, "alice"), await key_of(shelf, "bob")
    piece = form(b"x" * LIMITS.max_bytes)
    count = LIMITS.owner_bytes // LIMITS.max_bytes
    answers = [await post_form(shelf, alice, piece) for _ in range(count)]
    assert {answer.status for answer in answers} == {200}
    refused = await post_form(shelf, alice, form())
    assert (refused.status, refused.error["code"]) == (413, "storage_quota_exceeded")
    assert (await post_form(shelf, bob, form())).status == 200
    sdk = openai.AsyncOpenAI(base_url=shelf.base_url, api_key=alice)
    await sdk.files.delete(answers[0].json["id"])
    assert (await post_form(shelf, alice, form())).status == 200
    await sdk.close()


async def test_a_repeated_request_needs_no_quota(shelf: Gateway) -> None:
    alice = await key_of(shelf, "alice")
    piece, count = form(b"x" * LIMITS.max_bytes), LIMITS.owner_bytes // LIMITS.max_bytes
    for number in range(count):
        answer = await post_form(shelf, alice, piece, **{"Idempotency-Key": str(number)})
        assert answer.status == 200
    again = await post_form(shelf, alice, piece, **{"Idempotency-Key": str(count - 1)})
    assert again.json == answer.json


async def test_uploads_at_the_same_time_share_the_quota(shelf: Gateway) -> None:
    alice = await key_of(shelf, "alice")
    count = LIMITS.owner_bytes // LIMITS.max_bytes
    answers = await asyncio.gather(
        *(post_form(shelf, alice, form(b"x" * LIMITS.max_bytes)) for _ in range(count + 4))
    )
    assert sum(answer.status == 200 for answer in answers) <= count
    assert {answer.status for answer in answers} <= {200, 413}
    assert await shelf.store.files.used_bytes("alice") <= LIMITS.owner_bytes


async def test_contents_survive_as_they_were_sent(shelf: Gateway, sdk: openai.AsyncOpenAI) -> None:
    """Contents that look like the ends of parts, sent in chunks without a length."""
    content = b"\r\n--X\r\n--X--\r\n--" * 50_000
    body = form(content).replace(b"--X\r\nContent", b"--Zz\r\nContent")
    body = body[: -len(b"--X--\r\n")] + b"--Zz--\r\n"

    async def pieces() -> AsyncIterator[bytes]:
        for start in range(0, len(body), 50_001):
            yield body[start : start + 50_001]

    headers = {
        "Authorization": f"Bearer {await key_of(shelf, 'alice')}",
        "Content-Type": "multipart/form-data; boundary=Zz",
    }
    url = f"{shelf.base_url}/files"
    async with (
        aiohttp.ClientSession() as session,
        session.post(url, data=pieces(), headers=headers) as answer,
    ):
        assert answer.status == 200, await answer.text()
        made = (await answer.json())["id"]
    got = (await sdk.files.content(made)).content
    assert hashlib.sha256(got).digest() == hashlib.sha256(content).digest()


async def test_pages_without_a_key_cannot_send_forms(shelf: Gateway) -> None:
    answer = await request(shelf, "POST", "/files", form(), {"Content-Type": "text/plain"})
    assert answer.status == 401
    assert msgspec.json.decode(answer.body)["error"]["code"] == "invalid_api_key"


async def test_owners_do_not_see_each_other(shelf: Gateway, sdk: openai.AsyncOpenAI) -> None:
    made = await upload(sdk, b"secret")
    async with await sdk_of(shelf, "bob") as bob:
        assert not (await bob.files.list()).data
        with pytest.raises(openai.NotFoundError):
            await bob.files.content(made)

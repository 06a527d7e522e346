"""/v1/uploads through the official client: parts in any order, one file at the end."""

from __future__ import annotations

import asyncio
import hashlib
from io import BytesIO
from pathlib import Path

import openai
import pytest

from antiphon.testing.gateway import Gateway
from tests.server.api.conftest import LIMITS
from tests.server.api.filing import key_of, part, post_form, sdk_of

PIECES = [b"first " * 100_000, b"second " * 100_000, b"third"]
WHOLE = b"".join(PIECES)


async def begin(sdk: openai.AsyncOpenAI, size: int = len(WHOLE)) -> str:
    upload = await sdk.uploads.create(
        bytes=size, filename="big.txt", mime_type="text/plain", purpose="assistants"
    )
    assert (upload.status, upload.bytes, upload.filename) == ("pending", size, "big.txt")
    assert upload.expires_at == upload.created_at + 3600
    return upload.id


async def add(sdk: openai.AsyncOpenAI, upload: str, data: bytes) -> str:
    made = await sdk.uploads.parts.create(upload, data=data)
    assert made.upload_id == upload
    return made.id


async def test_parts_become_a_file_in_the_stated_order(
    shelf: Gateway, sdk: openai.AsyncOpenAI
) -> None:
    upload = await begin(sdk)
    parts = [await add(sdk, upload, piece) for piece in reversed(PIECES)]
    await add(sdk, upload, b"not named")
    done = await sdk.uploads.complete(
        upload, part_ids=parts[::-1], md5=hashlib.md5(WHOLE).hexdigest()
    )
    assert done.status == "completed"
    assert done.file is not None
    assert (done.file.bytes, done.file.filename) == (len(WHOLE), "big.txt")
    assert (await sdk.files.content(done.file.id)).content == WHOLE
    assert await shelf.store.files.used_bytes("alice") == len(WHOLE)
    for again in (sdk.uploads.cancel(upload), sdk.uploads.complete(upload, part_ids=parts)):
        with pytest.raises(openai.BadRequestError, match="the upload is completed"):
            await again
    with pytest.raises(openai.BadRequestError, match="the upload is completed"):
        await add(sdk, upload, b"late")


async def test_the_helper_of_the_client_uploads_in_parts(shelf: Gateway, tmp_path: Path) -> None:
    key, path = await key_of(shelf, "alice"), tmp_path / "big.txt"
    path.write_bytes(WHOLE)

    def work() -> tuple[str, int]:
        with openai.OpenAI(base_url=shelf.base_url, api_key=key, max_retries=0) as client:
            done = client.uploads.upload_file_chunked(
                file=path, mime_type="text/plain", purpose="assistants", part_size=300_000
            )
            other = client.uploads.upload_file_chunked(
                file=BytesIO(WHOLE).getvalue(),
                filename="x.txt",
                bytes=len(WHOLE),
                mime_type="text/plain",
                purpose="user_data",
            )
            assert done.file is not None
            assert other.file is not None
            return done.file.filename, client.files.content(done.file.id).content == WHOLE

    assert await asyncio.to_thread(work) == ("big.txt", True)


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"bytes": -1}, "bytes"),
        ({"bytes": LIMITS.max_bytes + 1}, "bytes"),
        ({"purpose": "evil"}, "purpose"),
        ({"filename": "a/.."}, "filename"),
        ({"expires_after": {"anchor": "created_at", "seconds": 1}}, "expires_after.seconds"),
        ({"extra": 1}, "extra"),
    ],
)
async def test_wrong_uploads_are_refused(
    sdk: openai.AsyncOpenAI, change: dict[str, object], param: str
) -> None:
    body = {"bytes": 1, "filename": "a", "mime_type": "text/plain", "purpose": "assistants"}
    with pytest.raises(openai.BadRequestError) as caught:
        await sdk.post("/uploads", body=body | change, cast_to=object)
    assert caught.value.param == param


async def test_what_was_announced_must_be_there(sdk: openai.AsyncOpenAI) -> None:
    upload = await begin(sdk, 6)
    one, two = await add(sdk, upload, b"abc"), await add(sdk, upload, b"def")
    for ids, param in (
        ([one], "part_ids"),
        ([one, one], "part_ids"),
        ([one, "part_0"], "part_ids[1]"),
    ):
        with pytest.raises(openai.BadRequestError) as caught:
            await sdk.uploads.complete(upload, part_ids=ids)
        assert caught.value.param == param
    with pytest.raises(openai.BadRequestError) as caught:
        await sdk.uploads.complete(upload, part_ids=[one, two], md5="0" * 32)
    assert caught.value.param == "md5"
    done = await sdk.uploads.complete(upload, part_ids=[two, one])
    assert done.file is not None
    assert (await sdk.files.content(done.file.id)).content == b"defabc"


async def test_cancelled_uploads_leave_nothing(shelf: Gateway, sdk: openai.AsyncOpenAI) -> None:
    upload = await begin(sdk)
    await add(sdk, upload, PIECES[0])
    assert (await sdk.uploads.cancel(upload)).status == "cancelled"
    assert await shelf.store.files.used_bytes("alice") == 0
    with pytest.raises(openai.BadRequestError, match="the upload is cancelled"):
        await add(sdk, upload, b"late")


async def test_uploads_expire(
    shelf: Gateway, sdk: openai.AsyncOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    upload = await begin(sdk)
    await add(sdk, upload, PIECES[0])
    now = shelf.app.engine.now
    monkeypatch.setattr(shelf.app.engine, "now", lambda: now() + 3601)
    with pytest.raises(openai.BadRequestError, match="the upload is expired"):
        await sdk.uploads.complete(upload, part_ids=[])
    await shelf.store.files.sweep(now() + 3601, 100)
    assert await shelf.store.files.used_bytes("alice") == 0


async def test_keys_make_each_step_once(shelf: Gateway, sdk: openai.AsyncOpenAI) -> None:
    def named(name: str) -> dict[str, str]:
        return {"Idempotency-Key": name}

    uploads = await asyncio.gather(
        *(
            sdk.uploads.create(
                bytes=5,
                filename="a.txt",
                mime_type="text/plain",
                purpose="assistants",
                extra_headers=named("create"),
            )
            for _ in range(4)
        )
    )
    assert len({upload.id for upload in uploads}) == 1
    upload = uploads[0].id
    parts = await asyncio.gather(
        *(
            sdk.uploads.parts.create(upload, data=b"hello", extra_headers=named("part"))
            for _ in range(4)
        )
    )
    assert len({made.id for made in parts}) == 1
    done = await asyncio.gather(
        *(
            sdk.uploads.complete(upload, part_ids=[parts[0].id], extra_headers=named("done"))
            for _ in range(4)
        )
    )
    files = {one.file.id for one in done if one.file is not None}
    assert len(files) == 1
    assert len((await sdk.files.list()).data) == 1
    with pytest.raises(openai.UnprocessableEntityError):
        await sdk.uploads.complete(upload, part_ids=[], extra_headers=named("done"))
    with pytest.raises(openai.UnprocessableEntityError):
        await sdk.uploads.create(
            bytes=6,
            filename="a.txt",
            mime_type="text/plain",
            purpose="assistants",
            extra_headers=named("create"),
        )


async def test_foreign_uploads_are_not_found(shelf: Gateway, sdk: openai.AsyncOpenAI) -> None:
    upload = await begin(sdk)
    async with await sdk_of(shelf, "bob") as bob:
        for use in (
            bob.uploads.parts.create(upload, data=b"x"),
            bob.uploads.complete(upload, part_ids=[]),
            bob.uploads.cancel(upload),
        ):
            with pytest.raises(openai.NotFoundError) as caught:
                await use
            assert f"No such Upload object: {upload}" in caught.value.message


async def test_a_part_needs_its_name(shelf: Gateway, sdk: openai.AsyncOpenAI) -> None:
    upload, key = await begin(sdk), await key_of(shelf, "alice")
    body = part('name="file"; filename="a"', b"1") + b"--X--\r\n"
    answer = await post_form(shelf, key, body, f"/uploads/{upload}/parts")
    assert (answer.status, answer.error["param"]) == (400, "file")

"""Files under pressure: half a gigabyte in little memory, a full disk, and what deletion leaves."""

from __future__ import annotations

import hashlib
import os
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import openai
import pytest

from antiphon.backends.scripted import ScriptedBackend
from antiphon.store.sqlite import SqliteStore
from antiphon.testing import Script, ScriptedUpstream
from antiphon.testing.gateway import serve_gateway
from tests.faults.process import GatewayProcess, serve_process
from tests.server.api.filing import FORM, part

_MIB = 1024 * 1024
SECRET = "xylophone-quartz-7261"
MORE = "[files]\nmax_bytes = 700000000\n"


@pytest.fixture
async def process(tmp_path: Path) -> AsyncIterator[GatewayProcess]:
    async with (
        ScriptedUpstream(Script(text="hello")) as upstream,
        serve_process(tmp_path, upstream.base_url, more=MORE) as served,
    ):
        yield served


def client_of(process: GatewayProcess) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=process.base_url, api_key="x", max_retries=0)


async def big_form(size: int, digest: hashlib._Hash) -> AsyncIterator[bytes]:
    """Yield a form whose file has so many bytes, piece by piece."""
    yield part('name="purpose"', b"user_data")
    yield b'--X\r\nContent-Disposition: form-data; name="file"; filename="big.bin"\r\n\r\n'
    block = os.urandom(_MIB)
    for _ in range(size // _MIB):
        digest.update(block)
        yield block
    yield b"\r\n--X--\r\n"


@pytest.mark.heavy
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs Linux")
async def test_half_a_gigabyte_passes_in_little_memory(process: GatewayProcess) -> None:
    client, sent, got = client_of(process), hashlib.sha256(), hashlib.sha256()
    warm = await client.files.create(file=("a.bin", b"x" * 2 * _MIB), purpose="user_data")
    await client.files.content(warm.id)
    process.forget_peak()
    before, size = process.peak_memory(), 500 * _MIB
    url = f"{process.base_url}/files"
    async with aiohttp.ClientSession() as session:
        async with session.post(url, data=big_form(size, sent), headers=FORM) as answer:
            assert answer.status == 200, await answer.text()
            made = await answer.json()
        assert made["bytes"] == size
        after_upload = process.peak_memory()
        async with session.get(f"{url}/{made['id']}/content") as answer:
            async for piece in answer.content.iter_any():
                got.update(piece)
    assert got.digest() == sent.digest()
    assert after_upload - before < 16
    assert process.peak_memory() - before < 16
    await client.files.delete(made["id"])
    await client.close()


async def test_a_full_disk_refuses_files_and_loses_none(process: GatewayProcess) -> None:
    async with client_of(process) as client:
        kept = await client.files.create(file=("a.bin", b"kept" * 100_000), purpose="user_data")
        process.limit_files(2 * _MIB)
        with pytest.raises(openai.InternalServerError) as caught:
            await client.files.create(file=("b.bin", b"x" * 6 * _MIB), purpose="user_data")
        assert caught.value.status_code == 503
        assert caught.value.code == "store_unavailable"
        assert (await client.files.content(kept.id)).content == b"kept" * 100_000
        process.limit_files(None)
        made = await client.files.create(file=("b.bin", b"x" * 6 * _MIB), purpose="user_data")
        assert {file.id for file in (await client.files.list()).data} == {kept.id, made.id}


def holds(folder: Path, text: bytes) -> list[str]:
    """Return the files below a folder that hold a text."""
    return [str(path) for path in folder.rglob("*") if path.is_file() and text in path.read_bytes()]


@pytest.mark.parametrize("is_closed", [False, True])
async def test_no_byte_is_left_after_deletion(tmp_path: Path, is_closed: bool) -> None:
    store = SqliteStore(tmp_path / "a.db")
    text = f"The password is {SECRET}. ".encode() * 500
    async with (
        serve_gateway(ScriptedBackend(), store=store) as gateway,
        openai.AsyncOpenAI(base_url=gateway.base_url, api_key="x") as client,
    ):
        file = await client.files.create(file=(f"{SECRET}-name.txt", text), purpose="assistants")
        # The name of a vector store leaves the file when the store is closed.
        shelf = await client.vector_stores.create(name=f"{SECRET}-shelf" if is_closed else "shelf")
        await client.vector_stores.files.create_and_poll(
            file.id,
            vector_store_id=shelf.id,
            attributes={"about": f"{SECRET}-attribute"},
            poll_interval_ms=50,
        )
        found = await client.vector_stores.search(shelf.id, query="password")
        assert SECRET in found.data[0].content[0].text
        upload = await client.uploads.create(
            bytes=len(text), filename="b.txt", mime_type="text/plain", purpose="assistants"
        )
        await client.uploads.parts.create(upload.id, data=text)
        assert holds(tmp_path, SECRET.encode())
        await client.uploads.cancel(upload.id)
        await client.files.delete(file.id)
        await client.vector_stores.delete(shelf.id)
        if not is_closed:
            assert holds(tmp_path, SECRET.encode()) == []
    await store.close()
    assert holds(tmp_path, SECRET.encode()) == []

"""Files in PostgreSQL: small rows, several nodes, and commits whose answers are lost."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from antiphon.store.base.blobs import PIECE_BYTES, UNNAMED_SECONDS
from antiphon.store.postgres import PostgresStore
from antiphon.store.postgres.database import UncertainCommit
from tests.postgres import CommitProxy, fresh_database
from tests.store.file_samples import (
    NOW,
    add_file,
    container,
    container_file,
    content,
    file,
    once,
    part,
    skill,
    skill_version,
    upload,
    write,
)
from tests.store.samples import OWNER

ROOT = Path(__file__).parents[3]
LONG_AFTER = int(time.time()) + 10 * UNNAMED_SECONDS


@pytest.fixture
async def url() -> AsyncIterator[str]:
    async with fresh_database() as made:
        yield made


@pytest.fixture
async def store(url: str) -> AsyncIterator[PostgresStore]:
    made = PostgresStore(url)
    yield made
    await made.close()


@pytest.fixture
async def proxy(url: str) -> AsyncIterator[CommitProxy]:
    async with CommitProxy(url) as made:
        yield made


@pytest.fixture
async def far(proxy: CommitProxy) -> AsyncIterator[PostgresStore]:
    """A store that loses its connection after a commit, when the test asks the proxy for it."""
    made = PostgresStore(proxy.url)
    await made.ping()  # so that the tables are there
    yield made
    await made.close()


async def ask(url: str, question: str) -> Any:
    """Return the first value that answers a question to the database."""
    connection = await asyncpg.connect(url)
    try:
        return await connection.fetchval(question)
    finally:
        await connection.close()


async def count_pieces(url: str) -> int:
    return int(await ask(url, "SELECT count(*) FROM blob_pieces"))


async def test_no_row_has_more_than_a_megabyte(url: str, store: PostgresStore) -> None:
    blob = await write(store, bytes(3 * PIECE_BYTES + 5))
    assert await count_pieces(url) == 4
    assert await ask(url, "SELECT max(octet_length(body)) FROM blob_pieces") == PIECE_BYTES
    assert len(await content(store, blob, step=700_000)) == 3 * PIECE_BYTES + 5


async def test_removed_content_is_in_no_row(url: str, store: PostgresStore) -> None:
    await add_file(store, "f1", bytes(70 * PIECE_BYTES))
    await store.containers.add(OWNER, container("c1"))
    for data in (b"one", b"two"):
        one = container_file("cf1", "/mnt/data/a", await write(store, data))
        await store.containers.put_file(OWNER, "c1", one)
    version = skill_version("v1", await write(store, b"zip"))
    await store.skills.add(OWNER, skill("s1"), version)
    assert await store.files.remove(OWNER, "f1")
    assert await store.containers.remove(OWNER, "c1")
    assert await store.skills.remove(OWNER, "s1")
    for table in ("blobs", "blob_pieces", "files", "container_files", "skill_versions"):
        assert await ask(url, f"SELECT count(*) FROM {table}") == 0, table


async def test_what_a_dead_node_has_begun_is_swept(url: str, store: PostgresStore) -> None:
    dead = PostgresStore(url)
    writer = await dead.blobs.create(OWNER)
    await writer.write(bytes(2 * PIECE_BYTES))
    await dead.close()
    assert await count_pieces(url) == 2
    assert await store.files.sweep(int(time.time()), 10) == 0
    assert await store.files.sweep(LONG_AFTER, 10) == 1
    assert await count_pieces(url) == 0


async def test_a_removal_that_a_dead_node_has_begun_is_completed(
    url: str, store: PostgresStore
) -> None:
    await add_file(store, "f1", b"text")
    await ask(url, "UPDATE blobs SET state = 2")
    await ask(url, "DELETE FROM files")
    assert await store.files.sweep(NOW, 10) == 1
    assert await ask(url, "SELECT count(*) FROM blobs") == await count_pieces(url) == 0


async def test_a_claim_of_a_dead_node_is_not_held(url: str, store: PostgresStore) -> None:
    other = PostgresStore(url)
    assert await other.files.add(OWNER, file("f1", await write(other)), once()) is None
    claim = await store.files.claimed(OWNER, once())
    assert claim is not None
    assert claim.is_held
    await other.close()
    claim = await store.files.claimed(OWNER, once())
    assert claim is not None
    assert not claim.is_held


# Commits without an answer


async def test_a_file_whose_commit_got_no_answer_is_stored_once(
    far: PostgresStore, proxy: CommitProxy
) -> None:
    made = file("f1", await write(far, b"text"))
    await far.files.claimed(OWNER, once())
    proxy.lose_next_answer()
    assert await far.files.add(OWNER, made, once()) is None
    assert proxy.lost == 1
    assert await far.files.find(OWNER, ["f1"], NOW) == {"f1": made}
    assert await content(far, made.blob) == b"text"


async def test_a_piece_whose_commit_got_no_answer_is_stored_once(
    far: PostgresStore, proxy: CommitProxy
) -> None:
    writer = await far.blobs.create(OWNER)
    await writer.write(b"a" * PIECE_BYTES)
    proxy.lose_next_answer()
    await writer.write(b"b" * PIECE_BYTES)
    assert proxy.lost == 1
    blob = await writer.finish()
    assert await content(far, blob) == b"a" * PIECE_BYTES + b"b" * PIECE_BYTES


async def test_an_upload_whose_end_got_no_answer_is_completed_once(
    url: str, far: PostgresStore, proxy: CommitProxy
) -> None:
    proxy.lose_next_answer()
    assert await far.files.begin_upload(OWNER, upload("u1")) is None
    one = part("p1", await write(far, b"part"))
    proxy.lose_next_answer()
    assert await far.files.add_part(OWNER, "u1", one, NOW)
    assert await far.files.parts(OWNER, "u1") == [one]
    made = file("f1", await write(far, b"part"))
    proxy.lose_next_answer()
    done = await far.files.complete_upload(OWNER, "u1", made, NOW)
    assert proxy.lost == 3
    assert done is not None
    assert (done.status, done.file_id) == ("completed", "f1")
    assert await count_pieces(url) == 1


async def test_containers_and_skills_whose_commits_got_no_answer_are_stored_once(
    url: str, far: PostgresStore, proxy: CommitProxy
) -> None:
    inside = [container_file("cf1", "/mnt/data/a", await write(far, b"old"))]
    proxy.lose_next_answer()
    assert await far.containers.add(OWNER, container("c1"), inside) is None
    new = container_file("cf2", "/mnt/data/a", await write(far, b"new"))
    proxy.lose_next_answer()
    stored = await far.containers.put_file(OWNER, "c1", new)
    assert stored is not None
    assert stored.id == "cf1"
    proxy.lose_next_answer()
    first = skill_version("v1", await write(far, b"zip"))
    assert await far.skills.add(OWNER, skill("s1"), first) is None
    proxy.lose_next_answer()
    second = skill_version("v2", await write(far, b"zip"))
    added = await far.skills.add_version(OWNER, "s1", second, is_default=True)
    assert added is not None
    assert added.version == 2
    assert proxy.lost == 4
    found = await far.skills.find(OWNER, "s1")
    assert found is not None
    assert (found.default_version, found.latest_version) == (2, 2)
    assert await count_pieces(url) == 3


async def test_a_removal_without_an_answer_is_reported(
    url: str, far: PostgresStore, proxy: CommitProxy
) -> None:
    made = await add_file(far, "f1")
    proxy.lose_next_answer()
    with pytest.raises(UncertainCommit, match="not known whether this was stored"):
        await far.files.remove(OWNER, "f1")
    assert await content(far, made.blob) == b""
    await far.files.sweep(NOW, 10)
    assert await count_pieces(url) == 0


# Size

LARGE = """
import asyncio, resource, sys
from antiphon.store.postgres import PostgresStore
from tests.store.file_samples import add_file, content, file, write
from tests.store.samples import OWNER

SIZE = 100 * 1024 * 1024

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024

async def main():
    store = PostgresStore(sys.argv[1], patience=60.0)
    small = await add_file(store, "f0", bytes(3_000_000))
    await content(store, small.blob)
    before = peak()
    writer = await store.blobs.create(OWNER)
    piece = bytes(range(256)) * 256
    for _ in range(SIZE // len(piece)):
        await writer.write(piece)
    blob = await writer.finish()
    await store.files.add(OWNER, file("f1", blob))
    place = 0
    while data := await store.blobs.read(OWNER, blob.id, place, 1024 * 1024):
        place += len(data)
    assert place == SIZE
    print(peak() - before)
    assert await store.files.remove(OWNER, "f1")
    await store.close()

asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs the peak of the memory")
def test_a_large_blob_needs_little_memory(url: str) -> None:
    command = [sys.executable, "-c", LARGE, url]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, cwd=ROOT, check=True)
    assert int(done.stdout) < 30  # megabytes

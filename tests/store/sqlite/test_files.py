"""The second database of a SQLite store and its folder: private, erased, whole after a kill."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import random
import sqlite3
import stat
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from antiphon.protocol.errors import StoreUnavailable
from antiphon.store.base import BlobGone
from antiphon.store.base.blobs import PIECE_BYTES, UNNAMED_SECONDS
from antiphon.store.sqlite import SqliteStore
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
from tests.store.samples import OWNER, run_turn

ROOT = Path(__file__).parents[3]
LONG_AFTER = int(time.time()) + 10 * UNNAMED_SECONDS


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.db"


@asynccontextmanager
async def open_at(
    path: Path, *, patience: float = 5.0, max_bytes: int | None = None
) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(path, patience=patience, max_bytes=max_bytes)
    try:
        yield store
    finally:
        await store.close()


def start(script: str, *args: object) -> subprocess.Popen[str]:
    """Run a script in a process of its own."""
    command = [sys.executable, "-c", script, *map(str, args)]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
    )


def everything_in(directory: Path) -> list[Path]:
    return sorted(directory.rglob("*"))


# The files


async def test_a_store_that_holds_no_files_has_no_second_database(path: Path) -> None:
    async with open_at(path) as store:
        await run_turn(store, "r1")
        await store.sweep(0, NOW)
        assert await store.files.sweep(NOW, 10) == 0
        assert await store.files.find(OWNER, ["f1"], NOW) == {}
        assert await store.files.used_bytes(OWNER) == 0
        assert await store.containers.find(OWNER, "c1") is None
        assert await store.skills.find(OWNER, "s1") is None
        assert not await store.files.remove(OWNER, "f1")
        assert await store.blobs.read(OWNER, "0" * 32, 0, 1) == b""
        await store.ping()
    assert [one.name for one in path.parent.iterdir()] == ["a.db"]


async def test_the_files_are_for_us_alone(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "a.db"
    async with open_at(path) as store:
        await add_file(store, "f1")
        writer = await store.blobs.create(OWNER)
        await writer.write(bytes(PIECE_BYTES))
        found = everything_in(path.parent)
        assert {"a.db-files", "a.db-blobs", "new"} <= {one.name for one in found}
        modes = {(one.is_dir(), stat.S_IMODE(one.stat().st_mode)) for one in found}
        assert modes == {(True, 0o700), (False, 0o600)}
        await writer.abort()


async def test_nothing_is_left_over_after_closing(path: Path) -> None:
    async with open_at(path) as store:
        made = await add_file(store, "f1")
    names = [str(one.relative_to(path.parent)) for one in everything_in(path.parent)]
    folder = "a.db-blobs"
    expected = ["a.db", folder, f"{folder}/{made.blob.id}", f"{folder}/new", "a.db-files"]
    assert sorted(names) == sorted(expected)


async def test_neither_database_is_taken_for_the_other(path: Path) -> None:
    async with open_at(path) as store:
        await add_file(store, "f1")
    with pytest.raises(StoreUnavailable, match="belongs to another program"):
        SqliteStore(path.with_name("a.db-files"))
    other = path.with_name("b.db")
    await asyncio.to_thread(path.rename, other)
    await asyncio.to_thread(other.rename, path.with_name("b.db-files"))
    async with open_at(other) as store:
        with pytest.raises(StoreUnavailable, match="belongs to another program") as caught:
            await write(store, b"x")
        assert str(path.parent) not in str(caught.value)


async def test_a_link_in_the_folder_is_not_followed(path: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"SECRET")
    async with open_at(path) as store:
        made = await add_file(store, "f1")
        place = tmp_path / "a.db-blobs" / made.blob.id
        place.unlink()
        place.symlink_to(tmp_path / "secret")
        with pytest.raises(StoreUnavailable):
            await content(store, made.blob)


async def test_a_database_that_was_moved_is_not_made_again(path: Path) -> None:
    async with open_at(path) as store:
        await add_file(store, "f1")
        place = path.with_name("a.db-files")
        await asyncio.to_thread(place.rename, path.with_name("elsewhere"))
        with pytest.raises(StoreUnavailable, match="was moved, replaced or deleted"):
            await add_file(store, "f2")
        await asyncio.to_thread(path.with_name("elsewhere").rename, place)
        assert list(await store.files.find(OWNER, ["f1", "f2"], NOW)) == ["f1"]


# Erasure

LOOK = """
import pathlib, sys
for file in pathlib.Path(sys.argv[1]).rglob("*"):
    if file.is_file() and sys.argv[2].encode() in file.read_bytes(): print(file.name)
"""


async def found_in_files(directory: Path, text: str = "SECRET") -> list[str]:
    """Return the names of the files that hold this text, as another process sees them."""

    def look() -> list[str]:
        with start(LOOK, directory, text) as process:
            output, _ = process.communicate()
        return output.split()

    return await asyncio.to_thread(look)


async def test_a_removed_file_is_in_no_file(path: Path) -> None:
    async with open_at(path) as store:
        for number in range(50):
            await add_file(store, f"other{number}", b"public", filename="public" * number)
        made = await add_file(store, "SECRET-ID", b"SECRET" * 1_000, filename="SECRET.txt")
        names = await found_in_files(path.parent)
        assert made.blob.id in names
        assert {"a.db-files", "a.db-files-wal"}.intersection(names)
        assert await store.files.remove(OWNER, "SECRET-ID") is True
        assert await found_in_files(path.parent) == []
        assert await found_in_files(path.parent, made.blob.id) == []
        assert await found_in_files(path.parent, "public")


async def test_a_removed_container_is_in_no_file(path: Path) -> None:
    async with open_at(path) as store:
        inside = container_file("SECRET-1", "/mnt/data/SECRET", await write(store, b"SECRET"))
        await store.containers.add(OWNER, container("c1", name="SECRET"), [inside])
        again = container_file("x", "/mnt/data/HIDDEN", await write(store, b"HIDDEN"))
        await store.containers.put_file(OWNER, "c1", again)
        assert await found_in_files(path.parent)
        assert await store.containers.remove_file(OWNER, "c1", "x") is True
        assert await found_in_files(path.parent, "HIDDEN") == []
        assert await store.containers.remove(OWNER, "c1") is True
        assert await found_in_files(path.parent) == []


async def test_a_removed_skill_is_in_no_file(path: Path) -> None:
    async with open_at(path) as store:
        first = skill_version("v1", await write(store, b"SECRET"), description="SECRET")
        await store.skills.add(OWNER, skill("s1"), first)
        second = skill_version("v2", await write(store, b"HIDDEN"), name="HIDDEN")
        await store.skills.add_version(OWNER, "s1", second, is_default=False)
        assert await store.skills.remove_version(OWNER, "s1", 2) is True
        assert await found_in_files(path.parent, "HIDDEN") == []
        assert await store.skills.remove(OWNER, "s1") is True
        assert await found_in_files(path.parent) == []


async def test_a_removal_is_completed_when_its_caller_has_gone(path: Path) -> None:
    async with open_at(path) as store:
        await add_file(store, "f1", b"SECRET", filename="SECRET")
        removal = asyncio.create_task(store.files.remove(OWNER, "f1"))
        await asyncio.sleep(0)
        removal.cancel()
        with pytest.raises(asyncio.CancelledError):
            await removal
        while await store.files.find(OWNER, ["f1"], NOW):  # noqa: ASYNC110 # another task
            await asyncio.sleep(0.001)
    assert await found_in_files(path.parent) == []


async def test_the_contents_of_what_was_replaced_or_ended_are_in_no_file(path: Path) -> None:
    async with open_at(path) as store:
        await store.containers.add(OWNER, container("c1"))
        for data in (b"SECRET", b"public"):
            one = container_file("x", "/mnt/data/a", await write(store, data))
            assert await store.containers.put_file(OWNER, "c1", one)
        await store.files.begin_upload(OWNER, upload("u1"))
        await store.files.add_part(OWNER, "u1", part("p1", await write(store, b"SECRET")), NOW)
        await store.files.cancel_upload(OWNER, "u1", NOW)
        writer = await store.blobs.create(OWNER)
        await writer.write(b"SECRET" * PIECE_BYTES)
        await writer.abort()
        assert await found_in_files(path.parent) == []


async def test_what_was_swept_is_in_no_file_after_closing(path: Path) -> None:
    async with open_at(path) as store:
        await add_file(store, "f1", b"SECRET", filename="SECRET", expires_at=NOW)
        await store.files.begin_upload(OWNER, upload("u1", filename="SECRET"))
        await write(store, b"SECRET")
        assert await store.files.sweep(LONG_AFTER, 10) == 1
    assert await found_in_files(path.parent) == []


# Room


async def test_a_store_without_room_takes_no_content(path: Path) -> None:
    async with open_at(path, max_bytes=2_000_000) as store:
        kept = await add_file(store, "f1", bytes(1_500_000))
        with pytest.raises(StoreUnavailable, match="no room left"):
            await write(store, bytes(600_000))
        assert await store.files.used_bytes(OWNER) == 1_500_000
        assert await store.files.remove(OWNER, kept.id)
        await add_file(store, "f2", bytes(600_000))


async def test_a_full_disk_is_logged_once_and_when_it_is_over(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    async with open_at(path) as store:
        with monkeypatch.context() as patch:
            patch.setattr("antiphon.store.sqlite.folder.Draft.write", fail)
            for _ in range(3):
                writer = await store.blobs.create(OWNER)
                with pytest.raises(StoreUnavailable, match="no room left on the disk") as caught:
                    await writer.write(bytes(PIECE_BYTES))
                assert str(path) not in str(caught.value)
                await writer.abort()
        await write(store, b"abc")
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 2
    assert "a.db-blobs: there is no room left" in lines[0]
    assert lines[1].endswith("a.db-blobs: the store works again")


async def test_a_full_database_takes_no_row(path: Path) -> None:
    async with open_at(path, max_bytes=300_000) as store:
        made = 0
        with pytest.raises(StoreUnavailable, match="no room left"):
            for number in range(1_000):
                await add_file(store, f"f{number}", b"x", filename="n" * 10_000)
                made += 1
        assert made > 5
        page = await store.files.page(OWNER, limit=1_000, is_descending=False, now=NOW)
        assert len(page) == made
        assert await store.files.used_bytes(OWNER) == made


WRITE_INTO_A_WALL = """
import asyncio, resource, sys
from antiphon.protocol.errors import StoreUnavailable
from antiphon.store import SqliteStore
from tests.store.file_samples import add_file, content
from tests.store.samples import OWNER

async def main():
    store = SqliteStore(sys.argv[1])
    first = await add_file(store, "f1", b"first")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (3_000_000, hard))
    writer = await store.blobs.create(OWNER)
    try:
        for _ in range(8):
            await writer.write(bytes(700_000))
        await writer.finish()
    except StoreUnavailable as error:
        print(error)
    try:
        await writer.finish()
    except StoreUnavailable as error:
        print(error)
    await writer.abort()
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    await add_file(store, "f2", bytes(5_000_000))
    print(sorted(await store.files.find(OWNER, ["f1", "f2"], 0)))
    await store.close()

asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs rlimits")
def test_a_full_disk_leaves_nothing_of_a_blob(path: Path) -> None:
    with start(WRITE_INTO_A_WALL, path) as process:
        answer, _ = process.communicate()
    assert process.returncode == 0
    lines = answer.splitlines()
    assert "no room left on the disk" in lines[0]
    assert "was not stored" in lines[1]
    assert lines[2] == "['f1', 'f2']"
    left = [one for one in everything_in(path.parent / "a.db-blobs") if one.is_file()]
    assert sorted(one.stat().st_size for one in left) == [5, 5_000_000]


# Kills

WORK = """
import asyncio, hashlib, random, sys
from antiphon.store import SqliteStore
from antiphon.store.base import ClaimRequest
from tests.store.file_samples import container, container_file, file, part, upload, write
from tests.store.samples import OWNER

async def work(store, worker, dice):
    kept = []
    box = f"c-{worker}"
    await store.containers.add(OWNER, container(box))
    for number in range(10_000):
        name = f"{worker}-{number}"
        data = dice.randbytes(dice.choice([0, 10, 100_000, 1_500_000]))
        blob = await write(store, data)
        await store.files.add(OWNER, file(name, blob))
        kept.append(name)
        print("added", name, hashlib.sha256(data).hexdigest(), flush=True)
        inside = container_file(name, f"/mnt/data/{number % 3}", await write(store, data[:1000]))
        await store.containers.put_file(OWNER, box, inside)
        await store.files.begin_upload(OWNER, upload(f"u-{name}"))
        await store.files.add_part(OWNER, f"u-{name}", part("p", await write(store, b"p")), 0)
        whole = file(f"w-{name}", await write(store, b"p"))
        await store.files.complete_upload(OWNER, f"u-{name}", whole, 0)
        if len(kept) > 3:
            gone = kept.pop(dice.randrange(len(kept)))
            print("removing", gone, flush=True)
            await store.files.remove(OWNER, gone)
            print("removed", gone, flush=True)

async def main():
    dice = random.Random(int(sys.argv[2]))
    store = SqliteStore(sys.argv[1])
    print("ready", flush=True)
    await asyncio.gather(*(work(store, f"{sys.argv[2]}.{n}", dice) for n in range(3)))

asyncio.run(main())
"""


def run_and_kill(path: Path, seed: int, lines: int) -> tuple[dict[str, str], set[str]]:
    """Let two processes work, kill them at once; return what was added, and what was removed."""
    added: dict[str, str] = {}
    removed: set[str] = set()
    processes = [start(WORK, path, seed), start(WORK, path, seed + 1)]
    try:
        for process in processes:
            assert process.stdout is not None
            for _ in range(lines):
                note(process.stdout.readline(), added, removed)
    finally:
        for process in processes:
            process.kill()
    for process in processes:
        with process:
            assert process.stdout is not None
            for line in process.stdout:
                note(line, added, removed)
    return added, removed


def note(line: str, added: dict[str, str], removed: set[str]) -> None:
    words = line.split() if line.endswith("\n") else []
    if words[:1] == ["added"]:
        added[words[1]] = words[2]
    elif words[:1] in (["removing"], ["removed"]):
        # What was being removed may be there or not.
        removed.add(words[1])


async def check_whole(store: SqliteStore, path: Path, added: dict[str, str]) -> None:
    """Check that every row has its content, and after a sweep every content its row."""
    for name, digest in added.items():
        [found] = (await store.files.find(OWNER, [name], NOW)).values()
        assert hashlib.sha256(await content(store, found.blob)).hexdigest() == digest
    await store.files.sweep(LONG_AFTER, 1_000_000)
    folder = path.parent / "a.db-blobs"
    contents = {one.name for one in folder.iterdir()} - {"new"}
    assert list((folder / "new").iterdir()) == []
    with closing(sqlite3.connect(path.with_name("a.db-files"))) as connection:
        blobs = {name for (name,) in connection.execute("SELECT id FROM blobs")}
        named = [
            name
            for table in ("files", "upload_parts", "container_files", "skill_versions")
            for (name,) in connection.execute(f"SELECT blob FROM {table}")  # constants
        ]
        assert connection.execute("SELECT count(*) FROM blobs WHERE state <> 1").fetchone() == (0,)
    assert contents == blobs == set(named)
    assert len(named) == len(set(named))


@pytest.mark.skipif(sys.platform == "win32", reason="kills as POSIX does")
@pytest.mark.parametrize("seed", [10, 20, 30, 40])
async def test_killed_processes_leave_neither_row_nor_content_alone(path: Path, seed: int) -> None:
    lines = random.Random(seed).randrange(5, 60)
    added, removed = await asyncio.to_thread(run_and_kill, path, seed, lines)
    assert added
    async with open_at(path) as store:
        left = {name: digest for name, digest in added.items() if name not in removed}
        await check_whole(store, path, left)


# Each run ends at another place: before or after a commit, or a change of the folder.
END_EVERYWHERE = """
import asyncio, os, sys
from pathlib import Path
from antiphon.store import SqliteStore
from antiphon.store.sqlite.folder import BlobFolder, Draft
from antiphon.store.sqlite.worker import Writer
from tests.store.file_samples import NOW, add_file, container, container_file, file, part, upload
from tests.store.file_samples import write
from tests.store.samples import OWNER

def end_around(owner, name):
    inner = getattr(owner, name)
    def wrapped(*args):
        count_down()
        result = inner(*args)
        count_down()
        return result
    setattr(owner, name, wrapped)

def count_down():
    global left
    left -= 1
    if left == 0:
        os._exit(9)

async def main(place):
    log = os.open(place / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    note = lambda *words: os.write(log, (" ".join(words) + "\\n").encode())
    store = SqliteStore(place / "a.db")
    await add_file(store, "f1", b"one" * 500_000)
    note("added", "f1")
    await store.containers.add(OWNER, container("c1"))
    for data in (b"old", b"new"):
        one = container_file("cf1", "/mnt/data/a", await write(store, data))
        await store.containers.put_file(OWNER, "c1", one)
    await store.files.begin_upload(OWNER, upload("u1"))
    await store.files.add_part(OWNER, "u1", part("p1", await write(store, b"part")), NOW)
    await store.files.complete_upload(OWNER, "u1", file("f2", await write(store, b"part")), NOW)
    note("added", "f2")
    writer = await store.blobs.create(OWNER)
    await writer.write(b"x" * 2_000_000)
    await writer.abort()
    note("removing", "f1")
    await store.files.remove(OWNER, "f1")
    note("removed", "f1")
    await store.containers.remove(OWNER, "c1")
    await store.close()

for owner, names in ((Draft, ("write", "sync", "publish", "discard")),
                     (BlobFolder, ("draft", "delete")), (Writer, ("_commit",))):
    for name in names:
        end_around(owner, name)
number, status = 0, 9
while status:
    number += 1
    place = Path(sys.argv[1]) / str(number)
    place.mkdir()
    if not (child := os.fork()):
        left = number
        asyncio.run(main(place))
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status in (0, 9), status
print(number)
"""


@pytest.mark.heavy
@pytest.mark.skipif(sys.platform == "win32", reason="needs fork")
async def test_an_end_at_any_step_leaves_neither_row_nor_content_alone(tmp_path: Path) -> None:
    def end_everywhere() -> int:
        with start(END_EVERYWHERE, tmp_path) as process:
            output, _ = process.communicate()
        assert process.returncode == 0
        return int(output)

    count = await asyncio.to_thread(end_everywhere)
    assert count > 40
    for number in range(1, count + 1):
        path = tmp_path / str(number) / "a.db"
        log = path.with_name("log").read_text().splitlines()
        async with open_at(path) as store:
            await store.files.claimed(OWNER, once())
            await write(store, b"a blob without a row")  # so that there is a folder
            found = await store.files.find(OWNER, ["f1", "f2"], NOW)
            if "added f1" in log and "removing f1" not in log:
                assert await content(store, found["f1"].blob) == b"one" * 500_000
            if "added f2" in log:
                assert await content(store, found["f2"].blob) == b"part"
            if "removed f1" in log:
                assert "f1" not in found
            await check_whole(store, path, {})


async def test_what_a_crash_left_is_swept(path: Path) -> None:
    async with open_at(path) as store:
        made = await add_file(store, "f1")
        folder = path.parent / "a.db-blobs"
        (folder / "new" / "left").write_bytes(b"left by a crash")
        with closing(sqlite3.connect(path.with_name("a.db-files"))) as connection, connection:
            connection.execute("UPDATE blobs SET state = 2")
            connection.execute("DELETE FROM files")
        assert await store.files.sweep(int(time.time()), 10) == 1
        assert await content(store, made.blob) == b""
        assert (folder / "new" / "left").exists()
        assert await store.files.sweep(LONG_AFTER, 10) == 1
        assert everything_in(folder) == [folder / "new"]


async def test_a_blob_whose_finish_failed_is_aborted(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_at(path) as store:
        await add_file(store, "f1")
        writer = await store.blobs.create(OWNER)
        await writer.write(b"abc")

        def fail(*_: object) -> None:
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr("antiphon.store.sqlite.folder.Draft.publish", fail)
            with pytest.raises(StoreUnavailable, match="no room left"):
                await writer.finish()
        await writer.abort()
        await store.files.sweep(int(time.time()), 10)
        folder = path.parent / "a.db-blobs"
        assert len(everything_in(folder)) == 2  # `new`, and the content of f1


# Two processes

RACE = """
import asyncio, json, sys
from antiphon.store import SqliteStore
from tests.store.file_samples import file, once, write
from tests.store.samples import OWNER

async def main():
    store = SqliteStore(sys.argv[1])
    await write(store, b"warm")
    print("ready", flush=True)
    sys.stdin.readline()
    won = []
    for number in range(40):
        blob = await write(store, b"abc")
        name = f"{sys.argv[2]}-{number}"
        if await store.files.add(OWNER, file(name, blob), once(f"token-{number}")) is None:
            won.append(number)
    print(json.dumps(won), flush=True)
    await store.close()

asyncio.run(main())
"""


async def test_racing_processes_make_each_file_once(path: Path) -> None:
    def race() -> list[list[int]]:
        processes = [start(RACE, path, number) for number in range(3)]
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        outputs = []
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
        for process in processes:
            with process:
                assert process.stdout is not None
                outputs.append(json.loads(process.stdout.readline()))
        return outputs

    won = await asyncio.to_thread(race)
    assert sorted(number for some in won for number in some) == list(range(40))
    async with open_at(path) as store:
        assert await store.files.used_bytes(OWNER) == 40 * 3


# Size

LARGE = """
import asyncio, resource, sys, time
from antiphon.store import SqliteStore
from tests.store.file_samples import file, write
from tests.store.samples import OWNER

SIZE = 100 * 1024 * 1024

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024

async def main():
    store = SqliteStore(sys.argv[1])
    await store.files.add(OWNER, file("f0", await write(store, bytes(3_000_000))))
    before, start = peak(), time.monotonic()
    writer = await store.blobs.create(OWNER)
    piece = bytes(range(256)) * 256
    for _ in range(SIZE // len(piece)):
        await writer.write(piece)
    blob = await writer.finish()
    await store.files.add(OWNER, file("f1", blob))
    written, place = time.monotonic(), 0
    while data := await store.blobs.read(OWNER, blob.id, place, 1024 * 1024):
        place += len(data)
    assert place == blob.size == SIZE
    print(peak() - before, round(written - start, 2), round(time.monotonic() - written, 2))
    await store.close()

asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs the peak of the memory")
def test_a_large_blob_needs_little_memory(path: Path) -> None:
    with start(LARGE, path) as process:
        output, _ = process.communicate()
    assert process.returncode == 0
    grown, _, _ = output.split()
    assert int(grown) < 30, output  # megabytes


async def test_a_blob_is_gone_for_a_row_after_its_sweep(path: Path) -> None:
    async with open_at(path) as one, open_at(path) as other:
        blob = await write(one, os.urandom(10))
        assert await other.files.sweep(LONG_AFTER, 10) == 1
        with pytest.raises(BlobGone):
            await one.files.add(OWNER, file("f1", blob))

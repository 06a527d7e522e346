"""A file that is made to do damage fails by itself, and the service does not notice."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from antiphon.tools.documents.base import DocumentFailed, Source, content_of
from antiphon.tools.documents.reader import Documents
from antiphon.tools.documents.settings import DocumentSettings
from tests.tools.documents.bombs import CASES, Case
from tests.tools.documents.making import make_docx
from tests.tools.documents.processes import count_children, longest_pause

_MIB = 1024 * 1024
_SETTINGS = DocumentSettings(
    cpu_seconds=4,
    seconds=60.0,
    text_bytes=16 * _MIB,
    unpacked_bytes=48 * _MIB,
    memory_bytes=512 * _MIB,
)


@pytest.fixture(scope="module")
def settings() -> DocumentSettings:
    return _SETTINGS


@pytest.fixture
async def reader(settings: DocumentSettings) -> AsyncIterator[Documents]:
    made = Documents(settings)
    yield made
    await made.close()


async def _read(reader: Documents, name: str, data: bytes) -> str:
    source = Source(name, len(data), content_of(data))
    return "".join([piece async for piece in reader.read(source)])


async def _outcome(reader: Documents, case: Case, data: bytes) -> tuple[str, str]:
    try:
        return "", await _read(reader, case.filename, data)
    except DocumentFailed as failure:
        return failure.code, failure.message


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_a_bomb_fails_alone(case: Case, reader: Documents) -> None:
    data = await asyncio.to_thread(case.make)
    before = count_children()
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    async with asyncio.timeout(120), longest_pause() as pause:
        (code, words), beside = await asyncio.gather(
            _outcome(reader, case, data), _read(reader, "b.docx", make_docx(["beside"]))
        )
    assert (code, case.words in words) == (case.code, True), (code, words[:300])
    assert beside == "beside\n"
    assert not code or (words[0].isupper() and words.endswith("."))
    assert "Traceback" not in words
    assert "/" not in words or not code
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - grown < 64 * 1024
    assert pause.seconds < 1.0
    assert await _read(reader, "b.docx", make_docx(["after"])) == "after\n"
    assert count_children() <= before + _SETTINGS.processes


async def test_a_line_of_300_megabytes_is_read_in_bounded_memory(reader: Documents) -> None:
    size = 300 * _MIB

    async def read(offset: int, most: int) -> bytes:
        return b"x" * max(0, min(most, size - offset))

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    total = 0
    async with longest_pause() as pause:
        async for piece in reader.read(Source("a.txt", size, read)):
            total += len(piece)
    assert total == size
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 32 * 1024
    assert pause.seconds < 1.0
    assert count_children() == 0


async def test_a_document_that_is_too_large_is_not_sent_to_a_process() -> None:
    reader = Documents(DocumentSettings(bytes=1000))
    with pytest.raises(DocumentFailed, match="larger than"):
        await _read(reader, "a.docx", make_docx([str(n) for n in range(5000)]))
    assert count_children() == 0
    await reader.close()


async def test_a_content_that_lies_about_its_size_is_stopped_by_the_process() -> None:
    """The size is what the store states; the process counts what arrives."""
    reader = Documents(DocumentSettings(bytes=20 * _MIB, seconds=60.0))

    async def endless(offset: int, most: int) -> bytes:
        return (b"PK\x03\x04" + b"x" * most)[:most]

    async with asyncio.timeout(120):
        with pytest.raises(DocumentFailed):
            async for _ in reader.read(Source("a.docx", 10, endless)):
                pass
    assert count_children() == 0
    await reader.close()


async def test_no_process_may_open_other_files_or_start_programs(reader: Documents) -> None:
    """The limits are those that the process states of itself."""
    await _read(reader, "a.docx", make_docx(["x"]))
    (parser,) = reader._pool._idle
    about = Path(f"/proc/{parser._process.pid}")
    lines = (about / "limits").read_text().splitlines()
    limits = {line[:26].strip(): line[26:].split()[0] for line in lines}
    assert limits["Max core file size"] == "0"
    assert limits["Max processes"] == "0"
    assert int(limits["Max open files"]) <= 32
    assert int(limits["Max address space"]) == _SETTINGS.memory_bytes
    assert int(limits["Max file size"]) == _SETTINGS.bytes
    status = dict(line.split(":\t") for line in (about / "status").read_text().splitlines())
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2"), "system calls are filtered"
    environ = (about / "environ").read_bytes().split(b"\0")
    names = {entry.partition(b"=")[0] for entry in environ if entry}
    assert names <= {b"PATH", b"LD_LIBRARY_PATH", b"VIRTUAL_ENV", b"TMPDIR", b"LC_CTYPE"}

"""Documents with random damage never hang the reader, end it, or leave processes behind."""

from __future__ import annotations

import asyncio
import io
import random
import zipfile
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from antiphon.tools.documents.base import DocumentFailed, Source, content_of
from antiphon.tools.documents.reader import Documents
from antiphon.tools.documents.settings import DocumentSettings
from tests.tools.documents.making import make_docx, make_pdf, make_pptx, make_xlsx, pack
from tests.tools.documents.processes import count_children

_ROW = '<row><c r="A1" t="s"><v>0</v></c><c r="B1" s="1"><v>45000</v></c></row>'
_STYLES = '<cellXfs><xf numFmtId="0"/><xf numFmtId="14"/></cellXfs>'
_GOOD = {
    "a.docx": make_docx(["one & two", "three"], footnotes=["note"]),
    "a.pptx": make_pptx([["one"], ["two"]], {0: "note"}),
    "a.xlsx": make_xlsx({"S": _ROW, "T": _ROW}, ["text"], _STYLES),
    "a.pdf": make_pdf([["one", "two"], ["three"]]),
    "a.html": b"<!DOCTYPE html><title>t</title><ul><li>one<li>two</ul><table><td>x</table>",
    "a.txt": "one\ntwo ü\n".encode(),
}


def _damage(data: bytes, seed: int) -> bytes:
    """Return the bytes with a few of them changed, removed, repeated or moved."""
    chance = random.Random(seed)
    found = bytearray(data)
    for _ in range(chance.randint(1, 6)):
        at = chance.randrange(len(found) + 1)
        size = chance.choice([1, 2, 8, 64])
        match chance.randrange(4):
            case 0:
                found[at : at + size] = chance.randbytes(size)
            case 1:
                del found[at : at + size]
            case 2:
                found[at:at] = found[at : at + size] * chance.choice([1, 3, 500])
            case _:
                found[at:at] = chance.choice(_PIECES)
    return bytes(found)


_PIECES = [
    b"<",
    b"<![CDATA[",
    b"&x;",
    b"<!DOCTYPE a>",
    b"9" * 40,
    b" 0 R",
    b"\0",
    b"[",
    b"(",
    b"<<",
]


def _damaged(name: str, seed: int) -> bytes:
    """Return a document with damage: in one of its parts, or in the file as a whole."""
    good = _GOOD[name]
    if not good.startswith(b"PK") or seed % 3 == 0:
        return _damage(good, seed)
    with zipfile.ZipFile(io.BytesIO(good)) as archive:
        parts: dict[str, str | bytes] = {part: archive.read(part) for part in archive.namelist()}
    hit = random.Random(seed).choice(sorted(parts))
    content = parts[hit]
    assert isinstance(content, bytes)
    return pack({**parts, hit: _damage(content, seed)})


@pytest.fixture(scope="module")
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    made = asyncio.new_event_loop()
    yield made
    made.close()


async def _try(reader: Documents, name: str, data: bytes) -> str | None:
    source = Source(name, len(data), content_of(data))
    try:
        async with asyncio.timeout(60):
            return "".join([piece async for piece in reader.read(source)])
    except DocumentFailed as failure:
        assert failure.code in ("invalid_file", "unsupported_file")
        assert failure.message.endswith(".")
        return None


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(seeds=st.lists(st.integers(0, 2**32), min_size=6, max_size=6))
def test_damaged_documents_fail_or_are_read(
    seeds: list[int], loop: asyncio.AbstractEventLoop
) -> None:
    async def run() -> None:
        reader = Documents(DocumentSettings(cpu_seconds=5, seconds=30.0))
        names = sorted(_GOOD)
        tries = [
            _try(reader, name, _damaged(name, seed))
            for name, seed in zip(names, seeds, strict=True)
        ]
        for text in await asyncio.gather(*tries):
            assert text is None or "\0" not in text
            assert text is None or text.encode()
        assert await _try(reader, "b.docx", _GOOD["a.docx"]) is not None
        await reader.close()
        assert count_children() == 0

    loop.run_until_complete(run())

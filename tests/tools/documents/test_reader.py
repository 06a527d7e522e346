"""Documents of every kind become their text, in order and in the right encoding."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest

from antiphon.tools.documents import kinds
from antiphon.tools.documents.base import DocumentFailed, Source, content_of
from antiphon.tools.documents.reader import Documents
from antiphon.tools.documents.settings import DocumentSettings
from tests.tools.documents.making import (
    docx_parts,
    make_docx,
    make_pdf,
    make_pptx,
    make_xlsx,
    pack,
    paragraph,
)
from tests.tools.documents.processes import count_children


@pytest.fixture
async def reader() -> AsyncIterator[Documents]:
    made = Documents()
    yield made
    await made.close()


def _source(name: str, data: bytes, media_type: str | None = None) -> Source:
    return Source(name, len(data), content_of(data), media_type)


async def _read(reader: Documents, name: str, data: bytes, media_type: str | None = None) -> str:
    return "".join([piece async for piece in reader.read(_source(name, data, media_type))])


async def _refused(reader: Documents, name: str, data: bytes) -> tuple[str, str]:
    with pytest.raises(DocumentFailed) as caught:
        await _read(reader, name, data)
    return caught.value.code, caught.value.message


# Plain text.


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ("Grüße".encode(), "Grüße"),
        (b"\xef\xbb\xbfGr", "Gr"),
        ("Grüße".encode("utf-16"), "Grüße"),
        ("Grüße an alle".encode("utf-16-le"), "Grüße an alle"),
        ("Grüße an alle".encode("utf-16-be"), "Grüße an alle"),
        ("Grüße".encode("utf-32"), "Grüße"),
        ("Grüße".encode("latin-1"), "Grüße"),
        (b"price: 5 \x80", "price: 5 €"),
        (b"\x1b[31mred\x1b[0m", "\x1b[31mred\x1b[0m"),
        ("日本語".encode(), "日本語"),
        (b'{"a": "\\ud800"}', '{"a": "\\ud800"}'),
    ],
)
async def test_text_is_read_in_its_encoding(reader: Documents, data: bytes, expected: str) -> None:
    assert await _read(reader, "a.txt", data) == expected


async def test_the_media_type_may_state_the_encoding(reader: Documents) -> None:
    data = "日本語".encode("shift_jis")
    assert await _read(reader, "a.txt", data, "text/plain; charset=shift_jis") == "日本語"


@pytest.mark.parametrize("bad", [b"caf\xe9", b"\xff\xfe", b"\xc3"])
async def test_a_late_byte_that_is_not_utf_8_loses_nothing_else(
    reader: Documents, bad: bytes
) -> None:
    text = await _read(reader, "a.txt", b"x" * 600_000 + bad + b"y" * 600_000)
    assert text == "x" * 600_000 + bad.decode("windows-1252") + "y" * 600_000


async def test_a_bad_byte_in_a_text_of_utf_8_is_replaced(reader: Documents) -> None:
    data = "ü".encode() * 300_000 + b"\xff" + "ü".encode() * 300_000
    assert await _read(reader, "a.txt", data) == "ü" * 300_000 + "\ufffd" + "ü" * 300_000


async def test_a_character_across_two_pieces_is_whole(reader: Documents) -> None:
    data = b"x" + "日".encode() * 200_000
    assert await _read(reader, "a.txt", data) == "x" + "日" * 200_000


@pytest.mark.parametrize("name", ["a.py", "a.json", "a.csv", "a.md", "a.svg", "Makefile", ""])
async def test_any_text_is_read_whatever_its_name(reader: Documents, name: str) -> None:
    assert await _read(reader, name, b"a = 1\n") == "a = 1\n"


# Office documents.


async def test_docx_has_paragraphs_tables_and_notes(reader: Documents) -> None:
    cell = f"<w:tc>{paragraph('a')}</w:tc><w:tc>{paragraph('b')}</w:tc>"
    body = f"{paragraph('Head & <tail>')}<w:tbl><w:tr>{cell}</w:tr></w:tbl>{paragraph('end')}"
    assert await _read(reader, "a.docx", pack(docx_parts(body))) == (
        "Head & <tail>\na | b | \nend\n"
    )
    noted = make_docx(["body"], footnotes=["a note"])
    assert await _read(reader, "a.docx", noted) == "body\n\nFootnotes:\na note\n"


async def test_docx_leaves_out_deleted_text_and_second_copies(reader: Documents) -> None:
    gone = "<w:p><w:del><w:r><w:delText>deleted</w:delText></w:r></w:del></w:p>"
    compat = 'xmlns:m="http://schemas.openxmlformats.org/markup-compatibility/2006"'
    twice = (
        f"<m:AlternateContent {compat}><m:Choice>{paragraph('box')}</m:Choice>"
        f"<m:Fallback>{paragraph('box')}</m:Fallback></m:AlternateContent>"
    )
    breaks = '<w:p><w:r><w:t>a</w:t><w:tab/><w:br w:type="page"/><w:t>b</w:t></w:r></w:p>'
    text = await _read(reader, "a.docx", pack(docx_parts(gone + twice + breaks)))
    assert text.split() == ["box", "a", "b"]
    assert "a\t\fb" in text


async def test_docx_properties_hide_nothing_that_follows_them(reader: Documents) -> None:
    look = "<w:rPr><w:b/><w:tab/></w:rPr>"
    inner = f"<w:pPr>{look}<w:tabs><w:tab/></w:tabs></w:pPr>"
    body = f"<w:p>{inner}<w:r>{look}<w:t>a</w:t><w:tab/><w:t>b</w:t></w:r></w:p>{paragraph('c')}"
    text = await _read(reader, "a.docx", pack(docx_parts(body)))
    assert text.strip() == "a\tb\nc"


async def test_docx_of_the_strict_variant_is_read(reader: Documents) -> None:
    parts = {
        name: content.replace(
            "http://schemas.openxmlformats.org/wordprocessingml/2006/main",
            "http://purl.oclc.org/ooxml/wordprocessingml/main",
        ).replace(
            "http://schemas.openxmlformats.org/officeDocument/2006/relationships",
            "http://purl.oclc.org/ooxml/officeDocument/relationships",
        )
        for name, content in docx_parts(paragraph("strict")).items()
        if isinstance(content, str)
    }
    assert await _read(reader, "a.docx", pack(parts)) == "strict\n"


async def test_pptx_has_its_slides_in_order_with_notes(reader: Documents) -> None:
    data = make_pptx([["One", "two"], ["Three"], ["Four"]], {0: "say it"})
    assert await _read(reader, "a.pptx", data) == "One\ntwo\nNotes:\nsay it\n\fThree\n\fFour\n"


async def test_xlsx_has_sheets_with_strings_dates_and_gaps(reader: Documents) -> None:
    styles = (
        '<numFmts><numFmt numFmtId="170" formatCode="d.m.yyyy"/></numFmts>'
        '<cellXfs><xf numFmtId="0"/><xf numFmtId="14"/><xf numFmtId="170"/><xf numFmtId="20"/>'
        "</cellXfs>"
    )
    row = (
        '<row><c r="A1" t="s"><v>0</v></c><c r="C1"><v>1.5</v></c><c r="D1" s="1"><v>45000</v></c>'
        '<c r="E1" s="2"><v>45000.5</v></c><c r="F1" s="3"><v>0.25</v></c>'
        '<c r="G1" t="b"><v>1</v></c><c r="H1" s="1" t="str"><f>x</f><v>y</v></c></row>'
    )
    inline = '<row><c t="inlineStr"><is><t>in</t></is></c></row>'
    data = make_xlsx({"First": row, "Second": inline}, ["shared text"], styles)
    assert await _read(reader, "a.xlsx", data) == (
        "# First\nshared text\t\t1.5\t2023-03-15\t2023-03-15 12:00:00\t06:00:00\tTRUE\ty\n"
        "\f# Second\nin\n"
    )


# PDF and HTML.


async def test_pdf_has_its_pages(reader: Documents) -> None:
    data = make_pdf([["Hello (PDF)", "line 2"], ["page two"]])
    assert await _read(reader, "a.pdf", data) == "Hello (PDF)\nline 2\n\fpage two\n"


async def test_html_has_what_is_visible(reader: Documents) -> None:
    html = '<title>T</title><p>one<p>two<script>x</script><p hidden>three<meta charset="utf-8">'
    assert await _read(reader, "a.html", html.encode()) == "one\ntwo\n"
    assert await _read(reader, "page", b"<!DOCTYPE html><p>one") == "one\n"


async def test_the_content_decides_and_not_the_name(reader: Documents) -> None:
    assert await _read(reader, "a.txt", make_pdf([["a PDF"]])) == "a PDF\n"
    assert await _read(reader, "a.xlsx", make_docx(["a document"])) == "a document\n"


async def test_without_the_extra_html_and_pdf_are_unsupported(
    reader: Documents, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kinds, "find_spec", lambda _: None)
    for name, data in (("a.pdf", make_pdf([["x"]])), ("a.html", b"<p>x")):
        code, message = await _refused(reader, name, data)
        assert code == "unsupported_file"
        assert "extra `documents`" in message
    assert await _read(reader, "a.docx", make_docx(["x"])) == "x\n"


# Processes.


async def test_a_process_is_reused_and_ends_with_the_reader() -> None:
    reader = Documents(DocumentSettings(processes=1))
    before = count_children()
    await _read(reader, "a.txt", b"text needs no process")
    assert count_children() == before
    await asyncio.gather(*(_read(reader, "a.docx", make_docx([str(n)])) for n in range(8)))
    assert count_children() == before + 1
    await reader.close()
    assert count_children() == before


async def test_a_reader_that_stops_early_leaves_no_process() -> None:
    reader = Documents()
    before = count_children()
    data = make_docx(["words " * 20 for _ in range(20_000)])
    async with aclosing(reader.read(_source("a.docx", data))) as pieces:
        async for piece in pieces:
            assert piece
            break
    assert count_children() == before
    assert await _read(reader, "a.docx", make_docx(["x"])) == "x\n"
    await reader.close()
    assert count_children() == before


async def test_a_cancelled_reader_leaves_no_process() -> None:
    reader = Documents()
    before = count_children()
    got = asyncio.Event()

    async def read() -> None:
        data = make_docx(["words " * 20 for _ in range(20_000)])
        async for _ in reader.read(_source("a.docx", data)):
            got.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(read())
    async with asyncio.timeout(30):
        await got.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await reader.close()
    assert count_children() == before


async def test_a_slow_reader_does_not_use_up_the_time() -> None:
    reader = Documents(DocumentSettings(seconds=5.0))
    data = make_docx(["words " * 20 for _ in range(40_000)])
    size = 0
    async for piece in reader.read(_source("a.docx", data)):
        if not size:
            await asyncio.sleep(6)  # longer than the limit: only the process is on the clock
        size += len(piece)
    assert size == 40_000 * 121
    await reader.close()

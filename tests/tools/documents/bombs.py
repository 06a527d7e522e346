"""Files that are made to do damage, or were damaged: each with what must come of it."""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from collections.abc import Callable
from typing import NamedTuple

from pypdf import PdfReader, PdfWriter

from tests.tools.documents.making import (
    WORD,
    docx_parts,
    make_docx,
    make_pdf,
    make_pptx,
    make_xlsx,
    office_parts,
    pack,
    paragraph,
    raw_pdf,
)

__all__ = ["CASES", "Case"]

_MIB = 1024 * 1024
_RATIO = "far more than a document"
_DAMAGED = "damaged"
_TOO_MUCH = "more"  # more time, memory or text than is allowed


class Case(NamedTuple):
    """A file. It fails with this code and these words, or has this text in it."""

    name: str
    filename: str
    make: Callable[[], bytes]
    code: str
    words: str


def _docx(body: str) -> bytes:
    return pack(docx_parts(body))


def _document(xml: str | bytes) -> bytes:
    parts = docx_parts("")
    return pack({**parts, "word/document.xml": xml})


def _ratio() -> bytes:
    return _docx(paragraph("a" * (40 * _MIB)))


def _many_parts_together() -> bytes:
    """Each part is within the limits, but not all of them together."""
    notes = f'<w:footnotes xmlns:w="{WORD}"><w:p w:x="{"y" * (28 * _MIB)}"/></w:footnotes>'
    good = make_docx([], footnotes=["x"])
    parts = {entry: zipfile.ZipFile(io.BytesIO(good)).read(entry) for entry in _names(good)}
    body = docx_parts(f'<w:p w:x="{"y" * (28 * _MIB)}"/>')["word/document.xml"]
    return pack({**parts, "word/footnotes.xml": notes, "word/document.xml": body})


def _names(data: bytes) -> list[str]:
    return zipfile.ZipFile(io.BytesIO(data)).namelist()


def _nested() -> bytes:
    """A bomb inside a document, which nobody opens."""
    inner = pack({"bomb.txt": b"\0" * (20 * _MIB)})
    for level in range(3):
        inner = pack({f"{number}-{level}.zip": inner for number in range(10)})
    return pack(docx_parts(paragraph("outside")) | {"word/embeddings/inner.zip": inner})


def _declared(delta: int) -> Callable[[], bytes]:
    """A part whose size in both headers differs from the real one."""

    def make() -> bytes:
        data = bytearray(_docx("".join(paragraph("words") for _ in range(1000))))
        for mark, size_at, name_at, length_at in ((b"PK\3\4", 22, 30, 26), (b"PK\1\2", 24, 46, 28)):
            at = data.find(mark)
            while at != -1:
                (length,) = struct.unpack_from("<H", data, at + length_at)
                if data[at + name_at : at + name_at + length] == b"word/document.xml":
                    (size,) = struct.unpack_from("<I", data, at + size_at)
                    struct.pack_into("<I", data, at + size_at, (size + delta) % 2**32)
                at = data.find(mark, at + 4)
        return bytes(data)

    return make


def _flagged_as_encrypted() -> bytes:
    data = bytearray(make_docx(["secret"]))
    for mark, at_flags in ((b"PK\3\4", 6), (b"PK\1\2", 8)):
        at = data.find(mark)
        while at != -1:
            data[at + at_flags] |= 1
            at = data.find(mark, at + 4)
    return bytes(data)


def _many_entries() -> bytes:
    return pack(docx_parts(paragraph("x")) | {f"junk/{number}": b"" for number in range(25_000)})


def _laughs() -> bytes:
    entities = "".join(
        f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' if n else '<!ENTITY l0 "ha">' for n in range(10)
    )
    return _document(
        f'<!DOCTYPE d [{entities}]><w:document xmlns:w="{WORD}"><w:body><w:p><w:r><w:t>&l9;'
        "</w:t></w:r></w:p></w:body></w:document>"
    )


def _external(declaration: str) -> Callable[[], bytes]:
    return lambda: _document(
        f'<!DOCTYPE d {declaration}><w:document xmlns:w="{WORD}"><w:body><w:p><w:r><w:t>&x;'
        "</w:t></w:r></w:p></w:body></w:document>"
    )


def _deep() -> bytes:
    return _document(b"<a>" * 4_000_000)


def _wide() -> bytes:
    names = " ".join(f'a{number}="x"' for number in range(600_000))
    return _document(f'<w:document xmlns:w="{WORD}"><w:body {names}/></w:document>')


def _comment() -> bytes:
    return _document(b"<!--" + bytes(range(32, 45)) * (4 * _MIB))


def _million_cells() -> bytes:
    rows = "".join(
        "<row>" + "".join(f"<c><v>{row + cell}</v></c>" for cell in range(100)) + "</row>"
        for row in range(10_000)
    )
    return make_xlsx({"Numbers": rows})


def _repeated_string() -> bytes:
    """A text of a megabyte, to which a thousand cells refer."""
    text = "".join(f"{number} " for number in range(150_000))
    cells = '<row><c t="s"><v>0</v></c></row>' * 1000
    return make_xlsx({"S": cells}, [text])


def _far_cells() -> bytes:
    cells = "".join(f'<row><c r="XFD{row}"><v>7</v></c></row>' for row in range(1, 1000))
    return make_xlsx({"Far": cells})


def _kids(kids: str, count: int, *more: str | bytes) -> bytes:
    root = "<< /Type /Catalog /Pages 2 0 R >>"
    return raw_pdf([root, f"<< /Type /Pages /Kids [{kids}] /Count {count} >>", *more])


def _content_loop() -> bytes:
    page = "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 9 9] /Contents 4 0 R >>"
    return _kids("3 0 R", 1, page, "4 0 R")


def _form_loop() -> bytes:
    """A form that draws itself."""
    stream = b"/F Do"
    form = (
        b"<< /Type /XObject /Subtype /Form /BBox [0 0 9 9] /Resources << /XObject << /F 4 0 R >> >>"
        b" /Length %d >>\nstream\n%s\nendstream" % (len(stream), stream)
    )
    page = (
        "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 9 9] /Contents 4 0 R "
        "/Resources << /XObject << /F 4 0 R >> >> >>"
    )
    return _kids("3 0 R", 1, page, form)


def _packed_pdf() -> bytes:
    packed = zlib.compress(b"BT " + b" " * (200 * _MIB) + b"ET", 9)
    page = "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 9 9] /Contents 4 0 R >>"
    body = b"<< /Length %d /Filter /FlateDecode >>\nstream\n%s\nendstream" % (len(packed), packed)
    return _kids("3 0 R", 1, page, body)


def _many_operators() -> bytes:
    packed = zlib.compress(b"BT " + b"(x) Tj " * (8 * _MIB) + b"ET", 9)
    page = "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 9 9] /Contents 4 0 R >>"
    body = b"<< /Length %d /Filter /FlateDecode >>\nstream\n%s\nendstream" % (len(packed), packed)
    return _kids("3 0 R", 1, page, body)


def _nested_arrays() -> bytes:
    return _kids("3 0 R", 1, "[" * 200_000 + "]" * 200_000)


def _encrypted(password: str) -> Callable[[], bytes]:
    def make() -> bytes:
        writer = PdfWriter(clone_from=PdfReader(io.BytesIO(make_pdf([["hidden words"]]))))
        writer.encrypt(user_password=password, owner_password="owner", algorithm="RC4-128")
        file = io.BytesIO()
        writer.write(file)
        return file.getvalue()

    return make


def _loop_of_tables() -> bytes:
    data = make_pdf([["x"]])
    at = data.rindex(b"xref")
    at = data.rindex(b"xref", 0, at)
    return data.replace(b"/Root 1 0 R", b"/Root 1 0 R /Prev %d" % at)


def _scan() -> bytes:
    page = "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 9 9] >>"
    return _kids("3 0 R", 1, page)


def _pages_of(text: str) -> bytes:
    return make_pdf([[text]])


def _no_main() -> bytes:
    parts = docx_parts("")
    del parts["word/document.xml"]
    return pack(parts)


def _outside() -> bytes:
    """The main part is named as a file outside the archive."""
    return pack(office_parts("../../../../../etc/passwd", "root", {}))


def _old_word(more: bytes = b"") -> bytes:
    return b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"\0" * 500 + more


INVALID = "invalid_file"
OTHER = "unsupported_file"

CASES = [
    Case("zip ratio", "a.docx", _ratio, INVALID, _RATIO),
    Case("parts together", "a.docx", _many_parts_together, INVALID, "unpacks to more than"),
    Case("nested zips", "a.docx", _nested, "", "outside"),
    Case("zip", "a.zip", lambda: pack({"a": "b"}), OTHER, "Archives"),
    Case("declared too small", "a.docx", _declared(-5000), INVALID, _DAMAGED),
    Case("declared too large", "a.docx", _declared(5000), INVALID, _DAMAGED),
    Case("declared 4 GB", "a.docx", _declared(-(10**6)), INVALID, "more than"),
    Case("encrypted parts", "a.docx", _flagged_as_encrypted, INVALID, "password"),
    Case("25,000 entries", "a.docx", _many_entries, INVALID, "too many parts"),
    Case("billion laughs", "a.docx", _laughs, INVALID, "type declaration"),
    Case(
        "external entity",
        "a.docx",
        _external('[<!ENTITY x SYSTEM "file:///etc/passwd">]'),
        INVALID,
        "type declaration",
    ),
    Case(
        "external declaration",
        "a.docx",
        _external('SYSTEM "http://127.0.0.1:9/a.dtd"'),
        INVALID,
        "type declaration",
    ),
    Case("XML four million deep", "a.docx", _deep, INVALID, ""),
    Case("600,000 attributes", "a.docx", _wide, INVALID, ""),
    Case("comment without an end", "a.docx", _comment, INVALID, ""),
    Case("million cells", "a.xlsx", _million_cells, "", "10098"),
    Case("text of a thousand cells", "a.xlsx", _repeated_string, INVALID, _TOO_MUCH),
    Case("cells far to the right", "a.xlsx", _far_cells, "", "7"),
    Case("page tree that is its own child", "a.pdf", lambda: _kids("2 0 R", 1), INVALID, ""),
    Case(
        "tree of two that hold each other",
        "a.pdf",
        lambda: _kids("3 0 R", 2, "<< /Type /Pages /Kids [2 0 R] /Count 2 /Parent 2 0 R >>"),
        INVALID,
        "",
    ),
    Case("billion pages declared", "a.pdf", lambda: _kids("", 10**9), INVALID, "pages"),
    Case(
        "million pages",
        "a.pdf",
        lambda: _kids("3 0 R " * 10**6, 10**6, "<< /Type /Page >>"),
        INVALID,
        "",
    ),
    Case(
        "million pages, one declared",
        "a.pdf",
        lambda: _kids("3 0 R " * 10**6, 1, "<< /Type /Page /MediaBox [0 0 9 9] >>"),
        INVALID,
        "",
    ),
    Case("content that refers to itself", "a.pdf", _content_loop, INVALID, ""),
    Case("form that draws itself", "a.pdf", _form_loop, INVALID, ""),
    Case("PDF that unpacks to 200 MB", "a.pdf", _packed_pdf, INVALID, ""),
    Case("eight million operators", "a.pdf", _many_operators, INVALID, ""),
    Case("arrays 200,000 deep", "a.pdf", _nested_arrays, INVALID, ""),
    Case("encrypted PDF", "a.pdf", _encrypted("secret"), INVALID, "password"),
    Case("PDF with an empty password", "a.pdf", _encrypted(""), "", "hidden words"),
    Case("loop of tables", "a.pdf", _loop_of_tables, "", "x"),
    Case("PDF of scans", "a.pdf", _scan, INVALID, "no text"),
    Case("PDF named as a text", "a.txt", lambda: _pages_of("read as PDF"), "", "read as PDF"),
    Case(
        "text named as a document", "a.docx", lambda: b"only text", INVALID, "its content is none"
    ),
    Case("text named as a PDF", "a.pdf", lambda: b"only text", INVALID, "its content is none"),
    Case("image named as a text", "a.txt", lambda: b"\x89PNG\r\n\x1a\n\0\0", OTHER, "an image"),
    Case("old Word document", "a.doc", _old_word, OTHER, "Save it as"),
    Case(
        "document with a password",
        "a.docx",
        lambda: _old_word("EncryptedPackage".encode("utf-16-le")),
        INVALID,
        "password",
    ),
    Case("document without main part", "a.docx", _no_main, INVALID, _DAMAGED),
    Case("main part outside", "a.docx", _outside, INVALID, ""),
    Case("lone surrogates", "a.txt", lambda: b"\xff\xfe\x00\xd8a\x00", "", "\ufffd"),
    Case("surrogates in UTF-8", "a.txt", lambda: "ü".encode() + b"\xed\xa0\x80b", "", "b"),
    Case("NULs in a text", "a.txt", lambda: b"a" * 20_000 + b"\0b", "", "\ufffdb"),
    Case("only NULs", "a.txt", lambda: b"\0" * 1000, OTHER, "neither"),
    Case("random bytes", "a.bin", lambda: zlib.compress(bytes(range(256)) * 9), OTHER, "neither"),
    Case("truncated docx", "a.docx", lambda: make_docx(["x"])[:-40], INVALID, _DAMAGED),
    Case("truncated pptx", "a.pptx", lambda: make_pptx([["x"]])[:300], INVALID, _DAMAGED),
    Case("truncated PDF", "a.pdf", lambda: make_pdf([["x"]])[:40], INVALID, _DAMAGED),
    Case("empty", "a.txt", lambda: b"", INVALID, "empty"),
    Case("empty docx", "a.docx", lambda: make_docx([]), INVALID, "no text"),
    Case("spaces", "a.txt", lambda: b" \n" * 10, INVALID, "no text"),
    Case("HTML of open tags", "a.html", lambda: b"<div>" * 400_000, INVALID, ""),
]

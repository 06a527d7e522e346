"""Documents that tests make: whole ones of every kind, small and readable in their source."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from xml.sax.saxutils import escape

__all__ = ["WORD", "make_docx", "make_pdf", "make_pptx", "make_xlsx", "pack", "raw_pdf"]

_OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
_SHEET = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
_SLIDE = "http://schemas.openxmlformats.org/presentationml/2006/main"
_DRAWING = "http://schemas.openxmlformats.org/drawingml/2006/main"
_RELATIONS = "http://schemas.openxmlformats.org/package/2006/relationships"
_TYPES = "http://schemas.openxmlformats.org/package/2006/content-types"


def pack(parts: Mapping[str, str | bytes], compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    """Return a ZIP archive of these parts."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return file.getvalue()


def _relations(targets: Mapping[str, str]) -> str:
    """Return a part of relations; the kind is what a target is called in `targets`."""
    rows = "".join(
        f'<Relationship Id="r{at}" Type="{_OFFICE}/{kind.rstrip("0123456789")}" Target="{target}"/>'
        for at, (kind, target) in enumerate(targets.items(), 1)
    )
    return f'<Relationships xmlns="{_RELATIONS}">{rows}</Relationships>'


def office_parts(
    main: str, content: str, more: Mapping[str, str | bytes]
) -> dict[str, str | bytes]:
    return {
        "[Content_Types].xml": f'<Types xmlns="{_TYPES}"/>',
        "_rels/.rels": _relations({"officeDocument": main}),
        main: content,
        **more,
    }


def docx_parts(body: str, more: Mapping[str, str | bytes] | None = None) -> dict[str, str | bytes]:
    document = f'<?xml version="1.0"?><w:document xmlns:w="{WORD}"><w:body>{body}</w:body>'
    return office_parts("word/document.xml", f"{document}</w:document>", more or {})


def paragraph(text: str) -> str:
    return f'<w:p><w:r><w:t xml:space="preserve">{escape(text)}</w:t></w:r></w:p>'


def make_docx(paragraphs: Iterable[str], footnotes: Sequence[str] = ()) -> bytes:
    """Return a Word document."""
    more: dict[str, str | bytes] = {}
    if footnotes:
        more["word/_rels/document.xml.rels"] = _relations({"footnotes": "footnotes.xml"})
        notes = "".join(map(paragraph, footnotes))
        more["word/footnotes.xml"] = f'<w:footnotes xmlns:w="{WORD}">{notes}</w:footnotes>'
    return pack(docx_parts("".join(map(paragraph, paragraphs)), more))


def make_pptx(slides: Sequence[Sequence[str]], notes: Mapping[int, str] | None = None) -> bytes:
    """Return a presentation. Its parts are numbered against the order of its slides."""
    numbers = [len(slides) - at for at in range(len(slides))]
    more: dict[str, str | bytes] = {
        "ppt/_rels/presentation.xml.rels": _relations(
            {f"slide{at}": f"slides/slide{number}.xml" for at, number in enumerate(numbers)}
        )
    }
    for at, (texts, number) in enumerate(zip(slides, numbers, strict=True)):
        more[f"ppt/slides/slide{number}.xml"] = _slide(texts)
        note = (notes or {}).get(at)
        if note is not None:
            target = _relations({"notesSlide": f"../notesSlides/notes{number}.xml"})
            more[f"ppt/slides/_rels/slide{number}.xml.rels"] = target
            more[f"ppt/notesSlides/notes{number}.xml"] = _slide([note])
    ids = "".join(f'<p:sldId id="{at}" r:id="r{at}"/>' for at in range(1, len(slides) + 1))
    main = (
        f'<p:presentation xmlns:p="{_SLIDE}" xmlns:r="{_OFFICE}">'
        f"<p:sldIdLst>{ids}</p:sldIdLst></p:presentation>"
    )
    return pack(office_parts("ppt/presentation.xml", main, more))


def _slide(texts: Iterable[str]) -> str:
    rows = "".join(f"<a:p><a:r><a:t>{escape(text)}</a:t></a:r></a:p>" for text in texts)
    return f'<p:sld xmlns:p="{_SLIDE}" xmlns:a="{_DRAWING}"><p:txBody>{rows}</p:txBody></p:sld>'


def make_xlsx(sheets: Mapping[str, str], strings: Sequence[str] = (), styles: str = "") -> bytes:
    """Return a workbook. A sheet is given by the XML of its rows."""
    targets = {f"worksheet{at}": f"worksheets/s{at}.xml" for at in range(len(sheets))}
    targets |= {"sharedStrings": "sharedStrings.xml", "styles": "styles.xml"}
    rows = "".join(
        f'<sheet name="{name}" sheetId="{at}" r:id="r{at}"/>' for at, name in enumerate(sheets, 1)
    )
    texts = "".join(f"<si><t>{escape(text)}</t></si>" for text in strings)
    more: dict[str, str | bytes] = {
        "xl/_rels/workbook.xml.rels": _relations(targets),
        "xl/sharedStrings.xml": f'<sst xmlns="{_SHEET}">{texts}</sst>',
        "xl/styles.xml": f'<styleSheet xmlns="{_SHEET}">{styles}</styleSheet>',
    }
    for at, content in enumerate(sheets.values()):
        sheet = f'<worksheet xmlns="{_SHEET}"><sheetData>{content}</sheetData></worksheet>'
        more[f"xl/worksheets/s{at}.xml"] = sheet
    main = f'<workbook xmlns="{_SHEET}" xmlns:r="{_OFFICE}"><sheets>{rows}</sheets></workbook>'
    return pack(office_parts("xl/workbook.xml", main, more))


def raw_pdf(objects: Sequence[str | bytes]) -> bytes:
    """Return a PDF of these objects, numbered from 1 on. The first is its root."""
    file = bytearray(b"%PDF-1.7\n")
    places = []
    for number, content in enumerate(objects, 1):
        places.append(len(file))
        body = content if isinstance(content, bytes) else content.encode("latin-1")
        file += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    start = len(file)
    file += b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    file += b"".join(b"%010d 00000 n \n" % place for place in places)
    file += b"trailer\n<< /Size %d /Root 1 0 R >>\nstartxref\n" % (len(objects) + 1)
    return bytes(file + b"%d\n%%%%EOF\n" % start)


def make_pdf(pages: Sequence[Sequence[str]]) -> bytes:
    """Return a PDF with these lines on its pages."""
    kids = " ".join(f"{4 + 2 * at} 0 R" for at in range(len(pages)))
    objects: list[str | bytes] = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    for at, lines in enumerate(pages):
        content = 5 + 2 * at
        objects.append(
            "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] "
            f"/Resources << /Font << /F1 3 0 R >> >> /Contents {content} 0 R >>"
        )
        shown = " T* ".join(f"({_quoted(line)}) Tj" for line in lines)
        stream = f"BT /F1 12 Tf 14 TL 72 720 Td {shown} ET"
        objects.append(f"<< /Length {len(stream)} >>\nstream\n{stream}\nendstream")
    return raw_pdf(objects)


def _quoted(text: str) -> str:
    return text.replace("\\", r"\\").replace("(", r"\(").replace(")", r"\)")

"""What kind of file is this? Its first bytes decide; its name and its media type settle the rest.

A PDF that is named like a text is read as a PDF. A file that is named like a document, but has
other content, is refused: it is damaged, or it is the wrong file.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final, Literal

from antiphon.tools.documents.base import DocumentFailed
from antiphon.tools.documents.text import find_encoding

__all__ = ["Kind", "can_read", "kind_of"]

Kind = Literal["text", "office", "pdf", "html"]

_LIBRARIES: Final = {"pdf": "pypdf", "html": "selectolax"}
_OLE: Final = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_ENCRYPTED: Final = "EncryptedPackage".encode("utf-16-le")
_PDF_WITHIN: Final = 1024  # readers of PDF accept its mark so far from the beginning

_DOCUMENTS: Final = {
    ".docx": "a Word document",
    ".docm": "a Word document",
    ".pptx": "a presentation",
    ".pptm": "a presentation",
    ".xlsx": "a workbook",
    ".xlsm": "a workbook",
    ".pdf": "a PDF",
}
_BY_MEDIA: Final[dict[str, Kind]] = {"text/html": "html", "application/xhtml+xml": "html"}
_HTML_NAMES: Final = (".html", ".htm", ".xhtml")
_HTML_STARTS: Final = (b"<!doctype html", b"<html")
_MARKS: Final = (
    (b"\x89PNG\r\n\x1a\n", "an image"),
    (b"\xff\xd8\xff", "an image"),
    (b"GIF8", "an image"),
    (b"BM", "an image"),
    (b"II*\0", "an image"),
    (b"MM\0*", "an image"),
    (b"RIFF", "an image, audio or video"),
    (b"ID3", "audio"),
    (b"OggS", "audio"),
    (b"fLaC", "audio"),
    (b"\x1aE\xdf\xa3", "a video"),
    (b"\x1f\x8b", "an archive"),
    (b"BZh", "an archive"),
    (b"\xfd7zXZ\0", "an archive"),
    (b"7z\xbc\xaf\x27\x1c", "an archive"),
    (b"Rar!\x1a", "an archive"),
    (b"(\xb5/\xfd", "an archive"),
    (b"SQLite format 3\0", "a database"),
    (b"\x7fELF", "a program"),
    (b"{\\rtf", "a document in the old RTF format"),
)
_SAVE_NEW: Final = "Save it as .docx, .pptx, .xlsx or PDF."


def can_read(kind: Kind) -> bool:
    """Return whether what this kind needs is installed: the extra `documents`, or nothing."""
    library = _LIBRARIES.get(kind)
    return library is None or find_spec(library) is not None


def kind_of(filename: str, media_type: str, head: bytes) -> Kind:
    """Return the kind of a file that begins with these bytes. Raise DocumentFailed for others."""
    kind = _find_kind(filename.lower(), media_type.partition(";")[0].strip().lower(), head)
    if not can_read(kind):
        name = {"pdf": "PDF", "html": "HTML"}[kind]
        raise DocumentFailed(
            "unsupported_file",
            f"{name} files cannot be read here: the extra `documents` is not installed.",
        )
    return kind


def _find_kind(filename: str, media_type: str, head: bytes) -> Kind:
    if not head:
        raise DocumentFailed("invalid_file", "The file is empty.")
    if head.startswith(b"PK\x03\x04"):
        return "office"
    if b"%PDF-" in head[:_PDF_WITHIN]:
        return "pdf"
    _refuse_known(head)
    _refuse_misnamed(filename)
    if find_encoding(head) is None:
        raise DocumentFailed("unsupported_file", "The file is neither a text nor a known document.")
    return "html" if _is_html(filename, media_type, head) else "text"


def _refuse_known(head: bytes) -> None:
    if head.startswith(_OLE):
        if _ENCRYPTED in head:
            raise DocumentFailed("invalid_file", "The document is protected by a password.")
        raise DocumentFailed(
            "unsupported_file", f"Old Office documents cannot be read. {_SAVE_NEW}"
        )
    if head[4:8] == b"ftyp":
        raise DocumentFailed(
            "unsupported_file", "The file is a video: no text can be read from it."
        )
    for mark, name in _MARKS:
        if head.startswith(mark) and (len(mark) > 2 or b"\0" in head):
            raise DocumentFailed(
                "unsupported_file", f"The file is {name}: no text can be read from it."
            )


def _refuse_misnamed(filename: str) -> None:
    for ending, name in _DOCUMENTS.items():
        if filename.endswith(ending):
            raise DocumentFailed(
                "invalid_file", f"The file is named like {name}, but its content is not one."
            )


def _is_html(filename: str, media_type: str, head: bytes) -> bool:
    if filename.endswith(_HTML_NAMES) or media_type in _BY_MEDIA:
        return True
    return head.lstrip()[:20].lower().startswith(_HTML_STARTS)

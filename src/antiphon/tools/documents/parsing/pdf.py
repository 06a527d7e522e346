"""Which text has a PDF? That of its pages, as far as they have any: pictures are not read."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import IO, TYPE_CHECKING, Final

from antiphon.tools.documents.parsing.frames import Task, Unreadable

if TYPE_CHECKING:
    from pypdf import PdfReader

__all__ = ["read_pdf"]

_MAX_PAGES: Final = 20_000
_DAMAGED: Final = "The PDF is damaged or incomplete."


def read_pdf(file: IO[bytes], _: Task) -> Iterator[str]:
    """Yield the text of the pages. A page that cannot be read is named in its place."""
    logging.disable()
    reader = _open(file)
    is_any_read = False
    for number, page in enumerate(reader.pages):
        if number:
            yield "\f"
        try:
            text = page.extract_text()
        except MemoryError:
            raise
        except Exception:  # noqa: BLE001 - the library raises anything for a damaged page
            yield f"[page {number + 1} cannot be read]\n"
            continue
        is_any_read = True
        yield text + "\n"
    if not is_any_read:
        raise Unreadable(_DAMAGED)


def _open(file: IO[bytes]) -> PdfReader:
    from pypdf import PdfReader
    from pypdf.errors import DependencyError

    try:
        reader = PdfReader(file)
        if reader.is_encrypted and not reader.decrypt(""):
            raise Unreadable("The PDF is protected by a password.")
    except DependencyError:
        raise Unreadable("The PDF is encrypted. Save it without encryption.") from None
    if _declared_pages(reader) > _MAX_PAGES:
        raise Unreadable(f"The PDF has more than {_MAX_PAGES} pages.")
    return reader


def _declared_pages(reader: PdfReader) -> int:
    pages = reader.root_object.get("/Pages")
    tree = pages.get_object() if pages is not None else None
    count = tree.get("/Count") if isinstance(tree, dict) else None
    if count is None:
        raise Unreadable(_DAMAGED)
    found = count.get_object()
    return found if isinstance(found, int) else 0

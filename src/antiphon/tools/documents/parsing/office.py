"""Which kind of office document is an archive, and which text does it have?"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import IO, Final

from antiphon.tools.documents.parsing.docx import read_docx
from antiphon.tools.documents.parsing.frames import Task, Unreadable
from antiphon.tools.documents.parsing.package import Package
from antiphon.tools.documents.parsing.pptx import read_pptx
from antiphon.tools.documents.parsing.xlsx import read_xlsx

__all__ = ["read_office"]

_READERS: Final[dict[str, Callable[[Package, str], Iterator[str]]]] = {
    "word": read_docx,
    "ppt": read_pptx,
    "xl": read_xlsx,
}


def read_office(file: IO[bytes], task: Task) -> Iterator[str]:
    """Yield the text of a document, a presentation or a workbook."""
    package = Package(file, task.unpacked_bytes)
    if "[Content_Types].xml" not in package:
        raise Unreadable("Archives cannot be read. Unpack it first.", "unsupported_file")
    main = package.related("", "officeDocument")
    if main is None:
        raise Unreadable("The file is damaged: its main part is missing.")
    read = _READERS.get(main.partition("/")[0])
    if read is None:
        raise Unreadable("Documents of this kind cannot be read.", "unsupported_file")
    return read(package, main)

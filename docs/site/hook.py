"""What do links of the documentation mean on its site?

Pages link to sources, tests and other files of the project, which the site does not have. Such a
link leads to the place that DOCS_SOURCE_URL names, a folder at a code host, or becomes plain text.
Pictures of the project come to the site, under `project/`. A file that does not exist is a
warning, and the build is strict.
"""

from __future__ import annotations

import logging
import os
import re
from pathlib import Path
from typing import Any, Final

__all__ = ["on_files", "on_page_markdown"]

_ROOT: Final = Path(__file__).resolve().parents[2]
_DOCS: Final = _ROOT / "docs"
_LINK: Final = re.compile(r"(?<!!)\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\(([^()\s]+)\)")
_PICTURE: Final = re.compile(r"!\[([^\]]*)\]\(([^()\s]+)\)")
_FENCE: Final = re.compile(r"^ *(```|~~~)")
_log = logging.getLogger("mkdocs.hooks")


def on_files(files: Any, *, config: Any) -> Any:  # Any: types of mkdocs
    """Add the pictures that pages show and that are elsewhere in the project."""
    from mkdocs.structure.files import File  # type: ignore[import-not-found]  # its environment

    for page in sorted(_DOCS.rglob("*.md")):
        for _, target in _PICTURE.findall(page.read_text()):
            place = (page.parent / target).resolve()
            name = f"project/{place.relative_to(_ROOT)}" if _is_outside(target, place) else ""
            if name and files.get_file_from_path(name) is None:
                files.append(File.generated(config, name, abs_src_path=str(place)))
    return files


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:  # Any: types of mkdocs
    """Return the text of a page with links out of the documentation replaced."""
    here = Path(page.file.abs_src_path).parent
    is_code, lines = False, []
    for line in markdown.splitlines():
        if _FENCE.match(line):
            is_code = not is_code
        if not is_code:
            line = _PICTURE.sub(lambda found: _show(found, here), line)
            line = _LINK.sub(lambda found: _replace(found, here), line)
        lines.append(line)
    return "\n".join(lines) + "\n"


def _is_outside(target: str, place: Path) -> bool:
    return "://" not in target and not place.is_relative_to(_DOCS)


def _show(found: re.Match[str], here: Path) -> str:
    text, target = found.groups()
    place = (here / target).resolve()
    if not _is_outside(target, place):
        return found[0]
    return f"![{text}]({os.path.relpath(_DOCS / 'project' / place.relative_to(_ROOT), here)})"


def _replace(found: re.Match[str], here: Path) -> str:
    text, target = found.groups()
    path, _, anchor = target.partition("#")
    if "://" in target or target.startswith("mailto:") or not path:
        return found[0]
    place = (here / path).resolve()
    if not _is_outside(target, place):
        return found[0]
    if not place.exists():
        _log.warning("a page in %s links to %s, which does not exist", here.name, target)
    source = os.environ.get("DOCS_SOURCE_URL", "").rstrip("/")
    if not source:
        return str(text)
    return f"[{text}]({source}/{place.relative_to(_ROOT)}{'#' + anchor if anchor else ''})"

"""Which text does an HTML page have? Its visible text with one line per block, and its links.

Pages are chosen by others, and some make any HTML parser slow: two megabytes of open tags take
minutes, because every tag is looked for among all that are open. So this runs in a process with
little time and memory. Navigation, scripts, forms and hidden elements are left out: a reader does
not see them, and a model should not either.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import IO, TYPE_CHECKING, Final

from antiphon.tools.documents.charsets import decode_page
from antiphon.tools.documents.parsing.frames import Task

if TYPE_CHECKING:
    from selectolax.lexbor import LexborHTMLParser, LexborNode

__all__ = ["MAX_LINKS", "read_html_file"]

MAX_LINKS: Final = 2000
_MAX_TITLE: Final = 500
_LEAST_MAIN: Final = 200  # characters, for an element to count as the main one

_NAMES: Final = re.compile(r"\w+")
_SKIPPED: Final = frozenset(
    _NAMES.findall(
        "script style noscript template svg iframe canvas object nav footer aside button select "
        "textarea datalist dialog menu head title"
    )
)
_BLOCKS: Final = frozenset(
    _NAMES.findall(
        "address article blockquote body br dd details div dl dt fieldset figcaption figure form "
        "h1 h2 h3 h4 h5 h6 header hr li main ol p pre section summary table tbody thead tr ul"
    )
)
_BEFORE: Final = {"li": "- ", "h1": "# ", "h2": "## ", "h3": "### ", "td": "| ", "th": "| "}


def read_html_file(file: IO[bytes], task: Task) -> Iterator[str | dict[str, object]]:
    """Yield the lines of a page, and at the end its title and its links."""
    from selectolax.lexbor import LexborHTMLParser

    page = LexborHTMLParser(decode_page(file.read(), task.media_type))
    title = page.css_first("title")
    root = _main_of(page)
    links: list[str] = []
    if root is not None:
        yield from _lines(_pieces(root, links))
    words = " ".join(title.text().split()) if title else ""
    yield {"title": words[:_MAX_TITLE], "links": links}


def _main_of(page: LexborHTMLParser) -> LexborNode | None:
    """Return the element that holds the article, or the whole body."""
    for name in ("main", "[role=main]", "article"):
        found = page.css(name)
        if len(found) == 1 and len(found[0].text(strip=True)) >= _LEAST_MAIN:
            return found[0]
    return page.body


def _pieces(root: LexborNode, links: list[str]) -> Iterator[str]:
    """Yield the text in order, with a line break before and after every block."""
    node, is_entering = root, True
    while True:
        shown = is_entering and not _is_hidden(node)
        if shown:
            yield from _enter(node, links)
            if node.child is not None:
                node = node.child
                continue
        if (is_entering and not shown) or node.tag in _BLOCKS:
            yield "\n" if node.tag in _BLOCKS else ""
        if node.mem_id == root.mem_id:
            return
        if node.next is not None:
            node, is_entering = node.next, True
        else:
            assert node.parent is not None
            node, is_entering = node.parent, False


def _enter(node: LexborNode, links: list[str]) -> Iterator[str]:
    if node.is_text_node:
        yield node.text_content or ""
        return
    tag = node.tag or ""
    if tag in _BLOCKS:
        yield "\n"
    if tag in _BEFORE:
        yield _BEFORE[tag]
    if tag == "a" and len(links) < MAX_LINKS:
        address = node.attributes.get("href")
        if address:
            links.append(address)
    if tag == "img":
        yield f" {node.attributes.get('alt') or ''} "


def _is_hidden(node: LexborNode) -> bool:
    if not node.is_element_node:
        return not node.is_text_node
    if node.tag in _SKIPPED:
        return True
    attributes = node.attributes
    if not attributes:
        return False
    style = (attributes.get("style") or "").replace(" ", "").lower()
    return (
        "hidden" in attributes
        or attributes.get("aria-hidden") == "true"
        or "display:none" in style
        or "visibility:hidden" in style
        or "font-size:0" in style
    )


def _lines(pieces: Iterator[str]) -> Iterator[str]:
    """Yield the text in lines with single spaces, without empty ones."""
    line: list[str] = []
    for piece in pieces:
        if piece != "\n":
            line.append(piece)
            continue
        words = " ".join("".join(line).split())
        line.clear()
        if words and words != "-":
            yield f"{words}\n"
    yield " ".join("".join(line).split())

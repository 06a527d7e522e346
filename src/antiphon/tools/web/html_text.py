"""Which text does an HTML page have? Run as a program of its own: HTML on stdin, JSON on stdout.

Pages are chosen by others, and some make any HTML parser slow: two megabytes of open tags take
minutes, because every tag is looked for among all that are open. So this file runs in a process
with little time and memory, and imports nothing of the package. It prints the title, the visible
text with one line per block, and the addresses of the links. Navigation, scripts, forms and
hidden elements are left out: a reader does not see them, and a model should not either.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from selectolax.lexbor import LexborHTMLParser, LexborNode

__all__ = ["MAX_LINKS", "MAX_TEXT", "read_html"]

MAX_TEXT: Final = 1024 * 1024
"""Characters of text that are kept."""
MAX_LINKS: Final = 2000

_CPU_SECONDS: Final = 3
_MEMORY: Final = 768 * 1024 * 1024
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


def read_html(html: str) -> dict[str, object]:
    """Return the title, the text and the links of a page."""
    from selectolax.lexbor import LexborHTMLParser

    page = LexborHTMLParser(html)
    title = page.css_first("title")
    words = " ".join(title.text().split()) if title else ""
    root = _main_of(page)
    if root is None:
        return {"title": words[:500], "text": "", "links": []}
    links: list[str] = []
    text = _lines(_pieces(root, links))
    return {"title": words[:500], "text": text, "links": links}


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


def _lines(pieces: Iterator[str]) -> str:
    """Return the text with single spaces, without empty lines, as far as it is kept."""
    lines: list[str] = []
    line: list[str] = []
    size = 0
    for piece in pieces:
        if piece == "\n":
            words = " ".join("".join(line).split())
            line = []
            if words and words != "-":
                lines.append(words)
                size += len(words) + 1
        else:
            line.append(piece)
        if size > MAX_TEXT:
            break
    lines.append(" ".join("".join(line).split()))
    return "\n".join(lines).strip()[:MAX_TEXT]


def _limit() -> None:
    """Give this process little time and memory, where the system can do that."""
    try:
        import resource
    except ImportError:  # not on Windows: there the parent's clock is the limit
        return
    resource.setrlimit(resource.RLIMIT_CPU, (_CPU_SECONDS, _CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _main() -> None:
    _limit()
    html = sys.stdin.buffer.read().decode("utf-8", "replace")
    sys.stdout.buffer.write(json.dumps(read_html(html)).encode())


if __name__ == "__main__":
    _main()

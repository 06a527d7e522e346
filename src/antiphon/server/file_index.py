"""What the server asks of the index of files: searches, and to look for new work."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from antiphon.tools.index.search import Searcher

__all__ = ["FileIndex"]


class FileIndex(msgspec.Struct, frozen=True):
    """The search of vector stores, and `wake`, which begins to index what was attached."""

    searcher: Searcher
    wake: Callable[[], None]

"""Which files of a container does an answer name? Their paths in the text are annotated.

A model that made a file links it as `sandbox:/mnt/data/plot.png`, or writes the path alone. The
text stays as it is and gets a `container_file_citation` for exactly that place. Rules:

- Only a file that exists is cited. Of several paths that fit, the longest one counts.
- A path is cited as a whole: not as the beginning of a longer one, nor as the end of one. A full
  stop after it does not belong to it, unless the name goes on.
- A path may be written with %20 for a space, as links have it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final
from urllib.parse import quote

from antiphon.protocol.citations import Cited, Found

__all__ = ["ContainerPaths"]

_SCHEME: Final = "sandbox:"
_MORE: Final = frozenset("_-/%~")
# Before a path: what makes it a part of another word.
_LESS: Final = frozenset("_-/%~.")


class ContainerPaths:
    """Finds the paths of files. A `Pattern` of `protocol.citations`."""

    def __init__(self) -> None:
        self._by_container: dict[str, dict[str, dict[str, Any]]] = {}
        self._all: dict[str, dict[str, Any]] = {}
        self._longest = 0

    def show(self, container_id: str, files: Iterable[tuple[str, str]]) -> None:
        """Note which files a container has now, as pairs of path and id."""
        spellings: dict[str, dict[str, Any]] = {}
        for path, file_id in files:
            note = {
                "type": "container_file_citation",
                "container_id": container_id,
                "file_id": file_id,
                "filename": path.rpartition("/")[2],
            }
            spellings |= dict.fromkeys((path, quote(path)), note)
        self._by_container.pop(container_id, None)
        self._by_container[container_id] = spellings
        self._all = _merged(self._by_container)
        self._longest = max(map(len, self._all), default=0)

    @property
    def begin(self) -> str:
        """The first character of a path; nothing while there is no file."""
        return "/" if self._all else ""

    @property
    def longest(self) -> int:
        """The longest path, and what has to be seen after it."""
        return self._longest + 2

    def find(self, text: str, at: int, before: str, *, is_whole: bool) -> Found | None:
        """Return the file that is named here, once no other can be."""
        if _is_inside_word(before) or (not is_whole and self.may_grow(text, at, before)):
            return None
        ends = [path for path in self._all if text.startswith(path, at)]
        whole = [path for path in ends if not _goes_on(text, at + len(path))]
        if not whole:
            return None
        path = max(whole, key=len)
        covers = len(path) + len(_SCHEME) * before.endswith(_SCHEME)
        cited = Cited(path, dict(self._all[path]), covers, is_word=False)
        return Found(at + len(path), [cited])

    def may_grow(self, text: str, at: int, before: str) -> bool:
        """Return whether the text ends inside a path, or before it is known that one ended."""
        rest = text[at:]
        if _is_inside_word(before):
            return False
        return any(path.startswith(rest) or rest == f"{path}." for path in self._all)


def _merged(all_of: Mapping[str, Mapping[str, dict[str, Any]]]) -> dict[str, dict[str, Any]]:
    """Return the paths of all containers; the one that ran last counts."""
    return {path: note for one in all_of.values() for path, note in one.items()}


def _goes_on(text: str, end: int) -> bool:
    """Return whether what stands here belongs to a longer path."""
    after = text[end : end + 2]
    if after[:1] == ".":
        after = after[1:]
        return after.isalnum() or after == "_"
    return after[:1].isalnum() or after[:1] in _MORE if after else False


def _is_inside_word(before: str) -> bool:
    last = before[-1:]
    if before.endswith(_SCHEME) or not last:
        return False
    return last.isalnum() or last in _LESS

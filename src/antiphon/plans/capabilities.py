"""What can a backend do? Pure data, so that a request can be assessed against it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import msgspec

__all__ = ["Capabilities", "common_capabilities"]


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """What a backend does by itself, so that others need not. By default it does nothing."""

    tool_kinds: frozenset[str] = frozenset()
    """Kinds of tools that the upstream runs itself, such as "web_search"."""
    enforces: frozenset[str] = frozenset()
    """What its model cannot but do, and need not be checked. "format": a text that `plan.format`
    asks for; "arguments": those of strict functions."""
    includes: frozenset[str] = frozenset()
    """Values of `include` that it honours, for tools that it runs itself."""
    parts: frozenset[str] = frozenset()
    """What of files it takes: "image"; by their data "pdf", "text" (as documents) or any "file";
    and "file_id", which names a file at its provider. What it does not take is sent as text."""
    file_urls: str = ""
    """A regular expression for the addresses of files that it reads itself; empty for none."""
    counts: bool = False
    """Whether `count` may know the length of a request."""
    continues: bool = False
    """Whether it continues an answer that was begun elsewhere."""
    continued_models: str = ""
    """A regular expression for the names of the models that do; empty if all of them do."""
    strips_prefix: bool = False
    """Whether the beginning of such an answer must not end with white space."""
    pauses: bool = False
    """Whether it may pause any answer, and not only one in which it runs tools itself."""

    def reads_url(self, url: str) -> bool:
        """Return whether it reads the file at this address itself."""
        return bool(self.file_urls) and re.match(self.file_urls, url) is not None

    def continues_with(self, model: str) -> bool:
        """Return whether a model continues an answer that was begun elsewhere."""
        return self.continues and re.search(self.continued_models, model) is not None


def _is_one(values: Iterable[str]) -> bool:
    return len(set(values)) == 1


def common_capabilities(all_of: Sequence[Capabilities]) -> Capabilities:
    """Return what can be relied on, whichever of these backends answers. There is at least one."""
    if len(all_of) == 1:
        return all_of[0]
    first, *others = all_of
    return Capabilities(
        tool_kinds=first.tool_kinds.intersection(*(one.tool_kinds for one in others)),
        enforces=first.enforces.intersection(*(one.enforces for one in others)),
        includes=first.includes.intersection(*(one.includes for one in others)),
        parts=first.parts.intersection(*(one.parts for one in others)),
        file_urls=first.file_urls if _is_one(one.file_urls for one in all_of) else "",
        counts=all(one.counts for one in all_of),
        continues=all(one.continues for one in all_of),
        strips_prefix=any(one.strips_prefix for one in all_of),
        pauses=any(one.pauses for one in all_of),
    )

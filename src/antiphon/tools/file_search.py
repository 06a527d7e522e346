"""Search the files of a caller for a model: the runner of `file_search`.

The model is shown one function, `file_search(queries)`. Each call is one `file_search_call` item
with its queries and results. The model gets the texts that were found, each with the mark of its
file, and cites by mark (`protocol.citations`).

- The vector stores are those of the request. They are checked before the model is asked; one that
  is not the caller's is not found. Nothing that the model writes chooses others.
- A search that fails is a failed call with its reason. It never looks like an empty result.
- Texts of files can contain anything: what looks like a mark in them is replaced.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

import msgspec

from antiphon.protocol.citations import FileSource, unmarked
from antiphon.protocol.errors import LimitReached, StoreUnavailable
from antiphon.tools.base import (
    Decision,
    Decline,
    HostedCall,
    HostedFunction,
    Outcome,
    Progress,
    Start,
    ToolFailed,
    ToolRequest,
    ToolSession,
)
from antiphon.tools.file_request import FileWish, read_wish
from antiphon.tools.index.embed import EmbeddingFailed
from antiphon.tools.index.rank import Ranked
from antiphon.tools.index.search import FileQuery, Searcher

__all__ = ["FileSearch"]

_KIND: Final = "file_search"
_RESULTS: Final = "file_search_call.results"
_SEARCHING: Final = "response.file_search_call.searching"
_MAX_QUERIES: Final = 5
_MAX_QUERY: Final = 1_000
_ROOM: Final = 1_024  # bytes of a result that are not results of the search
_HEADING: Final = 320  # of each, at most: a file name may be long
_HOW_TO_CITE: Final = (
    "Cite a file by writing its mark, such as 【1】, directly after what it supports."
)
_ABOUT: Final = (
    "Search the files that were uploaded for this conversation. Every result has the mark of its "
    "file, such as 【1】. Where your answer uses a result, write its mark directly after the words "
    "it supports; never write a mark that you were not shown."
)
_PARAMETERS: Final = {
    "type": "object",
    "properties": {
        "queries": {
            "type": "array",
            "items": {"type": "string"},
            "minItems": 1,
            "maxItems": _MAX_QUERIES,
            "description": "What to look for: one query, or several that differ in their words.",
        }
    },
    "required": ["queries"],
    "additionalProperties": False,
}
_FUNCTION: Final = HostedFunction(
    kind=_KIND, name=_KIND, description=_ABOUT, parameters=_PARAMETERS, key=_KIND
)


class FileSearch:
    """Searches files for all turns."""

    kinds: Final = frozenset({_KIND})
    includes: Final = frozenset({_RESULTS})

    def __init__(self, searcher: Searcher, *, seconds: float = 10.0) -> None:
        self.searcher = searcher
        self.seconds = seconds

    async def begin(self, request: ToolRequest) -> ToolSession:
        """Return the session of a turn.

        Raise InvalidRequest for a wrong tool, and NotFound for a vector store that is not there.
        """
        wish = read_wish(request.tools, has_vectors=self.searcher.has_vectors)
        await self.searcher.check(request.owner, wish.store_ids, f"{wish.where}.vector_store_ids")
        return _Session(self, request, wish)

    async def close(self) -> None:
        """Close nothing: the index belongs to the gateway."""


class _Session(ToolSession):
    cites = True

    def __init__(self, runner: FileSearch, request: ToolRequest, wish: FileWish) -> None:
        self._runner = runner
        self._request = request
        self._wish = wish
        self.degraded = wish.degraded

    async def prepare(self) -> AsyncIterator[HostedFunction]:
        """Yield the function that the model may call."""
        yield _FUNCTION

    def decide(self, call: HostedCall) -> Decision:
        """Start a call whose queries can be read."""
        queries = _read_queries(call.arguments)
        if not queries:
            return Decline(result="error: file_search needs a JSON object with queries, a list")
        item = {"type": "file_search_call", "queries": queries, "results": None}
        return Start(item=item, has_effects=False, seconds=self._runner.seconds)

    async def run(self, call: HostedCall, start: Start) -> AsyncIterator[Progress | Outcome]:
        """Search."""
        yield Progress(_SEARCHING)
        found = (await self._search(start.item["queries"]))[: self._wish.count]
        item = {**start.item, "results": [_result(one) for one in found], "status": "completed"}
        yield Outcome(item=item, result=self._show(found))

    async def _search(self, queries: Sequence[str]) -> list[Ranked]:
        wish = self._wish
        query = FileQuery(
            store_ids=wish.store_ids, queries=queries, filter=wish.filter, ranking=wish.ranking
        )
        try:
            return await self._runner.searcher.search(self._request.owner, query)
        except (EmbeddingFailed, LimitReached) as failure:
            raise ToolFailed(str(failure)) from None
        except StoreUnavailable:
            raise ToolFailed("the files cannot be searched now: the store is unavailable") from None

    def _show(self, found: Sequence[Ranked]) -> str:
        """Return the results for the model: whole ones, as many as fit."""
        if not found:
            return "No results."
        room = self._request.limits.result_bytes - _ROOM
        blocks: list[str] = []
        for one in found:
            text = unmarked(one.chunk.text)
            room -= len(text.encode()) + _HEADING
            if room < 0 and blocks:
                blocks.append(f"({len(found) - len(blocks)} more results are too long to be shown)")
                break
            blocks.append(f"{self._heading(one)}\n{text}")
        return "\n\n".join([*blocks, _HOW_TO_CITE])

    def _heading(self, one: Ranked) -> str:
        """Return the mark and the name of a file. Only what is shown gets a mark."""
        chunk = one.chunk
        mark = self._request.sources.show(FileSource(chunk.file_id, chunk.filename))
        return f"{mark} {unmarked(chunk.filename)} (score {one.score:.2f})"


def _result(one: Ranked) -> dict[str, Any]:
    chunk = one.chunk
    return {
        "file_id": chunk.file_id,
        "filename": chunk.filename,
        "score": one.score,
        "text": chunk.text,
        "attributes": dict(chunk.attributes),
    }


def _read_queries(text: str) -> list[str]:
    """Return the queries that the model wrote, as a list or as one; none if there are none."""
    try:
        found = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return []
    if not isinstance(found, dict):
        return []
    given: Any = found.get("queries", found.get("query"))
    queries = [given] if isinstance(given, str) else given
    if not isinstance(queries, list):
        return []
    words = [" ".join(one.split())[:_MAX_QUERY] for one in queries if isinstance(one, str)]
    return list(dict.fromkeys(filter(None, words)))[:_MAX_QUERIES]

"""What does a request want of a file search? Reads the tool `file_search`.

Wrong shapes are refused with the place of the mistake. What cannot be honoured is reported. A
restriction is never dropped: a filter that cannot be read refuses the request.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from antiphon.plans.toolbox import DeclaredTool
from antiphon.protocol.errors import InvalidRequest
from antiphon.store.base.filters import FilterError, read_filter
from antiphon.store.base.vector_stores import Filter
from antiphon.tools.index.rank import Ranking, read_ranking
from antiphon.tools.index.search import MAX_RESULTS

__all__ = ["MAX_STORES", "FileWish", "filter_of", "read_count", "read_wish"]

MAX_STORES: Final = 16
_DEFAULT_RESULTS: Final = 10
_MAX_ID: Final = 128
_FIELDS: Final = frozenset(
    {"type", "vector_store_ids", "max_num_results", "filters", "ranking_options"}
    | {"allowed_callers", "cache_control"}
)
_NO_VECTORS: Final = "there are no embeddings here, so only words are ranked"


class FileWish(msgspec.Struct, frozen=True, kw_only=True):
    """What is wanted. `where` is the place of the tool in the request."""

    where: str
    store_ids: Sequence[str]
    count: int
    filter: Filter | None
    ranking: Ranking
    degraded: Sequence[str] = ()


def read_wish(tools: Sequence[DeclaredTool], *, has_vectors: bool) -> FileWish:
    """Return what these tools want; there is at least one. Raise InvalidRequest if it is wrong."""
    (tool, where), *others = tools
    degraded = [f"{other.where}: there is one file search already" for other in others]
    degraded += [f"{where}.{name}" for name, value in tool.items() if value and name not in _FIELDS]
    ranking = read_ranking(tool.get("ranking_options"), f"{where}.ranking_options")
    if ranking.is_weighted and ranking.vector_weight > 0 and not has_vectors:
        degraded.append(f"{where}.ranking_options.hybrid_search: {_NO_VECTORS}")
    return FileWish(
        where=where,
        store_ids=_store_ids(tool, f"{where}.vector_store_ids"),
        count=read_count(tool.get("max_num_results"), f"{where}.max_num_results"),
        filter=filter_of(tool.get("filters"), f"{where}.filters"),
        ranking=ranking,
        degraded=degraded,
    )


def filter_of(value: Any, where: str) -> Filter | None:
    """Return a filter, None if none is given. Raise InvalidRequest if it is wrong."""
    if value is None:
        return None
    try:
        return read_filter(value)
    except FilterError as error:
        raise _wrong(f"{where}.{error.where}" if error.where else where, error.reason) from None


def read_count(value: Any, where: str) -> int:
    """Return how many results are wanted."""
    if value is None:
        return _DEFAULT_RESULTS
    if type(value) is not int or not 1 <= value <= MAX_RESULTS:
        raise _wrong(where, f"must be a whole number from 1 to {MAX_RESULTS}")
    return value


def _store_ids(tool: Mapping[str, Any], where: str) -> list[str]:
    ids = tool.get("vector_store_ids")
    if not isinstance(ids, list) or not 1 <= len(ids) <= MAX_STORES:
        raise _wrong(where, f"must be a list of 1 to {MAX_STORES} ids of vector stores")
    for at, one in enumerate(ids):
        if not isinstance(one, str) or not 0 < len(one) <= _MAX_ID:
            raise _wrong(f"{where}[{at}]", "must be the id of a vector store")
    return list(dict.fromkeys(ids))


def _wrong(param: str, why: str) -> InvalidRequest:
    return InvalidRequest(f"{param}: {why}", code="invalid_value", param=param)

"""Vector stores on the wire: what requests hold, and the objects that answers hold."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

import msgspec

from antiphon.protocol.errors import NotFound, invalid

__all__ = [
    "MAX_BATCH",
    "AttachFile",
    "AttachedFileObject",
    "BatchObject",
    "ChangeVectorStore",
    "Chunking",
    "CountsObject",
    "CreateBatch",
    "CreateVectorStore",
    "ErrorOfFile",
    "ExpiryObject",
    "FoundText",
    "SearchResult",
    "SearchVectorStore",
    "SetAttributes",
    "TextObject",
    "VectorStoreObject",
    "no_attached_file",
    "no_batch",
    "no_vector_store",
    "read_chunking",
]

MAX_BATCH: Final = 2000
"""Files that may be attached at a time."""
AUTO_TOKENS: Final = 800
AUTO_OVERLAP: Final = 400

Metadata = Annotated[
    dict[Annotated[str, msgspec.Meta(max_length=64)], Annotated[str, msgspec.Meta(max_length=512)]],
    msgspec.Meta(max_length=16),
]
AttributeMap = Annotated[
    dict[
        Annotated[str, msgspec.Meta(min_length=1, max_length=64)],
        Annotated[str, msgspec.Meta(max_length=512)] | int | float | bool,
    ],
    msgspec.Meta(max_length=16),
]
_Name = Annotated[str, msgspec.Meta(max_length=256)]
_FileIds = Annotated[list[str], msgspec.Meta(max_length=MAX_BATCH)]


class ExpiryObject(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """When a vector store expires, counted from its last use."""

    anchor: Literal["last_active_at"]
    days: Annotated[int, msgspec.Meta(ge=1, le=365)]


class StaticChunking(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The size of chunks, and how much of each is in the next one too."""

    max_chunk_size_tokens: Annotated[int, msgspec.Meta(ge=100, le=4096)]
    chunk_overlap_tokens: Annotated[int, msgspec.Meta(ge=0)]


class Chunking(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a file is cut into chunks."""

    type: Literal["auto", "static"]
    static: StaticChunking | None = None


class CreateVectorStore(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of POST /v1/vector_stores."""

    name: _Name | None = None
    description: Annotated[str, msgspec.Meta(max_length=512)] | None = None
    file_ids: _FileIds | None = None
    chunking_strategy: Chunking | None = None
    expires_after: ExpiryObject | None = None
    metadata: Metadata | None = None


class ChangeVectorStore(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of POST /v1/vector_stores/{id}. What is left out stays; null removes it."""

    name: _Name | msgspec.UnsetType | None = msgspec.UNSET
    expires_after: ExpiryObject | msgspec.UnsetType | None = msgspec.UNSET
    metadata: Metadata | msgspec.UnsetType | None = msgspec.UNSET


class AttachFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of POST /v1/vector_stores/{id}/files, and a file of a batch."""

    file_id: str
    attributes: AttributeMap | None = None
    chunking_strategy: Chunking | None = None


class CreateBatch(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of POST /v1/vector_stores/{id}/file_batches: `file_ids` or `files`, not both."""

    file_ids: _FileIds | None = None
    files: Annotated[list[AttachFile], msgspec.Meta(max_length=MAX_BATCH)] | None = None
    attributes: AttributeMap | None = None
    chunking_strategy: Chunking | None = None


class SetAttributes(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of POST /v1/vector_stores/{id}/files/{file}."""

    attributes: AttributeMap | None


class SearchVectorStore(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of POST /v1/vector_stores/{id}/search."""

    query: (
        Annotated[str, msgspec.Meta(max_length=4096)]
        | Annotated[
            list[Annotated[str, msgspec.Meta(max_length=4096)]],
            msgspec.Meta(min_length=1, max_length=16),
        ]
    )
    filters: dict[str, Any] | None = None
    max_num_results: Annotated[int, msgspec.Meta(ge=1, le=50)] | None = None
    ranking_options: dict[str, Any] | None = None
    rewrite_query: bool | None = None


class CountsObject(msgspec.Struct, frozen=True, kw_only=True):
    """How many files have which status."""

    in_progress: int
    completed: int
    failed: int
    cancelled: int
    total: int


class VectorStoreObject(msgspec.Struct, frozen=True, kw_only=True):
    """A vector store, as answers show it."""

    id: str
    object: Literal["vector_store"] = "vector_store"
    created_at: int
    name: str | None = None
    description: str | None = None
    usage_bytes: int
    file_counts: CountsObject
    status: str
    expires_after: ExpiryObject | None = None
    expires_at: int | None = None
    last_active_at: int | None = None
    metadata: dict[str, str] | None = None


class ErrorOfFile(msgspec.Struct, frozen=True):
    """Why a file could not be indexed."""

    code: str
    message: str


class AttachedFileObject(msgspec.Struct, frozen=True, kw_only=True):
    """A file in a vector store, as answers show it."""

    id: str
    object: Literal["vector_store.file"] = "vector_store.file"
    created_at: int
    vector_store_id: str
    usage_bytes: int
    status: str
    last_error: ErrorOfFile | None = None
    chunking_strategy: dict[str, Any] | None = None
    attributes: dict[str, Any] | None = None


class BatchObject(msgspec.Struct, frozen=True, kw_only=True):
    """Files that were attached together, as answers show them."""

    id: str
    object: Literal["vector_store.files_batch"] = "vector_store.files_batch"
    created_at: int
    vector_store_id: str
    status: str
    file_counts: CountsObject


class TextObject(msgspec.Struct, frozen=True):
    """A piece of text."""

    text: str
    type: Literal["text"] = "text"


class FoundText(msgspec.Struct, frozen=True, kw_only=True):
    """A result of a search."""

    file_id: str
    filename: str
    score: float
    attributes: dict[str, Any] | None = None
    content: list[TextObject]


class SearchResult(msgspec.Struct, frozen=True, kw_only=True):
    """The results of a search, best first."""

    object: Literal["vector_store.search_results.page"] = "vector_store.search_results.page"
    search_query: str | list[str]
    data: list[FoundText]
    has_more: bool = False
    next_page: str | None = None


def read_chunking(chunking: Chunking | None, param: str = "chunking_strategy") -> tuple[int, int]:
    """Return the tokens of a chunk and of an overlap. Raise InvalidRequest with `param`."""
    if chunking is None or chunking.type == "auto":
        if chunking is not None and chunking.static is not None:
            raise invalid(f"{param}.static", "is only possible with the type static")
        return AUTO_TOKENS, AUTO_OVERLAP
    static = chunking.static
    if static is None:
        raise invalid(f"{param}.static", "is missing", "missing_required_parameter")
    if 2 * static.chunk_overlap_tokens > static.max_chunk_size_tokens:
        raise invalid(
            f"{param}.static.chunk_overlap_tokens", "must be at most half of max_chunk_size_tokens"
        )
    return static.max_chunk_size_tokens, static.chunk_overlap_tokens


def no_vector_store(store_id: str, param: str | None = None) -> NotFound:
    """Return the error for a vector store that this owner does not have."""
    return NotFound(
        f"Vector store '{store_id}' not found.", code="vector_store_not_found", param=param
    )


def no_attached_file(store_id: str, file_id: str) -> NotFound:
    """Return the error for a file that is not in this vector store."""
    return NotFound(
        f"No file '{file_id}' found in vector store '{store_id}'.", code="file_not_found"
    )


def no_batch(store_id: str, batch_id: str) -> NotFound:
    """Return the error for a batch that this vector store does not have."""
    return NotFound(
        f"No file batch '{batch_id}' found in vector store '{store_id}'.", code="batch_not_found"
    )

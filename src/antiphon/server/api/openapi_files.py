"""The description of files, uploads and vector stores, made from their types."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from antiphon.protocol.files import (
    CompleteUpload,
    CreateUpload,
    DeletedObject,
    FileObject,
    PartObject,
    UploadObject,
)
from antiphon.protocol.vector_stores import (
    AttachedFileObject,
    AttachFile,
    BatchObject,
    ChangeVectorStore,
    CreateBatch,
    CreateVectorStore,
    SearchResult,
    SearchVectorStore,
    SetAttributes,
    VectorStoreObject,
)
from antiphon.server.api.openapi_operations import (
    PAGE,
    answer_of,
    form_of,
    in_path,
    list_of,
    operation,
)

__all__ = ["FILE_TYPES", "file_paths"]

FILE_TYPES: Final[tuple[type[msgspec.Struct], ...]] = (
    *(FileObject, UploadObject, PartObject, DeletedObject, CreateUpload, CompleteUpload),
    *(VectorStoreObject, AttachedFileObject, BatchObject, SearchResult),
    *(CreateVectorStore, ChangeVectorStore, AttachFile, CreateBatch),
    *(SetAttributes, SearchVectorStore),
)
_BEFORE: Final = {"name": "before", "in": "query", "schema": {"type": "string"}}
_FILTER: Final = {
    "name": "filter",
    "in": "query",
    "schema": {"enum": ["in_progress", "completed", "failed", "cancelled"]},
}
_PURPOSE: Final = {"name": "purpose", "in": "query", "schema": {"type": "string"}}


def file_paths() -> dict[str, Any]:
    """Return the paths of files, uploads and vector stores."""
    return _files() | _uploads() | _vector_stores() | _attached() | _batches()


def _files() -> dict[str, Any]:
    one = "/v1/files/{id}"
    # The same page as elsewhere, except that it may be longer.
    page = [
        query if query["name"] != "limit" else query | {"schema": {"type": "integer"}}
        for query in PAGE
    ]
    return {
        "/v1/files": {
            "get": list_of("List files", "FileObject", [*page, _PURPOSE]),
            "post": operation("Store a file", "FileObject")
            | form_of(
                ["file", "purpose"],
                **{
                    "file": {"type": "string", "format": "binary"},
                    "purpose": {"type": "string"},
                    "expires_after[anchor]": {"const": "created_at"},
                    "expires_after[seconds]": {"type": "integer"},
                },
            ),
        },
        one: {
            "parameters": [in_path("id")],
            "get": operation("Retrieve a file", "FileObject"),
            "delete": operation("Delete a file, also from vector stores", "DeletedObject"),
        },
        f"{one}/content": {
            "parameters": [in_path("id")],
            "get": operation("The content of a file, or a range of it")
            | {
                "responses": {
                    "200": {
                        "description": "The content",
                        "content": {"application/octet-stream": {}},
                    }
                }
                | answer_of("What is wrong", "Error", "default")
            },
        },
    }


def _uploads() -> dict[str, Any]:
    one = "/v1/uploads/{id}"
    return {
        "/v1/uploads": {
            "post": operation("Begin an upload in parts", "UploadObject", takes="CreateUpload")
        },
        f"{one}/parts": {
            "parameters": [in_path("id")],
            "post": operation("Store a part of up to 64 MiB", "PartObject")
            | form_of(["data"], data={"type": "string", "format": "binary"}),
        },
        f"{one}/complete": {
            "parameters": [in_path("id")],
            "post": operation(
                "Put the parts together to a file", "UploadObject", takes="CompleteUpload"
            ),
        },
        f"{one}/cancel": {
            "parameters": [in_path("id")],
            "post": operation("Give up an upload", "UploadObject"),
        },
    }


def _vector_stores() -> dict[str, Any]:
    one = "/v1/vector_stores/{id}"
    return {
        "/v1/vector_stores": {
            "get": list_of("List vector stores", "VectorStoreObject", [*PAGE, _BEFORE]),
            "post": operation(
                "Make a vector store", "VectorStoreObject", takes="CreateVectorStore"
            ),
        },
        one: {
            "parameters": [in_path("id")],
            "get": operation("Retrieve a vector store", "VectorStoreObject"),
            "post": operation(
                "Change its name, metadata or expiry",
                "VectorStoreObject",
                takes="ChangeVectorStore",
            ),
            "delete": operation("Delete a vector store; its files stay", "DeletedObject"),
        },
        f"{one}/search": {
            "parameters": [in_path("id")],
            "post": operation("Search its files", "SearchResult", takes="SearchVectorStore"),
        },
    }


def _attached() -> dict[str, Any]:
    files = "/v1/vector_stores/{id}/files"
    return {
        files: {
            "parameters": [in_path("id")],
            "get": list_of("List its files", "AttachedFileObject", [*PAGE, _BEFORE, _FILTER]),
            "post": operation("Attach a file", "AttachedFileObject", takes="AttachFile"),
        },
        f"{files}/{{item}}": {
            "parameters": [in_path("id"), in_path("item")],
            "get": operation("Retrieve an attached file", "AttachedFileObject"),
            "post": operation(
                "Replace its attributes", "AttachedFileObject", takes="SetAttributes"
            ),
            "delete": operation("Detach a file; the file itself stays", "DeletedObject"),
        },
        f"{files}/{{item}}/content": {
            "parameters": [in_path("id"), in_path("item")],
            "get": operation("The texts that were indexed"),
        },
    }


def _batches() -> dict[str, Any]:
    batches = "/v1/vector_stores/{id}/file_batches"
    both = [in_path("id"), in_path("item")]
    return {
        batches: {
            "parameters": [in_path("id")],
            "post": operation("Attach up to 2000 files", "BatchObject", takes="CreateBatch"),
        },
        f"{batches}/{{item}}": {
            "parameters": both,
            "get": operation("Retrieve a batch", "BatchObject"),
        },
        f"{batches}/{{item}}/cancel": {
            "parameters": both,
            "post": operation("Cancel what is not indexed yet", "BatchObject"),
        },
        f"{batches}/{{item}}/files": {
            "parameters": both,
            "get": list_of(
                "List the files of a batch", "AttachedFileObject", [*PAGE, _BEFORE, _FILTER]
            ),
        },
    }

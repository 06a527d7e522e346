"""Files and uploads on the wire: what requests hold, and the objects that answers hold."""

from __future__ import annotations

from typing import Annotated, Final, Literal, TypeVar

import msgspec

from antiphon.protocol.errors import InvalidRequest, NotFound, invalid
from antiphon.protocol.items import shape_error

__all__ = [
    "PURPOSES",
    "CompleteUpload",
    "CreateUpload",
    "DeletedObject",
    "FileExpiry",
    "FileObject",
    "PartObject",
    "UploadObject",
    "no_file",
    "no_upload",
    "read_body",
    "read_expiry",
    "read_purpose",
]

PURPOSES: Final = ("assistants", "batch", "fine-tune", "vision", "user_data", "evals")
"""What files may be for. Nothing depends on it, except that files for batches expire."""
_MIN_SECONDS: Final = 3600
_MAX_SECONDS: Final = 2_592_000
_MAX_PARTS: Final = 10_000
_Body = TypeVar("_Body", bound=msgspec.Struct)


class FileExpiry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """When a file expires, counted from its creation."""

    anchor: Literal["created_at"]
    seconds: Annotated[int, msgspec.Meta(ge=_MIN_SECONDS, le=_MAX_SECONDS)]


class CreateUpload(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of POST /v1/uploads."""

    bytes: Annotated[int, msgspec.Meta(ge=0)]
    filename: str
    mime_type: Annotated[str, msgspec.Meta(max_length=255)]
    purpose: str
    expires_after: FileExpiry | None = None


class CompleteUpload(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of POST /v1/uploads/{id}/complete."""

    part_ids: Annotated[list[str], msgspec.Meta(max_length=_MAX_PARTS)]
    md5: str | None = None


class FileObject(msgspec.Struct, frozen=True, kw_only=True):
    """A file, as answers show it."""

    id: str
    object: Literal["file"] = "file"
    bytes: int
    created_at: int
    expires_at: int | None = None
    filename: str
    purpose: str
    status: Literal["uploaded", "processed", "error"] = "processed"
    status_details: str | None = None


class UploadObject(msgspec.Struct, frozen=True, kw_only=True):
    """A file that is uploaded in parts. `file` is there once it is complete."""

    id: str
    object: Literal["upload"] = "upload"
    bytes: int
    created_at: int
    expires_at: int
    filename: str
    purpose: str
    status: str
    file: FileObject | None = None


class PartObject(msgspec.Struct, frozen=True, kw_only=True):
    """A part of an upload."""

    id: str
    object: Literal["upload.part"] = "upload.part"
    created_at: int
    upload_id: str


class DeletedObject(msgspec.Struct, frozen=True, kw_only=True):
    """What is left of something that was deleted."""

    id: str
    object: str
    deleted: bool = True


def read_body(body: object, shape: type[_Body]) -> _Body:
    """Return the body of a request as its type. Raise InvalidRequest with its `param`."""
    if not isinstance(body, dict):
        raise InvalidRequest("the body must be a JSON object", code="invalid_type")
    unknown = next((name for name in body if name not in shape.__struct_fields__), None)
    if unknown is not None:
        raise invalid(unknown[:64], "is not known here", "unknown_parameter")
    try:
        return msgspec.convert(body, shape)
    except msgspec.ValidationError as error:
        raise shape_error(error, "") from None


def read_purpose(purpose: str | None) -> str:
    """Return what a file is for. Raise InvalidRequest if that is not known."""
    if purpose is None:
        raise invalid("purpose", "is missing", "missing_required_parameter")
    if purpose not in PURPOSES:
        raise invalid("purpose", f"must be one of {', '.join(PURPOSES)}")
    return purpose


def read_expiry(anchor: str | None, seconds: str | None) -> FileExpiry | None:
    """Return the expiry that the fields of a form state; None if there are none."""
    if anchor is None and seconds is None:
        return None
    if anchor != "created_at":
        raise invalid("expires_after[anchor]", "must be created_at")
    is_number = seconds is not None and seconds.isascii() and seconds.isdecimal()
    number = int(seconds) if is_number and seconds is not None and len(seconds) <= 9 else 0
    if not _MIN_SECONDS <= number <= _MAX_SECONDS:
        raise invalid("expires_after[seconds]", f"must be {_MIN_SECONDS} to {_MAX_SECONDS}")
    return FileExpiry("created_at", number)


def no_file(file_id: str, param: str | None = None) -> NotFound:
    """Return the error for a file that this owner does not have."""
    return NotFound(f"No such File object: {file_id}", code="file_not_found", param=param)


def no_upload(upload_id: str) -> NotFound:
    """Return the error for an upload that this owner does not have."""
    return NotFound(f"No such Upload object: {upload_id}", code="upload_not_found")

"""/v1/files: files that the server keeps, for models, tools and searches.

A small file is sent as one form, a larger one in parts (/v1/uploads), so that no file is in memory
as a whole and a lost connection costs one part. `progress` is called with the bytes that were
sent or received, and those there are; with the client without an event loop, in a thread of its
own.
"""

from __future__ import annotations

import asyncio
import mimetypes
import os
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, Final

from antiphon.client.errors import BadCall, ClientError, InvalidAnswer, error_from_transport
from antiphon.client.resources import Deleted, read_deleted
from antiphon.client.rest import Page, Rest, iterate_objects, read_as
from antiphon.client.sender import Sender, path_to, with_query
from antiphon.protocol.errors import BackendError
from antiphon.protocol.files import FileObject, PartObject, UploadObject
from antiphon.transport.stream import ByteStream

__all__ = ["AsyncFiles", "FileContent", "Progress"]

FileContent = bytes | str | os.PathLike[str]
"""What is uploaded: bytes, or the path of a file."""
Progress = Callable[[int, int], None]
"""Called with the bytes that are done, and with those there are."""

_ALL: Final = "/files"
_UPLOADS: Final = "/uploads"
_PART: Final = 8 * 1024 * 1024
"""A file that is larger is sent in parts of this size."""


class AsyncFiles:
    """The files that a server keeps: `client.files`."""

    def __init__(self, sender: Sender) -> None:
        self._rest = Rest(sender)
        self._sender = sender

    async def upload(
        self,
        content: FileContent,
        *,
        filename: str | None = None,
        purpose: str = "user_data",
        expires_after: int | None = None,
        progress: Progress | None = None,
    ) -> FileObject:
        """Store a file. Bytes need a `filename`; `expires_after` is in seconds."""
        name = filename or ("" if isinstance(content, bytes) else Path(content).name)
        if not name:
            raise BadCall("bytes need a filename", param="filename")
        async with _opened(content) as source:
            if source.size > _PART:
                return await self._upload_parts(source, name, purpose, expires_after, progress)
            data = await source.read(_PART + 1)
        fields = {"purpose": purpose}
        if expires_after is not None:
            fields["expires_after[anchor]"] = "created_at"
            fields["expires_after[seconds]"] = str(expires_after)
        kind, body = _write_form(fields, "file", name, data)
        answer = read_as(await self._rest.post(_ALL, body, kind), FileObject)
        if progress is not None:
            progress(len(data), len(data))
        return answer

    async def retrieve(self, file_id: str) -> FileObject:
        """Return what is known of a file."""
        return read_as(await self._rest.fetch("GET", _path(file_id)), FileObject)

    async def delete(self, file_id: str) -> Deleted:
        """Delete a file, also from vector stores."""
        return read_deleted(await self._rest.fetch("DELETE", _path(file_id)), file_id)

    async def page(
        self,
        *,
        after: str | None = None,
        limit: int | None = None,
        order: str | None = None,
        purpose: str | None = None,
    ) -> Page[FileObject]:
        """Return a page of files, newest first unless `order` is "asc"."""
        path = with_query(_ALL, after=after, limit=limit, order=order, purpose=purpose)
        return await self._rest.page(path, FileObject)

    def iterate(
        self, *, order: str | None = None, purpose: str | None = None
    ) -> AsyncGenerator[FileObject, None]:
        """Yield all files, page after page."""
        return iterate_objects(
            lambda after: self.page(after=after, limit=1000, order=order, purpose=purpose)
        )

    async def content(self, file_id: str) -> bytes:
        """Return the content of a file. `download` is better for a large one."""
        return await self._rest.fetch("GET", f"{_path(file_id)}/content")

    async def download(
        self, file_id: str, into: BinaryIO, *, progress: Progress | None = None
    ) -> int:
        """Write the content of a file as it arrives; return how many bytes it has."""
        stream = await self._sender.retrying(lambda: self._open(file_id))
        length = stream.head.headers.get("content-length", "")
        total = int(length) if length.isdecimal() else 0
        done = 0
        try:
            async for piece in stream:
                await asyncio.to_thread(into.write, piece)
                done += len(piece)
                if progress is not None:
                    progress(done, max(total, done))
        except BackendError as error:
            raise error_from_transport(error) from error
        finally:
            stream.close()
        return done

    async def _open(self, file_id: str) -> ByteStream:
        return await self._sender.open_content(f"{_path(file_id)}/content")

    async def _upload_parts(
        self,
        source: _Source,
        name: str,
        purpose: str,
        expires_after: int | None,
        progress: Progress | None,
    ) -> FileObject:
        kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
        body: dict[str, Any] = {
            "bytes": source.size,
            "filename": name,
            "mime_type": kind,
            "purpose": purpose,
        }
        if expires_after is not None:
            body["expires_after"] = {"anchor": "created_at", "seconds": expires_after}
        upload = read_as(await self._rest.post(_UPLOADS, body), UploadObject)
        path = path_to(_UPLOADS, upload.id, "upload_id")
        try:
            parts = [
                part async for part in self._send_parts(path, source, progress or _show_nothing)
            ]
            answer = await self._rest.post(f"{path}/complete", {"part_ids": parts})
        except BaseException:
            with suppress(ClientError):  # it expires by itself
                await self._rest.post(f"{path}/cancel", {})
            raise
        file = read_as(answer, UploadObject).file
        if file is None:
            raise InvalidAnswer("the server completed the upload without a file")
        return file

    async def _send_parts(
        self, path: str, source: _Source, progress: Progress
    ) -> AsyncGenerator[str, None]:
        """Send part after part; yield their ids."""
        done = 0
        while data := await source.read(_PART):
            kind, body = _write_form({}, "data", "part", data)
            yield read_as(await self._rest.post(f"{path}/parts", body, kind), PartObject).id
            done += len(data)
            progress(done, source.size)


class _Source:
    """A content, read in pieces."""

    def __init__(self, file: BinaryIO | None, data: bytes, size: int) -> None:
        self._file = file
        self._rest = memoryview(data)
        self.size = size

    async def read(self, size: int) -> bytes:
        if self._file is not None:
            return await asyncio.to_thread(self._file.read, size)
        piece, self._rest = bytes(self._rest[:size]), self._rest[size:]
        return piece


@asynccontextmanager
async def _opened(content: FileContent) -> AsyncIterator[_Source]:
    """Open what is uploaded. Raise BadCall if it cannot be read."""
    if isinstance(content, bytes):
        yield _Source(None, content, len(content))
        return
    try:
        file = await asyncio.to_thread(Path(content).open, "rb")
    except OSError as error:
        raise BadCall(f"{os.fspath(content)!r} cannot be read: {error.strerror}") from None
    with file:
        yield _Source(file, b"", os.fstat(file.fileno()).st_size)


def _show_nothing(done: int, total: int) -> None:
    """Show no progress."""


def _write_form(
    fields: Mapping[str, str], name: str, filename: str, content: bytes
) -> tuple[str, bytes]:
    """Return a form with a file, and its content type."""
    boundary = secrets.token_hex(16)
    shown = filename.replace("\r", " ").replace("\n", " ").replace('"', "%22")
    head = "".join(
        f'--{boundary}\r\nContent-Disposition: form-data; name="{field}"\r\n\r\n{value}\r\n'
        for field, value in fields.items()
    )
    head += (
        f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"; filename="{shown}"\r\n'
        "Content-Type: application/octet-stream\r\n\r\n"
    )
    tail = f"\r\n--{boundary}--\r\n"
    body = b"".join([head.encode("utf-8", "replace"), content, tail.encode()])
    return f"multipart/form-data; boundary={boundary}", body


def _path(file_id: str) -> str:
    return path_to(_ALL, file_id, "file_id")

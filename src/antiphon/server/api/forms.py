"""The body of a request that is a form, with a file in it that may be large.

`form_events` reads it as it arrives, in time and within a size; `receive_file` writes the file of
a form to a blob on the way. Neither keeps more than a few hundred kilobytes in memory. A blob
whose form turns out to be broken, too large, or cut off is removed again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing, suppress
from typing import Final

import msgspec

from antiphon.protocol.errors import (
    AntiphonError,
    BodyTooLarge,
    InvalidRequest,
    SlowRequest,
    invalid,
)
from antiphon.server.app import Call
from antiphon.server.expect import invite_body
from antiphon.server.multipart import FormEvent, FormReader, PartBegins, PartEnds, boundary_of
from antiphon.store.base import Blob, BlobWriter

__all__ = ["FileForm", "OpenBlob", "form_events", "read_filename", "receive_file"]

_SLACK: Final = 64 * 1024
"""What the fields and headers of a form may take beside its file."""
_SLOWEST: Final = 16 * 1024
"""How many bytes a second must arrive in the long run."""
_PIECE: Final = 256 * 1024
"""How much is written to a blob at a time."""
_MEMORY: Final = 4 * _PIECE
_MAX_FIELD: Final = 1024
_MAX_NAME: Final = 255

CheckFields = Callable[[Mapping[str, str]], object]
OpenBlob = Callable[[], Awaitable[BlobWriter]]


class FileForm(msgspec.Struct, frozen=True):
    """What a form has brought: its fields, and the name and content of its file."""

    fields: dict[str, str]
    filename: str
    content_type: str
    blob: Blob


async def form_events(call: Call, max_bytes: int) -> AsyncGenerator[FormEvent, None]:
    """Yield the parts of a form whose files may have so many bytes, as they arrive.

    Raise InvalidRequest, BodyTooLarge or SlowRequest.
    """
    request, limits = call.request, call.app.limits
    reader = FormReader(boundary_of(request.headers.get("Content-Type", "")))
    encoding = request.headers.get("Content-Encoding", "identity")
    if encoding.lower() != "identity":
        raise InvalidRequest("send the body uncompressed", code="unsupported_encoding")
    _check_size(request.content_length or 0, max_bytes)
    call.reserve(_MEMORY)
    invite_body(request)
    call.is_invited = True
    received, start = 0, asyncio.get_running_loop().time()
    while not request.content.at_eof():
        deadline = start + limits.body_seconds + received / _SLOWEST
        try:
            async with asyncio.timeout_at(deadline):
                data = await request.content.readany()
        except TimeoutError:
            raise SlowRequest("the form arrived too slowly, or not at all") from None
        received += len(data)
        _check_size(received, max_bytes)
        for event in reader.feed(data):
            yield event
    reader.end()


async def receive_file(
    call: Call,
    name: str,
    open_blob: OpenBlob,
    max_bytes: int,
    known: frozenset[str] = frozenset(),
    check: CheckFields = len,
) -> FileForm:
    """Return the form, with its file `name` written to a blob; durable on return.

    A field that is not `known` is refused, as is a second file; `check` raises if the fields
    cannot be used. The caller must store the blob in a row.
    """
    receiver = _Receiver(name, open_blob, max_bytes, known)
    try:
        async with aclosing(form_events(call, max_bytes)) as events:
            async for event in events:
                await receiver.take(event)
        receiver.check(check)
        return await receiver.finish()
    except BaseException:
        await asyncio.shield(receiver.abort())
        raise


class _Receiver:
    """Takes the parts of a form one after the other."""

    def __init__(
        self, name: str, open_blob: OpenBlob, max_bytes: int, known: frozenset[str]
    ) -> None:
        self._name = name
        self._open_blob = open_blob
        self._max_bytes = max_bytes
        self._known = known
        self._fields: dict[str, str] = {}
        self._file: PartBegins | None = None
        self._filename = ""
        self._writer: BlobWriter | None = None
        self._opening: asyncio.Future[BlobWriter] | None = None
        self._part = PartBegins("")
        self._waiting = bytearray()
        self._size = 0

    async def take(self, event: FormEvent) -> None:
        match event:
            case PartBegins():
                await self._begin(event)
            case PartEnds():
                await self._end()
            case bytes():
                await self._add(event)

    def check(self, check: CheckFields) -> None:
        if self._file is None:
            raise invalid(self._name, "is missing", "missing_required_parameter")
        check(self._fields)

    async def finish(self) -> FileForm:
        assert self._file is not None
        assert self._writer is not None
        blob = await self._writer.finish()
        return FileForm(self._fields, self._filename, self._file.content_type, blob)

    async def abort(self) -> None:
        if self._opening is not None:
            with suppress(AntiphonError):  # it could not be opened: there is nothing to remove
                await (await self._opening).abort()

    @property
    def _is_in_file(self) -> bool:
        return self._part is self._file

    async def _begin(self, part: PartBegins) -> None:
        is_file = part.name == self._name
        if not is_file and part.name not in self._known:
            # The name came from the caller: it is shown as far as a name can be long.
            raise invalid(part.name[:64], "is not known here", "unknown_parameter")
        if part.name in self._fields or (is_file and self._file is not None):
            raise invalid(part.name, "is given twice")
        self._part = part
        if is_file:
            if part.filename is None:
                raise invalid(self._name, "must be a file: send it with a filename", "invalid_type")
            self._filename = read_filename(part.filename, self._name)
            self._file = part
            # It may be in a thread when the client leaves, and must be removed even then.
            self._opening = asyncio.ensure_future(self._open_blob())
            self._writer = await asyncio.shield(self._opening)

    async def _add(self, data: bytes) -> None:
        self._waiting += data
        if not self._is_in_file:
            if len(self._waiting) > _MAX_FIELD:
                raise invalid(self._part.name, f"is longer than {_MAX_FIELD} bytes")
            return
        self._size += len(data)
        if self._size > self._max_bytes:
            raise _too_large(self._max_bytes)
        if len(self._waiting) >= _PIECE:
            await self._write()

    async def _end(self) -> None:
        if self._is_in_file:
            await self._write()
            return
        try:
            self._fields[self._part.name] = self._waiting.decode()
        except UnicodeDecodeError:
            raise invalid(self._part.name, "is not UTF-8") from None
        self._waiting.clear()

    async def _write(self) -> None:
        assert self._writer is not None
        if self._waiting:
            data = bytes(self._waiting)
            self._waiting.clear()
            await self._writer.write(data)


def read_filename(filename: str, param: str) -> str:
    """Return the name of a file, without the folders that some clients put before it.

    Raise InvalidRequest if it cannot be the name of a file.
    """
    name = filename.replace("\\", "/").rpartition("/")[2]
    if not 1 <= len(name) <= _MAX_NAME or not name.isprintable() or name in (".", ".."):
        raise invalid(param, f"must have a filename of 1 to {_MAX_NAME} printable characters")
    return name


def _check_size(size: int, limit: int) -> None:
    if size > limit + _SLACK:
        raise _too_large(limit)


def _too_large(limit: int) -> BodyTooLarge:
    return BodyTooLarge(f"the file is larger than {limit} bytes", code="file_too_large")

"""What does the model get of the files in its context? The context keeps them as they were given.

    | given by                | the model takes it            | the model does not              |
    |-------------------------|-------------------------------|---------------------------------|
    | `file_data`             | passed on                     | its text                        |
    | `file_url`              | passed on, if it reads URLs   | fetched, then as data; once for |
    |                         |                               | the turns of a conversation     |
    | `file_id`, ours         | as `file_data`                | its text                        |
    | `file_id`, not ours     | passed on to its provider     | 404                             |
    | image by `file_id`      | as a data URL                 | left to the wire, which reports |

What is wrong with a file of this request is an error before anything is sent to a model. A file
of an earlier turn that is no longer there, or cannot be read again, is a note to the model. A
document that is sent as its text, and every cut, is reported.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, Final, Literal

import msgspec
from yarl import URL

from antiphon.engine.prepare.context_size import ContextSize
from antiphon.engine.prepare.fetched_files import FetchedFiles, count_answered
from antiphon.engine.prepare.file_parts import (
    as_text,
    data_url,
    decode_data,
    file_ids,
    file_places,
    image_type,
    is_file_part,
    name_of,
    parts_of,
    remembers_files,
    with_parts,
)
from antiphon.engine.prepare.file_texts import FileTexts
from antiphon.engine.services import Clock
from antiphon.plans.capabilities import Capabilities
from antiphon.protocol.errors import InvalidRequest, NotFound
from antiphon.protocol.items import ORIGINAL, Item, Part
from antiphon.store.base import Store, StoredFile
from antiphon.tools.documents.base import DocumentFailed, DocumentReader, Source, content_of
from antiphon.tools.documents.kinds import Kind, kind_of
from antiphon.tools.documents.text import HEAD_BYTES
from antiphon.tools.web.fetch import Fetcher, FetchFailed
from antiphon.transport.aside import aside_if

__all__ = ["InputFileSettings", "InputFiles"]

_MIB: Final = 1024 * 1024
_LARGE: Final = 256 * 1024  # bytes that are not worked on in the event loop
_PIECE: Final = _MIB
_MOST_IMAGE: Final = 20 * _MIB
_ANY: Final = "application/octet-stream"
_KINDS: Final[Mapping[Kind, str]] = {"pdf": "PDF", "office": "office", "html": "HTML"}
_MEDIA: Final[Mapping[Kind, str]] = {"pdf": "application/pdf", "text": "text/plain"}

_Count = Annotated[int, msgspec.Meta(gt=0)]


class InputFileSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is done with files in requests. Configurable under `[input_files]`."""

    text_bytes: _Count = 256 * 1024
    """How much text of a file a model is shown; the cut is stated."""
    bytes: _Count = 32 * _MIB
    """How large a file may be that is fetched, or sent to a model as it is."""
    count: _Count = 100
    """How many files a context may have."""
    urls: Literal["public", "off"] = "public"
    """Whether `file_url` is fetched here for models that cannot read it themselves."""
    open_places: tuple[str, ...] = ()
    """Places that are not public and may be fetched from all the same, each as `host:port`."""
    seconds: Annotated[float, msgspec.Meta(gt=0)] = 30.0
    """How long fetching a file may take."""


class InputFiles:
    """Reads the files in contexts. `id_prefix` is how the ids of files begin that are made here."""

    def __init__(
        self,
        store: Store,
        reader: DocumentReader,
        settings: InputFileSettings,
        *,
        now: Clock,
        id_prefix: str,
    ) -> None:
        self.store = store
        self.settings = settings
        self.id_prefix = id_prefix
        self.texts = FileTexts(reader, settings.text_bytes)
        self.fetcher = Fetcher(settings.seconds, frozenset(settings.open_places))
        self.fetched = FetchedFiles()
        self._reader = reader
        self.now = now

    async def show(
        self,
        owner: str,
        items: Sequence[Item],
        own: Sequence[Item],
        able: Capabilities,
        size: ContextSize,
    ) -> tuple[Sequence[Item], list[str]]:
        """Return the items as the model gets them, and notes on what it does not get as it was.

        `own` are the items whose files must be there and readable. Raise NotFound or
        InvalidRequest if one is not.
        """
        find = size.run_own if remembers_files(items) else size.run
        places = await find(file_places, items)
        if not places:
            return items, []
        ids = file_ids(items, places)
        found = await self.store.files.find(owner, ids, self.now()) if ids else {}
        at = {item.get("id"): place for place, item in enumerate(own)}
        showing = _Showing(self, owner, found, able, size, count_answered(items))
        shown = list(items)
        for place in places:
            shown[place] = await showing.item(items[place], place, at.get(items[place].get("id")))
        return shown, showing.notes

    async def close(self) -> None:
        """Close the connections, and end the processes that read documents."""
        await self.fetcher.close()
        await self._reader.close()


class _Place(msgspec.Struct, frozen=True):
    """Where a part stands: in the whole context, and in the request if it came with it."""

    where: str
    param: str | None
    is_answered: bool = False
    """Whether a model has answered to it already."""

    def invalid(self, message: str, field: str, code: str = "invalid_file") -> InvalidRequest:
        return InvalidRequest(message, code=code, param=f"{self.param}.{field}")


class _Lost(Exception):
    """A file of an earlier turn cannot be shown, for this reason."""


class _Showing:
    """The files of one context."""

    def __init__(
        self,
        files: InputFiles,
        owner: str,
        found: Mapping[str, StoredFile],
        able: Capabilities,
        size: ContextSize,
        answered: int,
    ) -> None:
        self.notes: list[str] = []
        self._answered = answered
        self._files = files
        self._owner = owner
        self._found = found
        self._able = able
        self._size = size
        self._count = 0

    async def item(self, item: Item, index: int, own: int | None) -> Item:
        """Return an item with its files as the model gets them."""
        field, parts = parts_of(item)
        shown: list[Part] = []
        for at, part in enumerate(parts):
            rest = field if isinstance(item.get(field), dict) else f"{field}[{at}]"
            param = None if own is None else f"input[{own}].{rest}"
            where = f"input[{index}].{rest} ({part.get('type')})"
            place = _Place(where, param, index < self._answered)
            shown.append(await self._part(part, place) if is_file_part(part) else part)
        if all(new is old for new, old in zip(shown, parts, strict=True)):
            return item
        changed = with_parts(item, field, shown)
        # Outputs go to some servers with all of their fields; their originals are not needed.
        return {**changed, ORIGINAL: item} if field == "content" else changed

    async def _part(self, part: Part, place: _Place) -> Part:
        self._count += 1
        most = self._files.settings.count
        if self._count > most:
            raise InvalidRequest(
                f"The context has more than {most} files.", code="too_many_files", param="input"
            )
        try:
            is_file = part.get("type") == "input_file"
            shown = await (self._file(part, place) if is_file else self._image(part, place))
        except _Lost as lost:
            self.notes.append(f"{place.where}: {lost}")
            return {"type": "input_text", "text": f"[{name_of(part)} left out: {lost}]"}
        if shown is not part:
            self._size.add_reference(sum(len(v) for v in shown.values() if isinstance(v, str)))
        return shown

    # Images.

    async def _image(self, part: Part, place: _Place) -> Part:
        stored = self._stored(part, place)
        if stored is None:
            return part
        if stored.size > _MOST_IMAGE:
            raise self._bad(f"The image is larger than {_MOST_IMAGE // _MIB} MiB.", place)
        data = await self._whole(self._source(stored))
        kind = image_type(data[:16])
        if kind is None:
            raise self._bad("The file is not a PNG, JPEG, GIF, WebP or BMP image.", place)
        url = await aside_if(len(data) > _LARGE, data_url, kind, data)
        return {**_without(part, "file_id"), "image_url": url}

    # Files.

    async def _file(self, part: Part, place: _Place) -> Part:
        if part.get("file_id"):
            stored = self._stored(part, place)
            if stored is None:
                return part
            return await self._show(part, self._source(stored), stored.blob.sha256, place)
        data, url = part.get("file_data"), part.get("file_url")
        if isinstance(data, str) and data:
            if "file" in self._able.parts:
                return part
            return await self._show_data(part, data, place)
        if isinstance(url, str) and url:
            return await self._show_url(part, url, place)
        return part

    async def _show_data(self, part: Part, data: str, place: _Place) -> Part:
        try:
            content, media = await aside_if(len(data) > _LARGE, decode_data, data)
        except ValueError as error:
            raise self._bad(
                f"The data of the file cannot be read: {error}.", place, "file_data"
            ) from None
        source = Source(name_of(part), len(content), content_of(content), media)
        return await self._show(part, source, await _digest(content), place, "file_data")

    async def _show_url(self, part: Part, url: str, place: _Place) -> Part:
        if self._able.reads_url(url):
            return part
        if self._files.settings.urls == "off":
            self.notes.append(f"{place.where}: files are not fetched here")
            return part
        most = self._files.settings.bytes
        kept, now = self._files.fetched, self._files.now()
        found = kept.find(self._owner, url, now) if place.is_answered else None
        if found is None:
            try:
                found = await self._files.fetcher.fetch(url, lambda _: most)
            except FetchFailed as failure:
                why = f"The file cannot be fetched: {failure}."
                raise self._bad(why, place, "file_url") from None
            if found.is_cut:
                raise self._bad(_too_large(most), place, "file_url")
            kept.keep(self._owner, url, found, now)
        name = name_of(part, URL(found.url).name)
        source = Source(name, len(found.body), content_of(found.body), found.content_type)
        named: Part = {**part, "filename": name}
        return await self._show(named, source, await _digest(found.body), place, "file_url")

    async def _show(
        self, part: Part, source: Source, digest: bytes, place: _Place, field: str = "file_id"
    ) -> Part:
        """Return the file as the model takes it: as data or as its text."""
        name = name_of(part, source.filename)
        head = await source.read(0, HEAD_BYTES)
        if not head and source.size:  # removed since it was looked up
            raise _Lost(f"the file {name} is no longer there")
        try:
            kind = kind_of(source.filename, source.media_type or "", head)
            if kind in self._able.parts or "file" in self._able.parts:
                return await self._as_data(part, source, place, field, _MEDIA.get(kind))
            found = await self._files.texts.read(source, digest)
        except DocumentFailed as failure:
            if failure.code == "invalid_file" and "file" not in self._able.parts:
                raise self._bad(f"{name}: {failure.message}", place, field) from None
            # The server may take it all the same; if not, the wire reports that too.
            if "file" not in self._able.parts:
                self.notes.append(f"{place.where}: {failure.message}")
            return await self._as_data(part, source, place, field, None)
        if kind in _KINDS:
            self.notes.append(
                f"{place.where}: sent as text; the model takes no {_KINDS[kind]} files"
            )
        if found.is_cut:
            self.notes.append(f"{place.where}: cut after {found.size} bytes of its text")
        return as_text(name, found.text, found.size if found.is_cut else None)

    async def _as_data(
        self, part: Part, source: Source, place: _Place, field: str, media: str | None
    ) -> Part:
        if field == "file_data":
            return part
        if source.size > self._files.settings.bytes:
            raise self._bad(_too_large(self._files.settings.bytes), place, field)
        data = await self._whole(source)
        media = media or (source.media_type or "").partition(";")[0] or image_type(data[:16])
        url = await aside_if(len(data) > _LARGE, data_url, media or _ANY, data)
        name = name_of(part, source.filename)
        return {**_without(part, "file_id", "file_url"), "filename": name, "file_data": url}

    # What is stored.

    def _stored(self, part: Part, place: _Place) -> StoredFile | None:
        """Return the upload of an id; None if it is the business of the model's provider."""
        name = part.get("file_id")
        stored = self._found.get(name) if isinstance(name, str) else None
        if stored is not None or not isinstance(name, str):
            return stored
        if "file_id" in self._able.parts and not name.startswith(self._files.id_prefix):
            return None
        if place.param is None:
            raise _Lost(f"the file {name[:100]} is no longer there")
        raise NotFound(
            f"File with id '{name[:100]}' not found.",
            code="file_not_found",
            param=f"{place.param}.file_id",
        )

    def _source(self, stored: StoredFile) -> Source:
        read = partial(self._files.store.blobs.read, self._owner, stored.blob.id)
        return Source(stored.filename, stored.size, read)

    async def _whole(self, source: Source) -> bytes:
        data = bytearray()
        while piece := await source.read(len(data), _PIECE):
            data += piece
        return bytes(data)

    def _bad(self, message: str, place: _Place, field: str = "file_id") -> Exception:
        """Return the error for a file of this request, or why one of an earlier turn is lost."""
        if place.param is None:
            return _Lost(message.rstrip("."))
        return place.invalid(message, field)


def _without(part: Part, *names: str) -> Part:
    return {name: value for name, value in part.items() if name not in names}


def _too_large(most: int) -> str:
    return f"The file is larger than {most // _MIB} MiB."


async def _digest(content: bytes) -> bytes:
    return await aside_if(len(content) > _LARGE, _sha256, content)


def _sha256(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()

"""Which container does a tool name? A container id, or one that is made for the response.

Everything is checked before the model is asked: ids of others are not found, and what cannot be
honoured is refused. A container that is made for a response is used again by the next responses
of its conversation, as long as it lives: the newest one that the context names counts.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from antiphon.protocol.errors import InvalidRequest
from antiphon.protocol.items import Item, item_type
from antiphon.store.base import Container, StoredFile
from antiphon.tools.containers.folder import MOUNT, plain_name
from antiphon.tools.containers.service import ContainerService, ContainerWish
from antiphon.tools.containers.workspace import Workspace

__all__ = ["TurnContainer", "check_network", "find_container", "read_memory", "read_wish"]

_MEMORY: Final = ("1g", "4g", "16g", "64g")
_MAX_IDS: Final = 100
_MOST_TRIED: Final = 4
_GIB: Final = 1024**3


class TurnContainer:
    """The container of a tool in one turn. It is made when it is first used."""

    def __init__(
        self,
        service: ContainerService,
        owner: str,
        *,
        id: str,
        wish: ContainerWish | None = None,
        settings: Mapping[str, Any] | None = None,
        files: Sequence[StoredFile] = (),
    ) -> None:
        self.id = id
        self.skills: Sequence[Mapping[str, Any]] = (settings or {}).get("skills") or ()
        if wish is not None:
            self.skills = wish.skills
        self._service = service
        self._owner = owner
        self._wish = wish
        self._files = files
        self._making = asyncio.Lock()

    @asynccontextmanager
    async def use(self) -> AsyncIterator[Workspace]:
        """Hold the container alone; make it first if there is none. See `ContainerService.use`."""
        async with self._making:
            await self._make()
        async with self._service.use(self._owner, self.id) as workspace:
            yield workspace

    async def _make(self) -> None:
        wish, self._wish = self._wish, None
        if wish is not None:
            try:
                await self._service.create(self._owner, wish, id=self.id)
            except BaseException:
                self._wish = wish
                raise
        files, self._files = self._files, ()
        for file in files:
            blob = await self._service.copy_blob(self._owner, file.blob)
            await self._service.add_file(self._owner, self.id, file.filename, blob)


async def find_container(
    service: ContainerService, owner: str, given: object, items: Sequence[Item], param: str
) -> TurnContainer:
    """Return the container that a tool names: an id, or fields of one to make.

    Raise NotFound for what does not exist for this owner, InvalidRequest for what cannot be.
    """
    if isinstance(given, str):
        row = await service.require(owner, given, param)
        return TurnContainer(service, owner, id=row.id, settings=row.settings)
    if not isinstance(given, dict):
        raise _wrong(param, "must be the id of a container, or an object with a type")
    wish = await read_wish(service, owner, given, param)
    known = await _known(service, owner, items)
    if known is None:
        return TurnContainer(service, owner, id=service.mint("cntr"), wish=wish)
    new = await _missing(service, owner, known, wish.files)
    return TurnContainer(service, owner, id=known.id, settings=known.settings, files=new)


async def read_wish(
    service: ContainerService, owner: str, given: Mapping[str, Any], param: str
) -> ContainerWish:
    """Return what a new container is to be. Raise NotFound or InvalidRequest."""
    check_network(given.get("network_policy"), f"{param}.network_policy")
    ids = given.get("file_ids") or []
    is_list = isinstance(ids, list) and len(ids) <= _MAX_IDS
    if not is_list or not all(isinstance(one, str) for one in ids):
        raise _wrong(f"{param}.file_ids", f"must be a list of at most {_MAX_IDS} ids of files")
    return ContainerWish(
        name="auto",
        files=await service.find_files(owner, ids, f"{param}.file_ids"),
        memory_limit=read_memory(service, given.get("memory_limit"), f"{param}.memory_limit"),
        skills=await service.skills.resolve(owner, given.get("skills"), f"{param}.skills"),
    )


def read_memory(service: ContainerService, given: object, param: str) -> str | None:
    """Return the limit on memory, if the sandboxes here may have that much."""
    if given is None:
        return None
    if given not in _MEMORY:
        raise _wrong(param, f"must be one of {', '.join(_MEMORY)}")
    if int(str(given)[:-1]) * _GIB > service.limits.memory_bytes:
        most = service.limits.memory_bytes
        raise _wrong(param, f"sandboxes have at most {most} bytes of memory here")
    return str(given)


def check_network(given: object, param: str) -> None:
    """Raise InvalidRequest unless no network is asked for: there is none in a sandbox."""
    kind = given.get("type") if isinstance(given, dict) else given
    if kind not in (None, "disabled"):
        raise InvalidRequest(
            f"{param}: programs have no network here; leave it out, or send type disabled",
            code="unsupported_value",
            param=param,
        )


async def _known(service: ContainerService, owner: str, items: Sequence[Item]) -> Container | None:
    """Return the newest container that the context names and that can be used."""
    ids = dict.fromkeys(_named(items))
    for container_id, _ in zip(ids, range(_MOST_TRIED), strict=False):
        found = await service.store.containers.find(owner, container_id)
        if found is not None and not found.is_expired(service.now()):
            return found
    return None


def _named(items: Sequence[Item]) -> Iterator[str]:
    """Yield the containers that calls in the context ran in, newest first."""
    for item in reversed(items):
        kind = item_type(item)
        place: object = item if kind == "code_interpreter_call" else None
        if kind == "shell_call":
            place = item.get("environment")
        found = place.get("container_id") if isinstance(place, dict) else None
        if isinstance(found, str):
            yield found


async def _missing(
    service: ContainerService, owner: str, container: Container, files: Sequence[StoredFile]
) -> list[StoredFile]:
    """Return those of the files whose names are not in the container yet."""
    if not files:
        return []
    names = set()
    after: str | None = None
    while page := await service.store.containers.files(
        owner, container.id, after=after, limit=100, is_descending=False
    ):
        names |= {file.path for file in page}
        after = page[-1].id
    return [file for file in files if f"{MOUNT}/{plain_name(file.filename)}" not in names]


def _wrong(param: str, why: str) -> InvalidRequest:
    return InvalidRequest(f"{param}: {why}", code="invalid_value", param=param)

"""Which files are to be attached to a vector store, and do they exist?"""

from __future__ import annotations

from collections.abc import Sequence

from antiphon.protocol.files import no_file
from antiphon.protocol.vector_stores import AttachFile, read_chunking
from antiphon.server.app import Call
from antiphon.store.base.vector_stores import AttachedFile

__all__ = ["read_files"]


async def read_files(
    call: Call, asked: Sequence[AttachFile], place: str, chunking: str, batch_id: str | None = None
) -> list[AttachedFile]:
    """Return the files to attach. Raise NotFound if the owner lacks one, or InvalidRequest.

    `place` and `chunking` are the paths of a file and of its chunking strategy in the request,
    with `{}` for the number of the file.
    """
    now = call.app.engine.now()
    found = await call.app.engine.store.files.find(call.owner, [one.file_id for one in asked], now)
    files = []
    for number, one in enumerate(asked):
        if one.file_id not in found:
            raise no_file(one.file_id, place.format(number))
        tokens, overlap = read_chunking(one.chunking_strategy, chunking.format(number))
        files.append(
            AttachedFile(
                file_id=one.file_id,
                filename=found[one.file_id].filename,
                created_at=now,
                attributes=one.attributes or {},
                chunk_tokens=tokens,
                overlap_tokens=overlap,
                is_auto=one.chunking_strategy is None or one.chunking_strategy.type == "auto",
                batch_id=batch_id,
            )
        )
    return files

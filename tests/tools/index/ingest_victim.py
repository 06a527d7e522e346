"""A process that indexes files, and kills itself where it is told to.

    python -m tests.tools.index.ingest_victim STORE EMBEDDINGS METHOD:NUMBER:WHEN

It ends with SIGKILL just before, or just after, the given call of a method of the facet
`vector_stores`.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from itertools import count
from typing import Any

from antiphon.store.open import open_store
from antiphon.tools.index.embed_api import EmbeddingsUpstream
from antiphon.tools.index.file_index import FileIndex
from antiphon.tools.index.ingest import IngestSettings
from antiphon.transport.secret import Secret
from tests.tools.index.embeddings_upstream import KEY

__all__ = ["SETTINGS"]

SETTINGS = IngestSettings(lease=5.0, poll=0.05)


def _arm(facet: Any, kill: str) -> None:
    name, number, when = kill.split(":")
    call = getattr(facet, name)
    calls = count(1)

    async def armed(*given: Any, **named: Any) -> Any:
        is_fatal = next(calls) == int(number)
        if is_fatal and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        result = await call(*given, **named)
        if is_fatal:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(facet, name, armed)


async def _main(url: str, embeddings: str, kill: str) -> None:
    store = open_store(url)
    _arm(store.vector_stores, kill)
    embedder = EmbeddingsUpstream(embeddings, Secret(KEY), model="words-64", batch=256)
    async with FileIndex(store, embedder=embedder, settings=SETTINGS).running():
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))

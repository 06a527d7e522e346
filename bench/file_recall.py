"""How well are files found, and how soon? Recall on Cranfield, ingest in MB/s, time to searchable.

Everything goes the whole way: blobs, documents, chunks, jobs and search of a real store. With
`--cranfield` the folder must have cran.all.1400.xml, cran.qry.xml and cranqrel.trec.txt; vectors
need the extra `embed`, and take about two minutes, once for all stores.

    python bench/file_recall.py [--cranfield FOLDER] [--stores sqlite,postgres,memory]
                                [--megabytes 32]

Goals: recall@10 at least .44 hybrid and .395 by words; 10 MB/s of text by words, the commit
included; 1 MB of Markdown searchable within 300 ms; 15 windows a second.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import re
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import msgspec
from processes import machine, scratch

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.tools.index.filled import OWNER, STORE, add_file, attach, make_store

from antiphon.store.base import Store
from antiphon.store.memory import MemoryStore
from antiphon.store.open import open_store
from antiphon.tools.index.embed import Embedder, Pay
from antiphon.tools.index.embed_local import LocalEmbedder, can_embed
from antiphon.tools.index.file_index import FileIndex
from antiphon.tools.index.rank import Ranking, group_files
from antiphon.tools.index.search import FileQuery

__all__ = ["main"]

_TOP: Final = 10
_GOALS: Final = {"words": 0.395, "hybrid": 0.44}
_MODES: Final = {
    "words": Ranking(vector_weight=0.0),
    "vectors": Ranking(words_weight=0.0),
    "hybrid": Ranking(),
}


class Collection(msgspec.Struct):
    """Texts, queries, and which texts answer which query."""

    texts: Mapping[str, str]
    queries: Sequence[str]
    relevant: Sequence[frozenset[str]]


class Remembering:
    """Embeds each text once, for all stores."""

    def __init__(self, inner: LocalEmbedder) -> None:
        self._inner = inner
        self._known: dict[str, bytes] = {}
        self.kind = inner.kind
        self.batch = inner.batch
        self.seconds = 0.0

    def pay_with(self, pay: Pay) -> None:
        """Charge nothing."""

    async def embed(self, owner: str, texts: Sequence[str]) -> list[bytes]:
        begun = time.perf_counter()
        for text in texts:
            if text not in self._known:
                (self._known[text],) = await self._inner.embed(owner, [text])
        self.seconds += time.perf_counter() - begun
        return [self._known[text] for text in texts]

    async def embed_query(self, owner: str, text: str) -> bytes:
        return await self._inner.embed_query(owner, text)

    async def close(self) -> None:
        """Stay open for the next store."""

    @property
    def windows_a_second(self) -> float:
        return self._inner.windows / self.seconds


def _read(folder: Path) -> Collection:
    texts = {}
    for doc in re.findall(r"<doc>(.*?)</doc>", (folder / "cran.all.1400.xml").read_text(), re.S):
        number, title, text = (_field(doc, name) for name in ("docno", "title", "text"))
        if title or text:  # one of them is empty
            texts[number] = f"{title}\n\n{text.removeprefix(title).strip()}"
    asked = re.findall(r"<title>(.*?)</title>", (folder / "cran.qry.xml").read_text(), re.S)
    queries = [" ".join(query.split()) for query in asked]
    relevant: list[set[str]] = [set() for _ in queries]
    for line in (folder / "cranqrel.trec.txt").read_text().splitlines():
        query, _, doc, grade = line.split()
        if int(grade) > 0:
            relevant[int(query) - 1].add(doc)
    return Collection(texts, queries, [frozenset(one) for one in relevant])


def _field(doc: str, name: str) -> str:
    found = re.search(rf"<{name}>(.*?)</{name}>", doc, re.S)
    return found[1].strip() if found else ""


@asynccontextmanager
async def _opened(name: str, folder: Path) -> AsyncIterator[Store]:
    """Open an empty store of this kind."""
    if name == "postgres":
        from tests.postgres import fresh_database

        async with fresh_database() as url:
            store = open_store(url)
            try:
                yield store
            finally:
                await store.close()
        return
    store = MemoryStore() if name == "memory" else open_store(f"sqlite:{folder / 'bench.db'}")
    try:
        yield store
    finally:
        await store.close()


async def _until(is_so: Callable[[], Awaitable[bool]]) -> None:
    """Return when it is so."""
    while True:
        if await is_so():
            return
        await asyncio.sleep(0.002)


async def _counts_done(store: Store, count: int) -> bool:
    found = (await store.vector_stores.find(OWNER, [STORE]))[STORE].counts
    if found.failed:
        raise SystemExit(f"{found.failed} files failed")
    return found.completed == count


async def _index(
    store: Store, files: Mapping[str, str | bytes], embedder: Embedder | None
) -> float:
    """Index these files in the vector store; return the seconds from the first to the last."""
    for file_id, text in files.items():
        await add_file(store, file_id, text, f"{file_id}.txt")
    for file_id in files:
        await attach(store, file_id)
    index = FileIndex(store, embedder=embedder)
    begun = time.perf_counter()
    async with index.ingest.running():
        await _until(lambda: _counts_done(store, len(files)))
    return time.perf_counter() - begun


# Recall.


async def _print_recall(
    name: str, store: Store, data: Collection, vectors: Embedder | None
) -> None:
    await make_store(store)
    await _index(store, data.texts, vectors)
    searcher = FileIndex(store, embedder=vectors).searcher
    for mode, ranking in _MODES.items():
        if vectors is None and mode != "words":
            continue
        recalls, gains, times = [], [], []
        for query, relevant in zip(data.queries, data.relevant, strict=True):
            begun = time.perf_counter()
            asked = FileQuery(store_ids=[STORE], queries=[query], ranking=ranking)
            files = group_files(await searcher.search(OWNER, asked), _TOP)
            times.append(time.perf_counter() - begun)
            hits = [file.file_id in relevant for file in files]
            recalls.append(sum(hits) / len(relevant))
            gains.append(_gain(hits) / _gain([True] * min(len(relevant), _TOP)))
        goal = f"   at least {_GOALS[mode]}" if mode in _GOALS else ""
        print(
            f"{name:9} {mode:8} recall@10 {_mean(recalls):.3f}   nDCG@10 {_mean(gains):.3f}"
            f"   {_mean(times) * 1e3:.1f} ms a query{goal}"
        )


def _gain(hits: Sequence[bool]) -> float:
    return sum(1 / math.log2(place + 2) for place, is_hit in enumerate(hits) if is_hit)


def _mean(numbers: Sequence[float]) -> float:
    return sum(numbers) / len(numbers)


# Ingest.


def _markdown(size: int, seed: int) -> str:
    """Return text of about so many characters, with words of a real distribution."""
    words = ["the", "of", "and", "to", *(f"w{n * 7919 % 9973:x}" for n in range(4_000))]
    parts, length, state = [], 0, seed
    while length < size:
        state = (state * 1_103_515_245 + 12_345) % 2**31
        word = words[int(len(words) * (state / 2**31) ** 3)]
        parts.append(f"{word}.\n\n## {word}\n\n" if state % 97 == 0 else f"{word} ")
        length += len(parts[-1])
    return "".join(parts)


async def _print_ingest(name: str, store: Store, megabytes: int) -> None:
    await make_store(store)
    one = await _searchable(store)
    files = {f"file-{n}": _markdown(2_000_000, n) for n in range(megabytes // 2)}
    size = sum(map(len, files.values()))
    for file_id, text in files.items():
        await add_file(store, file_id, text)
    for file_id in files:
        await attach(store, file_id)
    index = FileIndex(store)
    begun, cpu = time.perf_counter(), time.process_time()
    async with index.ingest.running():
        await _until(lambda: _counts_done(store, len(files) + 1))
    seconds, cpu = time.perf_counter() - begun, time.process_time() - cpu
    print(
        f"{name:9} ingest by words {size / seconds / 1e6:.1f} MB/s"
        f" ({size / cpu / 1e6:.1f} per CPU second)   at least 10"
    )
    print(f"{name:9} 1 MB of Markdown searchable after {one * 1e3:.0f} ms   at most 300")


async def _searchable(store: Store) -> float:
    """Return the seconds from the attachment of 1 MB of Markdown until its end is found."""
    index = FileIndex(store)
    async with index.ingest.running():
        # The first file opens threads and files.
        await add_file(store, "file-md", _markdown(1_000_000, 1) + "\n\nlastword")
        await asyncio.sleep(0.1)
        begun = time.perf_counter()
        await attach(store, "file-md")
        index.wake()

        async def is_found() -> bool:
            asked = FileQuery(store_ids=[STORE], queries=["lastword"])
            return bool(await index.searcher.search(OWNER, asked))

        await _until(is_found)
        seconds = time.perf_counter() - begun
        await _until(lambda: _counts_done(store, 1))
    return seconds


async def _main(options: argparse.Namespace) -> None:
    print(machine())
    local = LocalEmbedder() if can_embed() else None
    vectors = Remembering(local) if local is not None else None
    for name in options.stores.split(","):
        with scratch() as folder:
            async with _opened(name, Path(folder)) as store:
                await _print_ingest(name, store, options.megabytes)
        if options.cranfield is not None:
            with scratch() as folder:
                async with _opened(name, Path(folder)) as store:
                    await _print_recall(name, store, _read(options.cranfield), vectors)
    if vectors is not None and vectors.seconds:
        print(f"vectors   {vectors.windows_a_second:.1f} windows a second   at least 15")
    if local is not None:
        await local.close()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cranfield", type=Path)
    parser.add_argument("--stores", default="sqlite,postgres")
    parser.add_argument("--megabytes", type=int, default=32)
    asyncio.run(_main(parser.parse_args()))


if __name__ == "__main__":
    main()

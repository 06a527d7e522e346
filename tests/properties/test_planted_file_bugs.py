"""Would a bug between a file and a cited answer be seen? Each planted one must be.

As in `test_planted_bugs`, every bug is a small change to a module's own source. Files are cut,
indexed, searched and shown by the changed modules, in the real memory store and against a real
embeddings server; what comes out is held against what it must be.
"""

from __future__ import annotations

import asyncio
import inspect
import types
from typing import Any, Final

import msgspec
import pytest

from antiphon.plans.toolbox import DeclaredTool
from antiphon.protocol import citations
from antiphon.protocol.citations import CitationFilter, Marks
from antiphon.protocol.errors import CallerError
from antiphon.store.memory import MemoryStore
from antiphon.tools import file_request, file_search
from antiphon.tools.base import HostedCall, Outcome, Start, ToolFailed, ToolLimits, ToolRequest
from antiphon.tools.index import chunk, embed_api, file_index, ingest, rank, search
from antiphon.transport.secret import Secret
from tests.properties.planting import plant
from tests.tools.index.embeddings_upstream import KEY, EmbeddingsServer, embeddings_server
from tests.tools.index.filled import OWNER, STORE, add_file, attach, make_store, wait_until_done
from tests.tools.web.sessions import NoApprovals

MODULES: Final = (
    citations,
    chunk,
    rank,
    embed_api,
    search,
    ingest,
    file_index,
    file_request,
    file_search,
)
# More chunks than a batch of vectors has, none of which ends where a paragraph does.
LONG: Final = "\n\n".join(f"Chapter{n} tells of thing{n}. " + "filler " * 70 for n in range(30))
FILES: Final = {"long": LONG, "bread": "Bread 【1】 is made of flour.", "salt": "Salt. Flour."}


class Found(msgspec.Struct):
    """What was found by one set of modules."""

    wrong: list[str] = []

    def expect(self, what: str, *, is_so: bool) -> None:
        if not is_so:
            self.wrong.append(what)


def _request(tool: dict[str, Any], limits: ToolLimits, owner: str = OWNER) -> ToolRequest:
    declared = {"type": "file_search", "vector_store_ids": [STORE], **tool}
    return ToolRequest(
        owner=owner,
        response_id="r",
        tools=[DeclaredTool(declared, "tools[0]")],
        items=[],
        own=[],
        approvals=NoApprovals(),
        limits=limits,
    )


async def _call(
    runner: Any, queries: list[str], limits: ToolLimits | None = None, **tool: Any
) -> tuple[ToolRequest, Outcome]:
    request = _request(tool, limits or ToolLimits())
    session = await runner.begin(request)
    (function,) = [one async for one in session.prepare()]
    text = msgspec.json.encode({"queries": queries, "vector_store_ids": ["vs_2"]}).decode()
    call = HostedCall(function=function, arguments=text, call_id="c")
    start = session.decide(call)
    assert isinstance(start, Start)
    steps = [step async for step in session.run(call, start)]
    assert isinstance(steps[-1], Outcome)
    return request, steps[-1]


async def _fill(index: Any, store: MemoryStore) -> None:
    await make_store(store)
    await make_store(store, "vs_2")
    await make_store(store, "vs_old", active=0, expires_after_days=1)
    for file_id, text in FILES.items():
        await add_file(store, file_id, text)
        fields: dict[str, Any] = {"attributes": {"n": len(file_id)}}
        if file_id == "long":
            fields |= {"chunk_tokens": 100, "overlap_tokens": 0}
        await attach(store, file_id, **fields)
    await add_file(store, "secret", "flour thing3")
    await attach(store, "secret", store_id="vs_2")
    async with index.ingest.running():
        await wait_until_done(store)
        await wait_until_done(store, "vs_2")


async def _check_index(index: Any, store: MemoryStore, found: Found, module: Any) -> None:
    chunks = await store.vector_stores.chunks(OWNER, STORE, "long", limit=1_000)
    found.expect("no text is lost", is_so=" ".join(chunks).split() == LONG.split())
    found.expect("chunks are small", is_so=all(len(text) <= 400 for text in chunks))
    borders = [text[-1] in "." or text.endswith("filler") for text in chunks]
    found.expect("chunks end with words", is_so=all(borders))
    for text in chunks:
        asked = module.FileQuery(store_ids=[STORE], queries=[text])
        ranked = await index.searcher.search(OWNER, asked)
        near = max(one.chunk.similarity or 0 for one in ranked if one.chunk.text == text)
        found.expect("its own vector", is_so=near > 0.9999)
        scores = [one.score for one in ranked]
        found.expect("in order", is_so=scores == sorted(scores, reverse=True))
        found.expect("up to 1", is_so=all(0 < score <= 1 for score in scores))


async def _check_search(runner: Any, found: Found, server: EmbeddingsServer) -> None:
    request, outcome = await _call(runner, ["made of flour"])
    ids = [one["file_id"] for one in outcome.item["results"]]
    shown = str(outcome.result)
    found.expect("the best first", is_so=ids[0] == "bread")
    found.expect("only its stores", is_so="secret" not in ids)
    found.expect("at most 10", is_so=len(ids) == 10)
    found.expect("no faked mark", is_so="[1] is made" in shown and shown.count("【1】") == 2)
    marks = CitationFilter(Marks(request.sources))
    deltas = [*marks.feed("Flour【1】. 【99】"), *marks.finish()]
    notes = [one.annotation["file_id"] for one in deltas if hasattr(one, "annotation")]
    text = "".join(one.text for one in deltas if hasattr(one, "text"))
    found.expect("cited", is_so=(notes, text) == (["bread"], "Flour. 【99】"))

    _, outcome = await _call(runner, ["bread", "thing3"])
    best = {one["file_id"]: one["score"] for one in reversed(outcome.item["results"])}
    found.expect("the best of both queries", is_so=best["bread"] == best["long"] == 1.0)
    _, outcome = await _call(runner, ["flour"], max_num_results=1)
    found.expect("one result", is_so=len(outcome.item["results"]) == 1)
    named = {"type": "eq", "key": "n", "value": 5}
    _, outcome = await _call(runner, ["flour"], filters=named)
    kept = {one["file_id"] for one in outcome.item["results"]}
    found.expect("the filter", is_so=kept == {"bread"})
    _, outcome = await _call(runner, ["flour"], ranking_options={"score_threshold": 0.9})
    scores = [one["score"] for one in outcome.item["results"]]
    found.expect("the threshold", is_so=bool(scores) and min(scores) >= 0.9)
    weights = {"hybrid_search": {"embedding_weight": 0, "text_weight": 1}}
    asked = len(server.bodies)
    _, outcome = await _call(runner, ["flour"], ranking_options=weights)
    kept = {one["file_id"] for one in outcome.item["results"]}
    found.expect("words alone", is_so=kept == {"bread", "salt"} and len(server.bodies) == asked)
    _, outcome = await _call(runner, ["thing3 filler"], ToolLimits(result_bytes=3_000))
    found.expect("what fits", is_so=len(str(outcome.result).encode()) <= 3_000)
    found.expect("whole ones", is_so="too long to be shown" in str(outcome.result))


async def _check_refusals(runner: Any, found: Found, server: EmbeddingsServer) -> None:
    for ids, owner in ((["vs_none"], OWNER), ([STORE], "b"), (["vs_old"], OWNER), ([], OWNER)):
        try:
            await runner.begin(_request({"vector_store_ids": ids}, ToolLimits(), owner))
            found.wrong.append(f"{ids} of {owner} was taken")
        except CallerError as error:
            found.expect("its place", is_so=error.param == "tools[0].vector_store_ids")
    for field, value in (("max_num_results", 51), ("filters", {"type": "x"})):
        try:
            await runner.begin(_request({field: value}, ToolLimits()))
            found.wrong.append(f"{field} was taken")
        except CallerError:
            pass
    server.statuses = [500]
    try:
        _, outcome = await _call(runner, ["flour"])
        found.wrong.append(f"a failed search had {outcome.result!r}")
    except ToolFailed as failure:
        found.expect("no key", is_so=KEY not in str(failure))


async def _check_failures(modules: dict[str, Any], found: Found, server: EmbeddingsServer) -> None:
    """Files whose indexing fails, in a store of their own."""
    store = MemoryStore()
    await make_store(store)
    contents = {"a": b"words", "b": b"\x00\x01\x02" * 99, "c": b" ", "d": b"more words"}
    index = _index(modules, store, server)
    server.statuses = [503]  # this may pass
    async with index.ingest.running():
        for file_id, content in contents.items():
            await add_file(store, file_id, content, f"{file_id}.txt")
            await attach(store, file_id)
            index.wake()
            await wait_until_done(store)
            server.statuses = [400]  # this does not
    ends = {}
    for file_id in contents:
        file = await store.vector_stores.find_file(OWNER, STORE, file_id)
        assert file is not None
        ends[file_id] = (file.status, file.error_code)
    expected = {
        "a": ("completed", None),
        "b": ("failed", "unsupported_file"),
        "c": ("failed", "invalid_file"),
        "d": ("failed", "server_error"),
    }
    found.expect(f"failures {ends}", is_so=ends == expected)
    await index.embedder.close()
    await store.close()


def _index(modules: dict[str, Any], store: MemoryStore, server: EmbeddingsServer) -> Any:
    embedder = modules["embed_api"].EmbeddingsUpstream(
        server.url, Secret(KEY), model="words-64", batch=7
    )
    return modules["file_index"].FileIndex(store, embedder=embedder)


async def objections(modules: dict[str, Any]) -> list[str]:
    """Index and search with these modules; return what is wrong."""
    found, store = Found(), MemoryStore()
    async with asyncio.timeout(60), embeddings_server() as server:
        index = _index(modules, store, server)
        await _fill(index, store)
        runner = modules["file_search"].FileSearch(index.searcher)
        await _check_index(index, store, found, modules["search"])
        await _check_search(runner, found, server)
        await _check_refusals(runner, found, server)
        await _check_failures(modules, found, server)
        await index.embedder.close()
    await store.close()
    return found.wrong


def _planted(old: str, new: str) -> dict[str, Any]:
    """Return all modules by their short names, with this change in them."""
    names = [module.__name__ for module in MODULES]
    taken: dict[str, types.ModuleType] = {}
    for count in range(1, len(names) + 1):
        part = MODULES[:count]
        if old in _source_of(part):
            taken[names[count - 1].rpartition(".")[2]] = plant(part, old, new)
        else:
            taken[names[count - 1].rpartition(".")[2]] = MODULES[count - 1]
    return taken


def _source_of(modules: tuple[types.ModuleType, ...]) -> str:
    return "".join(map(inspect.getsource, modules))


BUGS: Final = {
    "a cut that loses a character": (
        "self._shown, start = end, _start_after(text, start, end, self._overlap)",
        "self._shown, start = end, _start_after(text, start, end, self._overlap) + 1",
    ),
    "chunks that are a quarter too large": (
        "self._size = tokens * BYTES_PER_TOKEN",
        "self._size = tokens * BYTES_PER_TOKEN * 5 // 4",
    ),
    "cuts in the middle of words": ("        if found:\n            return max(found)", ""),
    "the last chunk is lost": ("waiting += chunker.finish()", "chunker.finish()"),
    "vectors of the wrong chunks": (
        "add_vectors(job, place, vectors,",
        "add_vectors(job, max(place - 1, 0), vectors,",
    ),
    "vectors in the order of the answer": (
        '{one.get("index", at): one["embedding"] for at, one in enumerate(data)}',
        '{at: one["embedding"] for at, one in enumerate(data)}',
    ),
    "only the first batch has vectors": ("place += len(texts)", "return"),
    "a file whose vectors fail is completed": (
        'except EmbeddingFailed as failure:\n            code, message = "server_error"',
        "except EmbeddingFailed as failure:\n            code, message = None",
    ),
    "a failure that may pass is not tried again": (
        "if not failure.may_pass or not left:",
        "if failure.may_pass or not left:",
    ),
    "a file with text is taken for an empty one": ("adding is None:\n", "adding is not None:\n"),
    "the last chunks are not waited for": (
        "            await adding\n        finally",
        "        finally",
    ),
    "the worst first": ("return (-one.score,", "return (one.score,"),
    "scores above 1": (
        "return (words + vector) / (ranking.words_weight + ranking.vector_weight)",
        "return words + vector",
    ),
    "a place from 1": ("K / (K + place)", "K / (K + place + 1)"),
    "the threshold is ignored": ("one.score > 0 and one.score >= ranking.score_threshold", "True"),
    "the worst score of several queries": (
        "best[key].score < ranked.score",
        "best[key].score > ranked.score",
    ),
    "weights are ignored": ("vector_weight=vector, words_weight=words,", ""),
    "vectors without a weight are asked for": (
        "if embedder is not None and ranking.vector_weight > 0:",
        "if embedder is not None:",
    ),
    "the filter is dropped": ("filter=query.filter,", ""),
    "the filter of the tool is dropped": ('filter=filter_of(tool.get("filters")', "filter=(None"),
    "foreign vector stores are searched": ("if store is None:", "if False:"),
    "expired vector stores are searched": (
        "store.expires_at is not None and store.expires_at <= self._now()",
        "False",
    ),
    "a failed search is empty": (
        "raise ToolFailed(str(failure)) from None",
        "return []",
    ),
    "marks in files are shown": ("text = unmarked(one.chunk.text)", "text = one.chunk.text"),
    "every file has its own text as the mark": (
        'return f"file:{self.file_id}"',
        'return "file"',
    ),
    "more results than are wanted": ("[: self._wish.count]", "[:50]"),
    "more is shown than fits": ("if room < 0 and blocks:", "if room < -99_999 and blocks:"),
}


async def test_the_modules_as_they_are_have_no_bug() -> None:
    as_they_are = {module.__name__.rpartition(".")[2]: module for module in MODULES}
    assert await objections(as_they_are) == []


@pytest.mark.parametrize("bug", BUGS, ids=lambda name: name.replace(" ", "-"))
async def test_a_planted_bug_is_seen(bug: str) -> None:
    try:
        wrong = await objections(_planted(*BUGS[bug]))
    except Exception as error:  # noqa: BLE001 - a bug may also break everything
        wrong = [repr(error)]
    assert wrong, "nothing objects"

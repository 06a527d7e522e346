"""Something of every kind of content, in every table, for tests of copies and purges."""

from __future__ import annotations

from typing import Any

from antiphon.protocol.thread import Thread
from antiphon.store.base import (
    AuditRecord,
    Batch,
    Conversation,
    Intent,
    KeptRound,
    Notice,
    Project,
    Store,
)
from antiphon.store.base.ledger import Budget, LineItem, RateLimit
from antiphon.store.base.vector_stores import Attributes, Chunk, FileBatch
from tests.store.file_samples import (
    NOW,
    add_file,
    container,
    container_file,
    once,
    part,
    skill,
    skill_version,
    upload,
    write,
)
from tests.store.ledger_samples import ending, wanted
from tests.store.samples import OWNER, key, message, opened, run_turn
from tests.store.vector_samples import file as attached
from tests.store.vector_samples import index_file, take, vector, vector_store

__all__ = ["MANY", "PIECES", "fill"]

MANY = 450
PIECES = bytes(range(256)) * 10_000


async def fill(store: Store) -> None:
    """Put something of every kind into a store, odd things too."""
    await run_turn(store, "r1")
    await run_turn(store, "r2", "r1", created_at=1_000.5)
    await store.begin(OWNER, opened("r3"), [message("i\x003", "\x00")], batch=Batch(0, 1, b"\x00a"))
    ended = opened("r3", status="completed", output=[message("o3"), {"type": "x:odd"}])
    notice = Notice("n1", OWNER, "r3", "response.completed", 7, "https://example.test/hook")
    sent: dict[str, Any] = {"owner": OWNER, "response_id": "r3", "created_at": 7, "size": 3}
    rounds = [
        KeptRound(number=0, kind="model", body=b"\x00\xff", **sent),
        KeptRound(number=1, kind="repair", body=None, **sent),
    ]
    await store.finish(OWNER, ended, batch=Batch(2, 2, b"b"), entries=[notice, *rounds])
    context = Thread([message("i1", "\x00"), message("ü")], weight=2**20)
    for name in ("r5", "r6"):
        await store.begin(OWNER, opened(name), context.with_tail([message(f"i-{name}")]))
        await store.finish(OWNER, opened(name, status="completed"))
    talk = Conversation("c1", 5, {"topic": "ÅÅ"})
    await store.conversations.create(OWNER, talk, [message("i1"), message("i\x002")])
    await store.claims.take(OWNER, "token", b"\xff\x00", "r3", 9)
    await store.native_states.keep(OWNER, "r3", {"call": b"\x00\xff"}, 9)
    await store.tool_calls.intend(OWNER, "r3", [Intent("c", "mcp", b"\x00\xff")], 9)
    assert await store.tool_calls.claim_approval(OWNER, "mcpr_1", "r3", 9)
    await fill_files(store)
    await fill_ledger(store)
    for name in ("z", "a"):
        await store.secret(name, name.encode())
        await store.add_key(key(name, name="Zoë", expires_at=2**40))
    rotated = key("r", role="viewer", user="zoë", models=("a", "ü"), never_store=True, hint="x7Qd")
    await store.add_key(rotated)
    await store.rotate_key("r", b"\x01\xff", "abcd", now=2, until=2**40)
    await store.note_uses({"r": 9})
    record = AuditRecord(at=7, actor="cli:root", action="project.created", subject=OWNER)
    await store.projects.create(Project("lab", "Lab \x7f", 5, None, True, {"ä": [1]}))
    await store.projects.archive(OWNER, 6, audit=record)
    for number in range(MANY):
        await store.begin("bob", opened(f"m{number}"), [message(f"m{number}")])
    # Left unfinished: the log, the job, the request to cancel and a lock stay.
    await store.begin(OWNER, opened("r4"), [], batch=Batch(0, 0, b"x"), request=b"{}")
    await store.append(OWNER, "r4", Batch(1, 3, b"y"), status="in_progress")
    await store.ask_cancel(OWNER, "r4")
    await store.conversations.lock(OWNER, "c1", "r4")


async def fill_ledger(store: Store) -> None:
    """Put something into every table of the ledger."""
    ledger = store.ledger
    await ledger.put_budget(Budget(id="b", scope="project", scope_id=OWNER, ceiling=90, soft=(5,)))
    await ledger.put_limit(RateLimit(id="l", scope="user", scope_id="a/ü", tokens=2**40))
    for number in range(4):
        more: dict[str, Any] = {
            "key": "k",
            "user": "ü",
            "conversation": "c1",
            "run": "x",
            "price": b'{"in":1}',
        }
        await ledger.reserve(wanted(f"r{number}", project=OWNER, run_ceiling=10**6, **more))
    items = (LineItem("search", 1, 5),)
    await ledger.settle([ending("r1", items=items), ending("r2", outcome="released")])
    await ledger.reserve(wanted("r0", project="old"))
    await ledger.settle([ending("r0")])
    await ledger.sweep(2**32, 1)


async def fill_files(store: Store) -> None:
    """Put something into every table of files."""
    await add_file(store, "f1", PIECES, filename="\x00 ü")
    await add_file(store, "f2", b"", expires_at=2**40)
    gone = await add_file(store, "f0", b"gone")
    await store.files.remove(OWNER, gone.id)
    await write(store, b"a blob without a row")
    assert await store.files.begin_upload(OWNER, upload("u1"), once()) is None
    assert await store.files.add_part(OWNER, "u1", part("p1", await write(store, b"part")), NOW)
    inside = container_file("cf1", "/mnt/data/\udcff", await write(store, b"inside"))
    await store.containers.add(OWNER, container("c1"), [inside])
    await store.skills.add(OWNER, skill("s1"), skill_version("v1", await write(store, b"zip")))
    await fill_vector_stores(store)


async def fill_vector_stores(store: Store) -> None:
    """Put something into every table of vector stores."""
    stores = store.vector_stores
    await stores.add(OWNER, vector_store("vs_0", days=3))
    await stores.remove(OWNER, "vs_0")
    await stores.add(OWNER, vector_store("vs_1", days=3))
    attributes: Attributes = {"n": 2.5, "whole": 2, "yes": True, "käy\0": "\0\udc80"}
    chunks = [Chunk("needle \0 words", vector(1, 0)), Chunk("ünd", vector(0, 1)), Chunk("x")]
    await index_file(store, "gone", *chunks)
    await index_file(store, "v1", *chunks, attributes=attributes, embedding="e")
    await stores.detach(OWNER, "vs_1", "gone")
    batch = FileBatch(id="vsfb_1", created_at=5)
    await stores.attach(OWNER, "vs_1", [attached("v2")], batch)
    assert await stores.add_chunks(await take(store), [Chunk("half of it")])

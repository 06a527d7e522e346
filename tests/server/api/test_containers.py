"""/v1/containers and /v1/skills, as the official SDK uses them."""

from __future__ import annotations

import io
import zipfile
from collections.abc import AsyncIterator
from typing import Any

import pytest
from openai import AsyncOpenAI, BadRequestError, NotFoundError, UnprocessableEntityError

from antiphon.backends.scripted import ScriptedBackend
from antiphon.store.memory import MemoryStore
from antiphon.testing.gateway import Gateway, serve_gateway
from antiphon.tools.containers.service import ContainerService
from tests.asking import request
from tests.containers import Clock, make_service, read_blob, upload

HEAD = b"---\nname: greet\ndescription: How to greet.\n---\nSay hello.\n"
NEXT = HEAD.replace(b"How to", b"How not to")


@pytest.fixture
async def service() -> AsyncIterator[ContainerService]:
    service = make_service(clock=Clock())
    yield service
    await service.close()


@pytest.fixture
async def gateway(service: ContainerService) -> AsyncIterator[Gateway]:
    async with serve_gateway(ScriptedBackend(), store=service.store, containers=service) as gateway:
        gateway.app.engine.now = service.now
        yield gateway


@pytest.fixture
async def client(gateway: Gateway) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(base_url=gateway.base_url, api_key="x", max_retries=0) as client:
        yield client


async def test_a_container_is_made_listed_read_and_removed(client: AsyncOpenAI) -> None:
    made = await client.containers.create(
        name="mine", expires_after={"anchor": "last_active_at", "minutes": 5}, memory_limit="1g"
    )
    assert made.id.startswith("cntr_")
    assert (made.name, made.status, made.memory_limit) == ("mine", "running", "1g")
    assert made.expires_after is not None
    assert made.expires_after.minutes == 5
    assert made.network_policy is not None
    assert made.network_policy.type == "disabled"
    other = await client.containers.create(name="other")
    assert [one.id async for one in client.containers.list(limit=1)] == [other.id, made.id]
    assert [one.id async for one in client.containers.list(name="mine")] == [made.id]
    assert (await client.containers.retrieve(made.id)).id == made.id
    await client.containers.delete(made.id)
    with pytest.raises(NotFoundError):
        await client.containers.retrieve(made.id)


async def test_files_of_a_container_are_sent_copied_read_and_removed(
    client: AsyncOpenAI, service: ContainerService
) -> None:
    file_id = await upload(service.store, "table.csv", b"1,2")
    made = await client.containers.create(name="mine", file_ids=[file_id])
    sent = await client.containers.files.create(made.id, file=("../up.txt", b"hello"))
    assert (sent.path, sent.source, sent.bytes) == ("/mnt/data/up.txt", "user", 5)
    again = await client.containers.files.create(made.id, file=("up.txt", b"hello 2"))
    assert (again.id, again.bytes) == (sent.id, 7)
    copied = await client.containers.files.create(made.id, file_id=file_id)
    assert copied.path == "/mnt/data/table.csv"
    files = [one.path async for one in client.containers.files.list(made.id, order="asc")]
    assert files == ["/mnt/data/table.csv", "/mnt/data/up.txt"]
    content = await client.containers.files.content.retrieve(sent.id, container_id=made.id)
    assert content.read() == b"hello 2"
    await client.containers.files.delete(sent.id, container_id=made.id)
    with pytest.raises(NotFoundError):
        await client.containers.files.retrieve(sent.id, container_id=made.id)


async def test_a_key_makes_one_container(gateway: Gateway) -> None:
    headers = {"Idempotency-Key": "k"}
    first = await request(gateway, "POST", "/containers", {"name": "a"}, headers)
    again = await request(gateway, "POST", "/containers", {"name": "a"}, headers)
    other = await request(gateway, "POST", "/containers", {"name": "b"}, headers)
    assert first.json == again.json
    assert again.headers["x-antiphon-replayed"] == "1"
    assert other.status == 422


async def test_an_expired_container_is_shown_and_its_files_are_not(
    client: AsyncOpenAI, service: ContainerService
) -> None:
    made = await client.containers.create(name="old")
    clock: Any = service.now
    clock.now += 20 * 60
    assert (await client.containers.retrieve(made.id)).status == "expired"
    with pytest.raises(NotFoundError) as refused:
        await client.containers.files.create(made.id, file=("a", b"x"))
    assert refused.value.code == "container_expired"


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({}, 400, "missing_required_parameter"),
        ({"name": "a", "memory_limit": "3g"}, 400, "invalid_value"),
        ({"name": "a", "file_ids": ["file-none"]}, 404, "file_not_found"),
        ({"name": "a", "network_policy": {"type": "allowlist"}}, 400, "unsupported_value"),
        ({"name": "a", "expires_after": {"minutes": 0}}, 400, "invalid_value"),
        ({"name": "a", "other": 1}, 400, "unknown_parameter"),
        ({"name": "a", "skills": [{"type": "skill_reference", "skill_id": "x"}]}, 404, None),
    ],
)
async def test_a_wrong_container_is_refused(
    body: Any, status: int, code: str | None, gateway: Gateway
) -> None:
    answer = await request(gateway, "POST", "/containers", body)
    assert answer.status == status
    assert code is None or answer.error["code"] == code


VERBS: list[tuple[str, str]] = [
    ("GET", ""),
    ("DELETE", ""),
    ("GET", "/files"),
    ("POST", "/files"),
    ("GET", "/files/{file}"),
    ("DELETE", "/files/{file}"),
    ("GET", "/files/{file}/content"),
]


@pytest.mark.parametrize(("method", "path"), VERBS)
async def test_what_belongs_to_others_is_answered_as_if_it_were_not_there(
    method: str, path: str, gateway: Gateway, service: ContainerService
) -> None:
    from antiphon.tools.containers.service import ContainerWish

    made: Any = await service.create("somebody", ContainerWish(name="x"))
    stored = await upload(service.store, "a", b"1", "somebody")
    (found,) = (await service.store.files.find("somebody", [stored], 1)).values()
    blob = await service.copy_blob("somebody", found.blob)
    file: Any = await service.add_file("somebody", made.id, "a", blob)
    names = [(made.id, file.id), ("cntr_none", "cfile_none")]
    bodies = []
    for container, name in names:
        whole = f"/containers/{container}{path.replace('{file}', name)}"
        body = {"file_id": stored} if method == "POST" else None
        answer = await request(gateway, method, whole, body)
        assert answer.status == 404
        text = answer.body.decode().replace(container, "ID").replace(name, "FILE")
        bodies.append(text)
    assert bodies[0] == bodies[1]


# Skills.


def zipped(head: bytes) -> bytes:
    """Return a skill as an archive."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        archive.writestr("greet/SKILL.md", head)
    return data.getvalue()


async def test_a_skill_has_versions(client: AsyncOpenAI, service: ContainerService) -> None:
    sent = zipped(HEAD)  # once: there is a time in it
    made = await client.skills.create(files=("greet.zip", sent))
    assert (made.name, made.description) == ("greet", "How to greet.")
    assert (made.default_version, made.latest_version) == ("1", "1")
    second = await client.skills.versions.create(
        made.id, files=[("greet/SKILL.md", NEXT), ("greet/a.txt", b"x")]
    )
    assert (second.version, second.description) == ("2", "How not to greet.")
    assert (await client.skills.retrieve(made.id)).latest_version == "2"
    changed = await client.skills.update(made.id, default_version="2")
    assert (changed.default_version, changed.description) == ("2", "How not to greet.")
    versions = [one.version async for one in client.skills.versions.list(made.id, order="asc")]
    assert versions == ["1", "2"]
    rest = await client.skills.versions.list(made.id, after=second.id, order="desc")
    assert [one.version for one in rest.data] == ["1"]
    content = await client.skills.versions.content.retrieve("1", skill_id=made.id)
    assert content.read() == sent
    current = await client.skills.content.retrieve(made.id)
    with zipfile.ZipFile(io.BytesIO(current.read())) as archive:
        assert sorted(archive.namelist()) == ["greet/SKILL.md", "greet/a.txt"]
    with pytest.raises(BadRequestError):
        await client.skills.versions.delete("2", skill_id=made.id)
    gone = await client.skills.versions.delete("1", skill_id=made.id)
    assert (gone.deleted, gone.version) == (True, "1")
    assert [one.id async for one in client.skills.list()] == [made.id]
    assert (await client.skills.delete(made.id)).deleted
    with pytest.raises(NotFoundError):
        await client.skills.retrieve(made.id)
    assert await service.store.files.used_bytes("local") == 0


async def test_a_key_makes_one_skill_and_one_version(client: AsyncOpenAI) -> None:
    key = {"Idempotency-Key": "k"}
    first, again = [
        await client.skills.create(files=[("greet/SKILL.md", HEAD)], extra_headers=key)
        for _ in range(2)
    ]
    assert first == again
    one, two = [
        await client.skills.versions.create(
            first.id, files=[("greet/SKILL.md", NEXT)], extra_headers=key
        )
        for _ in range(2)
    ]
    assert one == two
    assert (await client.skills.retrieve(first.id)).latest_version == "2"
    with pytest.raises(UnprocessableEntityError):
        await client.skills.versions.create(
            first.id, files=[("greet/SKILL.md", HEAD)], extra_headers=key
        )


async def test_a_skill_that_is_not_safe_is_refused(client: AsyncOpenAI) -> None:
    with pytest.raises(BadRequestError) as refused:
        await client.skills.create(files=("x.zip", b"PK not a zip"))
    assert refused.value.code == "invalid_skill"
    with pytest.raises(BadRequestError):
        await client.skills.create(files=[("../SKILL.md", HEAD)])


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", ""),
        ("POST", ""),
        ("DELETE", ""),
        ("GET", "/content"),
        ("GET", "/versions"),
        ("POST", "/versions"),
        ("GET", "/versions/1"),
        ("DELETE", "/versions/1"),
        ("GET", "/versions/1/content"),
    ],
)
async def test_a_skill_of_others_is_not_there(method: str, path: str, gateway: Gateway) -> None:
    body = {"default_version": "1"} if method == "POST" else None
    answer = await request(gateway, method, f"/skills/skill_none{path}", body)
    assert answer.status == 404
    assert answer.error["code"] == "skill_not_found"


async def test_a_removed_container_leaves_no_bytes(
    client: AsyncOpenAI, service: ContainerService
) -> None:
    made = await client.containers.create(name="mine")
    sent = await client.containers.files.create(made.id, file=("a", b"secret"))
    store = service.store
    assert isinstance(store, MemoryStore)
    file = await store.containers.find_file("local", made.id, sent.id)
    assert file is not None
    assert await read_blob(store, file.blob.id) == b"secret"
    await client.containers.delete(made.id)
    assert await read_blob(store, file.blob.id) == b""
    assert await store.files.used_bytes("local") == 0

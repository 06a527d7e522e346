"""Every verb on a foreign id is a 404 that reads as if there were nothing, to the byte."""

from __future__ import annotations

import pytest

from antiphon.testing.gateway import Gateway
from tests.asking import Answer, request
from tests.server.api.filing import FORM, key_of, part, sdk_of, upload

_HEAD = b"---\nname: greet\ndescription: How to greet.\n---\nSay hello.\n"
_SKILL = part('name="files"; filename="greet/SKILL.md"', _HEAD) + b"--X--\r\n"
_PART = part('name="data"; filename="a"', b"1") + b"--X--\r\n"
_REFERENCE = {"type": "skill_reference", "skill_id": "SKILL"}
_FILE = {"type": "input_file", "file_id": "FILE"}
MATRIX: list[tuple[str, str, object]] = [
    ("GET", "/files/FILE", None),
    ("DELETE", "/files/FILE", None),
    ("GET", "/files/FILE/content", None),
    ("POST", "/uploads/UPLOAD/parts", _PART),
    ("POST", "/uploads/UPLOAD/complete", {"part_ids": []}),
    ("POST", "/uploads/UPLOAD/cancel", {}),
    ("GET", "/vector_stores/STORE", None),
    ("POST", "/vector_stores/STORE", {"name": "mine"}),
    ("DELETE", "/vector_stores/STORE", None),
    ("POST", "/vector_stores/STORE/search", {"query": "words"}),
    ("POST", "/vector_stores/STORE/files", {"file_id": "OWN"}),
    ("GET", "/vector_stores/STORE/files", None),
    ("GET", "/vector_stores/STORE/files/FILE", None),
    ("POST", "/vector_stores/STORE/files/FILE", {"attributes": {}}),
    ("DELETE", "/vector_stores/STORE/files/FILE", None),
    ("GET", "/vector_stores/STORE/files/FILE/content", None),
    ("POST", "/vector_stores/STORE/file_batches", {"file_ids": ["OWN"]}),
    ("GET", "/vector_stores/STORE/file_batches/BATCH", None),
    ("POST", "/vector_stores/STORE/file_batches/BATCH/cancel", {}),
    ("GET", "/vector_stores/STORE/file_batches/BATCH/files", None),
    ("GET", "/containers/CONTAINER", None),
    ("DELETE", "/containers/CONTAINER", None),
    ("POST", "/containers/CONTAINER/files", {"file_id": "OWN"}),
    ("GET", "/containers/CONTAINER/files", None),
    ("GET", "/containers/CONTAINER/files/MADE", None),
    ("DELETE", "/containers/CONTAINER/files/MADE", None),
    ("GET", "/containers/CONTAINER/files/MADE/content", None),
    ("GET", "/skills/SKILL", None),
    ("POST", "/skills/SKILL", {"default_version": "1"}),
    ("DELETE", "/skills/SKILL", None),
    ("GET", "/skills/SKILL/content", None),
    ("POST", "/skills/SKILL/versions", _SKILL),
    ("GET", "/skills/SKILL/versions", None),
    ("GET", "/skills/SKILL/versions/1", None),
    ("DELETE", "/skills/SKILL/versions/1", None),
    ("GET", "/skills/SKILL/versions/1/content", None),
    # Foreign things named inside of one's own.
    ("POST", "/containers", {"name": "a", "file_ids": ["FILE"]}),
    ("POST", "/containers", {"name": "a", "skills": [_REFERENCE]}),
    ("POST", "/containers/OWNCONTAINER/files", {"file_id": "FILE"}),
    ("GET", "/containers/OWNCONTAINER/files/MADE", None),
    ("DELETE", "/containers/OWNCONTAINER/files/MADE", None),
    ("GET", "/containers/OWNCONTAINER/files/MADE/content", None),
    ("POST", "/responses", {"input": [{"role": "user", "content": [_FILE]}]}),
    ("POST", "/responses", {"input": "x", "previous_response_id": "RESPONSE"}),
    ("POST", "/responses", {"input": [{"type": "item_reference", "id": "ITEM"}]}),
    ("POST", "/vector_stores", {"file_ids": ["FILE"]}),
    ("POST", "/vector_stores/OWNSTORE/files", {"file_id": "FILE"}),
    ("POST", "/vector_stores/OWNSTORE/file_batches", {"file_ids": ["FILE"]}),
    ("GET", "/vector_stores/OWNSTORE/files/FILE", None),
    ("POST", "/vector_stores/OWNSTORE/files/FILE", {"attributes": {}}),
    ("DELETE", "/vector_stores/OWNSTORE/files/FILE", None),
    ("GET", "/vector_stores/OWNSTORE/files/FILE/content", None),
    ("GET", "/vector_stores/OWNSTORE/file_batches/BATCH", None),
    ("POST", "/vector_stores/OWNSTORE/file_batches/BATCH/cancel", {}),
    ("GET", "/vector_stores/OWNSTORE/file_batches/BATCH/files", None),
]
MISSING = {
    "FILE": "file-0",
    "UPLOAD": "upload_0",
    "STORE": "vs_0",
    "BATCH": "vsfb_0",
    "CONTAINER": "cntr_0",
    "MADE": "cfile_0",
    "SKILL": "skill_0",
    "RESPONSE": "resp_0",
    "ITEM": "msg_0",
}


def _named(value: object, names: dict[str, str]) -> object:
    """Return a path or a body with the ids in place of the words for them."""
    if isinstance(value, str):
        words = sorted(names, key=len, reverse=True)
        for word in words:
            if word in value.split("/") or value == word:
                value = "/".join(names[word] if step == word else step for step in value.split("/"))
        return value
    if isinstance(value, dict):
        return {key: _named(one, names) for key, one in value.items()}
    if isinstance(value, list):
        return [_named(one, names) for one in value]
    return value


def _unnamed(answer: Answer, names: dict[str, str]) -> bytes:
    body = answer.body
    for word, name in names.items():
        body = body.replace(name.encode(), word.encode())
    return body


async def test_foreign_and_missing_are_the_same(shelf: Gateway) -> None:
    async with await sdk_of(shelf, "alice") as alice, await sdk_of(shelf, "bob") as bob:
        file = await upload(alice, b"words")
        pending = await alice.uploads.create(
            bytes=5, filename="a", mime_type="text/plain", purpose="assistants"
        )
        store = (await alice.vector_stores.create(name="hers")).id
        batch = await alice.vector_stores.file_batches.create_and_poll(
            store, file_ids=[file], poll_interval_ms=50
        )
        container = (await alice.containers.create(name="hers")).id
        made = await alice.containers.files.create(container, file=("a.txt", b"made"))
        skill = (await alice.skills.create(files=[("greet/SKILL.md", _HEAD)])).id
        said = await alice.responses.create(model="scripted", input="hi")
        before = await alice.vector_stores.files.retrieve(file, vector_store_id=store)
        own = {
            "OWN": await upload(bob, b"mine"),
            "OWNSTORE": (await bob.vector_stores.create(name="his")).id,
            "OWNCONTAINER": (await bob.containers.create(name="his")).id,
        }
        foreign = {"FILE": file, "UPLOAD": pending.id, "STORE": store, "BATCH": batch.id}
        foreign |= {"CONTAINER": container, "MADE": made.id, "SKILL": skill}
        foreign |= {"RESPONSE": said.id, "ITEM": str(said.output[0].id)}
        key = await key_of(shelf, "bob")
        for method, path, body in MATRIX:
            answers = []
            is_form = isinstance(body, bytes)
            for names in (foreign, MISSING):
                headers = {"Authorization": f"Bearer {key}"} | (FORM if is_form else {})
                given = body if is_form else _named(body, names | own)
                where = str(_named(path, names | own))
                answers.append(await request(shelf, method, where, given, headers))
            # What a request continues from is 400 in the API.
            refused = 400 if isinstance(body, dict) and "previous_response_id" in body else 404
            assert [answer.status for answer in answers] == [refused] * 2, (method, path)
            shown = [
                _unnamed(answer, names)
                for answer, names in zip(answers, (foreign, MISSING), strict=True)
            ]
            assert shown[0] == shown[1], (method, path)
        assert (await alice.files.content(file)).content == b"words"
        after = await alice.vector_stores.files.retrieve(file, vector_store_id=store)
        assert after == before
        content = alice.containers.files.content
        assert (await content.retrieve(made.id, container_id=container)).content == b"made"
        assert (await alice.skills.retrieve(skill)).default_version == "1"
        assert (await alice.uploads.cancel(pending.id)).status == "cancelled"


def test_the_matrix_has_every_route_with_an_id() -> None:
    from antiphon.server.api import (
        containers,
        files,
        skills,
        uploads,
        vector_store_files,
        vector_stores,
    )

    routes = [
        (route.method, route.path.count("/"))
        for resource in (
            *(files, uploads, vector_stores),
            *(vector_store_files, containers, skills),
        )
        for route in resource.ROUTES
        if "{id}" in route.path
    ]
    named = [
        (method, f"/v1{path}".count("/"))
        for method, path, _ in MATRIX
        if "OWN" not in path and path not in ("/vector_stores", "/containers", "/responses")
    ]
    assert sorted(named) == sorted(routes)


@pytest.mark.parametrize("path", ["/files/../../etc/passwd", "/files/%2e%2e%2f", "/files/a%00b"])
async def test_ids_are_never_paths(shelf: Gateway, path: str) -> None:
    key = await key_of(shelf, "alice")
    answer = await request(shelf, "GET", path, headers={"Authorization": f"Bearer {key}"})
    assert answer.status == 404

"""Forms that are broken, slow or cut off: refused, with nothing left in the store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from antiphon.backends.scripted import ScriptedBackend
from antiphon.gateway.assemble import ServerSettings
from antiphon.server.delivery import connection
from antiphon.server.limits import ServerLimits
from antiphon.store.memory import MemoryStore
from antiphon.testing.gateway import Gateway, serve_gateway
from tests.asking import request
from tests.faults.house import until
from tests.server.api.filing import FORM, form, head_of, key_of, part, post_form, raw

HUGE = "X-Junk: " + "a" * 9000 + "\r\n"
FILE = part('name="file"; filename="a"', b"1")
PURPOSE = part('name="purpose"', b"user_data")
END = b"--X--\r\n"


@pytest.fixture
async def key(shelf: Gateway) -> str:
    return await key_of(shelf, "alice")


@pytest.mark.parametrize(
    ("body", "param"),
    [
        pytest.param(b"", None, id="no body"),
        pytest.param(b"not a form", None, id="no form"),
        pytest.param(form()[:-8], None, id="truncated"),
        pytest.param(form()[:90], None, id="truncated headers"),
        pytest.param(FILE + END, "purpose", id="no purpose"),
        pytest.param(PURPOSE + END, "file", id="no file"),
        pytest.param(FILE + FILE + PURPOSE + END, "file", id="two files"),
        pytest.param(FILE + PURPOSE + PURPOSE + END, "purpose", id="two purposes"),
        pytest.param(FILE + part('name="purpose"', b"evil") + END, "purpose", id="wrong purpose"),
        pytest.param(
            FILE + part('name="purpose"', b"x" * 5000) + END, "purpose", id="huge purpose"
        ),
        pytest.param(FILE + part('name="purpose"', b"\xff") + END, "purpose", id="not UTF-8"),
        pytest.param(part('name="fil"; filename="a"', b"1") + PURPOSE + END, "fil", id="typo"),
        pytest.param(part('name="file"', b"1") + PURPOSE + END, "file", id="no filename"),
        pytest.param(FILE + part('name="extra"', b"1") + PURPOSE + END, "extra", id="unknown"),
        pytest.param(
            part('name="file"; filename="a"', b"1", HUGE) + PURPOSE + END, None, id="huge header"
        ),
        pytest.param(
            form(more={"expires_after[anchor]": "now", "expires_after[seconds]": "3600"}),
            "expires_after[anchor]",
            id="wrong anchor",
        ),
        pytest.param(
            form(more={"expires_after[anchor]": "created_at", "expires_after[seconds]": "3599"}),
            "expires_after[seconds]",
            id="expires too early",
        ),
        pytest.param(
            form(more={"expires_after[anchor]": "created_at"}),
            "expires_after[seconds]",
            id="half an expiry",
        ),
        pytest.param(
            form(more={"expires_after[anchor]": "created_at", "expires_after[seconds]": "1e4"}),
            "expires_after[seconds]",
            id="no number",
        ),
    ],
)
async def test_broken_forms_store_nothing(
    shelf: Gateway, key: str, body: bytes, param: str | None
) -> None:
    answer = await post_form(shelf, key, body)
    assert (answer.status, answer.error["param"]) == (400, param), answer.body
    assert answer.error["type"] == "invalid_request_error"
    assert await shelf.store.files.used_bytes("alice") == 0
    assert (await post_form(shelf, key, form())).status == 200


@pytest.mark.parametrize(
    "content_type",
    ["multipart/form-data", "multipart/form-data; boundary=", "application/json", "text/plain"],
)
async def test_a_form_needs_a_boundary(shelf: Gateway, key: str, content_type: str) -> None:
    answer = await post_form(shelf, key, form(), **{"Content-Type": content_type})
    assert (answer.status, answer.error["code"]) == (400, "invalid_multipart")


async def test_compressed_forms_are_refused(shelf: Gateway, key: str) -> None:
    answer = await post_form(shelf, key, form(), **{"Content-Encoding": "gzip"})
    assert answer.status == 400


@pytest.fixture
def short_linger(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the server wait shortly for a body that it has refused, before it closes."""
    monkeypatch.setattr(connection, "_LINGER_SECONDS", 0.5)


@pytest.mark.usefixtures("short_linger")
async def test_an_announced_size_is_refused_before_it_is_sent(shelf: Gateway, key: str) -> None:
    head = head_of(shelf, key, FORM | {"Content-Length": "999999999", "Expect": "100-continue"})
    answer = await asyncio.wait_for(raw(shelf, head, b""), 60)
    assert answer.startswith(b"HTTP/1.1 413 ")


@pytest.mark.usefixtures("short_linger")
async def test_without_a_key_the_body_is_not_read(shelf: Gateway) -> None:
    head = head_of(shelf, "none", FORM | {"Content-Length": "9999", "Expect": "100-continue"})
    answer = await asyncio.wait_for(raw(shelf, head, b""), 60)
    assert answer.startswith(b"HTTP/1.1 401 ")


async def test_a_client_that_hangs_up_leaves_nothing(shelf: Gateway, key: str) -> None:
    head = head_of(shelf, key, FORM | {"Content-Length": "2000000"})
    for size in (0, 10, 200, 600_000):
        await raw(shelf, head, form(b"x" * 2_000_000)[:size], hang_up=True)
    await until(lambda: not shelf.app.quota._arriving)  # the handlers have noticed it
    assert await shelf.store.files.used_bytes("alice") == 0
    assert (await post_form(shelf, key, form())).status == 200


@pytest.fixture
async def hasty() -> AsyncIterator[Gateway]:
    """A gateway that waits half a second for a body."""
    settings = ServerSettings(limits=ServerLimits(body_seconds=0.5))
    store = MemoryStore()
    async with serve_gateway(ScriptedBackend(), store=store, settings=settings) as gateway:
        yield gateway


@pytest.mark.usefixtures("short_linger")
async def test_forms_that_stop_arriving_are_ended(hasty: Gateway) -> None:
    host = ":".join(map(str, hasty.address))
    head = f"POST /v1/files HTTP/1.1\nHost: {host}\nContent-Length: 900\nConnection: close\n"
    head += "Content-Type: multipart/form-data; boundary=X"
    answer = await asyncio.wait_for(raw(hasty, head, form()[:200]), 60)
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert await hasty.store.files.used_bytes("local") == 0


async def test_pages_cannot_send_forms_to_a_gateway_without_keys(hasty: Gateway) -> None:
    evil = FORM | {"Origin": "https://evil.example"}
    assert (await request(hasty, "POST", "/files", form(), evil)).status == 403
    site = FORM | {"Sec-Fetch-Site": "none"}
    assert (await request(hasty, "POST", "/files", form(), site)).status == 415
    assert (await request(hasty, "POST", "/files", form(), FORM)).status == 200

"""The root of the gateway, for a person and for a program."""

from __future__ import annotations

import pytest

from antiphon import __version__
from antiphon.backends.scripted import ScriptedBackend
from antiphon.gateway.assemble import ServerSettings
from antiphon.testing import serve_gateway
from tests.asking import request


@pytest.mark.parametrize("require_keys", [False, True])
async def test_the_root_answers_a_person_with_a_page_and_a_program_with_json(
    require_keys: bool,
) -> None:
    settings = ServerSettings(require_keys=require_keys)
    async with serve_gateway(ScriptedBackend(), settings=settings) as gateway:
        page = await request(gateway, "GET", "/../", headers={"Accept": "text/html,*/*;q=0.8"})
        facts = await request(gateway, "GET", "/../", headers={"Accept": "*/*"})
        for path in facts.json["paths"].values():
            found = await request(gateway, "GET", f"/..{path}")
            assert found.status != 404, path
    assert page.headers["Content-Type"].startswith("text/html")
    assert f"antiphon {__version__}" in page.body.decode()
    assert (facts.json["name"], facts.json["version"]) == ("antiphon", __version__)


async def test_health_and_version_have_their_conventional_names() -> None:
    async with serve_gateway(ScriptedBackend()) as gateway:
        health = await request(gateway, "GET", "/../health")
        alias = await request(gateway, "GET", "/../healthz")
        version = await request(gateway, "GET", "/../version")
    assert health.body == alias.body == b'{"status":"ok"}'
    assert version.json == {"name": "antiphon", "version": __version__}


@pytest.mark.parametrize(
    "path", ["/", "/version", "/health", "/healthz", "/readyz", "/openapi.json"]
)
async def test_head_is_answered_like_get_without_a_body(path: str) -> None:
    settings = ServerSettings(require_keys=True)
    async with serve_gateway(ScriptedBackend(), settings=settings) as gateway:
        whole = await request(gateway, "GET", f"/..{path}")
        head = await request(gateway, "HEAD", f"/..{path}")
        closed = await request(gateway, "HEAD", "/models")
    assert (head.status, head.body) == (200, b"")
    assert head.headers["Content-Length"] == str(len(whole.body))
    assert closed.status == 405

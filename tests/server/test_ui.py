"""/ui: static files with a strict policy, served only where they are wanted."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from antiphon.backends.scripted import ScriptedBackend
from antiphon.gateway.assemble import ServerSettings
from antiphon.server.ui import content_policy
from antiphon.testing.gateway import Gateway, serve_gateway
from tests.asking import request

UI = Path(__file__).parents[2] / "src" / "antiphon" / "ui"
MOST_BYTES = 400_000


@pytest.fixture(params=[False, True])
async def gateway(request: pytest.FixtureRequest) -> AsyncIterator[Gateway]:
    """A gateway with the dashboard, without and with keys."""
    settings = ServerSettings(ui=True, require_keys=request.param)
    async with serve_gateway(ScriptedBackend(), settings=settings) as served:
        yield served


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("", "text/html"),
        ("/", "text/html"),
        ("/requests", "text/html"),
        ("/responses/resp_x", "text/html"),
        ("/app.css", "text/css"),
        ("/js/main.js", "text/javascript"),
        ("/vendor/uPlot.iife.min.js", "text/javascript"),
    ],
)
async def test_files_and_screens_are_served_with_the_policy(
    gateway: Gateway, path: str, kind: str
) -> None:
    answer = await request(gateway, "GET", f"/../ui{path}")
    assert answer.status == 200
    assert answer.headers["Content-Type"] == f"{kind}; charset=utf-8"
    assert answer.headers["Content-Security-Policy"] == content_policy()
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Cache-Control"] == "no-cache"
    again = await request(
        gateway, "GET", f"/../ui{path}", headers={"If-None-Match": answer.headers["ETag"]}
    )
    assert (again.status, again.body) == (304, b"")


async def test_the_page_names_all_of_its_modules_at_once(gateway: Gateway) -> None:
    answer = await request(gateway, "GET", "/../ui/requests")
    named = {
        link.partition(">")[0].removeprefix("</ui/") for link in answer.headers["Link"].split(", ")
    }
    own = {f"js/{path.name}" for path in (UI / "js").iterdir()}
    assert named == own | {"vendor/preact-htm.js"}
    assert "Link" not in (await request(gateway, "GET", "/../ui/js/main.js")).headers


@pytest.mark.parametrize("path", ["/js/none.js", "/vendor/htm.LICENSE"])
async def test_a_file_that_is_not_there_is_not_found(gateway: Gateway, path: str) -> None:
    assert (await request(gateway, "GET", f"/../ui{path}")).status == 404


@pytest.mark.parametrize("path", ["/%2e%2e/version.py", "/..%2fversion.py", "//etc/passwd"])
async def test_nothing_outside_the_folder_is_served(gateway: Gateway, path: str) -> None:
    page = await request(gateway, "GET", "/../ui")
    answer = await request(gateway, "GET", f"/../ui{path}")
    assert answer.status == 404 or answer.body == page.body


async def test_it_is_off_unless_it_is_wanted() -> None:
    async with serve_gateway(ScriptedBackend()) as served:
        for path in ("/../ui", "/../ui/app.css"):
            assert (await request(served, "GET", path)).status == 404


def test_vendored_files_are_those_of_the_registry() -> None:
    stated = {}
    for line in (UI / "vendor" / "README").read_text().splitlines():
        digest, _, name = line.partition("  ")
        if len(digest) == 64:
            stated[name] = digest
    files = [path for path in (UI / "vendor").iterdir() if path.suffix in {".js", ".css"}]
    assert {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files} == stated


def test_the_dashboard_is_small_and_asks_no_other_host() -> None:
    files = [path for path in UI.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < MOST_BYTES
    own = [path for path in files if path.parent.name != "vendor"]
    for path in own:
        text = path.read_text()
        for word in ("http://", "https://", "innerHTML", "dangerouslySet", "eval(", "<style"):
            assert word not in text, f"{path.name} has {word}"

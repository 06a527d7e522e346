"""/ui: static files with a strict policy, served only where they are wanted."""

from __future__ import annotations

import hashlib
import re
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
    paths = [link[1:].partition(">")[0] for link in answer.headers["Link"].split(", ")]
    (folder,) = {path.split("/")[2] for path in paths}
    named = {path.removeprefix(f"/ui/{folder}/") for path in paths}
    own = {f"js/{path.name}" for path in (UI / "js").iterdir()}
    assert named == own | {"vendor/preact-htm.js"}
    assert "Link" not in (await request(gateway, "GET", "/../ui/js/main.js")).headers


async def test_a_browser_keeps_the_files_that_the_page_names_for_good(gateway: Gateway) -> None:
    page = (await request(gateway, "GET", "/../ui")).body.decode()
    named = re.findall(r'(?:src|href)="(/ui/[^"]+)"', page)
    assert len(named) == 4
    for path in named:
        kept = await request(gateway, "GET", f"/..{path}")
        _, _, folder, name = path.split("/", 3)
        fresh = await request(gateway, "GET", f"/../ui/{name}")
        assert kept.body == fresh.body == (UI / name).read_bytes()
        assert kept.headers["Cache-Control"] == "public, max-age=31536000, immutable"
        assert fresh.headers["Cache-Control"] == "no-cache"
    for path in (f"/{folder}", f"/{folder}/index.html", f"/{folder}/requests"):
        answer = await request(gateway, "GET", f"/../ui{path}")
        assert (answer.body.decode(), answer.headers["Cache-Control"]) == (page, "no-cache")
    assert (await request(gateway, "GET", f"/../ui/{folder}/js/none.js")).status == 404


async def test_files_of_another_version_are_those_of_this_one_and_not_kept(
    gateway: Gateway,
) -> None:
    answer = await request(gateway, "GET", "/../ui/0123456789abcdef/js/main.js")
    assert answer.body == (UI / "js/main.js").read_bytes()
    assert answer.headers["Cache-Control"] == "no-cache"
    assert (await request(gateway, "GET", "/../ui/0123456789abcdef/js/none.js")).status == 404


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

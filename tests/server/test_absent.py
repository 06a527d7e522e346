"""Paths of other APIs: a 404 that says what to do, and a row in the table of what is supported."""

from __future__ import annotations

from pathlib import Path

import pytest

from antiphon.backends.scripted import ScriptedBackend
from antiphon.gateway.assemble import routes_of
from antiphon.server.absent import ABSENT, why_absent
from antiphon.server.doors import DoorSettings
from antiphon.testing.gateway import serve_gateway
from tests.asking import request

_SUPPORT = Path(__file__).parents[2] / "docs" / "topics" / "support.md"


async def test_a_path_of_another_api_is_a_404_with_a_sentence() -> None:
    async with serve_gateway(ScriptedBackend()) as gateway:
        answer = await request(gateway, "POST", "/audio/speech", {"input": "hi"})
        plain = await request(gateway, "POST", "/audios", {})

    assert (answer.status, answer.error["code"]) == (404, "unknown_url")
    assert answer.error["message"].endswith(ABSENT["/v1/audio"])
    assert plain.error["message"] == "There is nothing at POST /v1/audios."


@pytest.mark.parametrize("path", ABSENT)
def test_the_table_of_what_is_supported_has_a_row_for_it(path: str) -> None:
    assert f"`{path}`" in _SUPPORT.read_text()


def test_nothing_that_is_answered_is_called_absent() -> None:
    assert [r.path for r in routes_of(DoorSettings()) if why_absent(r.path)] == []

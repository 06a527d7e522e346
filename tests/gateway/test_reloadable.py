"""Every setting is reloaded, or needs a restart: a table of each, and no key in none."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from antiphon.gateway.config import Settings
from antiphon.gateway.reloadable import NEED_RESTART, RELOADED, RESTART_LIMITS, compare
from antiphon.routing.settings import RouteSettings
from antiphon.server.limits import ServerLimits

_PAGE = Path(__file__).parents[2] / "docs/reference/config.md"


def test_every_key_is_in_one_of_the_two_tables() -> None:
    assert set(Settings.__struct_fields__) == RELOADED | NEED_RESTART
    assert not RELOADED & NEED_RESTART
    assert set(ServerLimits.__struct_fields__) >= RESTART_LIMITS


def test_the_reference_lists_what_needs_a_restart() -> None:
    _, _, section = _PAGE.read_text("utf-8").partition("\n## Reload\n")
    section = section.partition("\n## ")[0]
    reloads, _, restarts = section.partition("need a restart")
    assert set(re.findall(r"`(\w+)`", reloads)) >= RELOADED
    named = set(re.findall(r"`([\w.]+)`", restarts))
    assert named >= NEED_RESTART | {f"limits.{name}" for name in RESTART_LIMITS}


def test_what_needs_a_restart_keeps_its_value() -> None:
    old = Settings(port=1, limits=ServerLimits(turns=5, header_count=10))
    new = Settings(
        port=2,
        strict=True,
        limits=ServerLimits(turns=6, header_count=20),
        routes={"fast": RouteSettings(to="echo")},
    )
    found = compare(old, new)
    assert found.restart == ["port", "limits.header_count"]
    assert found.changed == ["strict", "limits", "routes"]
    assert (found.settings.port, found.settings.limits.header_count) == (1, 10)
    assert (found.settings.strict, found.settings.limits.turns) == (True, 6)
    assert compare(found.settings, found.settings).changed == []
    assert compare(old, msgspec.structs.replace(old, port=3)).changed == []

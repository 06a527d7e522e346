"""Every attack on every engine, as this user and, if this is root, as an ordinary one too.

As root, bubblewrap alone cannot limit the number of processes, because the system exempts root:
this is the one attack that succeeds, and the reason why that engine is then not used.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from antiphon.tools.sandbox.engines import ENGINES, EngineName
from tests.sandboxes import engine
from tests.tools.sandbox.attacks import ALL, ORDINARY, attack_all, attack_as, can_switch

_EXEMPT = {"fork again and again"}


def test_there_are_at_least_42_attacks() -> None:
    assert len({attack.name for attack in ALL}) == len(ALL) >= 42


@pytest.mark.parametrize("name", ENGINES)
async def test_no_attack_has_an_effect_outside(name: EngineName) -> None:
    found = await attack_all(engine(name))
    exempt = _EXEMPT if name == "bwrap" and os.geteuid() == 0 else set()
    assert len(found) == len(ALL)
    assert {attack for attack, words in found.items() if words} == exempt, found


@pytest.mark.skipif(bool(can_switch()), reason=can_switch() or "it can")
async def test_no_attack_of_an_ordinary_user_has_an_effect(tmp_path: Path) -> None:
    for name in ENGINES:
        engine(name)
    report = await attack_as(ORDINARY, tmp_path)
    held = {attack.name: "" for attack in ALL}
    assert (report.uid, report.found) == (ORDINARY, dict.fromkeys(ENGINES, held))

"""Every attack on every engine, as this user and, if this is root, as an ordinary one too.

As root, bubblewrap alone cannot limit the number of processes, because the system exempts root:
this is the one attack that succeeds, and the reason why that engine is then not used.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
import sysconfig
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest

from antiphon.tools.sandbox.engines import ENGINES, EngineName
from tests import debian
from tests.sandboxes import engine
from tests.tools.sandbox.attacks import ALL, attack_all

_ROOT = Path(__file__).parents[3]
_TOOLS = ("unshare", "setpriv", "mount")
_EXEMPT = ["fork again and again"]


def test_there_are_at_least_42_attacks() -> None:
    assert len({attack.name for attack in ALL}) == len(ALL) >= 42


@pytest.mark.parametrize("name", ENGINES)
async def test_no_attack_has_an_effect_outside(name: EngineName) -> None:
    found = await attack_all(engine(name))
    exempt = _EXEMPT if name == "bwrap" and os.geteuid() == 0 else []
    assert [words.split(":")[0] for words in found] == exempt, found


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.skipif(not all(map(shutil.which, _TOOLS)), reason="util-linux is not here")
async def test_no_attack_of_an_ordinary_user_has_an_effect(tmp_path: Path) -> None:
    for name in ENGINES:
        engine(name)
    found = await _attack_as(54321, tmp_path)
    assert found == {
        "uid": 54321,
        "attacks": len(ALL),
        "found": {name: [] for name in ENGINES},
    }


async def _attack_as(uid: int, folder: Path) -> object:
    """Attack in a process of another user, who sees this tree and Python at places of its own."""
    bwrap = debian.find("bwrap", "bubblewrap", "sandbox")
    assert bwrap is not None
    sources = {
        "python": sys.base_prefix,
        "site": sysconfig.get_path("purelib"),
        "tree": _ROOT,
        "bin": bwrap.parent,
    }
    for name in sources:
        (folder / name).mkdir()
    mounts = [f"mount --bind '{source}' '{folder / name}'" for name, source in sources.items()]
    # The parents of a temporary folder of pytest are closed to others, /mnt is not.
    mounts.append(f"chmod 755 '{folder}' && mount --rbind '{folder}' /mnt")
    python = f"/mnt/python/bin/python{sys.version_info.major}.{sys.version_info.minor}"
    attack = (
        f"setpriv --reuid {uid} --regid {uid} --clear-groups --no-new-privs"
        f" {python} -m tests.tools.sandbox.attacks {' '.join(ENGINES)}"
    )
    script = " && ".join([*mounts, "cd /mnt/tree", attack])
    process = await asyncio.create_subprocess_exec(
        *("unshare", "--mount", "--propagation", "private", "/bin/sh", "-c", script),
        env={"PATH": "/usr/bin:/bin:/mnt/bin", "PYTHONPATH": "/mnt/tree/src:/mnt/site"},
        stdout=PIPE,
        stderr=PIPE,
    )
    out, words = await process.communicate()
    assert process.returncode == 0, words.decode()[-2000:]
    return json.loads(out)

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


STUDIED = {
    "read /etc/passwd": "read /etc/passwd",
    "read other tenant": "read a file outside",
    "list other dir": "list a folder outside",
    "symlink escape": "follow a link out",
    "hardlink escape": "make a hard link to a file outside",
    "write outside": "write to the temporary folders of the machine",
    "write /usr": "write outside",
    "tcp loopback": "connect to TCP",
    "tcp public": "connect to a public address",
    "udp dns": "send UDP to this machine",
    "raw socket": "open a raw socket",
    "unix socket": "connect to a socket in a folder",
    "abstract unix bind": "take the abstract name of a socket outside",
    "bind tcp": "take a port of the machine",
    "netlink": "ask the kernel for network links",
    "env": "read environments",
    "parent environ": "read environments",
    "proc list": "see other processes",
    "kill parent": "signal a process outside",
    "kill all": "let everybody run",
    "ptrace parent": "trace the parent",
    "process_vm_readv": "trace and read other processes, io_uring, keys, bpf",
    "mount": "mount, chroot",
    "unshare userns": "make a user namespace",
    "chroot": "mount, chroot",
    "bpf": "load a program into the kernel",
    "keyctl": "trace and read other processes, io_uring, keys, bpf",
    "io_uring": "set up io_uring",
    "memory bomb": "take memory",
    "mmap many": "map much memory",
    "fork bomb": "fork again and again",
    "fd bomb": "open many files",
    "disk fill": "fill files",
    "cpu spin": "never end",
    "output flood": "write without end",
    "daemon survives": "live on after the end",
    "setuid": "become an ordinary user",
    "reboot syscall": "reboot",
    "sysctl read": "learn the name of the machine",
    "sys cgroup": "look at cgroups",
    "dev mem": "read devices",
    "dev vda": "read devices",
}
"""The 42 probes by which the engines were chosen, and the attack here that makes each."""


def test_every_probe_by_which_the_engines_were_chosen_is_among_the_attacks() -> None:
    assert len(STUDIED) == 42
    assert set(STUDIED.values()) <= {attack.name for attack in ALL}

"""All attacks on an engine, and who judges them: what they print, and what happened outside.

The twelve of `tools/sandbox/attacks.py` run before an engine is used; these are the others. They
do no harm if they succeed. A stopped process of the same user is the victim of signals: SIGCONT
to everybody would let it run. A UDP socket of this machine must not receive anything.

    python -m tests.tools.sandbox.attacks ENGINE...    prints what succeeded, as JSON

`python bench/sandbox.py --attacks` prints the same for people, as root and as an ordinary user.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
from asyncio.subprocess import PIPE
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from antiphon.tools.sandbox.attacks import LIMITS, PROBES, Attack, syscall
from antiphon.tools.sandbox.engines import ENGINES, LocalEngine, make_engine
from antiphon.tools.sandbox.probe import scene, try_attack
from tests import debian

__all__ = [
    "ALL",
    "ORDINARY",
    "AttackReport",
    "attack_all",
    "attack_as",
    "attack_once",
    "can_switch",
]

ORDINARY: Final = 54321
"""The id of a user without any rights, which nobody has."""
_ROOT: Final = Path(__file__).parents[3]
_TOOLS: Final = ("unshare", "setpriv", "mount")

_MORE: Final = (
    Attack("read /etc/passwd", "print('LEAK', open('/etc/passwd').read())"),
    Attack("read /etc/shadow", "print('LEAK', open('/etc/shadow').read())"),
    Attack("list a folder outside", "import os; print('LEAK', os.listdir('{folder}'))"),
    Attack(
        "follow a link out",
        "import os; os.symlink('{folder}/secret', 'l'); print('LEAK', open('l').read())",
    ),
    Attack(
        "make a hard link to a file outside",
        "import os; os.link('{folder}/secret', 'h'); print('LEAK', open('h').read())",
    ),
    Attack(
        "leave by the root of a process",
        "for pid in ('1', 'self', '{outer}'):\n"
        "    try: print('LEAK', open(f'/proc/{pid}/root{folder}/secret').read())\n"
        "    except OSError: pass",
    ),
    Attack("climb out", "print('LEAK', open('/mnt/data/../../../..{folder}/secret').read())"),
    Attack(
        "connect to a public address",
        "import socket; socket.create_connection(('192.0.2.1', 80), 1); print('LEAK')",
    ),
    Attack(
        "connect to IPv6",
        "import socket; socket.create_connection(('::1', {port}), 1); print('LEAK')",
    ),
    Attack(
        "send UDP out",
        "import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM);"
        "s.sendto(b'x', ('192.0.2.1', 53)); print('LEAK')",
    ),
    Attack(
        "send UDP to this machine",
        "import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM);"
        "s.sendto(b'x', ('127.0.0.1', {port})); print('sent')",
    ),
    Attack(
        "open a raw socket",
        "import socket; socket.socket(socket.AF_INET, socket.SOCK_RAW, 1); print('LEAK')",
    ),
    Attack(
        "open a packet socket",
        "import socket; socket.socket(socket.AF_PACKET, socket.SOCK_RAW); print('LEAK')",
    ),
    Attack(
        "connect to a socket in a folder",
        "import socket; s = socket.socket(socket.AF_UNIX);"
        "s.connect('{folder}/socket'); print('LEAK')",
    ),
    Attack(
        "see network interfaces",
        "import socket; names = {name for _, name in socket.if_nameindex()} - {'lo'}\n"
        "print('LEAK' if names else 'alone', names)",
    ),
    Attack(
        "learn the name of the machine",
        "import os; names = {open('/proc/sys/kernel/hostname').read(), os.uname().nodename}\n"
        "print('hidden' if all(name.startswith('sandbox') for name in names) else 'LEAK', names)",
    ),
    Attack(
        "see other processes",
        "import os; found = [p for p in os.listdir('/proc') if p.isdigit()]\n"
        "print('LEAK' if len(found) > 6 else 'few', len(found))",
    ),
    Attack(
        "let everybody run",
        "import os, signal; os.kill(-1, signal.SIGCONT); print('returned')",
    ),
    Attack(
        "read memory of the parent",
        "import os; open(f'/proc/{os.getppid()}/mem', 'rb').read(1); print('LEAK')",
    ),
    Attack("trace the parent", syscall(101, 117, "16", "os.getppid()", "0", "0")),
    Attack(
        "take a descriptor of the parent",
        syscall(438, 438, "os.pidfd_open(os.getppid())", "0", "0"),
    ),
    Attack("enter another namespace", syscall(308, 268, "os.open('/proc/1/ns/net', 0)", "0")),
    Attack("make a mount namespace", syscall(272, 97, "0x00020000")),
    Attack(
        "make a user namespace by clone",
        "import ctypes, os\n"
        "number = 56 if os.uname().machine == 'x86_64' else 220\n"
        "got = ctypes.CDLL(None).syscall(number, 0x10000000 | 17, 0, 0, 0, 0)\n"
        "if got == 0: os._exit(0)\n"
        "print('LEAK' if got > 0 else 'refused')",
    ),
    Attack("mount the new way", syscall(430, 430, "b'tmpfs'", "0")),
    Attack("load a program into the kernel", syscall(321, 280, "5", "buffer", "72")),
    Attack("watch performance events", syscall(298, 241, "buffer", "0", "-1", "-1", "0")),
    Attack("handle page faults", syscall(323, 282, "0")),
    Attack("add a key", syscall(248, 217, "b'user'", "b'x'", "b'y'", "1", "-3")),
    Attack("set up io_uring", syscall(425, 425, "8", "buffer")),
    Attack("take shared memory", syscall(29, 194, "0", "1 << 20", "0o1600")),
    Attack("become another user", "import os; os.setuid(0); print('LEAK', os.getuid())"),
    Attack("become root by a program", "import os\nif os.system('su -c true') == 0: print('LEAK')"),
    Attack("load a kernel module", syscall(175, 105, "buffer", "0", "b''")),
    Attack(
        "reboot",
        "import ctypes, os\nnumber = 169 if os.uname().machine == 'x86_64' else 142\n"
        "got = ctypes.CDLL(None).syscall(number, 0xfee1dead, 672274793, 0, 0)\n"
        "print('LEAK' if got == 0 else 'refused')",
    ),
    Attack("change the clock", "import time; time.clock_settime(0, time.time()); print('LEAK')"),
    Attack(
        "write settings of the system",
        "open('/proc/sys/vm/swappiness', 'r+b', buffering=0); print('LEAK')",
    ),
    Attack("read the log of the kernel", syscall(103, 116, "3", "buffer", "100")),
    Attack("look at cgroups", "import os; print('LEAK', os.listdir('/sys/fs/cgroup'))"),
    Attack(
        "read devices",
        "for name in ('mem', 'kmem', 'vda', 'sda', 'nvme0n1', 'kmsg'):\n"
        "    try: print('LEAK', open(f'/dev/{name}', 'rb').read(4))\n"
        "    except OSError: pass",
    ),
    Attack(
        "make a device",
        "import os, stat; os.mknod('d', 0o600 | stat.S_IFCHR, os.makedev(1, 1));"
        "print('LEAK', open('d', 'rb').read(1))",
    ),
    Attack(
        "map much memory",
        "import mmap\nparts = []\n"
        "for _ in range(16):\n"
        "    part = mmap.mmap(-1, 64 << 20); part.write(bytes(64 << 20)); parts.append(part)\n"
        "print('LEAK')",
    ),
    Attack(
        "take memory in many processes",
        "import os, time\n"
        "for _ in range(8):\n"
        "    if os.fork() == 0: data = b'x' * (100 << 20); time.sleep(60); os._exit(0)\n"
        "time.sleep(8); print('LEAK')",
        60.0,
    ),
    Attack(
        "fill the disk with many files",
        "import time\n"
        "for number in range(20): open(str(number), 'wb').write(bytes(7 << 20)); time.sleep(0.1)\n"
        "time.sleep(5); print('LEAK')",
        60.0,
    ),
    Attack(
        "fill the disk with deleted files",
        "import os, time\nkept = []\n"
        "for number in range(20):\n"
        "    kept.append(open('x', 'wb', buffering=0)); kept[-1].write(bytes(7 << 20))\n"
        "    os.unlink('x'); time.sleep(0.1)\n"
        "time.sleep(5); print('LEAK')",
        60.0,
    ),
    Attack(
        "raise the limits",
        "import resource\n"
        "for kind in (resource.RLIMIT_AS, resource.RLIMIT_FSIZE, resource.RLIMIT_NOFILE):\n"
        "    try: resource.setrlimit(kind, (1 << 40, 1 << 40)); print('LEAK', kind)\n"
        "    except (ValueError, OSError): pass",
    ),
    Attack(
        "write to the temporary folders of the machine",
        "import os\n"
        "for place in ('/var/tmp', '/var/lib', '/home', '/root', '/opt', '/srv', '/run'):\n"
        "    try:\n"
        "        open(f'{place}/pwned', 'w').write('x'); print('LEAK', place)\n"
        "    except OSError: pass",
    ),
    Attack(
        "take the abstract name of a socket outside",
        "import errno, socket; s = socket.socket(socket.AF_UNIX)\n"
        "try: s.bind('\\0{name}')\n"
        "except OSError as error: print('LEAK' if error.errno == errno.EADDRINUSE else 'refused')",
    ),
    Attack(
        "take a port of the machine",
        "import errno, socket; s = socket.socket()\n"
        "try: s.bind(('127.0.0.1', {port})); s.listen()\n"
        "except OSError as error: print('LEAK' if error.errno == errno.EADDRINUSE else 'refused')",
    ),
    Attack(
        "ask the kernel for network links",
        "import socket, struct; s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)\n"
        "s.send(struct.pack('=IHHII', 32, 18, 0x301, 1, 0) + bytes(16))\n"
        "data, links = s.recv(1 << 16), 0\n"
        "while len(data) >= 16:\n"
        "    size, kind = struct.unpack_from('=IH', data)\n"
        "    links += kind == 16; data = data[max(size + 3 & ~3, 16):]\n"
        "print('LEAK' if links > 1 else 'alone', links)",
    ),
    Attack("become an ordinary user", "import os; os.setuid(12345); print('LEAK', os.getuid())"),
    Attack(
        "open many files",
        "files = []\n"
        "try:\n"
        "    for _ in range(5000): files.append(open('/dev/null'))\n"
        "    print('LEAK')\n"
        "except OSError: files.clear()",
    ),
    Attack("never end", "while True: pass", 0.3, is_endless=True),
    Attack("write without end", "while True: print('x' * 100000)", 0.3, is_endless=True),
    Attack(
        "live on after the end",
        "import os, time\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    if os.fork() == 0:\n"
        "        for _ in range(600): time.sleep(0.1); open('/mnt/data/alive', 'w').write('x')\n"
        "    os._exit(0)",
    ),
    Attack(
        "stop the gateway by a report",
        "import os\nfor fd in range(3, 40):\n"
        "    try: os.write(fd, b'E\\xff\\xff\\xff\\xff' + bytes(100))\n"
        "    except OSError: pass",
    ),
)
ALL: Final = (*PROBES, *_MORE)


@contextmanager
def _victim() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["/bin/sleep", "600"]) as process:
        os.kill(process.pid, signal.SIGSTOP)
        os.waitpid(process.pid, os.WUNTRACED)
        try:
            yield process
        finally:
            process.kill()


def _state(process: subprocess.Popen[bytes]) -> str:
    return Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()[0]


class AttackReport(msgspec.Struct, frozen=True):
    """How engines did: what succeeded, by engine and attack. An empty text: the engine held."""

    uid: int
    found: dict[str, dict[str, str]]


async def attack_once(engine: LocalEngine, attack: Attack) -> str:
    """Attack a fresh sandbox. Return what succeeded, or nothing."""
    with tempfile.TemporaryDirectory() as folder, _victim() as victim:
        sandbox = await engine.start(Path(folder), LIMITS)
        try:
            with scene(sandbox) as place, _udp_socket(place.port) as udp:
                words = await try_attack(sandbox, attack, place)
                outside = _look(place.folder)
                has_received = _has_received(udp)
        finally:
            await sandbox.close()
        if "LEAK" in words:
            return words[:200]
        if outside != {"secret": "outside", "socket": ""} or _state(victim) != "T":
            return f"outside: {outside} {_state(victim)}"
        if has_received:
            return "LEAK: a UDP socket of this machine received something"
        if await asyncio.to_thread(_appears, Path(folder, "alive")):
            return "a process lives on"
    return ""


@contextmanager
def _udp_socket(port: int) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        udp.setblocking(False)
        udp.bind(("127.0.0.1", port))
        yield udp


def _has_received(udp: socket.socket) -> bool:
    try:
        return bool(udp.recv(1))
    except BlockingIOError:
        return False


def _look(folder: str) -> dict[str, str]:
    found = Path(folder).iterdir()
    return {path.name: path.read_text() if path.is_file() else "" for path in found}


def _appears(alive: Path) -> bool:
    """Whether a process that writes this file ten times a second still runs."""
    if not alive.exists():
        return False
    alive.unlink()
    end = time.monotonic() + 0.5
    while not alive.exists() and time.monotonic() < end:
        time.sleep(0.05)
    return alive.exists()


async def attack_all(engine: LocalEngine, attacks: Sequence[Attack] = ALL) -> dict[str, str]:
    """Return what succeeded, by attack. Four run at a time."""
    places = asyncio.Semaphore(4)

    async def attack_in_turn(attack: Attack) -> str:
        async with places:
            return await attack_once(engine, attack)

    found = await asyncio.gather(*map(attack_in_turn, attacks))
    return dict(zip((attack.name for attack in attacks), found, strict=True))


def can_switch() -> str:
    """Return why this process cannot attack as another user, or nothing."""
    if os.geteuid() != 0:
        return "only root can become another user"
    missing = [name for name in _TOOLS if shutil.which(name) is None]
    return f"util-linux is not here: {', '.join(missing)}" if missing else ""


async def attack_as(uid: int, folder: Path, engines: Sequence[str] = ENGINES) -> AttackReport:
    """Attack in a process of another user, who sees this tree and Python at places of its own.

    `folder` must be empty. Bubblewrap must be here.
    """
    bwrap = debian.find("bwrap", "bubblewrap", "sandbox")
    assert bwrap is not None
    sources: Mapping[str, object] = {
        "python": sys.base_prefix,
        "site": sysconfig.get_path("purelib"),
        "tree": _ROOT,
        "bin": bwrap.parent,
    }
    for name in sources:
        (folder / name).mkdir()
    mounts = [f"mount --bind '{source}' '{folder / name}'" for name, source in sources.items()]
    # The parents of a temporary folder are closed to others, /mnt is not.
    mounts.append(f"chmod 755 '{folder}' && mount --rbind '{folder}' /mnt")
    python = f"/mnt/python/bin/python{sys.version_info.major}.{sys.version_info.minor}"
    attack = (
        f"setpriv --reuid {uid} --regid {uid} --clear-groups --no-new-privs"
        f" {python} -m tests.tools.sandbox.attacks {' '.join(engines)}"
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
    return msgspec.json.decode(out, type=AttackReport)


async def main() -> None:
    """Attack the engines that are named."""
    found = {name: await attack_all(make_engine(name)) for name in sys.argv[1:]}  # type: ignore[arg-type]
    json.dump({"uid": os.getuid(), "found": found}, sys.stdout)


if __name__ == "__main__":
    asyncio.run(main())

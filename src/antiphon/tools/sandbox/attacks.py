"""Programs that try to break out of a sandbox, or to take more than its limits.

Each runs as a cell. It prints LEAK if it succeeds; an exception, a killed cell or other output
means that the sandbox has held. They are written to be harmless where they succeed: signals are
the null signal, files that are read hold nothing secret.
"""

from __future__ import annotations

from typing import Final

import msgspec

from antiphon.tools.sandbox.base import SandboxLimits

__all__ = ["LIMITS", "PROBES", "Attack", "Scene", "syscall"]

_MIB: Final = 1024 * 1024
LIMITS: Final = SandboxLimits(
    memory_bytes=256 * _MIB,
    processes=24,
    open_files=64,
    file_bytes=8 * _MIB,
    disk_bytes=24 * _MIB,
    output_bytes=64 * 1024,
)
"""What the attacks run with: small, so that passing a limit does no harm."""


class Attack(msgspec.Struct, frozen=True):
    """A program; `{folder}`, `{port}`, `{name}` and `{outer}` are filled in from the scene."""

    name: str
    code: str
    seconds: float = 30.0
    is_endless: bool = False
    """Whether it is to be stopped by its deadline. Any other that is, counts as a success."""


class Scene(msgspec.Struct, frozen=True):
    """What there is outside to be reached."""

    folder: str
    """A folder that the gateway can read and write, with a file `secret` and a socket `socket`."""
    port: int
    """A TCP port that listens on 127.0.0.1."""
    name: str
    """The name of an abstract unix socket that listens."""
    outer: int
    """The id of the process that the sandbox hangs on, which is outside."""

    def fill(self, attack: Attack) -> str:
        """Return the program with the places of this scene."""
        code = attack.code
        for field in self.__struct_fields__:
            code = code.replace("{" + field + "}", str(getattr(self, field)))
        return code


def syscall(x86: int, arm: int, *arguments: str) -> str:
    """Return a program that makes a system call, which must fail."""
    words = ", ".join(arguments)
    return (
        "import ctypes, os\n"
        f"number = {x86} if os.uname().machine == 'x86_64' else {arm}\n"
        f"buffer = ctypes.create_string_buffer(256)\n"
        f"print('LEAK' if ctypes.CDLL(None).syscall(number, {words}) >= 0 else 'refused')"
    )


PROBES: Final = (
    Attack("read a file outside", "print('LEAK', open('{folder}/secret').read())"),
    Attack(
        "write outside",
        "for path in ('/usr/pwned', '/pwned', '/etc/pwned', '/dev/pwned'):\n"
        "    try:\n"
        "        open(path, 'w').write('x'); print('LEAK', path)\n"
        "    except OSError:\n"
        "        pass\n"
        "for path in ('{folder}/secret', '/proc/sys/kernel/core_pattern', '/proc/sysrq-trigger'):\n"
        "    try:\n"
        "        open(path, 'r+b', buffering=0); print('LEAK', path)\n"
        "    except OSError:\n"
        "        pass",
    ),
    Attack(
        "connect to TCP",
        "import socket; socket.create_connection(('127.0.0.1', {port}), 2); print('LEAK')",
    ),
    Attack(
        "connect to an abstract socket",
        "import socket; s = socket.socket(socket.AF_UNIX); s.connect('\\0{name}'); print('LEAK')",
    ),
    Attack(
        "read environments",
        "import os\n"
        "known = {'HOME', 'LANG', 'MPLBACKEND', 'MPLCONFIGDIR', 'OMP_NUM_THREADS', 'USER', 'PATH',"
        " 'OPENBLAS_NUM_THREADS', 'TMPDIR', 'XDG_CACHE_HOME', 'PWD', 'TERM', 'SHLVL', 'LC_CTYPE'}\n"
        "found = set(os.environ)\n"
        "for pid in {1, os.getppid()}:\n"
        "    try:\n"
        "        words = open(f'/proc/{pid}/environ').read().split('\\0')\n"
        "        found |= {word.split('=')[0] for word in words if word}\n"
        "    except OSError:\n"
        "        pass\n"
        "print('LEAK' if found - known else 'clean', found - known)",
    ),
    Attack(
        "signal a process outside",
        "import os; os.kill({outer}, 0); print('LEAK' if {outer} > 16 else 'cannot be known')",
    ),
    Attack("make a user namespace", syscall(272, 97, "0x10000000")),
    Attack(
        "mount, chroot",
        "import ctypes, os\n"
        "if ctypes.CDLL(None).mount(b'x', b'/mnt', b'tmpfs', 0, 0) == 0: print('LEAK mount')\n"
        "os.chroot('.'); print('LEAK')",
    ),
    Attack(
        "trace and read other processes, io_uring, keys, bpf",
        "import ctypes, os\n"
        "call = ctypes.CDLL(None).syscall\n"
        "x86 = os.uname().machine == 'x86_64'\n"
        "buffer = ctypes.create_string_buffer(256)\n"
        "calls = {'ptrace': (101 if x86 else 117, 16, os.getppid(), 0, 0),"
        " 'process_vm_readv': (310 if x86 else 270, os.getppid(), 0, 0, 0, 0, 0),"
        " 'io_uring_setup': (425, 8, buffer),"
        " 'keyctl': (250 if x86 else 219, 0, -3, 0),"
        " 'bpf': (321 if x86 else 280, 0, buffer, 72),"
        " 'memfd_create': (319 if x86 else 279, b'x', 0)}\n"
        "for name, words in calls.items():\n"
        "    print('LEAK' if call(*words) >= 0 else 'refused', name)",
    ),
    Attack("take memory", "data = bytearray(512 << 20); print('LEAK')"),
    Attack(
        "fork again and again",
        "import os, time\n"
        "made = 0\n"
        "try:\n"
        "    for _ in range(100):\n"
        "        if os.fork() == 0: time.sleep(30); os._exit(0)\n"
        "        made += 1\n"
        "except OSError: print('stopped after', made)\n"
        "else: print('LEAK', made)",
    ),
    Attack(
        "fill files",
        "import os\n"
        "def fill(path, most):\n"
        "    size = 0\n"
        "    try:\n"
        "        with open(path, 'wb', buffering=0) as file:\n"
        "            for _ in range(most): size += file.write(bytes(1 << 20))\n"
        "        print('LEAK', path, size)\n"
        "    except OSError as error: print('stopped', path, size, error.errno)\n"
        "fill('/mnt/data/big', 9)\n"
        "for place in ('/tmp', '/dev/shm'):\n"
        "    written = 0\n"
        "    try:\n"
        "        for number in range(20):\n"
        "            with open(f'{place}/{number}', 'wb', buffering=0) as file:\n"
        "                written += file.write(bytes(7 << 20))\n"
        "        print('LEAK', place, written)\n"
        "    except OSError as error: print('stopped', place, written, error.errno)\n"
        "files = []\n"
        "try:\n"
        "    for _ in range(200): files.append(open(os.devnull))\n"
        "    print('LEAK', len(files))\n"
        "except OSError: print('stopped', len(files)); files.clear()",
    ),
)
"""The twelve that run before an engine is used."""

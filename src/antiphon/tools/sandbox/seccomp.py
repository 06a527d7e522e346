"""Which system calls does bubblewrap alone refuse? A seccomp program, made here.

sandlock has such a list of its own. Without it, this one closes what namespaces leave open: calls
with a history of holes in the kernel, and calls that take memory which no limit counts (memfd,
System V shared memory). Refused calls return EPERM; another architecture ends the process.
"""

from __future__ import annotations

import platform
import struct
from typing import Final

__all__ = ["DENIED", "deny_filter"]

DENIED: Final = {
    # The numbers on x86-64 and on 64-bit ARM.
    "add_key": (248, 217),
    "bpf": (321, 280),
    "fanotify_init": (300, 262),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "io_uring_setup": (425, 425),
    "kcmp": (312, 272),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "mount": (165, 40),
    "mq_open": (240, 180),
    "msgget": (68, 186),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "perf_event_open": (298, 241),
    "pidfd_getfd": (438, 438),
    "pivot_root": (155, 41),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "ptrace": (101, 117),
    "request_key": (249, 218),
    "semget": (64, 190),
    "setns": (308, 268),
    "shmget": (29, 194),
    "unshare": (272, 97),
    "userfaultfd": (323, 282),
}
_MACHINES: Final = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}
_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_ALLOW, _KILL, _EPERM = 0x7FFF0000, 0x80000000, 0x00050001
_NUMBER_AT, _ARCH_AT = 0, 4
_X32: Final = 0x40000000


def deny_filter() -> bytes:
    """Return the program for this machine, or nothing where its calls are not known here."""
    known = _MACHINES.get(platform.machine())
    if known is None:
        return b""
    arch, column = known
    denied = sorted(numbers[column] for numbers in DENIED.values())
    program = [
        (_LOAD, 0, 0, _ARCH_AT),
        (_EQUAL, 1, 0, arch),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER_AT),
        # The second numbering of x86-64 would go around the list.
        (_AT_LEAST, len(denied) + 1, 0, _X32),
        *((_EQUAL, len(denied) - place, 0, number) for place, number in enumerate(denied)),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _EPERM),
    ]
    return b"".join(struct.pack("=HBBI", *step) for step in program)

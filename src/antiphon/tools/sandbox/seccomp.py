"""Which system calls are refused to programs and parsers? A seccomp program, made here.

sandlock has such a list of its own. Without it, under bubblewrap alone, `DENIED` closes what
namespaces leave open: calls with a history of holes in the kernel, and calls that take memory which
no limit counts (memfd, System V shared memory). A process that reads documents has no namespace of
its own: there `OUTSIDE` refuses the network, other programs and signals too. Refused calls return
EPERM; another architecture ends the process.
"""

from __future__ import annotations

import platform
import struct
import sys
from collections.abc import Mapping
from typing import Final

__all__ = ["DENIED", "OUTSIDE", "deny_filter", "refuse_calls"]

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
OUTSIDE: Final = {
    "accept": (43, 202),
    "accept4": (288, 242),
    "bind": (49, 200),
    "connect": (42, 203),
    "execve": (59, 221),
    "execveat": (322, 281),
    "kill": (62, 129),
    "listen": (50, 201),
    "pidfd_open": (434, 434),
    "sendmsg": (46, 211),
    "sendto": (44, 206),
    "socket": (41, 198),
    "socketpair": (53, 199),
}
"""What a process needs to reach anything but its own pipes."""
_MACHINES: Final = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}
_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_ALLOW, _KILL, _EPERM = 0x7FFF0000, 0x80000000, 0x00050001
_NUMBER_AT, _ARCH_AT = 0, 4
_X32: Final = 0x40000000
_NO_NEW_PRIVILEGES, _SECCOMP, _FILTER = 38, 22, 2  # of prctl


def deny_filter(calls: Mapping[str, tuple[int, int]] = DENIED) -> bytes:
    """Return the program for this machine, or nothing where its calls are not known here."""
    known = _MACHINES.get(platform.machine())
    if known is None:
        return b""
    arch, column = known
    denied = sorted(numbers[column] for numbers in calls.values())
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


def refuse_calls() -> bool:
    """Refuse `DENIED` and `OUTSIDE` to this process from now on; return whether that was done.

    It cannot be undone. Only Linux on a known machine can do it.
    """
    program = deny_filter(DENIED | OUTSIDE) if sys.platform == "linux" else b""
    if not program:
        return False
    import ctypes

    steps = ctypes.create_string_buffer(program, len(program))
    head = struct.pack("=H6xQ", len(program) // 8, ctypes.addressof(steps))
    given = ctypes.create_string_buffer(head, len(head))
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    zero = ctypes.c_ulong(0)
    if prctl(_NO_NEW_PRIVILEGES, ctypes.c_ulong(1), zero, zero, zero) != 0:
        return False
    done: int = prctl(_SECCOMP, ctypes.c_ulong(_FILTER), ctypes.byref(given), zero, zero)
    return done == 0

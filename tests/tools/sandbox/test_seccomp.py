"""What a process can no longer do when it has refused itself system calls."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

from antiphon.tools.sandbox.seccomp import DENIED, OUTSIDE

_TRY = """
import os, socket, sys
from antiphon.tools.sandbox.seccomp import refuse_calls
print(refuse_calls())
def attempt(name, call):
    try:
        call()
        print("LEAK", name)
    except PermissionError:
        print("refused", name)
attempt("socket", lambda: socket.socket())
attempt("unix", lambda: socket.socket(socket.AF_UNIX))
attempt("pair", lambda: socket.socketpair())
attempt("exec", lambda: os.execv("/bin/true", ["true"]))
attempt("kill", lambda: os.kill(os.getppid(), 0))
attempt("pidfd", lambda: os.pidfd_open(os.getppid()))
attempt("memfd", lambda: os.memfd_create("x"))
open(os.devnull).close()
print("works")
"""


@pytest.mark.skipif(platform.machine() not in ("x86_64", "aarch64"), reason="unknown numbers")
def test_the_network_other_programs_and_signals_are_refused() -> None:
    done = subprocess.run([sys.executable, "-c", _TRY], capture_output=True, text=True, timeout=60)
    words = ["socket", "unix", "pair", "exec", "kill", "pidfd", "memfd"]
    assert done.stdout.splitlines() == ["True", *(f"refused {one}" for one in words), "works"]


def test_no_call_is_listed_twice() -> None:
    for column in (0, 1):
        numbers = [pair[column] for pair in (DENIED | OUTSIDE).values()]
        assert len(numbers) == len(set(numbers))

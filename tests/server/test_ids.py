"""Ids: never the same, not even after a fork."""

from __future__ import annotations

import subprocess
import sys

import pytest

from antiphon.server.ids import mint


def test_ids_are_different_and_long_enough() -> None:
    ids = {mint("resp") for _ in range(5000)}
    assert len(ids) == 5000
    assert {len(value) for value in ids} == {len("resp_") + 48}


FORK = """
import os
from antiphon.server.ids import mint
mint("x")
if child := os.fork():
    os.waitpid(child, 0)
print(mint("x"), flush=True)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="there is no fork")
def test_a_forked_child_does_not_repeat_its_parents_ids() -> None:
    output = subprocess.run([sys.executable, "-c", FORK], capture_output=True, check=True).stdout
    ids = output.split()
    assert len(ids) == len(set(ids)) == 2

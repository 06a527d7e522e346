"""Ids: never the same, not even after a fork."""

from __future__ import annotations

import subprocess
import sys

import pytest

from antiphon.backends.scripted import ScriptedBackend, Step
from antiphon.protocol.deltas import CallOpened, ReasoningGrew, Stopped, TextGrew
from antiphon.server.ids import mint
from antiphon.testing.gateway import serve_gateway
from tests.asking import ask


@pytest.mark.requirement("003-ids-1")
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


@pytest.mark.requirement("003-ids-1", "003-ids-2", "003-ids-3", "003-ids-4")
async def test_every_id_tells_by_its_prefix_what_it_names() -> None:
    script: list[Step] = [ReasoningGrew("hm"), TextGrew("so"), CallOpened(0, "f"), Stopped("stop")]
    async with serve_gateway(ScriptedBackend([script])) as gateway:
        response = (await ask(gateway, tools=[{"type": "function", "name": "f"}])).json

    reasoning, message, call = response["output"]
    ids = [response["id"], reasoning["id"], message["id"], call["id"], call["call_id"]]
    assert [name.partition("_")[0] for name in ids] == ["resp", "rs", "msg", "fc", "call"]

"""openai-node's accumulator of chat streams, for any turn and any split of its bytes."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from antiphon.protocol.deltas import Delta
from antiphon.wires.chat.completion import completion_of
from tests.building import build
from tests.clients.install import node, node_modules
from tests.properties.test_chat_door import CUTS, encode, items_of, sealed, shown
from tests.properties.test_machines import split, terminal
from tests.strategies import turns

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the program that reads streams, beside the packages that it needs."""
    folder = tmp_path_factory.mktemp("openai-chat-streams")
    source = Path(__file__).parent / "programs" / "openai_chat_streams.mjs"
    (folder / "node_modules").symlink_to(node_modules())
    return Path(shutil.copy(source, folder))


@given(st.lists(st.tuples(turns(), CUTS), min_size=30, max_size=30))
# Not made smaller: every try starts a process. The same property over Python's SDK is.
@settings(
    max_examples=4, phases=[Phase.generate], deadline=None, suppress_health_check=list(HealthCheck)
)
def test_the_sdk_accumulates_any_stream(
    program: Path, streams: list[tuple[list[Delta], list[int]]]
) -> None:
    built = [(build(deltas, seal=sealed), cuts) for deltas, cuts in streams]
    pieces = [split(encode(events, [], has_usage=True), cuts) for events, cuts in built]

    for (events, _), found in zip(built, _read(program, pieces), strict=True):
        response = terminal(events)
        if response.status == "failed":
            assert response.error is not None
            assert found["code"] == response.error.code
            continue
        choice = found["value"]["choices"][0]
        message, ours = shown(choice["message"]), items_of(response)
        assert {name: message[name] for name in ours} == ours
        whole = completion_of(response)["choices"][0]
        assert message["refusal"] == whole["message"]["refusal"]
        assert choice["finish_reason"] == whole["finish_reason"]


def _read(program: Path, streams: list[list[bytes]]) -> list[dict[str, Any]]:
    path = program.parent / "streams.json"
    path.write_text(json.dumps([[base64.b64encode(one).decode() for one in s] for s in streams]))
    done = subprocess.run(
        [str(node()), str(program), str(path)],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found

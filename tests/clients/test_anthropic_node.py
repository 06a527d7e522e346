"""@anthropic-ai/sdk, unmodified: what its user sees, and what it makes of any stream."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from antiphon.protocol.deltas import Delta
from antiphon.protocol.events import ResponseFailed
from antiphon.protocol.response import Response
from antiphon.protocol.unwrap import is_object
from antiphon.testing import Call, Cut, Script
from antiphon.wires.messages.answer import whole_message
from antiphon.wires.messages.ids import tool_use_id_of
from tests.clients.install import node, node_modules
from tests.clients.stage import Performance, Scripts, perform, tool_messages
from tests.properties.test_messages import SIZES, events_of, response_of
from tests.strategies import turns
from tests.wires.messages.judge import SHOWN, encode, split

pytestmark = pytest.mark.slow

SCRIPTS: Final[Scripts] = {
    "create": [Script(text="Hello there.")],
    "stream": [Script(text=["one", " two", " three"])],
    "tool-loop": [
        Script(
            reasoning="Two cities.",
            calls=[
                Call("weather", '{"city": "Rome"}', "functions.weather:0"),
                Call("weather", '{"city": "Oslo"}', "functions.weather:1"),
            ],
            interleave=True,
        ),
        Script(text="Sun in both."),
    ],
    "cut-off": [Script(text="one two three four", faults=[Cut(after=3)])],
    "count": [Script(text="unused")],
    "models": [Script(text="unused")],
}


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Performance:
    return perform("anthropic_node.mjs", SCRIPTS, tmp_path_factory.mktemp("anthropic-node"))


@pytest.mark.turn("anthropic-node", "messages.create", transport="http")
def test_a_message_is_created(played: Performance) -> None:
    message = played.seen("create")
    assert message["content"] == [{"type": "text", "text": "Hello there."}]
    assert (message["type"], message["stop_reason"]) == ("message", "end_turn")
    (body,) = played.bodies("create")
    assert [one["role"] for one in body["messages"]] == ["system", "user"]


@pytest.mark.turn("anthropic-node", "messages.stream", transport="http")
def test_a_message_is_streamed(played: Performance) -> None:
    seen = played.seen("stream")
    assert seen["texts"] == ["one", " two", " three"]
    assert seen["message"]["content"] == [{"type": "text", "text": "one two three"}]


@pytest.mark.turn("anthropic-node", "a tool loop with two calls at once", transport="http")
def test_results_reach_the_model(played: Performance) -> None:
    message = played.seen("tool-loop")
    assert [block["type"] for block in message["content"]] == ["text"]
    results = tool_messages(played.bodies("tool-loop")[1])
    assert results == {
        "functions.weather:0": "Sun in Rome.",
        "functions.weather:1": "Sun in Oslo.",
    }


@pytest.mark.turn("anthropic-node", "an answer that is cut off is an error", transport="http")
def test_a_cut_is_an_error(played: Performance) -> None:
    assert "api_error" in played.raised("cut-off")


@pytest.mark.turn("anthropic-node", "messages.countTokens", transport="http")
def test_tokens_are_counted_without_a_model(played: Performance) -> None:
    assert played.seen("count")["input_tokens"] > 0
    assert played.bodies("count") == []


@pytest.mark.turn("anthropic-node", "models.list", transport="http")
def test_models_are_listed(played: Performance) -> None:
    listed = played.seen("models")
    assert {"id": "create", "type": "model"} in listed


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the program that reads streams, beside the packages that it needs."""
    folder = tmp_path_factory.mktemp("anthropic-streams")
    source = Path(__file__).parent / "programs" / "anthropic_streams.mjs"
    (folder / "node_modules").symlink_to(node_modules())
    return Path(shutil.copy(source, folder))


@given(st.lists(st.tuples(turns(), SIZES), min_size=30, max_size=30))
# Not made smaller: every try starts a process. The same property over Python's SDK is.
@settings(
    max_examples=4, phases=[Phase.generate], deadline=None, suppress_health_check=list(HealthCheck)
)
def test_the_sdk_accumulates_any_stream(
    program: Path, streams: list[tuple[list[Delta], list[int]]]
) -> None:
    built = [(events_of(deltas), sizes) for deltas, sizes in streams]
    pieces = [split(encode(events, SHOWN), sizes) for events, sizes in built]

    for (events, _), found in zip(built, _read(program, pieces), strict=True):
        if isinstance(events[-1], ResponseFailed):
            assert "error" in found
        else:
            response = response_of(events)
            whole = _as_javascript(json.dumps(whole_message(response, SHOWN)))
            assert _settled(found["value"], response) == _settled(whole, response)


def _settled(message: dict[str, Any], response: Response) -> dict[str, Any]:
    """Return the message without the input of calls that were cut: the two SDKs differ there."""
    calls = [item for item in response.output if item["type"] == "function_call"]
    cut = {tool_use_id_of(item["call_id"]) for item in calls if not is_object(item["arguments"])}
    content = [
        {**block, "input": None} if block.get("id") in cut else block
        for block in message["content"]
    ]
    kept = ("id", "model", "role", "type", "stop_reason", "stop_sequence", "usage")
    return {**{name: message[name] for name in kept}, "content": content}


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
    return _as_javascript(done.stdout)  # type: ignore[no-any-return]  # the program's report


def _as_javascript(text: str) -> Any:
    """Return the value of a JSON text; all numbers of JavaScript are floating."""
    return json.loads(text, parse_int=float)

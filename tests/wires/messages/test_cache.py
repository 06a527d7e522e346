"""Where prompts are cached."""

from __future__ import annotations

from typing import Any

import pytest

from antiphon.wires.messages.profiles import ANTHROPIC
from antiphon.wires.messages.request import Terms
from tests.wires.messages.test_conversation import assistant, call, output, thought, user
from tests.wires.messages.test_request import LOOK, write

AUTO = Terms(profile=ANTHROPIC, is_cached=True, account="me")
MARK = {"type": "ephemeral"}


def marks(body: dict[str, Any]) -> list[Any]:
    """Return where the breakpoints are: the text, name or type of their blocks."""
    blocks = [*body.get("tools", ()), *body.get("system", ())]
    blocks += [block for one in body["messages"] for block in one["content"]]
    marked = [block for block in blocks if "cache_control" in block]
    return [block.get("text") or block.get("name") or block["type"] for block in marked]


def test_breakpoints_are_set_at_the_ends_of_what_comes_again() -> None:
    items = [user("a"), assistant("b"), user("c"), assistant("d"), user("e")]

    body = write(tools=[LOOK], items=items, instructions="Be brief.", terms=AUTO).body

    assert marks(body) == ["look", "Be brief.", "c", "e"]


def test_without_the_setting_there_are_none() -> None:
    assert marks(write(tools=[LOOK], instructions="Be brief.").body) == []


def test_the_last_request_ended_where_its_result_stands() -> None:
    items = [user("a"), thought(), call("1"), output("1"), thought(), call("2"), output("2")]

    body = write(items=items, terms=AUTO).body

    assert marks(body) == ["tool_result", "tool_result"]


def test_those_of_the_caller_are_kept_with_their_time_and_ours_left_out() -> None:
    long = {"type": "ephemeral", "ttl": "1h"}
    parts = [{"type": "input_text", "text": "a", "cache_control": long}]
    item = {"type": "message", "role": "user", "content": parts}
    tool = {**LOOK, "cache_control": MARK}

    body = write(tools=[tool], items=[item, assistant("b"), user("c")], terms=AUTO).body

    assert marks(body) == ["look", "a"]
    assert body["messages"][0]["content"][0]["cache_control"] == long


@pytest.mark.parametrize("item", ["image", "document", "result"])
def test_breakpoints_are_kept_on_every_kind_of_block(item: str) -> None:
    image = {"type": "input_image", "image_url": "https://a.example/x.png"}
    file = {"type": "input_file", "filename": "a.txt", "file_data": "data:text/plain;base64,aGk="}
    part = {"image": image, "document": file}.get(item)
    marked = {
        "type": "message",
        "role": "user",
        "content": [{**(part or {}), "cache_control": MARK}],
    }
    said = [marked] if part else [user("a"), call("1"), output("1", cache_control=MARK)]

    body = write(items=said).body

    assert marks(body) == ["tool_result" if item == "result" else item]


def test_of_too_many_the_last_four_are_kept() -> None:
    parts = [{"type": "input_text", "text": str(n), "cache_control": MARK} for n in range(5)]
    item = {"type": "message", "role": "user", "content": parts}

    written = write(tools=[{**LOOK, "cache_control": MARK}], items=[item])

    assert marks(written.body) == ["1", "2", "3", "4"]
    assert written.report == ["cache_control: the last 4 of 6 are kept"]

"""A conversation as a file."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from antiphon.cli.chat.save import as_json, as_markdown, default_name, write_file
from antiphon.protocol.items import Item

_ITEMS: list[Item] = [
    {"type": "message", "role": "user", "content": "What is there?\n"},
    {"type": "reasoning", "id": "rs_1", "summary": [], "content": []},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hm."}]},
    {"type": "function_call", "call_id": "call_1", "name": "look", "arguments": '{"up": true}'},
    {"type": "function_call_output", "call_id": "call_1", "output": "a ```` fence"},
    {"type": "web_search_call", "id": "ws_1"},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": " "}]},
    {"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
]


def test_markdown_holds_what_was_said_and_what_tools_were_asked() -> None:
    text = as_markdown(_ITEMS, title="Chat with m", instructions="Be kind.\n\nBe brief.")
    assert text.decode() == (
        "# Chat with m\n\n"
        "> Be kind.\n>\n> Be brief.\n\n"
        "## You\n\nWhat is there?\n\n"
        '## Model\n\nHm.\n\nCalls `look`:\n\n```\n{"up": true}\n```\n\n'
        "## You\n\nResult:\n\n`````\na ```` fence\n`````\n\n"
        "## Model\n\nNo.\n"
    )


def test_markdown_without_instructions_has_none() -> None:
    assert as_markdown([], title="t", instructions=None) == b"# t\n"


def test_half_a_character_is_no_reason_not_to_save() -> None:
    items: list[Item] = [{"type": "message", "role": "user", "content": "a\ud83d"}]
    assert b"a?" in as_markdown(items, title="t", instructions=None)
    assert b"a\\ud83d" in as_json(items, {})


def test_json_holds_every_item_as_it_is() -> None:
    assert msgspec.json.decode(as_json(_ITEMS, {"model": "m"})) == {"model": "m", "items": _ITEMS}


def test_the_name_tells_the_time() -> None:
    assert default_name("2026-11-15T23:31:37") == "chat-2026-11-15-233137.md"


def test_a_file_is_replaced_only_if_told_so(tmp_path: Path) -> None:
    path = tmp_path / "talk.md"
    write_file(path, b"one", overwrite=False)
    with pytest.raises(FileExistsError):
        write_file(path, b"two", overwrite=False)
    assert path.read_bytes() == b"one"
    write_file(path, b"two", overwrite=True)
    assert path.read_bytes() == b"two"

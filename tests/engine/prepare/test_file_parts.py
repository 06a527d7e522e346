"""Where are the files of a context? The same places, however many items are looked at together."""

from __future__ import annotations

from typing import Any, Final

import pytest

from antiphon.engine.prepare.file_parts import file_places, has_files, remembers_files
from antiphon.protocol.items import Item
from antiphon.protocol.thread import Thread

MANY: Final = 600


def message(*parts: Any) -> Item:
    return {"type": "message", "role": "user", "content": list(parts)}


TEXT: Final = message({"type": "input_text", "text": "a"})
FILE: Final = message({"type": "input_text", "text": "a"}, {"type": "input_file", "file_id": "f"})
SHOWN: Final[Item] = {
    "type": "computer_call_output",
    "call_id": "c",
    "output": {"type": "computer_screenshot", "file_id": "f"},
}


@pytest.mark.parametrize(
    ("item", "is_found"),
    [
        (TEXT, False),
        (FILE, True),
        (SHOWN, True),
        (message({"type": "input_image", "image_url": "https://example.com/a.png"}), False),
        (message({"type": "input_image", "file_id": "f"}), True),
        (message("no part"), False),
        ({"type": "function_call_output", "call_id": "c", "output": FILE["content"]}, True),
        ({"type": "function_call", "call_id": "c", "output": FILE["content"]}, False),
        ({"type": "message", "role": "user", "content": "input_file"}, False),
        ({"type": "reasoning"}, False),
    ],
)
def test_a_file_is_found_among_many_items(item: Item, is_found: bool) -> None:
    items = [TEXT] * MANY + [item] + [TEXT] * MANY

    assert has_files(item) is is_found
    assert file_places(items) == ((MANY,) if is_found else ())
    assert file_places(Thread(items)) == file_places(items)


def test_a_thread_remembers_the_places_but_for_those_of_its_tail() -> None:
    thread = Thread([TEXT, FILE])

    assert file_places(thread.with_tail([FILE])) == (1, 2)
    assert file_places(thread.with_tail([TEXT, FILE])) == (1, 3)
    assert file_places(thread.grow([TEXT, SHOWN])) == (1, 3)


def test_a_thread_remembers_files_until_many_items_were_added() -> None:
    thread = Thread([TEXT] * MANY)
    assert not remembers_files(thread)
    file_places(thread)
    assert remembers_files(thread)
    assert remembers_files(thread.grow([FILE] * 9))
    assert not remembers_files(thread.grow([FILE] * MANY))
    assert not remembers_files([*thread])

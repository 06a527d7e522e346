"""Parts of chat messages mean the same to the door and to the client."""

from __future__ import annotations

from typing import Any

import pytest

from antiphon.client.messages import items_from_messages
from antiphon.wires.chat.ask_messages import ItemReader
from antiphon.wires.chat.flat import flat_part


@pytest.mark.parametrize(
    ("part", "meant"),
    [
        ({"type": "text", "text": "a"}, {"type": "input_text", "text": "a"}),
        (
            {"type": "image_url", "image_url": {"url": "data:a", "detail": "low"}},
            {"type": "input_image", "image_url": "data:a", "detail": "low"},
        ),
        (
            {"type": "image_url", "image_url": "data:a", "cache_control": {"type": "ephemeral"}},
            {"type": "input_image", "image_url": "data:a", "cache_control": {"type": "ephemeral"}},
        ),
        (
            {"type": "video_url", "video_url": {"url": "data:c", "fps": 2}},
            {"type": "input_video", "video_url": "data:c", "fps": 2},
        ),
        (
            {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:b"}},
            {"type": "input_file", "filename": "a.pdf", "file_data": "data:b"},
        ),
        ({"type": "input_file", "file_id": "f"}, {"type": "input_file", "file_id": "f"}),
    ],
)
def test_the_door_and_the_client_read_a_part_alike(part: Any, meant: Any) -> None:
    message = {"role": "user", "content": [part]}
    reader = ItemReader()
    reader.read([message])

    assert reader.items[0]["content"] == [meant]
    assert items_from_messages([message])[0]["content"] == [meant]


@pytest.mark.parametrize("kind", ["image_url", "video_url", "file"])
def test_a_part_without_what_it_is_about_is_none(kind: str) -> None:
    assert flat_part({"type": kind}) is None

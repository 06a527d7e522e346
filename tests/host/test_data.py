"""Data parts and links: what an application gets for things it has no part for."""

from __future__ import annotations

import json
from typing import Any

import pytest

from antiphon.host.data import ANNOTATION_MIME, ITEM_MIME, show_annotation, show_item
from antiphon.wires.host.parts import DataPart, TextPart

NOTE = {"type": "url_citation", "url": "https://a.example/", "title": "A"}


def test_an_item_is_its_json() -> None:
    part = show_item({"type": "acme:chart", "id": "x"})
    assert part == DataPart(b'{"id":"x","type":"acme:chart"}', ITEM_MIME)


def test_half_an_emoji_in_an_item_does_no_harm() -> None:
    item = {"type": "acme:chart", "title": "\ud83d"}
    assert json.loads(show_item(item).data) == item


@pytest.mark.requirement("RFC22-gap-2")
@pytest.mark.parametrize(
    ("fields", "link"),
    [
        ({}, " [A](https://a.example/)"),
        ({"title": "a [b] \\ c"}, r" [a \[b\] \\ c](https://a.example/)"),
        ({"title": "two\n lines"}, " [two lines](https://a.example/)"),
        ({"title": ""}, " [https://a.example/](https://a.example/)"),
        ({"title": None}, " [https://a.example/](https://a.example/)"),
        ({"title": "x\ud83d"}, " [x\ufffd](https://a.example/)"),
        ({"url": "https://a.example/b_(c) d"}, " [A](https://a.example/b_%28c%29%20d)"),
        ({"url": "HTTP://a.example/\n)"}, " [A](HTTP://a.example/%0A%29)"),
    ],
)
def test_a_citation_is_a_link_that_nothing_breaks_out_of(fields: Any, link: str) -> None:
    assert show_annotation(NOTE | fields, "inline") == [TextPart(link)]


@pytest.mark.requirement("RFC22-gap-2")
@pytest.mark.parametrize(
    "fields",
    [
        {"type": "file_citation", "file_id": "file_1"},
        {"url": "javascript:alert(1)"},
        {"url": "file:///etc/passwd"},
        {"url": ""},
        {"url": None},
    ],
)
def test_a_note_that_is_no_web_link_is_data(fields: Any) -> None:
    [part] = show_annotation(NOTE | fields, "inline")
    assert isinstance(part, DataPart)
    assert part.mime == ANNOTATION_MIME
    assert json.loads(part.data) == NOTE | fields


def test_every_note_may_be_data_or_left_out() -> None:
    assert isinstance(show_annotation(NOTE, "data")[0], DataPart)
    assert show_annotation(NOTE, "none") == []

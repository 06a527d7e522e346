"""What is cut of a result, and what says so."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from antiphon.protocol.items import Item
from antiphon.tools.results import cap_item, cap_result, cut_text


@given(st.text(), st.integers(60, 400))
def test_a_cut_text_fits_and_says_what_is_missing(text: str, most: int) -> None:
    cut = cut_text(text, most)
    size = len(text.encode("utf-8", "replace"))
    if size <= most:
        assert cut == text
    else:
        assert len(cut.encode("utf-8", "replace")) <= most
        assert cut.endswith(f"[cut: {most} of {size} bytes are shown]")


def test_the_parts_of_a_result_share_its_limit() -> None:
    image = {"type": "input_image", "image_url": "data:image/png;base64,AA"}
    text = {"type": "input_text", "text": "x" * 300}
    capped = cap_result([text, image, text], 400)
    assert isinstance(capped, list)
    assert capped[0] == text
    assert capped[1] == image
    assert len(capped[2]["text"]) <= 100
    assert "bytes are shown" in capped[2]["text"]


def test_an_item_of_many_small_texts_is_cut_too() -> None:
    sources = [{"type": "url", "url": f"http://example.com/{n}"} for n in range(5000)]
    item: Item = {"type": "web_search_call", "action": {"type": "search", "sources": sources}}
    capped = cap_item(item, 20_000)
    assert len(msgspec.json.encode(capped)) <= 20_000
    assert capped["action"]["sources"][0] == sources[0]


@given(st.lists(st.text(max_size=300), max_size=30))
def test_a_large_item_is_cut_at_its_texts(texts: list[str]) -> None:
    item: Item = {
        "type": "mcp_call",
        "name": "read",
        "output": "x" * 5000,
        "annotations": {"texts": texts},
    }
    capped = cap_item(item, 40_000)
    assert capped is item
    small = cap_item(item | {"annotations": {}}, 2000)
    assert len(msgspec.json.encode(small)) <= 2000
    assert small["name"] == "read"
    assert "of 5000 bytes are shown" in small["output"]


def test_what_the_model_wrote_is_never_cut() -> None:
    item: Item = {"type": "mcp_call", "arguments": "a" * 3000, "output": "x" * 5000}
    capped = cap_item(item, 2000)
    assert capped["arguments"] == item["arguments"]
    assert "of 5000 bytes are shown" in capped["output"]

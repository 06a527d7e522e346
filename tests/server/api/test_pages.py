"""How lists of items are cut and shown."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.backends.scripted import ScriptedBackend
from antiphon.protocol.errors import InvalidRequest
from antiphon.protocol.items import Item
from antiphon.server.api.pages import PageQuery, as_listed, cut_page
from antiphon.testing.gateway import serve_gateway
from tests.asking import ask, request


def items(count: int) -> list[Item]:
    return [{"type": "new", "id": f"i_{number}"} for number in range(count)]


@given(count=st.integers(0, 30), limit=st.integers(1, 12), is_descending=st.booleans())
def test_pages_laid_end_to_end_are_the_list(count: int, limit: int, is_descending: bool) -> None:
    found: list[Item] = []
    after: str | None = None
    pages = 0
    while True:
        query = PageQuery(after, limit, is_descending)
        page = msgspec.json.decode(asyncio.run(cut_page(items(count), query)))
        found += page["data"]
        after, pages = page["last_id"], pages + 1
        assert len(page["data"]) <= limit
        assert page["first_id"] == (page["data"][0]["id"] if page["data"] else None)
        if not page["has_more"]:
            break

    assert found == (items(count)[::-1] if is_descending else items(count))
    assert pages == max(1, -(-count // limit))


async def test_a_page_behind_an_item_that_is_not_there_is_refused() -> None:
    with pytest.raises(InvalidRequest) as caught:
        await cut_page(items(3), PageQuery("i_9", 20, is_descending=False))
    assert caught.value.param == "after"


@pytest.mark.parametrize(
    ("item", "listed"),
    [
        (
            {"type": "message", "id": "m", "role": "assistant", "content": "hi"},
            {
                "type": "message",
                "id": "m",
                "role": "assistant",
                "status": "completed",
                "content": [{"type": "output_text", "text": "hi", "annotations": []}],
            },
        ),
        (
            {
                "type": "message",
                "id": "m",
                "role": "user",
                "status": "incomplete",
                "content": [{"type": "input_image", "image_url": "x"}, {"type": "odd"}],
            },
            {
                "type": "message",
                "id": "m",
                "role": "user",
                "status": "incomplete",
                "content": [
                    {"type": "input_image", "image_url": "x", "detail": "auto"},
                    {"type": "odd"},
                ],
            },
        ),
        (
            {"type": "function_call", "id": "f", "call_id": "c", "name": "n", "arguments": "{}"},
            {
                "type": "function_call",
                "id": "f",
                "call_id": "c",
                "name": "n",
                "arguments": "{}",
                "status": "completed",
            },
        ),
        ({"type": "hologram", "id": "h"}, {"type": "hologram", "id": "h"}),
    ],
)
def test_an_item_is_shown_with_what_its_caller_may_leave_out(item: Item, listed: Item) -> None:
    before = msgspec.json.encode(item)

    assert as_listed(item) == listed
    assert msgspec.json.encode(item) == before


@pytest.mark.parametrize("limit", ["0", "101", "-1", "1.5", "", "9" * 5000])
async def test_a_limit_is_one_to_a_hundred(limit: str) -> None:
    async with serve_gateway(ScriptedBackend()) as gateway:
        response_id = (await ask(gateway)).json["id"]
        path = f"/responses/{response_id}/input_items?limit={limit}"
        answer = await request(gateway, "GET", path)

    assert (answer.status, answer.error["param"]) == (400, "limit")


async def test_a_page_does_not_disturb_the_list_it_is_cut_from() -> None:
    whole = items(3)
    await cut_page(whole, PageQuery(None, 2, is_descending=True))

    assert all(one["id"] < two["id"] for one, two in pairwise(whole))

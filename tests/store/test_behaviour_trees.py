"""Trees of turns are the same in every store."""

from __future__ import annotations

import pytest

from antiphon.store.base import Store, TreeNode
from tests.store.samples import OWNER, message, opened, run_turn

STRANGER = "mallory"


def names(nodes: list[TreeNode]) -> list[str]:
    return [node.response.id for node in nodes]


async def plant(store: Store) -> None:
    """Store a -> b -> c, b -> d, a -> e, and beside it f."""
    for child, parent in (("a", None), ("b", "a"), ("c", "b"), ("f", None), ("d", "b"), ("e", "a")):
        await run_turn(store, child, parent)
    await run_turn(store, "g", "a", owner=STRANGER)


async def test_a_tree_is_listed_as_its_turns_began(store: Store) -> None:
    await plant(store)
    nodes = await store.trees.page(OWNER, ["a"], limit=10)
    assert names(nodes) == ["a", "b", "c", "d", "e"]
    assert [node.children for node in nodes] == [2, 2, 0, 0, 0]
    assert [node.response.previous_response_id for node in nodes] == [None, "a", "b", "b", "a"]
    assert nodes[0].response.output == []
    assert nodes[0].last_input == message("in-a")


async def test_pages_go_on_after_any_turn(store: Store) -> None:
    await plant(store)
    found: list[str] = []
    after = None
    while page := await store.trees.page(OWNER, ["a"], after=after, limit=2):
        found += names(page)
        after = found[-1]
    assert found == ["a", "b", "c", "d", "e"]
    with pytest.raises(KeyError):
        await store.trees.page(OWNER, ["a"], after="nothing", limit=2)
    with pytest.raises(KeyError):
        await store.trees.page(OWNER, ["a"], after="g", limit=2)


async def test_several_roots_are_one_list(store: Store) -> None:
    await plant(store)
    assert names(await store.trees.page(OWNER, ["f", "b", "c"], limit=10)) == ["b", "c", "f", "d"]
    assert await store.trees.page(OWNER, [], limit=10) == []
    assert await store.trees.page(STRANGER, ["a"], limit=10) == []


async def test_the_root_is_the_oldest_turn_that_is_stored(store: Store) -> None:
    await plant(store)
    assert await store.trees.root(OWNER, "d") == "a"
    assert await store.trees.root(OWNER, "a") == "a"
    assert await store.trees.root(STRANGER, "d") is None
    assert await store.trees.root(STRANGER, "g") == "g"
    await store.delete(OWNER, "a")
    assert await store.trees.root(OWNER, "d") == "b"
    assert names(await store.trees.page(OWNER, ["b"], limit=10)) == ["b", "c", "d"]


async def test_a_very_long_input_is_left_out(store: Store) -> None:
    await store.begin(OWNER, opened("a"), [message("m", "x" * 70_000)])
    await store.finish(OWNER, opened("a", status="completed"))
    (node,) = await store.trees.page(OWNER, ["a"], limit=10)
    assert node.last_input is None


async def test_the_input_before_a_very_long_one_is_not_shown_as_the_last(store: Store) -> None:
    await store.begin(OWNER, opened("a"), [message("m"), message("n", "x" * 70_000)])
    await store.finish(OWNER, opened("a", status="completed"))
    (node,) = await store.trees.page(OWNER, ["a"], limit=10)
    assert node.last_input is None


async def test_a_long_chain_is_one_tree(store: Store) -> None:
    previous = None
    for number in range(120):
        await run_turn(store, f"r{number}", previous)
        previous = f"r{number}"
    assert await store.trees.root(OWNER, "r119") == "r0"
    page = await store.trees.page(OWNER, ["r0"], after="r99", limit=500)
    assert names(page) == [f"r{number}" for number in range(100, 120)]

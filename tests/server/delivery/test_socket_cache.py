"""What a socket remembers: whole conversations, in little room, up to a limit."""

from __future__ import annotations

import asyncio

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from antiphon.engine.budget import Budget
from antiphon.engine.prepare.context_size import ContextLimits, ContextSize
from antiphon.protocol.items import Item
from antiphon.server.delivery.socket_cache import MAX_TURNS, Recall, Shelf, SocketCache
from antiphon.store.base import History, Size

MIB = 1024 * 1024


def message(text: str) -> Item:
    return {"type": "message", "role": "user", "content": text}


def small() -> ContextSize:
    return ContextSize(ContextLimits(), Budget(MIB).hold("anna"), Size(0, 0))


def ask(recall: Recall, name: str) -> History | None:
    return asyncio.run(recall(name, small()))


def end(recall: Recall, name: str, status: str, items: list[Item]) -> None:
    asyncio.run(recall.keep(name, status, items, small()))


def keep(shelf: Shelf, name: str, text: str, previous: str | None = None) -> None:
    """Have a turn that says this, on top of another."""
    recall = Recall(shelf)
    history = ask(recall, previous) if previous else None
    earlier = history.items if history else []
    end(recall, name, "completed", [*earlier, message(text)])


def texts(shelf: Shelf, name: str) -> list[str] | None:
    history = ask(Recall(shelf), name)
    return None if history is None else [item["content"] for item in history.items]


def size(*written: str) -> int:
    return sum(len(msgspec.json.encode([message(text)])) for text in written)


def test_a_turn_is_remembered_with_what_came_before_it() -> None:
    shelf = Shelf(SocketCache(MIB, MIB))
    keep(shelf, "a", "one")
    keep(shelf, "b", "two", "a")
    keep(shelf, "c", "three", "a")

    assert texts(shelf, "b") == ["one", "two"]
    assert texts(shelf, "c") == ["one", "three"]
    assert texts(shelf, "d") is None


def test_what_turns_share_is_kept_once() -> None:
    cache = SocketCache(MIB, MIB)
    shelf = Shelf(cache)
    keep(shelf, "a", "one")
    keep(shelf, "b", "two", "a")
    shelf.forget("a")

    assert cache.used == size("one", "two")
    assert texts(shelf, "b") == ["one", "two"]


def test_how_a_turn_ended_is_remembered() -> None:
    shelf = Shelf(SocketCache(MIB, MIB))
    end(Recall(shelf), "a", "incomplete", [message("one")])
    history = ask(Recall(shelf), "a")

    assert history is not None
    assert history.status == "incomplete"


def test_a_turn_whose_context_was_changed_is_kept_whole() -> None:
    shelf = Shelf(SocketCache(MIB, MIB))
    keep(shelf, "a", "one")
    recall = Recall(shelf)
    ask(recall, "a")
    end(recall, "b", "completed", [message("summary"), message("two")])

    assert texts(shelf, "b") == ["summary", "two"]


def test_whoever_changes_what_was_recalled_does_not_change_what_is_remembered() -> None:
    shelf = Shelf(SocketCache(MIB, MIB))
    keep(shelf, "a", "one")
    recall = Recall(shelf)
    history = ask(recall, "a")
    assert history is not None
    history.items.append(message("two"))
    end(recall, "b", "completed", history.items)

    assert texts(shelf, "a") == ["one"]
    assert texts(shelf, "b") == ["one", "two"]


def test_only_the_last_turns_are_remembered() -> None:
    shelf = Shelf(SocketCache(MIB, MIB))
    for number in range(MAX_TURNS + 1):
        keep(shelf, str(number), "x")

    assert texts(shelf, "0") is None
    assert texts(shelf, "1") == ["x"]


def test_a_shelf_is_limited_in_bytes() -> None:
    cache = SocketCache(MIB, size("one", "two"))
    shelf = Shelf(cache)
    for name, text in (("a", "one"), ("b", "two"), ("c", "six")):
        keep(shelf, name, text)
    keep(shelf, "d", "x" * 1000)

    assert [texts(shelf, name) for name in "abcd"] == [None, ["two"], ["six"], None]


def test_all_shelves_together_are_limited_and_the_least_lately_used_goes_first() -> None:
    cache = SocketCache(size("one", "two"), MIB)
    first, second = Shelf(cache), Shelf(cache)
    keep(first, "a", "one")
    keep(first, "b", "two")
    assert texts(first, "a") == ["one"]
    keep(second, "c", "six")

    assert (texts(first, "a"), texts(first, "b")) == (["one"], None)
    assert texts(second, "c") == ["six"]
    assert cache.used == size("one", "six")


def test_a_shelf_knows_nothing_of_another() -> None:
    cache = SocketCache(MIB, MIB)
    keep(Shelf(cache), "a", "one")

    assert texts(Shelf(cache), "a") is None


@given(
    st.lists(
        st.tuples(
            st.integers(0, 2),
            st.sampled_from(["keep", "forget", "clear"]),
            st.integers(0, 12),
            st.integers(0, 12),
        ),
        max_size=60,
    )
)
def test_every_byte_is_counted_once_and_none_is_left(
    steps: list[tuple[int, str, int, int]],
) -> None:
    cache = SocketCache(600, 400)
    shelves = [Shelf(cache) for _ in range(3)]
    for index, what, name, previous in steps:
        shelf = shelves[index]
        if what == "keep":
            keep(shelf, str(name), "x" * name, str(previous))
        elif what == "forget":
            shelf.forget(str(name))
        else:
            shelf.close()
        kept = {id(chunk): chunk for turn in cache._order for chunk in turn.chunks}
        assert cache.used == sum(map(len, kept.values())) <= 600
    for shelf in shelves:
        shelf.close()

    assert cache.used == 0
    assert not cache._holders

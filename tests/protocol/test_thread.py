"""A thread: it never changes, and what was learned of it is not learned again."""

from __future__ import annotations

from antiphon.protocol.items import Item
from antiphon.protocol.thread import Thread

LONG = 16 * 1024


def items(*names: str) -> list[Item]:
    return [{"type": "message", "id": name} for name in names]


def spell(text: str, _: int, item: Item) -> str:
    return text + str(item["id"])


class Counting:
    """Counts the items that it is shown."""

    def __init__(self) -> None:
        self.seen: list[int] = []

    def __call__(self, count: int, index: int, _: Item) -> int:
        self.seen.append(index)
        return count + 1


def test_a_thread_is_a_sequence_of_its_items() -> None:
    thread = Thread(items("a", "b"))

    assert list(thread) == items("a", "b")
    assert thread[-1] == {"type": "message", "id": "b"}
    assert len(thread) == 2


def test_growing_leaves_the_shorter_one_as_it_was() -> None:
    thread = Thread(items("a"), 10)
    longer = thread.grow(items("b", "c"), 5)

    assert list(thread) == items("a")
    assert list(longer) == items("a", "b", "c")
    assert (thread.weight, longer.weight) == (10, 15)


def test_only_what_weighs_something_is_long() -> None:
    assert not Thread(items("a"), LONG - 1).is_long
    assert Thread(items("a"), LONG - 1).grow(items("b"), 1).is_long


def test_the_types_of_a_thread_are_those_of_all_its_items() -> None:
    thread = Thread(items("a"))
    call: Item = {"type": "function_call"}

    assert Thread().types == frozenset()
    assert thread.types == {"message"}
    assert thread.with_tail([call]).types == {"message", "function_call"}
    assert thread.with_tail([]).types == {"message"}
    assert thread.grow([{"id": "x"}]).types == {"message", "item_reference"}
    assert thread.types == {"message"}


def test_a_fold_goes_on_where_it_stopped() -> None:
    count = Counting()
    thread = Thread(items("a", "b"))

    assert thread.fold("n", 0, count) == 2
    assert thread.grow(items("c")).fold("n", 0, count) == 3
    assert thread.fold("n", 0, count) == 2
    assert count.seen == [0, 1, 2]


def test_a_fold_that_found_nothing_is_not_done_again() -> None:
    count = Counting()
    thread = Thread()

    assert thread.fold("n", 0, count) == 0
    assert thread.grow(items("a")).fold("n", 0, count) == 1
    assert count.seen == [0]


def test_two_that_grow_from_one_do_not_see_each_other() -> None:
    root = Thread(items("a"))
    root.fold("text", "", spell)
    left, right = root.grow(items("b")), root.grow(items("c"))

    assert left.fold("text", "", spell) == "ab"
    assert right.fold("text", "", spell) == "ac"
    assert left.grow(items("d")).fold("text", "", spell) == "abd"
    assert root.fold("text", "", spell) == "a"


def test_what_is_learned_later_is_not_known_to_those_that_grew_before() -> None:
    root = Thread(items("a"))
    grown = root.grow(items("b"))
    root.learn("x", 1)

    assert root.recall("x") == 1
    assert grown.recall("x") is None
    assert root.grow(()).recall("x") == 1


def test_a_thread_may_begin_with_what_is_known_of_another() -> None:
    first = Thread(items("a"))
    first.fold("text", "", spell)
    second = Thread(items("a", "b"), known=first.known)

    assert second.fold("text", "", spell) == "ab"
    assert first.fold("text", "", spell) == "a"


def test_what_is_learned_with_a_tail_is_known_without_it_and_with_another() -> None:
    thread = Thread(items("a", "b"))
    whole = thread.with_tail(items("c"))

    assert list(whole) == items("a", "b", "c")
    assert whole.fold("s", "", spell) == "abc"
    assert thread.fold("s", "", spell) == "ab"
    assert thread.with_tail(items("d")).fold("s", "", spell) == "abd"


def test_only_a_tail_is_looked_at_again() -> None:
    count, thread = Counting(), Thread(items("a", "b"))

    for tail in ("c", "d"):
        assert thread.with_tail(items(tail)).fold("n", 0, count) == 3
    assert thread.grow(items("e")).fold("n", 0, count) == 3
    assert count.seen == [0, 1, 2, 2, 2]

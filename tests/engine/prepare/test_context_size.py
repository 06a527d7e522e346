"""What the event loop works on itself, and what is worked on beside it."""

from __future__ import annotations

import threading

import pytest

from antiphon.engine.budget import Budget
from antiphon.engine.prepare.context_size import ContextLimits, ContextSize
from antiphon.store.base import Size

MIB = 1024 * 1024


def size_of(own: Size, earlier: Size) -> ContextSize:
    size = ContextSize(ContextLimits(), Budget(64 * MIB).hold("anna"), own)
    size.admit_chain(earlier)
    return size


@pytest.mark.parametrize("earlier", [Size(0, 0), Size(2000, 4 * MIB)])
async def test_a_few_new_items_are_worked_on_at_once(earlier: Size) -> None:
    size = size_of(Size(2, 1000), earlier)
    assert await size.run_own(threading.current_thread) is threading.current_thread()


@pytest.mark.parametrize("own", [Size(501, 1000), Size(2, MIB)])
async def test_many_or_long_new_items_are_worked_on_beside_the_loop(own: Size) -> None:
    size = size_of(own, Size(0, 0))
    assert await size.run_own(threading.current_thread) is not threading.current_thread()


async def test_what_is_made_of_the_whole_context_depends_on_all_of_it() -> None:
    here = threading.current_thread()
    assert await size_of(Size(2, 1000), Size(2, 1000)).run(threading.current_thread) is here
    long = size_of(Size(2, 1000), Size(2000, 1000))
    assert await long.run(threading.current_thread) is not here

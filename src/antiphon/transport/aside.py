"""Work that would hold up the event loop, done beside it, one piece after the other.

There is one thread for it. A piece of Python in a thread gives the interpreter back every half
millisecond when somebody waits for it, so the loop goes on; with several such threads the loop
would have to wait for each of them. What is done here must not be one long call of C code,
which gives the interpreter back only at its end: cut it into pieces of a few milliseconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, ParamSpec, TypeVar

__all__ = ["aside", "aside_if"]

_P = ParamSpec("_P")
_T = TypeVar("_T")

# The thread starts with the first work, so a process that forks before that is fine.
_THREAD: Final = ThreadPoolExecutor(1, thread_name_prefix="aside")


async def aside(work: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
    """Return what `work` returns, or raise what it raises; the loop goes on meanwhile.

    A caller that is cancelled leaves at once; work that has begun is then done for nobody.
    """
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(_THREAD, partial(work, *args, **kwargs))


async def aside_if(
    is_large: bool, work: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs
) -> _T:
    """Do work beside the loop if it is large, and otherwise at once: a thread costs more then."""
    if is_large:
        return await aside(work, *args, **kwargs)
    return work(*args, **kwargs)

"""`antiphon top`: what runs now, what it costs today, and which budgets are near their limits.

On a terminal the screen is drawn again every few seconds, in a buffer of its own, so nothing of it
stays behind. q or Ctrl-C leaves. Elsewhere, and with --once, one screen is printed.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Final

import click

from antiphon.cli.store_use import key_labels, store_options, with_store
from antiphon.cli.terminal import harmless
from antiphon.cli.top_screen import Moment, draw
from antiphon.store import Store
from antiphon.store.base.ledger import UsageQuery, UsageRow

__all__ = ["command"]

_DAY: Final = 86_400
_MINUTES: Final = 6
"""Those that are shown: the one that runs, and five whole ones."""
_LOOKED_AT: Final = 1000
_BEGIN: Final = "\x1b[?1049h\x1b[?25l"  # another buffer, and no cursor
_END: Final = "\x1b[?25h\x1b[?1049l"
_HOME: Final = "\x1b[H"
_REST: Final = "\x1b[J"
_END_OF_LINE: Final = "\x1b[K\r\n"
_LEAVE: Final = frozenset(b"qQ\x03\x04")


@click.command("top", epilog="Example:  antiphon top --once")
@click.option("--once", is_flag=True, help="Print one screen and leave.")
@click.option(
    "--interval",
    type=click.FloatRange(0.2, 3600),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="How often the screen is drawn again.",
)
@store_options
def command(once: bool, interval: float, store: str | None, config: str | None) -> None:
    """Watch a gateway: what runs, tokens per minute, spend today, and budgets near their limits.

    q or Ctrl-C leaves. It reads the store and changes nothing.
    """
    is_live = not once and sys.stdout.isatty() and sys.stdin.isatty()
    with_store(store, config, _watch(interval) if is_live else _print_once)


async def _print_once(opened: Store) -> None:
    size = shutil.get_terminal_size((100, 40))
    lines = draw(await _look(opened), size.columns, max(40, size.lines))
    click.echo(harmless("\n".join(line.rstrip() for line in lines), sys.stdout))


def _watch(interval: float) -> Callable[[Store], Coroutine[Any, Any, None]]:
    """Return what draws the screen again and again."""

    async def watch(opened: Store) -> None:
        leaving = asyncio.Event()
        with _screen(leaving):
            while not leaving.is_set():
                size = shutil.get_terminal_size((100, 40))
                height = size.lines - 1
                lines = draw(await _look(opened), size.columns, height)[: height - 1]
                lines.append("q leaves")
                shown = [harmless(line, sys.stdout) for line in lines]
                sys.stdout.write(_HOME + _END_OF_LINE.join(shown) + _REST)
                sys.stdout.flush()
                try:
                    await asyncio.wait_for(leaving.wait(), interval)
                except TimeoutError:
                    continue

    return watch


@contextmanager
def _screen(leaving: asyncio.Event) -> Iterator[None]:
    """Use the whole terminal; set the event when the user wants to leave."""
    import termios
    import tty

    loop, keyboard = asyncio.get_running_loop(), sys.stdin.fileno()
    before = termios.tcgetattr(keyboard)

    def read() -> None:
        pressed = os.read(keyboard, 64)
        if not pressed or _LEAVE.intersection(pressed):
            leaving.set()

    tty.setcbreak(keyboard)
    loop.add_reader(keyboard, read)
    loop.add_signal_handler(signal.SIGINT, leaving.set)
    sys.stdout.write(_BEGIN)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)
        loop.remove_reader(keyboard)
        termios.tcsetattr(keyboard, termios.TCSADRAIN, before)
        sys.stdout.write(_END)
        sys.stdout.flush()


async def _look(opened: Store) -> Moment:
    """Return what the ledger holds now."""
    ledger, now = opened.ledger, time.time()
    end = int(now) // 60 * 60 + 60
    newest = await ledger.charges(limit=_LOOKED_AT)
    # The newest come first, so what stays of a response is its oldest charge.
    running = {charge.response_id: charge for charge in newest if charge.state == "held"}
    minutes = await ledger.usage(
        UsageQuery(start=end - _MINUTES * 60, end=end, width=60, group_by=())
    )
    today = await ledger.usage(
        UsageQuery(
            start=int(now) // _DAY * _DAY,
            end=int(now) + 1,
            width=_DAY,
            group_by=("project", "key", "model", "basis"),
        )
    )
    return Moment(
        now=now,
        running=sorted(running.values(), key=lambda charge: charge.reserved_at),
        is_more=len(newest) == _LOOKED_AT and newest[-1].state == "held",
        minutes=_with_empty(minutes, end),
        today=today,
        budgets=await ledger.budgets(with_ceilings=False),
        keys=await key_labels(opened),
    )


def _with_empty(rows: list[UsageRow], end: int) -> list[UsageRow]:
    """Return a row for each of the last minutes, also for those without a charge."""
    found = {row.start: row for row in rows}
    starts = range(end - _MINUTES * 60, end, 60)
    return [found.get(start) or UsageRow(start=start) for start in starts]

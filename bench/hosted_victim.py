"""A gateway with a hosted tool that has effects, and that kills itself where it is told to.

Servers are forked from a process that has imported everything, so that a kill costs little. A
`Plan` names the moment of the kill: when a batch is about to be logged, or just before or after
the effect of a call. An effect is a line in a file, written and synced before the call returns.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import msgspec

from antiphon.backends.scripted import ScriptedBackend, Step
from antiphon.plans.plan import Plan as ModelPlan
from antiphon.protocol.deltas import CallMade, Stopped, TextGrew
from antiphon.protocol.items import item_type, last_user_text
from antiphon.store.base import Store
from antiphon.store.open import open_store
from antiphon.testing.gateway import serve_gateway
from antiphon.testing.tools import ScriptedTool, ToolStep
from antiphon.tools.base import HostedCall

__all__ = ["Plan", "fork_servers"]

CALLS = ("a", "b")


class Plan(msgspec.Struct, frozen=True):
    """How a server runs, and when it kills itself: `append-3`, `before-a`, `after-b`, or never."""

    store: str
    effects: str
    kill: str = ""
    has_barrier: bool = True
    """Whether the intent of a call is durable before it starts, as it should be."""


def fork_servers(orders: Connection) -> None:
    """Fork a server for every plan that comes; answer with its process and its address."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # what was killed is nobody's child
    while True:
        try:
            plan: Plan = orders.recv()
        except EOFError:
            return
        read, write = os.pipe()
        pid = os.fork()
        if not pid:
            orders.close()
            os.close(read)
            _be_server(plan, write)
        os.close(write)
        with os.fdopen(read) as answer:
            orders.send((pid, answer.readline().strip()))


def _be_server(plan: Plan, ready: int) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        asyncio.run(_serve(plan, ready))
    except BaseException as error:  # noqa: BLE001 - a forked process must not go on from here
        print(f"the server broke: {error!r}", file=sys.stderr, flush=True)
    finally:
        os._exit(1)


async def _serve(plan: Plan, ready: int) -> None:
    logging.disable(logging.WARNING)  # what recovery takes over is not news here
    store = open_store(plan.store)
    _arm(store, plan.kill)
    tool = ScriptedTool(lambda call: _act(call, plan), has_effects=plan.has_barrier)
    async with serve_gateway(ScriptedBackend(_script), store=store, tools=[tool]) as gateway:
        os.write(ready, f"{gateway.base_url}\n".encode())
        os.close(ready)
        await asyncio.Event().wait()


def _script(plan: ModelPlan) -> Iterator[Step]:
    """Make both calls in one round, or one after the other, as the user says; then answer."""
    name, _, how = last_user_text(plan.items).partition(" ")
    done = sum(item_type(item) == "function_call_output" for item in plan.items)
    yield TextGrew(f"Step {done}. ")
    if done < len(CALLS):
        wanted = CALLS[done:] if how == "together" else CALLS[done : done + 1]
        for call in wanted:
            arguments = msgspec.json.encode({"name": name, "call": call}).decode()
            yield CallMade("test__look", arguments, f"c{call}")
    else:
        for word in ("All", " is", " done."):
            yield TextGrew(word)
    yield Stopped("stop")


def _act(call: HostedCall, plan: Plan) -> Iterator[ToolStep]:
    asked: dict[str, Any] = msgspec.json.decode(call.arguments)
    _die_if(plan.kill == f"before-{asked['call']}")
    with Path(plan.effects).open("ab", buffering=0) as effects:
        effects.write(f"{asked['name']} {asked['call']}\n".encode())
        os.fsync(effects.fileno())
    _die_if(plan.kill == f"after-{asked['call']}")
    yield f"did {asked['call']}"


def _arm(store: Store, kill: str) -> None:
    """Let the process die when so many batches of a log are about to be stored."""
    if not kill.startswith("append-"):
        return
    left = int(kill.removeprefix("append-"))
    append = store.append

    def count(*args: Any, **more: Any) -> Any:
        nonlocal left
        left -= 1
        _die_if(left == 0)
        return append(*args, **more)

    store.append = count  # type: ignore[method-assign]


def _die_if(it_is_time: bool) -> None:
    if it_is_time:
        os.kill(os.getpid(), signal.SIGKILL)

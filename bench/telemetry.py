"""What do traces cost on the event loop, in CPU per turn?

Plays the four steps that a turn takes to be recorded, with the objects of real turns, and compares
them with a span of the SDK. The records are taken away between rounds, as the thread does.

    python bench/telemetry.py [--turns 20000]

The goal is 5 microseconds of CPU per turn on the loop.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import Final

from opentelemetry.sdk.trace import TracerProvider
from processes import machine

from antiphon.engine.run.turn_charges import HeldCharge, TurnCharges, Wanted
from antiphon.protocol.token_counts import TokenCounts
from antiphon.server.request_log import Entry
from antiphon.store.base.ledger import Payer, Settlement
from antiphon.store.memory import MemoryStore
from antiphon.telemetry.recorder import Recorder

__all__ = ["main"]

_GOAL_US: Final = 5.0
_ROUNDS: Final = 7
_HEADERS: Final = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}


def _record_turns(recorder: Recorder, turns: int) -> float:
    """Record this many turns; return the CPU seconds of this thread."""
    payer = Payer("local", "key")
    charges = TurnCharges(MemoryStore().ledger, "resp_1", payer, "m", lambda *_, **__: None)
    used = TokenCounts(fresh=100, output=50)
    settlement = Settlement(
        response_id="resp_1", number=0, outcome="completed", basis="reported", used=used, cost=1
    )
    held = [HeldCharge(0, Wanted(), is_limited=False) for _ in range(turns)]
    entry = Entry(method="POST", route="/v1/responses", status=200)
    began = time.thread_time()
    for charge in held:
        recorder.begin(_HEADERS)
        recorder.note_reserved(charges, charge)
        recorder.note_settled(charges, charge, settlement)
        recorder.end(entry)
    spent = time.thread_time() - began
    recorder.records.clear()
    return spent


def _make_spans(turns: int) -> float:
    """Make two spans of the SDK for each turn; return the CPU seconds of this thread."""
    tracer = TracerProvider(shutdown_on_exit=False).get_tracer("bench")
    began = time.thread_time()
    for _ in range(turns):
        with tracer.start_as_current_span("POST /v1/responses") as span:
            span.set_attribute("http.route", "/v1/responses")
            with tracer.start_as_current_span("chat m") as inner:
                inner.set_attribute("gen_ai.request.model", "m")
    return time.thread_time() - began


def main() -> int:
    """Print both; return 1 if the goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--turns", type=int, default=20_000)
    turns = parser.parse_args().turns
    recorder = Recorder(most=4 * turns)
    own = min(_record_turns(recorder, turns) for _ in range(_ROUNDS)) / turns * 1e6
    sdk = min(_make_spans(turns) for _ in range(_ROUNDS)) / turns * 1e6
    print(machine())
    print(f"recorded on the loop: {own:.2f} us of CPU per turn (goal {_GOAL_US:g})")
    print(f"two spans of the SDK: {sdk:.2f} us of CPU per turn, {sdk / own:.0f} times as much")
    return 0 if own <= _GOAL_US else 1


if __name__ == "__main__":
    sys.exit(main())

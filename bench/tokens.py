"""What does a host pay to have its tokens counted?

An editor counts each text or message of a conversation by itself, about 3,500 of them in one
burst, and the same ones again for the next request. The texts here are made of words, from a
line to a file; every call gets a string of its own, as if it had just been read, so hashing
is paid for. Times are CPU of this process alone. The exact columns need antiphon[tokens].

    python bench/tokens.py [REPEATS]
"""

from __future__ import annotations

import random
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from processes import machine

from antiphon.host.tokens import TokenCounter
from antiphon.wires.host.parts import Message

__all__ = ["main"]

REPEATS: Final = 5
_CALLS: Final = 3500
_SIZES: Final = (80, 80, 80, 400, 400, 1500, 6000)
_WORDS: Final = (
    "the",
    "keeper",
    "lit",
    "lamp",
    "def",
    "return",
    "self",
    "import",
    "lighthouse",
    "storm",
    "value",
    "index",
    "error",
    "while",
    "for",
    "if",
    "Küste",
    "Leuchtturm",
    "größer",
    "naïve",
    "灯台",
    "守",
    "{'key':",
    "12345}",
    "!=",
    "()",
    "=>",
    "async",
    "await",
)
_KNOWN, _UNKNOWN = "gpt-4o", "some-model"
_GOAL: Final = "< 50 us"


class _Row(NamedTuple):
    name: str
    model: str
    is_first: bool
    goal: str = ""


_ROWS: Final = (
    _Row("estimate, new", _UNKNOWN, is_first=True),
    _Row("estimate, seen before", _UNKNOWN, is_first=False, goal=_GOAL),
    _Row("exact, seen before", _KNOWN, is_first=False, goal=_GOAL),
    _Row("exact, new", _KNOWN, is_first=True),
)


def main(repeats: int = REPEATS) -> None:
    """Measure and print the table."""
    print(f"Counting tokens ({machine()})")
    texts = _make_texts()
    size = sum(len(text.encode()) for text in texts)
    is_exact = _print_loading()
    print(f"{_CALLS} calls in a burst over {size / 1e6:.1f} MB of text; medians of {repeats},")
    print("lowest and highest in brackets\n")
    rows = [row for row in _ROWS if is_exact or row.model == _UNKNOWN]
    results = _measure(rows, texts, repeats)
    print(f"{'us per call':22} {'text':>24} {'message':>24} {'to the first':>12}  goal")
    plain = statistics.median(results[_ROWS[0].name, "text"])
    for row in rows:
        cells = [_shown(results[row.name, kind]) for kind in ("text", "message")]
        ratio = statistics.median(results[row.name, "text"]) / plain
        print(f"{row.name:22} {cells[0]:>24} {cells[1]:>24} {ratio:11.1f}x  {row.goal}")
    if is_exact:
        counter = TokenCounter()
        guess, exact = (
            sum(counter.count_text(text, model) for text in texts) for model in (_UNKNOWN, _KNOWN)
        )
        print(f"\nthe estimate says {guess / exact:.0%} of the {exact:,} tokens there are")
    else:
        print("\nantiphon[tokens] is not installed: nothing was counted exactly")
    _print_request(texts, is_exact=is_exact)


def _make_texts() -> list[str]:
    dice = random.Random(7)
    return [
        " ".join(dice.choices(_WORDS, k=dice.choice(_SIZES) // 6)) + f" {number}"
        for number in range(_CALLS)
    ]


def _print_loading() -> bool:
    began = time.process_time()
    is_exact = TokenCounter().prepare(_KNOWN)
    if is_exact:
        print(f"loading the tokenizer, once: {(time.process_time() - began) * 1e3:.0f} ms")
    return is_exact


def _measure(
    rows: Sequence[_Row], texts: Sequence[str], repeats: int
) -> dict[tuple[str, str], list[float]]:
    results: dict[tuple[str, str], list[float]] = {}
    for _ in range(repeats):
        for row in rows:
            for kind in ("text", "message"):
                results.setdefault((row.name, kind), []).append(_burst(row, kind, texts))
    return results


def _burst(row: _Row, kind: str, texts: Sequence[str]) -> float:
    counter = TokenCounter()
    if not row.is_first:
        for text in texts:
            counter.count_text(text, row.model)
    fresh = [f"{text}."[:-1] for text in texts]
    if kind == "text":
        return _time([lambda it=it: counter.count_text(it, row.model) for it in fresh])
    messages = [Message.user(text) for text in fresh]
    return _time([lambda it=it: counter.count_message(it, row.model) for it in messages])


def _time(calls: Sequence[Callable[[], int]]) -> float:
    """Return the microseconds of CPU for one call."""
    began = time.process_time()
    for call in calls:
        call()
    return (time.process_time() - began) / len(calls) * 1e6


def _print_request(texts: Sequence[str], *, is_exact: bool) -> None:
    items = [{"type": "message", "role": "user", "content": text} for text in texts[:400]]
    schema = {"type": "object", "properties": {"path": {"type": "string"}}}
    tools = [
        {
            "type": "function",
            "name": f"tool_{n}",
            "description": texts[n][:200],
            "parameters": schema,
        }
        for n in range(64)
    ]
    body = {"input": items, "tools": tools, "instructions": texts[-1]}
    print("\na whole request of 400 items and 64 tools, ms")
    for model in (_UNKNOWN, _KNOWN) if is_exact else (_UNKNOWN,):
        counter = TokenCounter()
        spent = []
        for _ in range(2):
            began = time.process_time()
            counter.count_request(body, model)
            spent.append((time.process_time() - began) * 1e3)
        name = "exact" if model == _KNOWN else "estimate"
        print(f"{name:20} first {spent[0]:.1f}, again {spent[1]:.1f}")


def _shown(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.2f} [{min(values):.2f} … {max(values):.2f}]"


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else REPEATS)

"""The table and the JSON: totals, medians and ratios of what was measured."""

from __future__ import annotations

from typing import Any

import msgspec

from antiphon.cli.bench.report import as_json, table
from antiphon.cli.bench.run import MODES, BenchPlan, MeasuredMode, MeasuredTurn

__all__ = ["measured_turn"]

_PLAN = BenchPlan(
    modes=list(MODES.values()), turns=2, prompt_words=5, max_output_tokens=9, model="m"
)


def measured_turn(number: int, **changes: Any) -> MeasuredTurn:
    known: dict[str, Any] = {
        "turn": number,
        "requests": 1,
        "bytes_sent": 1000 * number,
        "items_sent": number,
        "tokens_sent": 100 * number,
        "input_tokens": 120,
        "cached_tokens": 64,
        "output_tokens": 10,
        "is_counted": True,
        "first_event_seconds": 0.5,
        "first_text_seconds": 0.6,
        "seconds": 1.5,
    }
    return MeasuredTurn(**known | changes)


def _row(text: str, mode: str) -> list[str]:
    """Return the cells of a mode, what it sent and what it took."""
    rows = (line.split() for line in text.splitlines())
    sent, took = (row for row in rows if row[:1] == [mode] and row[1] != "failed")
    return [*sent, *took[1:]]


def test_sizes_are_summed_and_times_are_medians() -> None:
    turns = [
        measured_turn(1, seconds=1.0),
        measured_turn(2, seconds=2.0),
        measured_turn(3, seconds=60.0),
    ]
    assert _row(table([MeasuredMode("chat", turns)]), "chat") == [
        *("chat", "3", "6,000", "1.00x", "6", "~600", "1.00x"),
        *("360", "192", "30", "500.0", "ms", "2.00", "s", "1.00x"),
    ]


def test_a_ratio_compares_the_turns_that_both_have() -> None:
    base = MeasuredMode("chat", [measured_turn(1), measured_turn(2)])
    short = MeasuredMode("stateful", [measured_turn(1, tokens_sent=50)], failure="turn 2: gone")
    shown = table([base, short])
    assert _row(shown, "stateful")[5:7] == ["~50", "0.50x"]
    assert shown.splitlines()[-1] == "stateful failed in turn 2: gone"


def test_ratios_are_of_the_figures_beside_them() -> None:
    base = [measured_turn(n, seconds=s) for n, s in ((1, 1.0), (2, 2.0), (3, 90.0))]
    slow = [measured_turn(n, seconds=s, bytes_sent=1000) for n, s in ((1, 4.0), (2, 5.0), (3, 6.0))]
    row = _row(table([MeasuredMode("chat", base), MeasuredMode("stateful", slow)]), "stateful")
    assert (row[2:4], row[-3:]) == (["3,000", "0.50x"], ["5.00", "s", "2.50x"])


def test_ratios_are_to_the_first_mode_that_has_turns() -> None:
    works = MeasuredMode("stateless", [measured_turn(1)])
    half = MeasuredMode("stateful", [measured_turn(1, bytes_sent=500)])
    shown = table([MeasuredMode("chat", failure="turn 1: no"), works, half])
    assert _row(shown, "stateless")[3] == "1.00x"
    assert _row(shown, "stateful")[3] == "0.50x"


def test_the_table_fits_a_terminal() -> None:
    figures = {"bytes_sent": 10**9, "tokens_sent": 10**8, "input_tokens": 10**8}
    turns = [measured_turn(n, **figures, cached_tokens=10**8, seconds=999.0) for n in range(1, 9)]
    shown = table([MeasuredMode(name, turns) for name in MODES])
    assert max(map(len, shown.splitlines())) <= 80


def test_a_mode_without_a_turn_has_no_figures() -> None:
    shown = table([MeasuredMode("chat", failure="turn 1: no"), MeasuredMode("stateful")])
    assert _row(shown, "chat") == ["chat", "0", *["-"] * 11]
    assert _row(shown, "stateful") == ["stateful", "0", *["-"] * 11]


def test_what_no_server_counted_is_marked_as_an_estimate() -> None:
    counted, guessed = measured_turn(1), measured_turn(2, is_counted=False)
    assert _row(table([MeasuredMode("chat", [counted, guessed])]), "chat")[7:10] == [
        "~240",
        "~128",
        "~20",
    ]


def test_json_says_what_was_asked_and_all_that_was_measured() -> None:
    turns = [measured_turn(1), measured_turn(2, first_text_seconds=None)]
    data = as_json(_PLAN, {"chat": "http://a/v1"}, [MeasuredMode("chat", turns)], is_scripted=False)
    report = msgspec.json.decode(data)
    assert (report["turns"], report["prompt_words"], report["max_output_tokens"]) == (2, 5, 9)
    (mode,) = report["modes"]
    assert (mode["base_url"], mode["failure"]) == ("http://a/v1", None)
    assert msgspec.convert(mode["turns"], list[MeasuredTurn]) == turns
    assert mode["totals"]["requests"] == 2
    assert mode["totals"]["first_text_seconds"] == 0.6

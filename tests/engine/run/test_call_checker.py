"""Calls are checked before they are forwarded: in order, and only those that are right."""

from __future__ import annotations

from typing import Any

import pytest

from antiphon.engine.prepare.checks import Check
from antiphon.engine.run.call_checker import HELD_AT_MOST, CallChecker
from antiphon.plans.toolbox import Toolbox, gather_tools
from antiphon.protocol.deltas import (
    CallClosed,
    CallGrew,
    CallMade,
    CallOpened,
    Delta,
    Stopped,
    TextGrew,
)
from tests.building import STOP

BOX: Toolbox = gather_tools(
    [
        {"type": "function", "name": "loose"},
        {"type": "function", "name": "strict", "strict": True, "parameters": {}},
        {"type": "custom", "name": "custom"},
        {"type": "shell"},
        {
            "type": "namespace",
            "name": "n",
            "tools": [{"type": "function", "name": "g", "strict": True, "parameters": {}}],
        },
    ]
)[0]


def _problem(text: str) -> str | None:
    return f"{text} is not good" if "bad" in text else None


CHECKS: dict[str, Check] = dict.fromkeys([offer.alias for offer in BOX.offers], _problem)


def checked(*deltas: Delta, checker: CallChecker | None = None) -> list[Delta]:
    """What is forwarded of these deltas, one by one."""
    checker = checker or CallChecker(BOX, CHECKS)
    return [told for delta in deltas for told in checker.feed([delta])]


def opened(key: int, alias: str) -> CallOpened:
    offer = BOX.called(alias)
    assert offer is not None
    return CallOpened(key, offer.name, f"call_{key}", offer.kind, offer.namespace, alias)


def call(key: int, alias: str, *pieces: str) -> list[Delta]:
    return [opened(key, alias), *(CallGrew(key, piece) for piece in pieces)]


def made(alias: str, said: str, key: int = 0) -> CallMade:
    first = opened(key, alias)
    return CallMade(first.name, said, first.call_id, first.kind, first.namespace, alias)


def test_a_function_that_is_checked_is_forwarded_whole() -> None:
    checker = CallChecker(BOX, CHECKS)
    assert checked(*call(0, "n__g", '{"a"', ":1}"), checker=checker) == []
    assert checker.held is not None
    assert checked(STOP, checker=checker) == [made("n__g", '{"a":1}'), STOP]


def test_arguments_are_checked_without_the_string_around_them() -> None:
    checker = CallChecker(BOX, CHECKS)
    checked(*call(0, "strict", '"{\\"a\\":1}"'), checker=checker)
    assert checker.release() == [made("strict", '{"a":1}')]


def test_a_call_without_a_check_passes_as_it_comes() -> None:
    deltas = [*call(0, "strict", "{", "}"), CallClosed(0), made("custom", "x"), STOP]
    assert checked(*deltas, checker=CallChecker(BOX, {})) == deltas


def test_a_whole_call_that_is_wrong_is_never_forwarded() -> None:
    checker = CallChecker(BOX, CHECKS)
    deltas: list[Delta] = [made("custom", "bad", 0), made("custom", "good", 1), TextGrew("x"), STOP]
    assert checked(*deltas, checker=checker) == deltas[1:]
    (rejected,) = checker.rejected
    assert (rejected.call_id, rejected.said) == ("call_0", "bad")
    assert rejected.problem == "bad is not good"
    assert rejected.offer.name == "custom"


def test_what_comes_after_a_held_call_waits_for_it() -> None:
    checker = CallChecker(BOX, CHECKS)
    waiting: list[Delta] = [made("custom", "x", 1), TextGrew("after")]
    assert checked(*call(0, "strict", "{"), *waiting, checker=checker) == []
    told = checked(CallGrew(0, "}"), CallClosed(0), checker=checker)
    assert told == [made("strict", "{}"), *waiting]


def test_a_long_call_of_a_loose_function_is_let_go() -> None:
    long = "{" + " " * HELD_AT_MOST
    told = checked(*call(0, "loose", long), CallGrew(0, "bad"))
    assert told == [opened(0, "loose"), CallGrew(0, long), CallGrew(0, "bad")]


@pytest.mark.parametrize(
    ("alias", "hands_over", "text"),
    [("strict", False, "{"), ("loose", True, "{"), ("loose", False, "[")],
)
def test_a_long_call_is_held_if_it_was_promised_or_looks_wrong(
    alias: str, hands_over: bool, text: str
) -> None:
    checker = CallChecker(BOX, CHECKS, hands_over=hands_over)
    assert checked(*call(0, alias, text + " " * HELD_AT_MOST), checker=checker) == []


@pytest.mark.parametrize(("alias", "is_forwarded"), [("loose", True), ("strict", False)])
def test_the_second_answer_is_handed_over_if_nothing_was_promised(
    alias: str, is_forwarded: bool
) -> None:
    checker = CallChecker(BOX, CHECKS, hands_over=True)
    told = checked(*call(0, alias, "bad"), STOP, checker=checker)
    assert told == ([made(alias, "bad"), STOP] if is_forwarded else [STOP])
    assert bool(checker.handed_over) is is_forwarded
    assert bool(checker.rejected) is not is_forwarded


@pytest.mark.parametrize(
    ("alias", "expected"),
    [
        ("loose", opened(0, "loose")),
        ("n__g", CallOpened(0, "n__g", "call_0", alias="n__g")),
        ("custom", CallOpened(0, "custom", "call_0", alias="custom")),
    ],
)
@pytest.mark.parametrize("breaks", [False, True])
def test_a_call_that_is_cut_short_is_forwarded_as_far_as_it_came(
    alias: str, expected: CallOpened, breaks: bool
) -> None:
    checker = CallChecker(BOX, CHECKS)
    told = checked(*call(0, alias, '{"bad'), checker=checker)
    told += checker.release() if breaks else checker.feed([Stopped("length")])
    assert told[:2] == [expected, CallGrew(0, '{"bad')]
    assert checker.rejected == []


def test_a_call_that_its_kind_cannot_hold_is_judged_too() -> None:
    checker = CallChecker(BOX, CHECKS)
    told: list[Any] = checked(
        CallOpened(0, "shell", "call_0", alias="shell"),
        CallGrew(0, '{"bad":1}'),
        STOP,
        checker=checker,
    )
    assert told == [STOP]
    assert [wrong.said for wrong in checker.rejected] == ['{"bad":1}']

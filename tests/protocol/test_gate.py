"""Which calls of a model pass, and which are suppressed."""

from __future__ import annotations

from antiphon.protocol.deltas import CallClosed, CallGrew, CallOpened, Degraded, TextGrew
from antiphon.protocol.gate import ToolGate
from antiphon.protocol.tools import ToolPolicy


def _gate(policy: ToolPolicy, *, parallel: bool = True) -> ToolGate:
    return ToolGate(policy, parallel=parallel, names=frozenset({"a", "b"}))


def test_a_call_that_is_not_allowed_never_reaches_the_builder() -> None:
    gate = _gate(ToolPolicy("auto", frozenset({"a"})))

    note = gate.admit(CallOpened(0, "b"))
    assert isinstance(note, Degraded)
    assert gate.admit(CallGrew(0, "{}")) is None
    assert gate.admit(CallClosed(0)) is None


def test_text_and_allowed_calls_pass_untouched() -> None:
    gate = _gate(ToolPolicy("auto", frozenset({"a"})))

    for delta in (TextGrew("x"), CallOpened(0, "a"), CallGrew(0, "{}")):
        assert gate.admit(delta) is delta


def test_a_tool_that_does_not_exist_cannot_be_called() -> None:
    assert isinstance(_gate(ToolPolicy()).admit(CallOpened(0, "made_up")), Degraded)


def test_none_means_none() -> None:
    assert isinstance(_gate(ToolPolicy("none")).admit(CallOpened(0, "a")), Degraded)


def test_without_parallel_calls_the_second_one_is_suppressed() -> None:
    gate = _gate(ToolPolicy(), parallel=False)

    assert gate.admit(CallOpened(0, "a")) == CallOpened(0, "a")
    assert isinstance(gate.admit(CallOpened(1, "b")), Degraded)


def test_required_without_a_call_is_an_error() -> None:
    gate = _gate(ToolPolicy("required"))
    gate.admit(TextGrew("I would rather talk"))

    violation = gate.violation()
    assert violation is not None
    assert violation.code == "tool_choice_violated"

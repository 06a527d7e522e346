"""Which calls of a model pass, and which are suppressed."""

from __future__ import annotations

from antiphon.plans.tool_gate import ToolGate, gate_for
from antiphon.protocol.deltas import (
    CallClosed,
    CallGrew,
    CallMade,
    CallOpened,
    Degraded,
    Stopped,
    TextGrew,
)
from antiphon.protocol.tools import ToolPolicy
from tests.building import plan_with


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


def test_a_whole_call_that_is_not_allowed_is_suppressed_and_reported() -> None:
    gate = _gate(ToolPolicy("required", frozenset({"a"})))

    assert gate.admit(CallMade("b", "x", kind="custom")) == Degraded(
        "tool_choice: a call to 'b' was suppressed"
    )
    assert gate.violation() is not None
    allowed = CallMade("a", "x", kind="custom")
    assert gate.admit(allowed) is allowed
    assert gate.violation() is None


def test_a_call_is_known_by_the_name_that_the_model_has_for_it() -> None:
    gate = _gate(ToolPolicy("auto", frozenset({"a"})))

    for delta in (
        CallOpened(0, "go", namespace="n", alias="a"),
        CallMade("go", "", kind="custom", namespace="n", alias="a"),
    ):
        assert gate.admit(delta) is delta
    assert isinstance(gate.admit(CallMade("a", "", alias="b")), Degraded)
    assert isinstance(gate.admit(CallMade("a", "", alias="c")), Degraded)


def test_whole_calls_count_as_calls() -> None:
    gate = _gate(ToolPolicy(), parallel=False)

    assert isinstance(gate.admit(CallMade("a", "")), CallMade)
    assert isinstance(gate.admit(CallMade("b", "")), Degraded)
    assert isinstance(gate.admit(CallOpened(0, "b")), Degraded)


def test_a_key_that_was_shut_can_be_opened_again() -> None:
    gate = _gate(ToolPolicy("auto", frozenset({"a"})))

    gate.admit(CallOpened(0, "b"))
    gate.admit(CallOpened(0, "a"))
    assert gate.admit(CallGrew(0, "{}")) == CallGrew(0, "{}")


def test_the_gate_of_a_plan_knows_its_tools_and_its_limits() -> None:
    tools = [{"type": "function", "name": "a"}]
    gate = gate_for(plan_with(tools, parallel_tool_calls=False))

    assert gate.admit(CallMade("a", "")) == CallMade("a", "")
    assert isinstance(gate.admit(CallMade("a", "")), Degraded)
    assert isinstance(gate.admit(CallMade("b", "")), Degraded)


def test_an_answer_that_was_cut_short_might_have_made_the_call() -> None:
    gate = _gate(ToolPolicy("required"))
    assert gate.admit(Stopped("length")) == Stopped("length")
    assert gate.violation() is None
